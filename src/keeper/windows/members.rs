//! Records the members of a run that outlives its bot. A reaper finds them by that record when both
//! the bot and the root are gone.

use std::time::Duration;

use super::MAX_LISTED;
use crate::contain::job::Job;
use crate::identity::ProcessRef;
use crate::registry::Entry;

/// Minimum interval between two writes of a job's members.
pub const RECORD_EVERY: Duration = Duration::from_millis(100);

/// The keeper's state of the record.
#[derive(Default)]
pub struct Members {
    pub recorded: Vec<ProcessRef>,
    /// A thread is writing the record.
    pub is_recording: bool,
    /// The job has changed since that write began.
    pub has_changed: bool,
}

/// The result of [`record`].
#[derive(Debug)]
pub struct RecordedMembers {
    pub members: Vec<ProcessRef>,
    /// False if a member could not be identified.
    pub is_complete: bool,
}

/// Writes the members of a job to the registry, if there is a new one.
pub fn record(job: &Job, entry: &Entry, root: &ProcessRef, recorded: Vec<ProcessRef>) -> RecordedMembers {
    let Ok(mut members) = job.processes() else {
        return RecordedMembers { members: recorded, is_complete: true };
    };
    // A process that is being created cannot be identified yet.
    let is_complete = job.active().is_ok_and(|active| members.len() >= active as usize);
    members.retain(|member| member != root);
    members.truncate(MAX_LISTED);
    // The record may contain exited members: a reaper verifies identities.
    if members.iter().all(|member| recorded.contains(member)) {
        return RecordedMembers { members: recorded, is_complete };
    }
    entry.members(members.clone());
    RecordedMembers { members, is_complete }
}
