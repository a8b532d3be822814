//! The title that `ps` shows for a keeper: the run's id.
//!
//! It does not contain the command. An agent that runs `pkill -f "next dev"` means its dev server,
//! not its own keeper. Only a run id that the bot has chosen can still match.
//!
//! `ps` reads the command line from the process's own memory. The addon starts the zygote with a
//! long last argument, which provides the space for the title.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub use linux::{locate, set};
#[cfg(target_os = "macos")]
pub use macos::{locate, set};

/// Length of the argument that provides the space.
pub const ROOM: usize = 320;
