//! Finds and ends the tree of a run whose keeper is dead or unreachable.
//!
//! [`Scan`] reads all processes once and answers questions about any number of runs. [`end_tree`]
//! ends only the processes that provably belong to the run.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::{Scan, end_tree};
#[cfg(windows)]
pub use windows::{Scan, end_tree};

#[cfg(unix)]
use super::cgroup::Recorded;
use crate::identity::ProcessRef;

/// What is known about a tree without a keeper.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    pub root: &'a ProcessRef,
    /// The root led its process group, so the group ID is the root's PID. Otherwise the root was in
    /// another process's group, which must not be signalled.
    pub leads_group: bool,
    /// The run was spawned, so its root led a session. Otherwise the process was only registered.
    pub spawned: bool,
    /// Only the root is a member: a bot that registered itself. Its keepers and runs are below it,
    /// and they follow their own rules when the bot is gone.
    pub alone: bool,
    /// The key that members of the run carry in their [`cookie`](super::cookie). `None` for a
    /// registered process and for entries of older versions: then no process is a member because of
    /// its cookie.
    pub cookie_key: Option<&'a str>,
    /// Group members that were seen while the root lived. They prove the group when the root is
    /// gone.
    pub members: &'a [ProcessRef],
    /// The run's cgroup. If its keeper is dead, every process in it belongs to the run.
    #[cfg(unix)]
    pub cgroup: Option<Recorded<'a>>,
    /// The name of the run's Job Object, if it has one. Any process can create a job with that
    /// name. So the job is the run's only if a proven member is in it.
    #[cfg(windows)]
    pub job: Option<&'a str>,
}

/// The state of a run's process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupState {
    /// No living member. This is certain if the root's PID belongs to another process now: the
    /// kernel reuses a PID only after the group with that ID is empty.
    Empty,
    /// Living members, and at least one of them is proven to be the run's.
    Ours,
    /// Living members of a group with the root's PID as ID, but no proof that it is the run's
    /// group. It must not be signalled.
    Unproven,
}

impl<'a> Target<'a> {
    /// A spawned run. On Unix its root leads a session and a group, and its members carry its key.
    pub fn spawned(root: &'a ProcessRef, cookie_key: Option<&'a str>) -> Self {
        Self {
            root,
            leads_group: true,
            spawned: true,
            alone: false,
            cookie_key,
            members: &[],
            #[cfg(unix)]
            cgroup: None,
            #[cfg(windows)]
            job: None,
        }
    }
}
