//! The keeper: contains a run's process tree until the tree is extinct, and reports to the bot
//! ([`protocol`]).
//!
//! The decisions are the same on every operating system (`core`). What differs is the tree
//! ([`crate::contain::contained_tree`]), the connections, and how the keeper waits for events.
//!
//! **Unix**: one small process per run, which is the parent of the run's root process (`process`,
//! `event_loop`). It has one thread and sleeps in `poll`. When the bot exits, its connection to the
//! keeper closes, and the keeper ends the tree. A `zygote` forks keepers before the bot needs them.
//! Each keeper has an exec stub (`exec_stub`), which becomes the command. So a spawn costs the bot
//! one message and one `exec`.
//!
//! **Windows**: a task on the bot's native thread (`windows::keeper_task`). A separate process is
//! not necessary: when the bot exits, the last handle of the run's job closes, and the kernel ends
//! the tree. Other processes connect through the bot's `control_pipe`.

#[cfg(unix)]
mod cgroup_fork;
#[cfg(unix)]
pub mod channel;
#[cfg(unix)]
mod connections;
#[cfg(unix)]
pub mod control_client;
mod control_request;
#[cfg(unix)]
mod control_server;
#[cfg(unix)]
mod control_socket;
#[cfg_attr(windows, allow(dead_code))] // The task gets its rules at once, and no signals.
mod core;
#[cfg(unix)]
mod event_loop;
#[cfg(unix)]
mod exec_stub;
mod leftovers;
#[cfg(unix)]
mod process;
pub mod protocol;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod title;
#[cfg(target_os = "linux")]
mod undumpable;
#[cfg(windows)]
pub mod windows;
#[cfg(unix)]
mod zygote;

#[cfg(unix)]
pub use process::{HELLO, LEND, ZYGOTE, main, our_version, version_in};
#[cfg(unix)]
pub use title::ROOM as TITLE_ROOM;
#[cfg(windows)]
pub use windows::control_client;
#[cfg(unix)]
pub use zygote::{FORK, FORK_IN_CGROUP, FORKED, ORPHANS};
