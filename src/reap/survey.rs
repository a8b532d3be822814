//! The live processes of every entry, for users. No decision is based on it.

use std::sync::Arc;

use serde::Serialize;

use super::classify::Owner;
use super::observe::{Observer, target};
use super::present::{exited, is_gone};
use crate::contain::outside::Scan;
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, State, resident_bytes, started_at_ms, ticks_to_ms};
use crate::registry::{
    CachedRecord, Containment, Contents, Instance, Record, RegistryError, UnreadableContent, now_ms,
};

/// An entry, its owner's state, and its live processes.
#[derive(Debug, Serialize)]
pub struct Surveyed {
    pub record: Arc<CachedRecord>,
    pub owner: Owner,
    pub members: Vec<Member>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub pid: i32,
    pub ppid: i32,
    pub start_token: String,
    pub command: String,
    pub age_ms: u64,
    pub cpu_ms: u64,
    pub rss_bytes: u64,
    /// It has left the session of its run, or the group of a registered process.
    pub escaped: bool,
}

/// Returns the live processes of every entry, and which part of the registry could not be read.
/// Trees are found by descent. Only for runs without a live keeper, one scan of all processes is
/// made.
pub fn survey(instance: &Instance) -> Result<(Vec<Surveyed>, Option<UnreadableContent>), RegistryError> {
    let Contents { table, flaw } = instance.registry.contents()?;
    let me = instance.registry.me();
    let is_unsettled = |record: &Record| instance.registry.is_unsettled(&record.key());
    let observer = Observer::new(me, me.pid, false, &is_unsettled);
    let records = table.sorted();
    let groups = records.iter().filter(|record| record.containment == Containment::Group);
    let groups = groups.filter_map(|record| record.pgid);
    let below = Scan::below_each(records.iter().flat_map(|record| seeds(record)), groups).ok();
    let lost = || records.iter().filter(|record| has_lost_its_keeper(record));
    let oldest = lost().filter_map(|record| record.start_token.as_ref()).map(|root| root.start).min();
    let all = oldest.and_then(|oldest| Scan::take_since(oldest).ok());
    let surveyed = |record: &&Arc<CachedRecord>| {
        let scan = if has_lost_its_keeper(record) { all.as_ref() } else { below.as_ref() };
        let (owner, members) = (observer.owner(record), members(scan, record));
        // All processes that may belong to the run were checked: if no end is recorded and none of
        // them is alive, the run has ended.
        let has_ended = owner == Owner::Dead && members.is_empty() && is_gone(record);
        Surveyed { record: if has_ended { exited(record) } else { (*record).clone() }, owner, members }
    };
    Ok((records.iter().map(surveyed).collect(), flaw))
}

/// The processes from which the tree of an entry is found by descent.
fn seeds(record: &Record) -> impl Iterator<Item = &ProcessRef> {
    let keeper = record.keeper.as_ref().map(|keeper| &keeper.start_token);
    keeper.into_iter().chain(&record.start_token).chain(&record.members)
}

/// Whether the run's keeper is dead. Then its members are found by cookie, which any process may
/// carry.
fn has_lost_its_keeper(record: &Record) -> bool {
    record.keeper.as_ref().is_some_and(|keeper| keeper.start_token.state() != State::Alive)
}

fn members(scan: Option<&Scan>, record: &Record) -> Vec<Member> {
    let (Some(scan), Some(root)) = (scan, &record.start_token) else { return Vec::new() };
    let keeper = record.keeper.as_ref().map(|keeper| &keeper.start_token);
    let mut found = scan.tree(&target(record, root), keeper);
    found.sort_by_key(|stat| (stat.start, stat.pid));
    let now = now_ms();
    found.into_iter().map(|stat| member(record, stat, now)).collect()
}

fn member(record: &Record, stat: Stat, now: u64) -> Member {
    Member {
        pid: stat.pid,
        ppid: stat.ppid,
        start_token: ProcessRef::known(stat.pid, stat.start).to_string(),
        age_ms: started_at_ms(stat.start).map_or(0, |at| now.saturating_sub(at)),
        cpu_ms: ticks_to_ms(stat.cpu),
        rss_bytes: resident_bytes(stat.pid),
        escaped: has_left(record, &stat),
        command: stat.comm,
    }
}

/// Whether a process has left its run. On Windows always false: no process leaves a job, and there
/// are neither sessions nor process groups.
fn has_left(record: &Record, stat: &Stat) -> bool {
    match record.pgid {
        Some(pgid) if record.containment.has_keeper() => stat.session != pgid,
        Some(pgid) => pgid == record.pid && stat.pgrp != pgid,
        None => false,
    }
}
