//! Writing down who is in the job of a run that outlives its bot: they are found by that when bot and root are gone.

use std::time::Duration;

use super::MAX_LISTED;
use crate::contain::job::Job;
use crate::identity::ProcessRef;
use crate::registry::Entry;

/// How often it is written down who is in a job.
pub const NOTE_EVERY: Duration = Duration::from_millis(100);

/// Who was written down, and whether somebody is at it.
#[derive(Default)]
pub struct Members {
    pub known: Vec<ProcessRef>,
    pub is_noting: bool,
    pub has_changed: bool,
}

/// Who was written down.
#[derive(Debug)]
pub struct Noted {
    pub members: Vec<ProcessRef>,
    pub is_all: bool,
}

/// Writes down who is in a job, if somebody is new.
pub fn note(job: &Job, entry: &Entry, root: &ProcessRef, known: Vec<ProcessRef>) -> Noted {
    let Ok(mut members) = job.processes() else { return Noted { members: known, is_all: true } };
    // Whoever is just being made may not have a name yet.
    let is_all = job.active().is_ok_and(|active| members.len() >= active as usize);
    members.retain(|member| member != root);
    members.truncate(MAX_LISTED);
    // Who is gone does no harm there.
    if members.iter().all(|member| known.contains(member)) {
        return Noted { members: known, is_all };
    }
    entry.members(members.clone());
    Noted { members, is_all }
}
