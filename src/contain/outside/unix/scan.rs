//! One scan of all processes, which answers questions about any number of runs.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::time::Instant;
use std::{io, iter};

use nix::errno::Errno;

use super::Target;
use crate::contain::cookie::{self, Carried};
use crate::contain::tree;
use crate::identity::helpers::is_helper;
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, State, ancestors, pids, read_stat};

/// A process of the system, and the keys in its environment.
#[derive(Debug)]
pub(super) struct Row {
    pub stat: Stat,
    pub carried: Carried,
}

impl Row {
    /// Returns whether the process is exiting and has no environment any more. If its main thread
    /// ended first, other threads may still run. If one of those shows an environment without keys,
    /// the process lives and belongs to no run.
    fn is_leaving(&self) -> bool {
        let is_ended_main_thread = self.stat.state == 'Z';
        let has_no_environment = match &self.carried {
            Carried::Nothing => self.stat.exiting || is_ended_main_thread,
            // The environment was read before the process started to exit.
            Carried::Keys(keys) => keys.is_empty() && self.stat.exiting && !is_ended_main_thread,
            // When a process has released its memory, the kernel gives its files to root. Without
            // privileges only `exiting` is visible. The caller waits for a process that may be a
            // member, but never signals it.
            Carried::Hidden => self.stat.exiting,
        };
        has_no_environment && !self.stat.is_dead()
    }
}

/// All processes, each as it was when it was read.
///
/// A scan reads every process and its environment, which takes a while. A question about one run is
/// fast, however many processes there are. So a reaper scans once for all its records.
#[derive(Debug)]
pub struct Scan {
    rows: HashMap<i32, Row>,
    /// Living children by parent PID.
    by_parent: HashMap<i32, Vec<i32>>,
    /// These indexes contain only processes that may belong to a run: alive, and not off limits.
    by_group: HashMap<i32, Vec<i32>>,
    by_key: HashMap<String, Vec<i32>>,
    /// This process, its ancestors and PID 1. Whatever a record says, they are never members and
    /// prove nothing.
    off_limits: HashSet<i32>,
    /// Deadline for exiting processes, shared by all runs. The first wait sets it.
    pub(super) leaves_until: OnceLock<Instant>,
}

impl Scan {
    pub fn take() -> io::Result<Self> {
        Self::take_since(0)
    }

    /// Scans all processes, but reads the environment only of those that started at `oldest` or
    /// later. A process that is older than a run's root is no member, whatever it carries.
    pub fn take_since(oldest: u64) -> io::Result<Self> {
        let me = std::process::id().cast_signed();
        let off_limits = iter::once(me).chain(ancestors(me)).collect();
        let mut rows = Vec::new();
        for pid in pids()? {
            rows.extend(look_at(pid, oldest)?);
        }
        Ok(Self::of(rows, off_limits))
    }

    /// A scan of the given processes, each with the keys it carries. For the models in `models/`.
    pub fn of_processes(processes: impl IntoIterator<Item = (Stat, Vec<String>)>) -> Self {
        let row = |(stat, keys)| Row { stat, carried: Carried::Keys(keys) };
        Self::of(processes.into_iter().map(row).collect(), HashSet::new())
    }

    pub(super) fn of(rows: Vec<Row>, mut off_limits: HashSet<i32>) -> Self {
        off_limits.insert(1);
        let mut scan = Self {
            rows: HashMap::with_capacity(rows.len()),
            by_group: HashMap::new(),
            by_parent: HashMap::new(),
            by_key: HashMap::new(),
            off_limits,
            leaves_until: OnceLock::new(),
        };
        for row in rows {
            let Stat { pid, pgrp, ppid, .. } = row.stat;
            if !row.stat.is_dead() {
                scan.by_parent.entry(ppid).or_default().push(pid);
            }
            if !row.stat.is_dead() && !scan.off_limits.contains(&pid) {
                scan.by_group.entry(pgrp).or_default().push(pid);
                if let Carried::Keys(keys) = &row.carried {
                    for key in keys {
                        scan.by_key.entry(key.clone()).or_default().push(pid);
                    }
                }
            }
            scan.rows.insert(pid, row);
        }
        scan
    }

    /// Returns whether any process might belong to the run. Most recorded runs ended long ago.
    pub fn may_have(&self, target: &Target) -> bool {
        self.holder(target.root.pid).is_some()
            || self.by_group.contains_key(&target.root.pid)
            || target.cookie_key.is_some_and(|key| self.by_key.contains_key(key))
            || target.members.iter().any(|member| self.holder(member.pid).is_some())
            || target.is_cgroup_populated()
    }

    /// Returns the processes that were exiting and may have been members.
    ///
    /// An exiting process loses its environment before its descriptors. From then on nothing proves
    /// its run. It needs no signal, but while it exists the run may not be completely gone.
    pub fn leaving(&self, target: &Target) -> Vec<ProcessRef> {
        let may_be = |stat: &Stat| {
            stat.start >= target.root.start
                && (target.spawned || stat.pgrp == target.root.pid)
                && !self.off_limits.contains(&stat.pid)
        };
        let rows = self.rows.values().filter(|row| row.is_leaving() && may_be(&row.stat));
        rows.map(|row| ProcessRef::known(row.stat.pid, row.stat.start)).collect()
    }

    /// The state of a process at the time of the scan. The process must have started before the
    /// scan.
    pub fn state(&self, process: &ProcessRef) -> State {
        if let Some(state) = process.state_without_lookup() {
            return state;
        }
        match self.holder(process.pid) {
            None => State::Exited,
            Some(stat) if stat.start != process.start => State::Recycled,
            Some(stat) if stat.is_dead() => State::Exited,
            Some(_) => State::Alive,
        }
    }

    /// All processes, dead or alive, off limits or not.
    pub fn all_processes(&self) -> Vec<Stat> {
        self.rows.values().map(|row| row.stat.clone()).collect()
    }

    /// This process, its ancestors and PID 1.
    pub fn off_limits(&self) -> &HashSet<i32> {
        &self.off_limits
    }

    /// The process with this PID, dead or alive, off limits or not.
    pub(super) fn holder(&self, pid: i32) -> Option<&Stat> {
        self.rows.get(&pid).map(|row| &row.stat)
    }

    /// The process with this PID and start token, if it is alive and not off limits.
    pub(super) fn find(&self, process: &ProcessRef) -> Option<&Stat> {
        let stat = self.holder(process.pid)?;
        let is_it =
            process.state_without_lookup().is_none() && stat.start == process.start && !stat.is_dead();
        (is_it && !self.off_limits.contains(&stat.pid)).then_some(stat)
    }

    /// The process with this PID, if it is alive and not off limits.
    pub(super) fn touchable(&self, pid: i32) -> Option<&Stat> {
        self.holder(pid).filter(|stat| !stat.is_dead() && !self.off_limits.contains(&pid))
    }

    pub(super) fn group(&self, pgrp: i32) -> impl Iterator<Item = &Stat> {
        self.listed(self.by_group.get(&pgrp)).map(|row| &row.stat)
    }

    pub(super) fn children(&self, parent: i32) -> impl Iterator<Item = &Stat> {
        self.offspring(parent).filter(|stat| !self.off_limits.contains(&stat.pid))
    }

    /// All living children, off limits or not.
    fn offspring(&self, parent: i32) -> impl Iterator<Item = &Stat> {
        self.listed(self.by_parent.get(&parent)).map(|row| &row.stat)
    }

    /// All descendants of a process, for display. Includes processes that are off limits.
    pub(super) fn below(&self, process: &ProcessRef) -> Vec<&Stat> {
        let is_it = |stat: &&Stat| process.state_without_lookup().is_none() && stat.start == process.start;
        let mut found: Vec<&Stat> = self.holder(process.pid).filter(is_it).into_iter().collect();
        let mut next = 0;
        // Stale links may form a loop. It ends when the list is as long as the scan.
        while let Some(&parent) = found.get(next).filter(|_| found.len() <= self.rows.len()) {
            found.extend(self.offspring(parent.pid).filter(|child| tree::is_child(child, parent)));
            next += 1;
        }
        found.split_off(found.len().min(1))
    }

    /// Carriers of a key that are alive and not off limits.
    pub(super) fn carriers(&self, key: &str) -> impl Iterator<Item = &Stat> {
        self.listed(self.by_key.get(key)).map(|row| &row.stat)
    }

    /// The parent of a process, if it is a helper of a bot and its environment is hidden.
    pub(super) fn hidden_helper_above(&self, stat: &Stat) -> Option<&Stat> {
        let row = self.rows.get(&stat.ppid).filter(|row| row.carried == Carried::Hidden)?;
        self.touchable(stat.ppid).filter(|parent| is_helper(&parent.comm) && tree::is_child(stat, &row.stat))
    }

    /// Returns whether `pids` contains every living child of a process. A child that is off limits,
    /// or whose parent link may be stale, is not in `pids`. So in doubt the answer is no.
    pub(super) fn are_all_children_in(&self, parent: i32, pids: &HashSet<i32>) -> bool {
        self.offspring(parent).all(|child| pids.contains(&child.pid))
    }

    fn listed<'a>(&'a self, pids: Option<&'a Vec<i32>>) -> impl Iterator<Item = &'a Row> {
        pids.into_iter().flatten().filter_map(|pid| self.rows.get(pid))
    }

    /// Returns whether this PID is this process, one of its ancestors, or PID 1.
    pub(super) fn is_off_limits(&self, pid: i32) -> bool {
        self.off_limits.contains(&pid)
    }

    /// Returns whether the group contains a process that is off limits. Then it must not be
    /// signalled as a group.
    pub(super) fn is_shared(&self, pgrp: i32) -> bool {
        self.off_limits.iter().filter_map(|&pid| self.holder(pid)).any(|stat| stat.pgrp == pgrp)
    }
}

/// Reads one process. `None` if it is gone.
///
/// The start token is read before and after the environment, so both belong to the same process. If
/// a process cannot be read, the whole scan fails: a failed read does not mean that the process is
/// gone.
fn look_at(pid: i32, oldest: u64) -> io::Result<Option<Row>> {
    let Some(stat) = seen(pid)? else { return Ok(None) };
    if stat.start < oldest {
        return Ok(Some(Row { stat, carried: Carried::Nothing }));
    }
    let carried = cookie::carried_by(&stat)?;
    // The second stat, because it shows the exit of a process whose environment is gone.
    Ok(seen(pid)?.filter(|again| again.start == stat.start).map(|again| Row { stat: again, carried }))
}

pub(super) fn seen(pid: i32) -> io::Result<Option<Stat>> {
    match read_stat(pid) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ESRCH | Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_leaving_if_it_exits_and_shows_no_environment() {
        use Carried::{Hidden, Nothing};

        let no_key = || Carried::Keys(Vec::new());
        let key = || Carried::Keys(vec!["r".to_owned()]);
        for (state, threads, exiting, carried, expected) in [
            ('R', 1, true, Nothing, true),
            ('R', 1, true, no_key(), true),
            ('R', 1, true, Hidden, true),
            ('R', 1, true, key(), false),
            ('S', 1, false, Nothing, false),
            ('S', 1, false, no_key(), false),
            ('S', 1, false, Hidden, false),
            // The main thread has ended, but other threads run.
            ('Z', 2, true, Nothing, true),
            ('Z', 2, true, Hidden, true),
            ('Z', 2, true, no_key(), false),
            ('Z', 2, true, key(), false),
            ('Z', 1, true, Nothing, false),
            ('Z', 1, true, Hidden, false),
        ] {
            let shown = format!("{state} {threads} {exiting} {carried:?}");
            let row = Row { stat: Stat { state, exiting, threads, ..Stat::default() }, carried };
            assert_eq!(row.is_leaving(), expected, "{shown}");
        }
    }
}
