//! Terminals on Unix. `linux.rs` and `macos.rs` contain the differences.

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

/// The default end-of-input byte (Ctrl-D).
const END_OF_TRANSMISSION: u8 = 4;

/// Both ends of one terminal.
///
/// The bot also keeps the slave open while it reads. Otherwise the terminal would hang up whenever
/// no process of the run has it open. Then the bot could not read from a command that closes its
/// standard streams and opens `/dev/tty` later. Some systems would also discard unread output.
///
/// The bot does not need a hang-up to detect the end of the run: the keeper reports the end.
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

    /// Changes the size. If the size differs, the kernel sends SIGWINCH to the foreground process
    /// group.
    pub fn resize(&self, Size { cols, rows }: Size) -> Result<(), Errno> {
        let size = libc::winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: TIOCSWINSZ reads one winsize.
        let result = unsafe { libc::ioctl(self.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        Errno::result(result).map(drop)
    }

    /// How many bytes can be read without waiting.
    pub fn available(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: FIONREAD writes one integer.
        let result = unsafe { libc::ioctl(self.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
        if result == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
    }

    /// The `argv[0]` of the leader of the foreground process group, for display.
    pub fn foreground(&self) -> Option<String> {
        let name = system::name_of(tcgetpgrp(&self.master).ok()?)?;
        (!name.is_empty()).then(|| String::from_utf8_lossy(&name).into_owned())
    }

    /// The bytes that a person types to end the input. `last` is the last byte typed before.
    pub fn end_of_input(&self, last: Option<u8>) -> Vec<u8> {
        let (byte, is_canonical) = tcgetattr(&self.master).map_or((0, false), |modes| {
            let byte = modes.control_chars[SpecialCharacterIndices::VEOF as usize];
            (byte, modes.local_flags.contains(LocalFlags::ICANON))
        });
        end_of_input(byte, is_canonical, last)
    }
}

impl AsFd for Pair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }
}

/// Returns the master.
impl AsRawFd for Pair {
    fn as_raw_fd(&self) -> RawFd {
        self.master.as_raw_fd()
    }
}

/// Makes `slave` the controlling terminal of the calling process. The process must lead a session
/// without a controlling terminal.
pub fn make_controlling_terminal(slave: BorrowedFd) -> Result<(), Errno> {
    #[allow(clippy::useless_conversion)] // The type differs between systems.
    let request = libc::TIOCSCTTY.into();
    // SAFETY: TIOCSCTTY takes an integer.
    Errno::result(unsafe { libc::ioctl(slave.as_raw_fd(), request, 0) }).map(drop)
}

/// The bytes that end the input. `byte` is the terminal's end-of-input byte, 0 if disabled.
///
/// In canonical mode the terminal delivers whole lines. After an incomplete line, the first such
/// byte only delivers that line, and the second one ends the input.
fn end_of_input(byte: u8, is_canonical: bool, last: Option<u8>) -> Vec<u8> {
    let byte = if byte == 0 { END_OF_TRANSMISSION } else { byte };
    let is_line_incomplete = is_canonical && !matches!(last, None | Some(b'\n' | b'\r'));
    vec![byte; 1 + usize::from(is_line_incomplete)]
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
    fn a_new_terminal_is_not_inherited_and_does_not_become_the_controlling_terminal() {
        let pair = Pair::open(SIZE).unwrap();
        for fd in [pair.as_fd(), pair.slave()] {
            let flags = FdFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFD).unwrap());
            assert!(flags.contains(FdFlag::FD_CLOEXEC));
        }
        let flags = OFlag::from_bits_retain(fcntl(pair.as_fd(), FcntlArg::F_GETFL).unwrap());
        assert!(flags.contains(OFlag::O_NONBLOCK));
        assert_eq!(tcgetpgrp(&pair.slave), Err(Errno::ENOTTY), "it does not control this process");
    }

    #[test]
    fn a_terminal_has_the_given_size_and_accepts_utf_8() {
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
    fn an_incomplete_line_needs_a_second_end_of_input_byte() {
        let typed = |is_canonical, last| end_of_input(4, is_canonical, last).len();
        assert_eq!(typed(true, None), 1);
        assert_eq!(typed(true, Some(b'\n')), 1);
        assert_eq!(typed(true, Some(b'\r')), 1, "the terminal converts it to a newline");
        assert_eq!(typed(true, Some(b'x')), 2);
        assert_eq!(typed(false, Some(b'x')), 1);
        assert_eq!(end_of_input(7, true, None), [7], "the byte that the command has chosen");
        assert_eq!(end_of_input(0, true, None), [4], "the command has disabled the byte");
    }

    #[test]
    fn a_reader_in_canonical_mode_gets_the_incomplete_line_and_end_of_file() {
        let pair = Pair::open(SIZE).unwrap();
        let mut master = fs::File::from(pair.as_fd().try_clone_to_owned().unwrap());
        master.write_all(b"begun").unwrap();
        master.write_all(&pair.end_of_input(Some(b'n'))).unwrap();
        let mut read = String::new();
        slave_of(&pair).read_to_string(&mut read).unwrap();
        assert_eq!(read, "begun");
    }
}
