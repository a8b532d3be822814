//! The messages between bot, keeper, exec stub and control clients, and their framing.
//!
//! ```text
//!   bot ── keeper connection (socket pair) ── keeper
//!       keeper → bot      Ready, then Ending, RootExited, …, Extinct
//!       bot → keeper      AssignRun, Started, Signal, Cancel, …
//!   control client ── control socket ── keeper
//!       keeper → client   the same reports as to the bot
//!       client → keeper   Cancel, Usage; Adopt, if the run has no owner
//!   bot ── launch socket (socket pair) ── exec stub
//!       bot → stub        Command + file descriptors
//!       stub → bot        Refusal, or end of file: exec has succeeded
//! ```
//!
//! On Windows the keeper is a task inside the bot. There is no exec stub, and no socket between bot
//! and keeper. Control clients connect through a named pipe.
//!
//! A frame is `b"SO"`, the protocol version, a zero byte, the payload's length (u32, little-endian)
//! and the payload: one message in postcard's encoding. File descriptors travel as ancillary data
//! with a frame's first byte. The size of a frame is limited. The receiver closes the connection
//! when it reads any other bytes.

mod frame;
mod names;
#[cfg(test)]
mod tests;

pub use self::frame::{Inbox, MAX_PAYLOAD, ProtocolError, VERSION, decode, encode, payload};

use serde::{Deserialize, Serialize};

#[cfg(unix)]
use crate::contain::Limits;
use crate::contain::Usage;
#[cfg(unix)]
use crate::contain::cgroup::{Base, CgroupError};
use crate::identity::{ProcessRef, State};
use crate::run::lifecycle::Timeout;
use crate::run::{Cause, Ended, ExitStatus, MAX_LISTED, Policy, ProcessInfo};

/// The kernel passes at most this many file descriptors in one message (SCM_MAX_FD).
pub const MAX_FDS: usize = 253;

/// A request from the bot, or from a control client, to the keeper.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// The bot's first message: the exec stub has received a command. Contains the run's rules.
    #[serde(borrow)]
    AssignRun(AssignRun<'a>),
    /// The command runs. The overall timeout counts from now.
    Started,
    /// Moves the overall timeout by `ms`.
    Extend { ms: u64 },
    /// Replaces the overall timeout. It counts from now, or from `Started`. `None` removes it.
    SetTimeout { timeout: Option<Timeout> },
    /// The idle timeout has expired: the bot has read no output for `limit_ms`.
    IdleTimeout { limit_ms: u64 },
    /// Returns the tree's current resource usage as [`Report::Usage`]. Answers keep the order.
    Usage,
    /// Signals the root process only.
    Signal { signal: i32 },
    /// Sends `signal` to the whole tree, and SIGKILL after `grace_ms`.
    ///
    /// The `reason` of the first cancel is reported with the end.
    Cancel { signal: i32, grace_ms: u64, reason: &'a str },
    /// From a control client: makes it the owner, if the run has none.
    Adopt,
    /// The first message of a control client on Windows: the key of the run that it means.
    ///
    /// One bot is the keeper of many runs.
    ControlClient { key: &'a str },
}

/// The rest of the bot's request to the zygote for a keeper whose run gets a cgroup.
#[cfg(unix)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InCgroup {
    pub base: Base,
    pub limits: Limits,
}

/// The rules of a run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct AssignRun<'a> {
    pub run_id: &'a str,
    /// The key that members carry in their environment, see [`crate::contain::cookie`].
    pub cookie_key: &'a str,
    pub on_owner_exit: Policy,
    pub on_leader_exit: Policy,
    pub grace_ms: u64,
    /// The overall timeout. It counts from [`Request::Started`], or from the owner's death if the
    /// owner dies before it sends `Started`.
    pub timeout: Option<Timeout>,
    /// The path of the registry, where the keeper records the end if the run has no owner.
    pub registry: &'a str,
    /// The key of the run's registry entry.
    pub key: &'a str,
}

/// The command that the bot sends to the exec stub.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Command<'a> {
    /// The program. The stub searches the PATH of `env` unless it contains a slash.
    pub file: &'a str,
    /// The arguments with `argv[0]`. A NUL ends each of them.
    pub argv: &'a str,
    /// The complete environment with the cookie: `KEY=value`. A NUL ends each variable.
    pub env: &'a str,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub umask: u32,
    /// If true, the first file descriptor sent is the working directory. If false, the command runs
    /// in the stub's working directory.
    pub directory: bool,
    /// If true, file descriptor 0 becomes the command's controlling terminal.
    pub terminal: bool,
    /// The command's file descriptors 0, 1, 2, …
    pub stdio: Vec<Slot>,
}

/// From the exec stub to the bot: `exec` has failed, and the stub exits.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub errno: i32,
}

/// One of the command's file descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Slot {
    /// Not open.
    Closed,
    /// `/dev/null`.
    Null,
    /// The next of the file descriptors sent with the message.
    Sent,
}

/// A PID and its start token (see [`crate::identity`]), read by its parent or by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    pub start: u64,
}

/// A report from the keeper to the bot and to control clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The first message to the bot and to each control client. The root is the exec stub, or the
    /// command that the stub has executed.
    ///
    /// `address` names the keeper's control socket. It is empty if the keeper could not create one.
    Ready { keeper: Process, root: Process, address: String, cgroup: Option<String> },
    /// Sent instead of `Ready`: the keeper could not create the cgroup. There is no root, and the
    /// keeper exits.
    #[cfg(unix)]
    NoCgroup(CgroupError),
    /// The answer to [`Request::Adopt`].
    Adopted { granted: bool },
    /// A [`Request::Signal`] has failed.
    SignalFailed { errno: i32 },
    /// The overall timeout expires soon.
    Warning { limit_ms: u64, remaining_ms: u64 },
    /// The answer to [`Request::Usage`].
    Usage(Usage),
    /// The keeper has begun to end the tree. `reason` is the reason of the cancel, if a cancel is
    /// the cause.
    Ending { cause: Cause, reason: String },
    /// The root has exited. The keeper does not reap it until the tree is extinct.
    RootExited(ExitStatus),
    /// The last report: no process of the tree exists, except the listed survivors.
    Extinct(Ended),
    /// Sent instead of `Ready`: the keeper could not fork the exec stub. The keeper exits.
    NoRoot { errno: i32 },
}

/// Shortens a list to [`MAX_LISTED`] and returns how many processes it omits.
pub fn shorten(list: &mut Vec<ProcessInfo>) -> u32 {
    let unlisted = list.len().saturating_sub(MAX_LISTED);
    list.truncate(MAX_LISTED);
    u32::try_from(unlisted).unwrap_or(u32::MAX)
}

/// True if a reported end is false: it lists no survivor, but the root is alive.
///
/// A keeper reaps its root before it reports the end. So another process has sent this report,
/// with a copy of the keeper's socket. An unknown state of the root contradicts nothing.
///
/// Recycling of the root's PID causes no error: the new process has another start token.
pub fn is_contradicted(ended: &Ended, root: &ProcessRef) -> bool {
    // On Windows the keeper is a task inside the bot. No other process can send its reports.
    cfg!(unix) && ended.survivors.is_empty() && root.state() == State::Alive
}

/// Reads reports until `Extinct`. Returns the end of the tree, with the root's exit status if a
/// report contained it.
pub fn read_until_extinct<E>(mut next: impl FnMut() -> Result<Report, E>) -> Result<Ended, E> {
    let mut status = None;
    loop {
        match next()? {
            Report::RootExited(exit) => status = Some(exit),
            Report::Extinct(ended) => return Ok(Ended { status, ..ended }),
            _ => {}
        }
    }
}
