//! Searches for the members of one tree: the scan claims them, and a second read confirms them.

use std::collections::HashSet;
use std::io;
use std::time::Instant;

use super::claim::{self, Known};
use super::confirm::confirm;
use super::{Scan, Target};
use crate::contain::cgroup::{Cgroup, Recorded};
use crate::identity::ProcessRef;
use crate::identity::stat::Stat;
use crate::run::{Force, Forced, ProcessInfo};

/// A process that is proven to belong to the run.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) stat: Stat,
    pub(super) process: ProcessRef,
    pub(super) in_group: bool,
}

impl Member {
    pub(super) fn id(&self) -> (i32, u64) {
        (self.process.pid, self.process.start)
    }

    pub(super) fn info(&self) -> ProcessInfo {
        ProcessInfo::of(&self.stat, "")
    }
}

/// Searches for the members of one tree and ends them.
pub(super) struct TreeSearch<'a> {
    pub(super) target: &'a Target<'a>,
    /// All members that were proven so far. They stay members when their parent or witness is gone.
    pub(super) known: Known,
    /// The members that got a signal, and the strongest means that was used.
    pub(super) signalled: HashSet<(i32, u64)>,
    pub(super) force: Force,
    pub(super) forced: Forced,
    /// No process in the group is off limits.
    pub(super) may_signal_group: bool,
    /// The run's cgroup, if its keeper is dead; and whether no process in it is off limits.
    pub(super) cgroup: Option<Cgroup>,
    pub(super) may_kill_cgroup: bool,
    /// The cgroup contained a process when it was killed, visible or not.
    pub(super) found_in_cgroup: bool,
    /// Exiting processes that may have been members, and how long to wait for them.
    pub(super) leaving: Vec<ProcessRef>,
    pub(super) leaves_until: Option<Instant>,
}

impl<'a> TreeSearch<'a> {
    pub(super) fn new(target: &'a Target<'a>) -> Self {
        Self {
            target,
            known: Known::new(),
            signalled: HashSet::new(),
            force: Force::Nothing,
            forced: Forced::default(),
            may_signal_group: false,
            cgroup: None,
            may_kill_cgroup: false,
            found_in_cgroup: false,
            leaving: Vec::new(),
            leaves_until: None,
        }
    }

    pub(super) fn scan(&mut self) -> io::Result<Vec<Member>> {
        self.find(&Scan::near(self.target, &self.known)?)
    }

    /// Returns the living members: the scan claims them, and a second read confirms the proof.
    pub(super) fn find(&mut self, scan: &Scan) -> io::Result<Vec<Member>> {
        self.may_signal_group = self.target.leads_group && !scan.is_shared(self.target.root.pid);
        let inside = self.cgroup_pids()?;
        self.may_kill_cgroup = !inside.iter().any(|&pid| scan.is_off_limits(pid));
        let claims = claim::ours(scan, self.target, &self.known, &inside);
        let confirmed = confirm(self.target, &claims, self.cgroup.as_ref())?;
        self.leaving = scan.leaving(self.target);
        self.known.extend(confirmed.iter().map(|stat| (stat.pid, stat.start)));
        let member = |stat: &Stat| Member {
            stat: stat.clone(),
            process: ProcessRef::known(stat.pid, stat.start),
            in_group: self.target.has_in_group(stat),
        };
        Ok(confirmed.into_iter().map(member).collect())
    }

    /// Returns the PIDs in the cgroup. Opens the cgroup on each call until it works, because its
    /// keeper may have died only now.
    fn cgroup_pids(&mut self) -> io::Result<Vec<i32>> {
        if self.cgroup.is_none() {
            self.cgroup = self.target.cgroup.as_ref().and_then(Recorded::abandoned);
        }
        Ok(self.cgroup.as_ref().map_or(Ok(Vec::new()), Cgroup::members)?)
    }

    /// Returns whether the cgroup contains any process. A process in another PID namespace counts,
    /// although it has no PID here.
    pub(super) fn is_cgroup_populated(&self) -> bool {
        self.cgroup.as_ref().is_some_and(|cgroup| self.may_kill_cgroup && cgroup.is_populated())
    }

    /// Kills the whole cgroup at once. The last scan showed that no process in it is off limits,
    /// and neither this process nor its ancestors move into it now.
    pub(super) fn kill_cgroup(&mut self) {
        if let Some(cgroup) = self.cgroup.as_ref().filter(|_| self.may_kill_cgroup) {
            self.found_in_cgroup |= cgroup.is_populated();
            if cgroup.kill().is_ok() {
                self.force = Force::Kill;
            }
        }
    }
}
