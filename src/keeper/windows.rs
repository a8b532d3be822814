//! The keeper on Windows: a part of the bot.

pub mod console;
mod door;
mod hold;
mod port;
pub mod visit;

pub use door::{address, random};
pub use hold::{Held, Holding, Message, Polite, hold};
pub use port::open as open_port;
