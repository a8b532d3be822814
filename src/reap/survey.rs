//! What there is of every entry right now, for people to look at. Nothing is decided from it.

use std::sync::Arc;

use serde::Serialize;

use super::classify::Owner;
use super::observe::{Observer, target};
use crate::contain::outside::Scan;
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, resident_bytes, started_at_ms, ticks_to_ms};
use crate::registry::{Instance, Kept, Record, RegistryError, now_ms};

/// An entry, who answers for it, and its living processes.
#[derive(Debug, Serialize)]
pub struct Surveyed {
    pub record: Arc<Kept>,
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
    /// It has left the session of its run, or never was in the group of a registered process.
    pub escaped: bool,
}

/// Looks at all processes once, and says whose they are.
pub fn survey(instance: &Instance) -> Result<Vec<Surveyed>, RegistryError> {
    let table = instance.registry.load()?;
    let me = instance.registry.me();
    let is_loose = |record: &Record| instance.registry.is_loose(&record.key());
    let observer = Observer::new(me, me.pid, false, &is_loose);
    let scan = Scan::take().ok();
    let look = |record: &Arc<Kept>| Surveyed {
        record: record.clone(),
        owner: observer.owner(record),
        members: members(scan.as_ref(), record),
    };
    Ok(table.sorted().into_iter().map(look).collect())
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

/// Nobody leaves a job, and there are neither sessions nor groups where there are jobs.
fn has_left(record: &Record, stat: &Stat) -> bool {
    match record.pgid {
        Some(pgid) if record.containment.has_keeper() => stat.session != pgid,
        Some(pgid) => pgid == record.pid && stat.pgrp != pgid,
        None => false,
    }
}
