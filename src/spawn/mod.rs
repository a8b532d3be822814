//! Starting a run and monitoring it: the bot's side of the keeper.
//!
//! [`Launcher::begin`] sends the command to a waiting process, the exec stub. [`Launcher::finish`]
//! blocks until `exec` has succeeded or failed, unless the program is in the exec cache
//! (`unix/exec_cache.rs`). This is the only wait on the caller's thread. Afterwards the native thread
//! ([`crate::runtime`]) reads the run's control socket (`run_monitor`) and passes each report on as
//! an event.
//!
//! `unix` and `windows` have the same items: [`Launcher`], [`Pending`], the functions for streams,
//! and `borrow`.

pub mod adopt;
mod deadlines;
mod environment;
mod keeper_connection;
mod launch;
mod launch_error;
mod output_monitor;
pub mod register;
mod requested_containment;
mod run;
mod run_monitor;
#[cfg(unix)]
mod unix;
pub(crate) mod watch;
#[cfg(any(windows, test))]
mod windows;

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::Arc;

use crate::contain::Usage;
use crate::counters::Counters;
use crate::errno::Errno;
use crate::run::reason::{Ending, Reason};
use crate::run::{Cause, Deadline, Ended, ExitStatus};

pub use launch::{Launch, LaunchOptions, Stdio, TerminalSettings};
pub use launch_error::LaunchError;
pub use os::{
    Launcher, OwnedStream, Pending, RawStream, borrow, duplicate, end_stream, hand_out, raw_stream,
    stream_id, stream_pair,
};
pub use requested_containment::RequestedContainment;
pub use run::Run;
#[cfg(unix)]
use unix as os;
#[cfg(windows)]
use windows as os;
#[cfg(windows)]
pub use windows::lend;

/// Identifies what a file descriptor or handle refers to. The descriptor alone does not: after a
/// close, the kernel gives the same descriptor to the next file that the process opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamId {
    device: i128,
    inode: u64,
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.inode)
    }
}

impl FromStr for StreamId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (device, inode) = text.split_once(':').unwrap_or((text, ""));
        Ok(Self { device: device.parse()?, inode: inode.parse()? })
    }
}

/// Our ends of new streams, one per [`Stdio::Pipe`], at the same index.
pub type Streams = Vec<Option<OwnedStream>>;

/// Called on the native thread, once per event. The last event is [`RunEvent::Extinct`], or
/// [`RunEvent::Refused`], which is then the only event.
pub type OnEvent = Arc<dyn Fn(RunEvent) + Send + Sync>;

/// An event of a run after its start.
#[derive(Debug)]
pub enum RunEvent {
    /// `exec` failed for a program that was in the exec cache. This is the last event: there is no
    /// tree.
    Refused(Errno),
    /// `exec` succeeded.
    Started,
    /// A deadline is near.
    Warning {
        deadline: Deadline,
        limit_ms: u64,
        remaining_ms: u64,
    },
    /// The keeper begins to terminate the tree. The second field is the reason that the exit will
    /// have.
    Ending(Cause, Reason),
    /// The answer to [`Run::request_usage`].
    Usage(Usage),
    RootExited(ExitStatus),
    SignalFailed(Errno),
    /// The last event: no process of the tree exists, except the survivors.
    Extinct(Ended),
}

/// Counts the end of a run, and processes that escaped. The check uses the cause, not the reason,
/// because a cancel may set any reason.
fn count_end(ended: &Ended, counters: &Counters) {
    counters.ended(ended.reason(), ended.force);
    if ended.ending == Ending::Cause(Cause::RootExit) && !ended.escaped.is_empty() {
        counters.escaped();
    }
}
