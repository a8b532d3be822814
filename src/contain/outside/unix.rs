//! Finds and ends the tree of a run whose keeper is dead or unreachable.
//!
//! Members are the root, its group, every process that carries the run's cookie, every process in
//! the run's cgroup, and all descendants of these. Without a cgroup, one kind of process cannot be
//! found: it cleared its environment, left the group *and* lost its parent before the scan. Only
//! the keeper finds it.

mod claim;
mod confirm;
mod end_members;
#[cfg(target_os = "linux")]
mod near;
#[cfg(target_os = "macos")]
#[path = "unix/near_macos.rs"]
mod near;
mod scan;
#[cfg(test)]
mod tests;
mod tree_search;

use std::io;
use std::time::{Duration, Instant};

use self::claim::Known;
pub use self::scan::Scan;
use self::tree_search::TreeSearch;
use super::{GroupState, Target};
use crate::contain::cookie;
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, State};
use crate::run::Ended;

/// How long to wait for exiting processes that may have been members. Most exit within
/// milliseconds. A process that hangs in the kernel may not be the run's at all.
const EXITING_LIMIT: Duration = Duration::from_secs(1);

impl Target<'_> {
    /// Returns whether the run's cgroup contains any process. A process that constantly forks and
    /// exits may be in no list, but the cgroup still counts it.
    fn is_cgroup_populated(&self) -> bool {
        self.cgroup.and_then(|cgroup| cgroup.abandoned()).is_some_and(|cgroup| cgroup.is_populated())
    }

    /// Returns whether the process is in the group whose ID is the root's PID, whether or not that
    /// group is the run's. A spawned run also has its own session.
    fn has_in_group(&self, stat: &Stat) -> bool {
        let root = self.root.pid;
        self.leads_group && stat.pgrp == root && (!self.spawned || stat.session == root)
    }
}

/// Ends all processes that provably belong to the run. Sends `signal` and SIGCONT, waits for
/// `grace`, then sends SIGKILL until no member is found, for at most `limit`.
///
/// Blocks, so never call it on the event loop. This process, its ancestors and PID 1 are never
/// members, whatever the target says.
///
/// The ending is [`Ending::AlreadyEnded`] if no process of the run was found alive.
pub fn end_tree(target: &Target, signal: i32, grace: Duration, limit: Duration) -> Ended {
    end_and_count(target, signal, grace, limit).0
}

/// Does the same as [`end_tree`]. Also returns how many processes got a signal, for tests.
fn end_and_count(target: &Target, signal: i32, grace: Duration, limit: Duration) -> (Ended, usize) {
    // A key in this process's own cookie proves nothing: its own helpers and runs carry it too.
    let is_ours = |key: &&str| cookie::around_us().any(|ours| ours == *key);
    let target = &Target { cookie_key: target.cookie_key.filter(|key| !is_ours(key)), ..*target };
    let mut search = TreeSearch::new(target);
    let ended = search.end(signal, grace, limit);
    (ended, search.signalled.len())
}

impl Scan {
    /// Returns the living members: seen in the scan, and proven again now.
    pub fn living(&self, target: &Target) -> io::Result<Vec<ProcessRef>> {
        let members = TreeSearch::new(target).find(self)?;
        Ok(members.into_iter().map(|member| member.process).collect())
    }

    /// Returns the processes in the group whose ID is the root's PID. The caller must prove that
    /// this is the run's group.
    pub fn grouped(&self, target: &Target) -> Vec<ProcessRef> {
        if self.is_shared(target.root.pid) {
            return Vec::new();
        }
        let members = self.group(target.root.pid).filter(|stat| target.has_in_group(stat));
        members.map(|stat| ProcessRef::known(stat.pid, stat.start)).collect()
    }

    /// Returns the tree for display: the processes below the keeper, or without a keeper the proven
    /// members.
    pub fn tree(&self, target: &Target, keeper: Option<&ProcessRef>) -> Vec<Stat> {
        let kept = keeper.filter(|keeper| self.state(keeper) == State::Alive);
        let members = match kept {
            Some(keeper) => self.below(keeper),
            None => {
                claim::ours(self, target, &Known::new(), &[]).into_iter().map(|claim| claim.stat).collect()
            }
        };
        members.into_iter().cloned().collect()
    }

    /// Waits a short time for processes that were exiting during the scan and may have been
    /// members, see [`Scan::leaving`].
    ///
    /// All runs share one deadline. Otherwise one process that hangs in the kernel could delay each
    /// of a thousand records.
    pub fn wait_for_exiting(&self, target: &Target) {
        let leaving = self.leaving(target);
        if !leaving.is_empty() {
            wait_for_all(&leaving, *self.leaves_until.get_or_init(|| Instant::now() + EXITING_LIMIT));
        }
    }

    /// Returns whether any process of the run is alive.
    pub fn has_living(&self, target: &Target) -> io::Result<bool> {
        Ok(!self.living(target)?.is_empty() || target.is_cgroup_populated())
    }

    /// The state of the run's group at the time of the scan.
    pub fn group_state(&self, target: &Target) -> GroupState {
        claim::group_state(self, target)
    }
}

fn wait_for_all(processes: &[ProcessRef], deadline: Instant) {
    for process in processes {
        wait_for_one(process, deadline);
    }
}

fn wait_for_one(process: &ProcessRef, deadline: Instant) {
    if let Ok(handle) = process.open_handle() {
        let _ = handle.wait_exited(Some(deadline.saturating_duration_since(Instant::now())));
    }
}
