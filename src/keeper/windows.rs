//! The keeper on Windows: a part of the bot.

pub mod console;
mod door;
mod held;
mod hold;
mod members;
mod port;
pub mod visit;

pub use door::{address, random};
pub use held::Held;
pub use hold::{Holding, Message, Polite, hold};
pub use port::open as open_port;

/// A report, and the registry, list at most so many processes of a run.
const MAX_LISTED: usize = 1024;
