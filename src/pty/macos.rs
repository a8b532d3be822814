//! Opens a terminal on macOS, and reads the name of a process.

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

/// Size of the buffer that the kernel requires for a terminal's name.
const NAME_SIZE: usize = 128;

/// Opens the master. Sets two flags afterwards, because POSIX and Apple's manual allow only
/// `O_RDWR` and `O_NOCTTY` here.
pub fn open_master() -> Result<PtyMaster, Errno> {
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY)?;
    fcntl(master.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let flags = OFlag::from_bits_retain(fcntl(master.as_fd(), FcntlArg::F_GETFL)?);
    fcntl(master.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(master)
}

/// Opens the slave by the name that the master reports. `ptsname` is not used, because all threads
/// share its buffer.
pub fn open_slave(master: &PtyMaster) -> Result<OwnedFd, Errno> {
    let mut name = [0 as c_char; NAME_SIZE];
    // SAFETY: the kernel writes at most `NAME_SIZE` bytes, with a final NUL.
    let name = unsafe {
        Errno::result(libc::ioctl(master.as_raw_fd(), libc::TIOCPTYGNAME.into(), name.as_mut_ptr()))?;
        CStr::from_ptr(name.as_ptr())
    };
    open(name, OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC, Mode::empty())
}

/// The process's `argv[0]`, or its short name if it belongs to another user.
pub fn name_of(pid: Pid) -> Option<Vec<u8>> {
    let argv0 = arguments(pid.as_raw(), |arguments| arguments.name().map(<[u8]>::to_vec)).flatten();
    argv0.or_else(|| Some(read_stat(pid.as_raw()).ok()?.comm.into_bytes()))
}
