//! What the system says no with, by the names that Node uses.
//!
//! On Windows a Win32 error becomes the errno that Node would report for it, with the number that Node gives it there.

#[cfg(unix)]
pub use nix::errno::Errno;
#[cfg(windows)]
pub use windows::Errno;

#[cfg(any(windows, test))]
#[cfg_attr(not(windows), allow(dead_code))]
mod windows;
