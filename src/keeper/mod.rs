//! The keeper: whoever holds a run's tree together until nothing of it is left, and tells the bot ([`protocol`]).
//!
//! **Unix**: one small process per run, the run's parent (`process`, `keep`). It is single-threaded and sleeps in `poll` while
//! nothing happens. When the bot is gone, its control socket closes, and the keeper ends the tree. Keepers are forked by a `zygote`,
//! ahead of their use, each with a `blank` process that is to become the command. So starting a run costs the bot one message and
//! one `exec`.
//!
//! **Windows**: a task of the bot's own native thread (`windows::hold`), because the kernel does what takes a process elsewhere: when the bot
//! is gone, the last handle of the run's job closes, and the kernel ends the tree. Whoever is not the bot knocks at its `door`.

#[cfg(unix)]
mod address;
#[cfg(unix)]
mod blank;
#[cfg(unix)]
pub mod channel;
#[cfg(unix)]
mod keep;
#[cfg(unix)]
mod nest;
#[cfg(unix)]
mod process;
pub mod protocol;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod title;
#[cfg(unix)]
pub mod visit;
#[cfg(unix)]
mod visitors;
#[cfg(windows)]
pub mod windows;
#[cfg(unix)]
mod zygote;

#[cfg(unix)]
pub use process::{HELLO, LEND, NAME, ZYGOTE, is_helper, main};
#[cfg(unix)]
pub use title::ROOM as TITLE_ROOM;
#[cfg(windows)]
pub use windows::visit;
#[cfg(unix)]
pub use zygote::{FORK, FORK_IN_CGROUP, ORPHANS};
