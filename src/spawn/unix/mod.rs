//! Starts a run on Linux and macOS.
//!
//! [`launch`] takes a keeper that a [`zygote`] has forked in advance, and sends the command to the
//! keeper's exec stub.

pub mod borrow;
mod bounded_wait;
mod errors;
mod exec_cache;
mod inherited;
mod launch;
#[cfg(target_os = "linux")]
pub mod reparented;
mod stdio;
mod zygote;

pub use launch::{EXEC_WAKE_AFTER, Launcher, Pending, refused_with};
pub use stdio::{duplicate, end_stream, hand_out, raw_stream, stream_id, stream_pair};
pub use zygote::Origin;

/// Our end of a stream: a file descriptor.
pub type OwnedStream = std::os::fd::OwnedFd;
pub type RawStream = std::os::fd::RawFd;
