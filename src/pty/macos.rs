//! Opening a terminal, and who is at it.

use std::ffi::{CStr, c_char};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open};
use nix::libc;
use nix::pty::{PtyMaster, posix_openpt};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use crate::identity::macos::arguments;
use crate::identity::read_stat;

/// The room that the kernel wants for a terminal's name.
const NAME_ROOM: usize = 128;

/// Its flags are set afterwards: POSIX, and Apple's manual, know only the first two.
pub fn open_master() -> Result<PtyMaster, Errno> {
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY)?;
    fcntl(master.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let flags = OFlag::from_bits_retain(fcntl(master.as_fd(), FcntlArg::F_GETFL)?);
    fcntl(master.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(master)
}

/// By its name, asked of the master itself: `ptsname` has one place for all threads.
pub fn open_slave(master: &PtyMaster) -> Result<OwnedFd, Errno> {
    let mut name = [0 as c_char; NAME_ROOM];
    // SAFETY: the kernel writes a name of at most that length, which ends with a NUL.
    let name = unsafe {
        Errno::result(libc::ioctl(master.as_raw_fd(), libc::TIOCPTYGNAME.into(), name.as_mut_ptr()))?;
        CStr::from_ptr(name.as_ptr())
    };
    open(name, OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC, Mode::empty())
}

/// What its `argv[0]` says; of another user's process its short name.
pub fn name_of(pid: Pid) -> Option<Vec<u8>> {
    let called = arguments(pid.as_raw(), |arguments| arguments.name().map(<[u8]>::to_vec)).flatten();
    called.or_else(|| Some(read_stat(pid.as_raw()).ok()?.comm.into_bytes()))
}
