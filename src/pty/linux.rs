//! Opening a terminal, and who is at it.

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

/// By the master itself where the kernel can do that (Linux 4.13): in a container, `/dev/pts` may be another one's, or none.
pub fn open_slave(master: &PtyMaster) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes flags as `open` does, and returns a new descriptor or -1.
    let slave = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags.bits()) };
    if slave >= 0 {
        // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
        return Ok(unsafe { OwnedFd::from_raw_fd(slave) });
    }
    open(ptsname_r(master)?.as_str(), flags, Mode::empty())
}

/// What its `argv[0]` says.
pub fn name_of(pid: Pid) -> Option<Vec<u8>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    line.split(|&byte| byte == 0).next().map(<[u8]>::to_vec)
}
