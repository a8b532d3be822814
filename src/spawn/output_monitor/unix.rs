//! Unread bytes at a file descriptor.

use std::os::fd::RawFd;

use nix::libc;

/// The number of bytes that can be read. `None` if the descriptor is closed.
pub fn unread_bytes(fd: RawFd) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: FIONREAD writes one integer.
    let result = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).ok() } else { None }
}
