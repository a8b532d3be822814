//! The descriptors that a command finds open. Windows hands on handles; which of them is which descriptor the C runtime reads from a
//! block in the startup information.

/// What the C runtime has to know of a handle, as `GetFileType` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Disk,
    Pipe,
    /// A console, `NUL`, and whatever is none of the others.
    Device,
}

/// One descriptor of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    Closed,
    /// A handle that can be inherited.
    Open(Kind, usize),
}

/// The C runtime keeps one byte of flags for each descriptor, and can be given no more of them than Node gives.
const MOST: usize = 255;
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

    /// `INVALID_HANDLE_VALUE` if there is none.
    pub fn handle(self) -> usize {
        match self {
            Self::Closed => usize::MAX,
            Self::Open(_, handle) => handle,
        }
    }
}

/// What `lpReserved2` points to: how many, the flags of each, the handle of each, without gaps. `None` if there are too many, which
/// Node refuses with ENOTSUP. That the first three are open is up to the caller.
pub fn block(slots: &[Slot]) -> Option<Vec<u8>> {
    let count = u32::try_from(slots.len()).ok().filter(|_| slots.len() <= MOST)?;
    let mut block = count.to_ne_bytes().to_vec();
    block.extend(slots.iter().map(|slot| slot.flags()));
    block.extend(slots.iter().flat_map(|slot| slot.handle().to_ne_bytes()));
    Some(block)
}

/// Reads it back: the handle of one descriptor. `None` if that is closed, or if this is no such block.
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
    fn is_laid_out_as_the_c_runtime_reads_it() {
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
    fn has_its_size_in_a_word() {
        let most = block(&[Slot::Closed; MOST]).unwrap();
        assert_eq!(most.len(), 4 + MOST * (1 + size_of::<usize>()));
        assert!(u16::try_from(most.len()).is_ok());
        assert_eq!(block(&[Slot::Closed; MOST + 1]), None);
    }

    #[test]
    fn is_read_back() {
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
        // Some programs append to it; what is cut off is not there.
        assert_eq!(handle_of(&[whole.as_slice(), b"more than that"].concat(), 3), Some(0x214));
        for length in 0..whole.len() {
            assert_eq!(handle_of(&whole[..length], 3), None, "cut to {length} bytes");
        }
    }

    #[test]
    fn says_nothing_of_what_is_not_open() {
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
