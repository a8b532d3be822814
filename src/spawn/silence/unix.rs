//! What waits at a descriptor.

use std::os::fd::{BorrowedFd, RawFd};

use nix::libc;
use nix::sys::stat::fstat;

/// What it is that has this number. `None` if nobody has it open.
pub fn name_of(fd: RawFd) -> Option<u64> {
    // SAFETY: borrowed for this one call, which fails if the number means nothing.
    fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok().map(|stat| stat.st_ino)
}

/// How many bytes can be read there.
pub fn waiting_at(fd: RawFd) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: FIONREAD writes one integer.
    let result = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).ok() } else { None }
}
