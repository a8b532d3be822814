//! The keeper on Windows: a task inside the bot.

mod completion_port;
pub mod console;
pub mod control_client;
mod control_pipe;
mod job_tree;
mod keeper_task;
mod member_handles;
mod members;
mod root_process;

pub use completion_port::open as open_port;
pub use control_pipe::{address, random};
pub use keeper_task::{Holding, Message, Polite, hold};
pub use root_process::RootProcess;

/// The maximum number of a run's members in the registry.
const MAX_LISTED: usize = 1024;
