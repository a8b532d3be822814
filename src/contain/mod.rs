//! Finds the members of a run's process tree and signals them.
//!
//! Each mechanism finds a different set of processes:
//!
//! - `subreaper` (Linux): every descendant, also after setsid, a double fork or a cleared
//!   environment. The keeper uses it for its own tree.
//! - `orphans` (Linux): every descendant of a killed keeper. The zygote uses it, because it adopts
//!   them.
//! - `kqueue_tree` (macOS): every descendant that was seen before its parent exited, and every
//!   process that kept the session, the group or the cookie. The keeper uses it.
//! - [`outside`]: the root's group, every process that carries the run's [`cookie`], and the
//!   descendants of both. Another process uses it when keeper and zygote are dead.
//! - [`cgroup`]: every process in the run's cgroup, if the run has one. The keeper uses it, and
//!   [`outside`].
//! - `job` (Windows): every process in the run's Job Object, which no member can leave. The bot
//!   uses it, and [`outside`].
//!
//! A keeper uses the tree of its operating system through [`contained_tree::ContainedTree`].
//!
//! The decisions ([`tree`], `kqueue_members`, [`cookie`], `shell`, `termination`) are pure
//! functions. The mechanisms only read process lists (`snapshot`) and send signals.

pub mod capabilities;
#[cfg(target_os = "linux")]
pub mod cgroup;
#[cfg(target_os = "macos")]
#[path = "cgroup/unsupported.rs"]
pub mod cgroup;
pub mod contained_tree;
pub mod cookie;
#[cfg(unix)]
pub mod inside;
#[cfg(windows)]
pub mod job;
#[cfg(any(target_os = "macos", test))]
#[cfg_attr(not(target_os = "macos"), allow(dead_code))]
pub mod kqueue_members;
#[cfg(target_os = "macos")]
pub mod kqueue_tree;
#[cfg(target_os = "linux")]
pub mod orphans;
#[cfg(target_os = "macos")]
#[path = "orphans/unsupported.rs"]
pub mod orphans;
pub mod outside;
#[cfg(unix)]
mod shell;
#[cfg(target_os = "linux")]
pub(crate) mod snapshot;
#[cfg(target_os = "linux")]
pub mod subreaper;
#[cfg(unix)]
pub mod termination;
#[cfg(unix)]
pub mod tracer;
pub mod tree;
#[cfg(unix)]
mod wait;

use serde::{Deserialize, Serialize};

use crate::identity::stat::Stat;
use crate::run::ProcessInfo;

impl ProcessInfo {
    pub fn of(stat: &Stat, why: &str) -> Self {
        Self { pid: stat.pid, start: stat.start, command: stat.comm.clone(), why: why.to_owned() }
    }
}

/// A member that outlived the root, or that received the termination signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub process: ProcessInfo,
    /// The process is the root itself, which received the termination signal.
    pub is_root: bool,
    /// The process has left the root's session.
    pub has_escaped: bool,
}

impl Leftover {
    pub fn id(&self) -> (i32, u64) {
        (self.process.pid, self.process.start)
    }
}

/// Resource usage of a tree: current processes and memory, total CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Living processes.
    pub processes: u32,
    /// User and system time of the whole tree since its start, including exited members.
    pub cpu_ms: u64,
    /// Sum of the resident memory of all living members. Shared memory counts once per member.
    pub rss_bytes: u64,
}

/// Resource limits for a whole tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    /// Maximum number of processes. On Linux, threads count too.
    pub processes: Option<u64>,
}

impl Limits {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What the zygote learned when it reaped its children.
#[cfg(unix)]
#[derive(Debug, Default, Clone, Copy)]
pub struct Reaped {
    /// A keeper ended with an exit status other than 0, so its tree may have left orphans.
    pub left_something: bool,
    /// At least one reaped child was not a keeper, so a keeper must have died.
    pub has_orphan: bool,
    /// Reap again without waiting for SIGCHLD: one SIGCHLD can stand for several deaths.
    pub may_be_more: bool,
}

#[cfg(unix)]
pub(crate) const SIGCONT: i32 = nix::libc::SIGCONT;
#[cfg(unix)]
pub(crate) const SIGKILL: i32 = nix::libc::SIGKILL;
