//! The facts about processes on macOS: `sysctl` and `libproc`, never `/proc`.
//!
//! What the kernel's bytes mean ([`kinfo`], [`procargs`]) is decided apart from the calls, and tested on every system.

pub mod kinfo;
#[cfg(target_os = "macos")]
mod pin;
pub mod procargs;
#[cfg(target_os = "macos")]
mod queue;
#[cfg(target_os = "macos")]
mod system;

#[cfg(target_os = "macos")]
pub use pin::Pin;
#[cfg(target_os = "macos")]
pub use queue::{Happened, Queue};
#[cfg(target_os = "macos")]
pub(super) use system::boot;
#[cfg(target_os = "macos")]
pub use system::{
    arguments, boot_id, everybody, ignored_signals, pid_namespace, pids, read_stat, resident_bytes,
    started_at_ms, task, ticks_to_ms,
};
