//! What holds a tree together, and how its members are found and signalled.
//!
//! | tier | finds | used by |
//! |---|---|---|
//! | `subreaper` | Linux: every descendant, wherever it went: setsid, double fork, cleared environment | the keeper, from inside |
//! | `orphans` | Linux: every descendant of a keeper that was killed | the zygote, to which they come |
//! | `followed` | macOS: every descendant that was seen before its parent was gone, and whoever kept session, group or cookie | the keeper, from beside |
//! | [`outside`] | the root's group, every process that carries the run's [`cookie`], and what descends from them | whoever finds a run without keeper and zygote |
//! | [`cgroup`] | whoever is in the run's cgroup, beside the others, where there is one | the keeper, and whoever finds a run without one |
//! | `job` | Windows: whoever is in the run's Job Object, which nobody leaves | the bot, and whoever finds a run whose bot is gone |
//!
//! Decisions ([`tree`], [`members`], [`cookie`], `shell`) are pure; the tiers only read (`snapshot`) and signal.

#[cfg(target_os = "linux")]
pub mod cgroup;
#[cfg(target_os = "macos")]
#[path = "cgroup/nowhere.rs"]
pub mod cgroup;
pub mod cookie;
#[cfg(target_os = "macos")]
pub mod followed;
#[cfg(windows)]
pub mod job;
#[cfg(any(target_os = "macos", test))]
#[cfg_attr(not(target_os = "macos"), allow(dead_code))]
pub mod members;
pub mod offers;
#[cfg(target_os = "linux")]
pub mod orphans;
#[cfg(target_os = "macos")]
#[path = "orphans/nobody.rs"]
pub mod orphans;
pub mod outside;
#[cfg(unix)]
mod shell;
#[cfg(target_os = "linux")]
pub(crate) mod snapshot;
#[cfg(target_os = "linux")]
pub mod subreaper;
#[cfg(unix)]
pub mod tracer;
pub mod tree;
#[cfg(unix)]
mod wait;

#[cfg(target_os = "macos")]
pub use followed as inside;
#[cfg(target_os = "linux")]
pub use subreaper as inside;

use serde::{Deserialize, Serialize};

/// A process as reports name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    pub pid: i32,
    /// Start token, see [`crate::identity`].
    pub start: u64,
    /// The command's name as the kernel knows it.
    pub command: String,
    /// Why it is in this report, for people.
    pub why: String,
}

/// What the living processes of a tree use, and what all of it has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// How many are alive now.
    pub processes: u32,
    /// User and system time of the whole tree since its start, of those that are gone too.
    pub cpu_ms: u64,
    /// Resident memory of the living ones; what several share is counted for each.
    pub rss_bytes: u64,
}

/// What a whole tree may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    /// On Linux threads count, too.
    pub processes: Option<u64>,
}

impl Limits {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What a zygote has learned by waiting for its children.
#[cfg(unix)]
#[derive(Debug, Default, Clone, Copy)]
pub struct Reaped {
    /// A keeper did not end as if all were well: there may be orphans.
    pub left_something: bool,
    /// One that was no keeper was among them. So some keeper is dead, known or not.
    pub has_orphan: bool,
    /// They are to be asked for without waiting for a signal: that was the same for all of them.
    pub may_be_more: bool,
}

#[cfg(unix)]
pub(crate) const SIGCONT: i32 = nix::libc::SIGCONT;
#[cfg(unix)]
pub(crate) const SIGKILL: i32 = nix::libc::SIGKILL;
