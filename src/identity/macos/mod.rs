//! Facts about processes on macOS, from `sysctl` and `libproc`.
//!
//! The parsers ([`kinfo`], [`procargs`]) are separate from the system calls, and tested on every
//! system.

pub mod kinfo;
pub mod procargs;
#[cfg(target_os = "macos")]
mod process_handle;
#[cfg(target_os = "macos")]
mod queue;
#[cfg(target_os = "macos")]
mod system;

#[cfg(target_os = "macos")]
pub use process_handle::{ProcessHandle, group_has_members};
#[cfg(target_os = "macos")]
pub use queue::{Happened, Queue};
#[cfg(target_os = "macos")]
pub(super) use system::boot;
#[cfg(target_os = "macos")]
pub use system::{
    all_processes, arguments, boot_id, ignored_signals, pid_namespace, pids, read_stat, resident_bytes,
    started_at_ms, task, ticks_to_ms,
};
