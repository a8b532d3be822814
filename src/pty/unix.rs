//! The system's half; what Linux and macOS do differently is in files of their names.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod system;
#[cfg(target_os = "macos")]
#[path = "macos.rs"]
mod system;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc;
use nix::pty::{PtyMaster, grantpt, unlockpt};
use nix::sys::termios::{InputFlags, LocalFlags, SetArg, SpecialCharacterIndices, tcgetattr, tcsetattr};
use nix::unistd::tcgetpgrp;

use super::Size;

/// What Ctrl-D types where nobody has chosen something else.
const END_OF_TRANSMISSION: u8 = 4;

/// One terminal, both ends.
///
/// We keep the slave, too, for as long as we read. Were the command the only one to hold it, the terminal would be hung up
/// whenever nobody has it open: then a command that closes its standard streams and opens `/dev/tty` later would not be
/// heard any more, and some systems throw away what was written and not read yet.
/// That the run is over is told to us, so no hang-up is needed for that.
#[derive(Debug)]
pub struct Pair {
    master: PtyMaster,
    slave: OwnedFd,
}

impl Pair {
    pub fn open(size: Size) -> Result<Self, Errno> {
        let master = system::open_master()?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let slave = system::open_slave(&master)?;
        let mut modes = tcgetattr(&slave)?;
        modes.input_flags |= InputFlags::IUTF8;
        tcsetattr(&slave, SetArg::TCSANOW, &modes)?;
        let pair = Self { master, slave };
        pair.resize(size)?;
        Ok(pair)
    }

    /// The command's end.
    pub fn slave(&self) -> BorrowedFd<'_> {
        self.slave.as_fd()
    }

    /// Changes its size, of which the kernel tells whoever is in its foreground (SIGWINCH), unless it is the size it has.
    pub fn resize(&self, Size { cols, rows }: Size) -> Result<(), Errno> {
        let size = libc::winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: TIOCSWINSZ reads one winsize.
        let result = unsafe { libc::ioctl(self.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        Errno::result(result).map(drop)
    }

    /// How many bytes can be read without waiting.
    pub fn waiting(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: FIONREAD writes one integer.
        let result = unsafe { libc::ioctl(self.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
        if result == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
    }

    /// The name, for people, of who leads the group in the foreground: what its `argv[0]` says.
    pub fn foreground(&self) -> Option<String> {
        let name = system::name_of(tcgetpgrp(&self.master).ok()?)?;
        (!name.is_empty()).then(|| String::from_utf8_lossy(&name).into_owned())
    }

    /// What a person types to say that there is no more to come, `last` being the last byte typed before.
    pub fn end_of_input(&self, last: Option<u8>) -> Vec<u8> {
        let (byte, by_lines) = tcgetattr(&self.master).map_or((0, false), |modes| {
            let byte = modes.control_chars[SpecialCharacterIndices::VEOF as usize];
            (byte, modes.local_flags.contains(LocalFlags::ICANON))
        });
        end_of_input(byte, by_lines, last)
    }
}

impl AsFd for Pair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }
}

/// The master.
impl AsRawFd for Pair {
    fn as_raw_fd(&self) -> RawFd {
        self.master.as_raw_fd()
    }
}

/// Makes the terminal at `slave` the one that controls the calling process, which leads a session that has none.
pub fn control(slave: BorrowedFd) -> Result<(), Errno> {
    #[allow(clippy::useless_conversion)] // Its type differs between systems.
    let request = libc::TIOCSCTTY.into();
    // SAFETY: TIOCSCTTY takes an integer.
    Errno::result(unsafe { libc::ioctl(slave.as_raw_fd(), request, 0) }).map(drop)
}

/// Where the terminal takes whole lines, one such byte ends the line begun, if there is one, and only the next ends the input.
fn end_of_input(byte: u8, by_lines: bool, last: Option<u8>) -> Vec<u8> {
    let byte = if byte == 0 { END_OF_TRANSMISSION } else { byte };
    let amid_a_line = by_lines && !matches!(last, None | Some(b'\n' | b'\r'));
    vec![byte; 1 + usize::from(amid_a_line)]
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};

    use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};

    use super::*;

    const SIZE: Size = Size { cols: 80, rows: 24 };

    fn slave_of(pair: &Pair) -> fs::File {
        pair.slave.try_clone().unwrap().into()
    }

    #[test]
    fn nobody_else_inherits_it_and_it_is_not_our_own() {
        let pair = Pair::open(SIZE).unwrap();
        for fd in [pair.as_fd(), pair.slave()] {
            let flags = FdFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFD).unwrap());
            assert!(flags.contains(FdFlag::FD_CLOEXEC));
        }
        let flags = OFlag::from_bits_retain(fcntl(pair.as_fd(), FcntlArg::F_GETFL).unwrap());
        assert!(flags.contains(OFlag::O_NONBLOCK));
        assert_eq!(tcgetpgrp(&pair.slave), Err(Errno::ENOTTY), "it does not control us");
    }

    #[test]
    fn has_the_size_it_is_given_and_takes_utf_8() {
        let pair = Pair::open(Size { cols: 65_535, rows: 1 }).unwrap();
        let size = || {
            let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 9, ws_ypixel: 9 };
            // SAFETY: TIOCGWINSZ writes one winsize.
            unsafe { libc::ioctl(pair.slave.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
            (size.ws_col, size.ws_row)
        };
        assert_eq!(size(), (65_535, 1));
        pair.resize(SIZE).unwrap();
        assert_eq!(size(), (80, 24));
        assert!(tcgetattr(&pair.slave).unwrap().input_flags.contains(InputFlags::IUTF8));
    }

    #[test]
    fn the_end_is_typed_once_or_twice() {
        let typed = |by_lines, last| end_of_input(4, by_lines, last).len();
        assert_eq!(typed(true, None), 1);
        assert_eq!(typed(true, Some(b'\n')), 1);
        assert_eq!(typed(true, Some(b'\r')), 1, "the terminal takes it for a newline");
        assert_eq!(typed(true, Some(b'x')), 2);
        assert_eq!(typed(false, Some(b'x')), 1);
        assert_eq!(end_of_input(7, true, None), [7], "whatever the command has chosen");
        assert_eq!(end_of_input(0, true, None), [4], "it has switched it off");
    }

    #[test]
    fn who_reads_lines_hears_the_end() {
        let pair = Pair::open(SIZE).unwrap();
        let mut master = fs::File::from(pair.as_fd().try_clone_to_owned().unwrap());
        master.write_all(b"begun").unwrap();
        master.write_all(&pair.end_of_input(Some(b'n'))).unwrap();
        let mut read = String::new();
        slave_of(&pair).read_to_string(&mut read).unwrap();
        assert_eq!(read, "begun");
    }
}
