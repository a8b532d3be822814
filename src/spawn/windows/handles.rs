//! The file descriptors of a command. Windows passes handles. The C runtime reads from a block in
//! the startup information which handle is which descriptor.

/// The type of a handle, as `GetFileType` returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Disk,
    Pipe,
    /// A console, `NUL`, and everything else.
    Device,
}

/// One descriptor of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    Closed,
    /// An inheritable handle.
    Open(Kind, usize),
}

/// Maximum number of descriptors: the same as in Node.
const MAX_DESCRIPTORS: usize = 255;
const FOPEN: u8 = 0x01;
const FPIPE: u8 = 0x08;
const FDEV: u8 = 0x40;

impl Slot {
    fn flags(self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::Open(Kind::Disk, _) => FOPEN,
            Self::Open(Kind::Pipe, _) => FOPEN | FPIPE,
            Self::Open(Kind::Device, _) => FOPEN | FDEV,
        }
    }

    /// The value of the handle. `INVALID_HANDLE_VALUE` if the slot is closed.
    pub fn handle(self) -> usize {
        match self {
            Self::Closed => usize::MAX,
            Self::Open(_, handle) => handle,
        }
    }
}

/// The block for `lpReserved2`: the count, the flags of each, the handle of each, without gaps.
/// `None` if there are too many, which Node refuses with ENOTSUP. The caller must open the first
/// three.
pub fn block(slots: &[Slot]) -> Option<Vec<u8>> {
    let count = u32::try_from(slots.len()).ok().filter(|_| slots.len() <= MAX_DESCRIPTORS)?;
    let mut block = count.to_ne_bytes().to_vec();
    block.extend(slots.iter().map(|slot| slot.flags()));
    block.extend(slots.iter().flat_map(|slot| slot.handle().to_ne_bytes()));
    Some(block)
}

/// Reads the handle of one descriptor from a block. `None` if it is closed, or if the block is
/// invalid.
pub fn handle_of(block: &[u8], fd: usize) -> Option<usize> {
    let (count, rest) = block.split_first_chunk()?;
    let count = usize::try_from(u32::from_ne_bytes(*count)).ok()?;
    let (flags, handles) = rest.split_at_checked(count)?;
    let is_open = flags.get(fd)? & FOPEN != 0;
    let (handles, _) = handles.as_chunks();
    let handle = usize::from_ne_bytes(*handles.get(fd)?);
    (is_open && handle != 0 && handle != Slot::Closed.handle()).then_some(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_has_the_layout_of_the_c_runtime() {
        let slots = [
            Slot::Open(Kind::Device, 0x10),
            Slot::Open(Kind::Pipe, 0x214),
            Slot::Open(Kind::Disk, 0x18),
            Slot::Closed,
        ];
        let mut expected = 4_u32.to_ne_bytes().to_vec();
        expected.extend([0x41, 0x09, 0x01, 0x00]);
        for handle in [0x10, 0x214, 0x18, usize::MAX] {
            expected.extend(handle.to_ne_bytes());
        }
        assert_eq!(block(&slots), Some(expected));
    }

    #[test]
    fn the_size_of_the_largest_block_fits_into_16_bits() {
        let largest = block(&[Slot::Closed; MAX_DESCRIPTORS]).unwrap();
        assert_eq!(largest.len(), 4 + MAX_DESCRIPTORS * (1 + size_of::<usize>()));
        assert!(u16::try_from(largest.len()).is_ok());
        assert_eq!(block(&[Slot::Closed; MAX_DESCRIPTORS + 1]), None);
    }

    #[test]
    fn handle_of_reads_the_handles_of_a_block() {
        let slots = [
            Slot::Open(Kind::Device, 0x10),
            Slot::Closed,
            Slot::Open(Kind::Disk, 0x18),
            Slot::Open(Kind::Pipe, 0x214),
        ];
        let whole = block(&slots).unwrap();
        let handles = [Some(0x10), None, Some(0x18), Some(0x214), None];
        for (fd, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle_of(&whole, fd), handle, "descriptor {fd}");
        }
        // Some programs append bytes to the block. A truncated block is invalid.
        assert_eq!(handle_of(&[whole.as_slice(), b"more than that"].concat(), 3), Some(0x214));
        for length in 0..whole.len() {
            assert_eq!(handle_of(&whole[..length], 3), None, "cut to {length} bytes");
        }
    }

    #[test]
    fn handle_of_returns_none_for_a_descriptor_that_is_not_open() {
        for handle in [0, usize::MAX] {
            let block = block(&[Slot::Open(Kind::Pipe, handle)]).unwrap();
            assert_eq!(handle_of(&block, 0), None, "{handle:#x}");
        }
        let mut unflagged = block(&[Slot::Open(Kind::Pipe, 0x214)]).unwrap();
        unflagged[4] = FPIPE;
        assert_eq!(handle_of(&unflagged, 0), None);
        assert_eq!(handle_of(&u32::MAX.to_ne_bytes(), 0), None);
        assert_eq!(handle_of(&[], 0), None);
    }
}
