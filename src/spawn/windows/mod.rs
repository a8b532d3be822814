//! Starts a run on Windows.
//!
//! The preparation follows Node. [`environment`], [`handles`], [`quote`] and [`search`] make no
//! system calls, so their tests run on every system. The other modules are thin.

#[cfg(windows)]
pub mod borrow;
#[cfg(windows)]
mod crt;
pub mod environment;
pub mod handles;
#[cfg(windows)]
mod launch;
#[cfg(windows)]
mod lend;
#[cfg(windows)]
mod pipes;
#[cfg(windows)]
mod process;
pub mod quote;
#[cfg(windows)]
mod registered;
pub mod search;
#[cfg(windows)]
mod streams;

#[cfg(windows)]
pub use launch::{Launcher, Pending, raw_stream};
#[cfg(windows)]
pub use lend::lend;
#[cfg(windows)]
pub use registered::job_for_registered;
#[cfg(windows)]
pub use streams::{duplicate, end_stream, hand_out, stream_id, stream_pair};

/// Our end of a stream: a handle.
#[cfg(windows)]
pub type OwnedStream = std::os::windows::io::OwnedHandle;
/// The value of a stream's handle.
#[cfg(windows)]
pub type RawStream = i32;
