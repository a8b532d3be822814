//! System errors, by the names that Node uses.
//!
//! On Windows a Win32 error becomes the errno that Node reports for it, with Node's error number.

#[cfg(unix)]
pub use nix::errno::Errno;
#[cfg(windows)]
pub use windows::Errno;

#[cfg(any(windows, test))]
#[cfg_attr(not(windows), allow(dead_code))]
mod windows;
