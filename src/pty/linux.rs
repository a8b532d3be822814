//! Opens a terminal on Linux, and reads the name of a process.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::pty::{PtyMaster, posix_openpt, ptsname_r};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

pub fn open_master() -> Result<PtyMaster, Errno> {
    posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
}

/// Opens the slave, through the master if the kernel supports that (Linux 4.13).
///
/// Its name is only the fallback: in a container, `/dev/pts` can be another instance, or missing.
pub fn open_slave(master: &PtyMaster) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes flags as `open` does, and returns a new descriptor or -1.
    let slave = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags.bits()) };
    if slave >= 0 {
        // SAFETY: the kernel has just returned this file descriptor. No other code knows it.
        return Ok(unsafe { OwnedFd::from_raw_fd(slave) });
    }
    open(ptsname_r(master)?.as_str(), flags, Mode::empty())
}

/// The process's `argv[0]`.
pub fn name_of(pid: Pid) -> Option<Vec<u8>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    line.split(|&byte| byte == 0).next().map(<[u8]>::to_vec)
}
