//! What the event log says about a plan, and about what came of it.

use std::time::SystemTime;

use serde::Deserialize;

use super::classify::Reason;
use super::{Done, Outcome, Planned, Verb};
use crate::observe::orphan_log::{Batch, Orphan, What};
use crate::registry::{Instance, RegistryError, Trouble, now_ms};

/// What a plan's orphans are written down in. Whatever becomes of that, it does not hold up the reaping.
pub struct Notes<'a> {
    instance: &'a Instance,
    /// That it cannot be written was said already.
    troubled: bool,
}

impl<'a> Notes<'a> {
    pub fn new(instance: &'a Instance) -> Self {
        Self { instance, troubled: false }
    }

    /// To be called before anybody is signalled.
    pub fn detected(&mut self, planned: &[Planned]) {
        let detected = planned.iter().filter(|planned| is_detected(planned));
        self.write(detected.map(|planned| (What::Detected, planned, reason(planned))));
    }

    /// To be called when it is over, well or not.
    pub fn settled(&mut self, planned: &[Planned], result: &Result<Vec<Done>, RegistryError>) {
        match result {
            Ok(done) => self.write(planned.iter().zip(done).filter_map(|(planned, done)| {
                outcome(planned, done).map(|(what, reason)| (what, planned, reason))
            })),
            // Nobody was touched.
            Err(error) => {
                let detected = planned.iter().filter(|planned| is_detected(planned));
                self.write(detected.map(|planned| (What::Failed, planned, error.to_string())));
            }
        }
    }

    fn write<'p>(&mut self, lines: impl Iterator<Item = (What, &'p Planned, String)>) {
        if self.instance.orphan_log.is_none() {
            return;
        }
        let (mut batch, now) = (Batch::new(SystemTime::now()), now_ms());
        for (what, Planned { record, decided, .. }, reason) in lines {
            let age_ms = (record.started_at > 0).then(|| now.saturating_sub(record.started_at));
            let status = if reason == DIED { "dead" } else { status(decided.action, decided.reason) };
            let orphan = Orphan { pid: record.pid, command: &record.command_preview, age_ms, status };
            batch.add(what, &orphan, &reason);
        }
        self.append(&batch);
    }

    fn append(&mut self, batch: &Batch) {
        let Some(log) = self.instance.orphan_log.as_ref().filter(|_| !batch.is_empty()) else { return };
        if let Err(error) = log.append(batch)
            && !std::mem::replace(&mut self.troubled, true)
        {
            let message = format!(
                "the orphan event log {} cannot be written: {error}. Orphans are dealt with all the same. Free some space, \
                 remove what is in its place, or set options.eventLogPath (null: no log).",
                log.path().display()
            );
            self.instance.registry.tell(&Trouble::new("event-log", message, log.path()));
        }
    }
}

/// What a watch has seen, and what has become of a suspect: nobody is reaped for that, and it is written down all the same.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    what: What,
    pid: i32,
    command: String,
    age_ms: Option<u64>,
    status: Status,
    reason: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Status {
    Confirmed,
    /// No entry names it.
    Suspected,
}

/// Appends lines to the event log, if there is one. Blocks for a disk.
pub fn write_down(instance: &Instance, lines: &[Line]) {
    let mut batch = Batch::new(SystemTime::now());
    for Line { what, pid, command, age_ms, status, reason } in lines {
        let status = match status {
            Status::Confirmed => "confirmed",
            Status::Suspected => "suspected",
        };
        batch.add(*what, &Orphan { pid: *pid, command, age_ms: *age_ms, status }, reason);
    }
    Notes::new(instance).append(&batch);
}

const DIED: &str = "it had ended by the time it was to be ended";

/// Nobody answers for it, and it needs somebody who does.
fn is_orphan(planned: &Planned) -> bool {
    !matches!(
        planned.decided.reason,
        Reason::Mine | Reason::OwnerAlive | Reason::LeaseExpired | Reason::OwnerUnknown | Reason::Service
    )
}

/// … and something of it may be alive.
fn is_detected(planned: &Planned) -> bool {
    is_orphan(planned) && !matches!(planned.decided.action, Verb::Drop | Verb::DropReused)
}

/// As the report has it.
fn reason(planned: &Planned) -> String {
    let why = planned.decided.reason;
    if planned.decided.action == Verb::Leave { format!("left by policy ({why})") } else { why.to_string() }
}

/// What became of it, if that is ours to say.
fn outcome(planned: &Planned, done: &Done) -> Option<(What, String)> {
    let why = planned.decided.reason;
    let skipped = |reason: String| Some((What::Skipped, reason));
    match done.outcome {
        _ if !is_orphan(planned) => None,
        Outcome::Ended => Some((What::Killed, why.to_string())),
        Outcome::Failed => Some((What::Failed, done.error.clone().unwrap_or_else(|| why.to_string()))),
        Outcome::Left => skipped(reason(planned)),
        Outcome::Adopted => skipped(format!("taken over by policy ({why})")),
        Outcome::AlreadyDead if planned.decided.action == Verb::End => skipped(DIED.to_owned()),
        Outcome::Skipped | Outcome::AlreadyDead => skipped(why.to_string()),
        Outcome::Taken if is_detected(planned) => skipped(format!("another bot was faster ({why})")),
        Outcome::Taken => None,
    }
}

/// What is known of it. `confirmed`: it is the recorded run, and could be ended. The same words as in ts/orphan-events.ts.
fn status(action: Verb, reason: Reason) -> &'static str {
    match (action, reason) {
        (Verb::End | Verb::Adopt | Verb::Leave, _) => "confirmed",
        (Verb::Skip, Reason::Refused(_)) => "refused",
        (Verb::Skip, _) => "unproven",
        (Verb::DropReused, _) => "reused",
        (Verb::Drop, _) => "dead",
    }
}
