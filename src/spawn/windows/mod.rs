//! Starting a run on Windows.
//!
//! What Windows wants to be told before it starts a process is worked out as Node does it: [`environment`], [`handles`], [`quote`] and
//! [`search`] ask the system for nothing, so their tests run everywhere. The others are thin.

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
pub use launch::{Launcher, Pending, number};
#[cfg(windows)]
pub use lend::lend;
#[cfg(windows)]
pub use registered::job_for_registered;
#[cfg(windows)]
pub use streams::{duplicate, end_stream, hand_out, stream_pair};
