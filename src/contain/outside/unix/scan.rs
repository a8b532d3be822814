//! One look at all processes, of which any number of runs can be asked.

use std::collections::{HashMap, HashSet};
use std::{io, iter};

use nix::errno::Errno;

use super::Target;
use crate::contain::{cookie, tree};
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, State, ancestors, pids, read_stat};

/// One process of the system, and the ids of the runs whose cookies it carries.
#[derive(Debug)]
pub(super) struct Row {
    pub stat: Stat,
    pub runs: Vec<String>,
}

/// All processes there were, each as it was when its turn came.
///
/// To look at every process and its environment takes a while; to ask about one run does not, however many processes there are.
/// A reaper looks once for all its records.
#[derive(Debug)]
pub struct Scan {
    rows: HashMap<i32, Row>,
    /// Who is alive.
    by_parent: HashMap<i32, Vec<i32>>,
    /// Indexes of those that may belong to a run: alive, and not off limits.
    by_group: HashMap<i32, Vec<i32>>,
    by_run: HashMap<String, Vec<i32>>,
    /// We, our ancestors, and PID 1: whatever a record says, they are no run's members and prove nothing.
    off_limits: HashSet<i32>,
}

impl Scan {
    pub fn take() -> io::Result<Self> {
        let me = std::process::id().cast_signed();
        let off_limits = iter::once(me).chain(ancestors(me)).collect();
        let mut rows = Vec::new();
        for pid in pids()? {
            rows.extend(look_at(pid)?);
        }
        Ok(Self::of(rows, off_limits))
    }

    pub(super) fn of(rows: Vec<Row>, mut off_limits: HashSet<i32>) -> Self {
        off_limits.insert(1);
        let mut scan = Self {
            rows: HashMap::with_capacity(rows.len()),
            by_group: HashMap::new(),
            by_parent: HashMap::new(),
            by_run: HashMap::new(),
            off_limits,
        };
        for row in rows {
            let Stat { pid, pgrp, ppid, .. } = row.stat;
            if !row.stat.is_dead() {
                scan.by_parent.entry(ppid).or_default().push(pid);
            }
            if !row.stat.is_dead() && !scan.off_limits.contains(&pid) {
                scan.by_group.entry(pgrp).or_default().push(pid);
                for run in &row.runs {
                    scan.by_run.entry(run.clone()).or_default().push(pid);
                }
            }
            scan.rows.insert(pid, row);
        }
        scan
    }

    /// Whether there is anybody at all who might be of the run. Most runs that are looked for are long gone.
    pub fn may_have(&self, target: &Target) -> bool {
        self.holder(target.root.pid).is_some()
            || self.by_group.contains_key(&target.root.pid)
            || target.run_id.is_some_and(|run_id| self.by_run.contains_key(run_id))
            || target.members.iter().any(|member| self.holder(member.pid).is_some())
            || target.is_cgroup_populated()
    }

    /// What had become of a process when the scan was taken, if it existed before.
    pub fn state(&self, process: &ProcessRef) -> State {
        if let Some(state) = process.without_a_look() {
            return state;
        }
        match self.holder(process.pid) {
            None => State::Exited,
            Some(stat) if stat.start != process.start => State::Recycled,
            Some(stat) if stat.is_dead() => State::Exited,
            Some(_) => State::Alive,
        }
    }

    /// All of them, dead or alive, off limits or not.
    pub fn everybody(&self) -> Vec<Stat> {
        self.rows.values().map(|row| row.stat.clone()).collect()
    }

    /// We, our ancestors, and those of the system.
    pub fn off_limits(&self) -> &HashSet<i32> {
        &self.off_limits
    }

    /// Whoever has the number, dead or alive, off limits or not.
    pub(super) fn holder(&self, pid: i32) -> Option<&Stat> {
        self.rows.get(&pid).map(|row| &row.stat)
    }

    /// This very process, if it is alive and may be touched.
    pub(super) fn find(&self, process: &ProcessRef) -> Option<&Stat> {
        let stat = self.holder(process.pid)?;
        let is_it = process.without_a_look().is_none() && stat.start == process.start && !stat.is_dead();
        (is_it && !self.off_limits.contains(&stat.pid)).then_some(stat)
    }

    /// Whoever has the number, if it is alive and may be touched.
    pub(super) fn touchable(&self, pid: i32) -> Option<&Stat> {
        self.holder(pid).filter(|stat| !stat.is_dead() && !self.off_limits.contains(&pid))
    }

    pub(super) fn group(&self, pgrp: i32) -> impl Iterator<Item = &Stat> {
        self.listed(self.by_group.get(&pgrp)).map(|row| &row.stat)
    }

    pub(super) fn children(&self, parent: i32) -> impl Iterator<Item = &Stat> {
        self.offspring(parent).filter(|stat| !self.off_limits.contains(&stat.pid))
    }

    /// The same, whether or not they may be touched.
    fn offspring(&self, parent: i32) -> impl Iterator<Item = &Stat> {
        self.listed(self.by_parent.get(&parent)).map(|row| &row.stat)
    }

    /// Everybody below a process, to be shown: also those who are off limits.
    pub(super) fn below(&self, process: &ProcessRef) -> Vec<&Stat> {
        let is_it = |stat: &&Stat| process.without_a_look().is_none() && stat.start == process.start;
        let mut found: Vec<&Stat> = self.holder(process.pid).filter(is_it).into_iter().collect();
        let mut next = 0;
        // Stale links may lead in a circle, which ends when everybody was listed.
        while let Some(&parent) = found.get(next).filter(|_| found.len() <= self.rows.len()) {
            found.extend(self.offspring(parent.pid).filter(|child| tree::is_child(child, parent)));
            next += 1;
        }
        found.split_off(found.len().min(1))
    }

    pub(super) fn carriers(&self, run_id: &str) -> impl Iterator<Item = &Row> {
        self.listed(self.by_run.get(run_id))
    }

    fn listed<'a>(&'a self, pids: Option<&'a Vec<i32>>) -> impl Iterator<Item = &'a Row> {
        pids.into_iter().flatten().filter_map(|pid| self.rows.get(pid))
    }

    /// The process and its ancestors, as they were seen. Stale links may lead in a circle, which ends.
    pub(super) fn line<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = &'a Row> {
        iter::successors(Some(row), |row| self.rows.get(&row.stat.ppid)).take(self.rows.len())
    }

    /// Whether a keeper is above our own bot: whatever we start is below it, too.
    pub(super) fn is_above_us(&self, pid: i32) -> bool {
        self.off_limits.contains(&pid)
    }

    /// Whether somebody who is off limits is in the group: then it may not be signalled as a group.
    pub(super) fn is_shared(&self, pgrp: i32) -> bool {
        self.off_limits.iter().filter_map(|&pid| self.holder(pid)).any(|stat| stat.pgrp == pgrp)
    }
}

/// One process, with its environment read between two looks at its start token: both are the same process's. `None` if it is gone.
///
/// Not being able to look is not the same as seeing nobody: then there is no scan at all.
fn look_at(pid: i32) -> io::Result<Option<Row>> {
    let Some(stat) = seen(pid)? else { return Ok(None) };
    let runs = cookie::carried_by(&stat)?;
    Ok(seen(pid)?.filter(|again| again.start == stat.start).map(|_| Row { stat, runs }))
}

fn seen(pid: i32) -> io::Result<Option<Stat>> {
    match read_stat(pid) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ESRCH | Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
