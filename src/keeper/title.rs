//! What `ps` shows for a keeper: which run it keeps, and which command.
//!
//! The command line that `ps` reads is a stretch of our own memory. The addon starts us with a long last argument,
//! so that there is room to write into.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub use linux::{locate, set};
#[cfg(target_os = "macos")]
pub use macos::{locate, set};

/// Length of the argument that makes the room.
pub const ROOM: usize = 320;
