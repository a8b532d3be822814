//! The current state of runs, for lists. No decision is based on it.
//!
//! A bot records the end of its runs. If the bot has ended, their keepers do. If both were killed,
//! the entry keeps its last state until the next reaper. So for each entry of a dead owner, this
//! checks the processes that the entry names.

use std::cell::LazyCell;
use std::sync::Arc;

use super::classify::{Owner, Root};
use super::observe::{Observer, old_root};
use crate::identity::ProcessRef;
use crate::registry::{CachedRecord, Instance, Record, State, Table};

/// The entries, oldest first, each with its current state.
///
/// This checks each owner once, and for each entry of a dead owner the processes that it names. It
/// does not scan all processes.
pub fn present(instance: &Instance, table: &Table) -> Vec<Arc<CachedRecord>> {
    let me = instance.registry.me();
    let is_unsettled = |record: &Record| instance.registry.is_unsettled(&record.key());
    // Usually this bot owns every entry, and no observer is necessary.
    let observer = LazyCell::new(|| Observer::new(me, me.pid, false, &is_unsettled));
    let is_ours = |record: &Record| record.bot_start_token.as_ref() == Some(me);
    let now = |entry: &Arc<CachedRecord>| {
        let has_ended = !is_ours(entry) && observer.owner(entry) == Owner::Dead && is_gone(entry);
        if has_ended { exited(entry) } else { entry.clone() }
    };
    table.sorted().into_iter().map(now).collect()
}

/// The entry with the state `exited`, for a run that has ended without a recorded end.
pub fn exited(entry: &Arc<CachedRecord>) -> Arc<CachedRecord> {
    if entry.state == State::Exited {
        return entry.clone();
    }
    Arc::new(CachedRecord::new(Record { state: State::Exited, ..Record::clone(entry) }))
}

/// Whether no process that the entry names is alive: root, keeper, members, and processes in its
/// cgroup. A process whose state is unknown counts as alive.
///
/// A process that carries the run's cookie may still be alive; a reaper searches for it.
pub fn is_gone(record: &Record) -> bool {
    let root = record.start_token.as_ref();
    root.map_or_else(|| matches!(old_root(record), Root::Exited | Root::Recycled), ProcessRef::is_gone)
        && record.keeper.as_ref().is_none_or(|keeper| keeper.start_token.is_gone())
        && record.members.iter().all(ProcessRef::is_gone)
        && !is_in_cgroup(record)
}

/// Whether the run's cgroup, whose keeper is dead, contains a process.
#[cfg(unix)]
fn is_in_cgroup(record: &Record) -> bool {
    let abandoned = record.recorded_cgroup().and_then(|cgroup| cgroup.abandoned());
    abandoned.is_some_and(|cgroup| cgroup.is_populated())
}

/// Always false: Windows has no cgroups.
#[cfg(windows)]
fn is_in_cgroup(_record: &Record) -> bool {
    false
}
