//! Writes plans and their outcomes to the orphan event log.

use std::time::SystemTime;

use serde::Deserialize;

use super::classify::{Action, Decision, Reason};
use super::{Done, Outcome, Planned};
use crate::registry::orphan_log::{Batch, Orphan, What};
use crate::registry::{Instance, RegistryError, Warning, now_ms};

/// Writer for the orphans of one plan. A failed write never stops or delays the reaping.
pub struct EventLog<'a> {
    instance: &'a Instance,
    /// A warning about a failed write was already emitted.
    has_warned: bool,
}

impl<'a> EventLog<'a> {
    pub fn new(instance: &'a Instance) -> Self {
        Self { instance, has_warned: false }
    }

    /// Records the orphans of a plan. Call this before the first signal.
    pub fn detected(&mut self, planned: &[Planned]) {
        let detected = planned.iter().filter(|planned| is_detected(planned));
        self.write(detected.map(|planned| (What::Detected, planned, reason(planned))));
    }

    /// Records the outcome of a plan. Call this after the plan was carried out, successfully or
    /// not.
    pub fn settled(&mut self, planned: &[Planned], result: &Result<Vec<Done>, RegistryError>) {
        match result {
            Ok(done) => self.write(planned.iter().zip(done).filter_map(|(planned, done)| {
                outcome(planned, done).map(|(what, reason)| (what, planned, reason))
            })),
            // The claim failed, so no process was signalled.
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
        for (what, planned, reason) in lines {
            let record = &planned.record;
            let age_ms = (record.started_at > 0).then(|| now.saturating_sub(record.started_at));
            let status = if reason == DIED { "dead" } else { status(planned.decided.decision) };
            let orphan = Orphan { pid: record.pid, command: &record.command_preview, age_ms, status };
            batch.add(what, &orphan, &reason);
        }
        self.append(&batch);
    }

    fn append(&mut self, batch: &Batch) {
        let Some(log) = self.instance.orphan_log.as_ref().filter(|_| !batch.is_empty()) else { return };
        if let Err(error) = log.append(batch)
            && !std::mem::replace(&mut self.has_warned, true)
        {
            let message = format!(
                "the orphan event log {} cannot be written: {error}. Orphans are still reaped. Free some space, \
                 remove the file or folder at that path, or set options.eventLogPath (null: no log).",
                log.path().display()
            );
            self.instance.registry.warn(&Warning::new("event-log", message, log.path()));
        }
    }
}

/// A line from a watch, or about a suspect. It is logged although the plan does not contain it.
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
    /// No registry entry names it.
    Suspected,
}

/// Appends lines to the event log, if there is one. Blocks on disk I/O.
pub fn log_events(instance: &Instance, lines: &[Line]) {
    let mut batch = Batch::new(SystemTime::now());
    for Line { what, pid, command, age_ms, status, reason } in lines {
        let status = match status {
            Status::Confirmed => "confirmed",
            Status::Suspected => "suspected",
        };
        batch.add(*what, &Orphan { pid: *pid, command, age_ms: *age_ms, status }, reason);
    }
    EventLog::new(instance).append(&batch);
}

const DIED: &str = "it had already ended by itself";

/// Whether the run has no owner and needs one.
fn is_orphan(planned: &Planned) -> bool {
    !matches!(
        planned.reason(),
        Reason::Mine | Reason::OwnerAlive | Reason::LeaseExpired | Reason::OwnerUnknown | Reason::Service
    )
}

/// Whether the run is an orphan, and something of it may be alive.
fn is_detected(planned: &Planned) -> bool {
    is_orphan(planned) && !matches!(planned.action(), Action::Drop | Action::DropReused)
}

/// The reason as the report shows it.
fn reason(planned: &Planned) -> String {
    let why = planned.reason();
    if planned.action() == Action::Leave { format!("left by policy ({why})") } else { why.to_string() }
}

/// The event and the reason for an outcome. `None` if this bot has nothing to report about the run.
fn outcome(planned: &Planned, done: &Done) -> Option<(What, String)> {
    let why = planned.reason();
    let skipped = |reason: String| Some((What::Skipped, reason));
    match done.outcome {
        _ if !is_orphan(planned) => None,
        Outcome::Ended => Some((What::Killed, why.to_string())),
        Outcome::Failed => Some((What::Failed, done.error.clone().unwrap_or_else(|| why.to_string()))),
        Outcome::Left => skipped(reason(planned)),
        Outcome::Adopted => skipped(format!("adopted by policy ({why})")),
        Outcome::AlreadyDead if matches!(planned.action(), Action::End(_)) => skipped(DIED.to_owned()),
        Outcome::Skipped | Outcome::AlreadyDead => skipped(why.to_string()),
        Outcome::Taken if is_detected(planned) => skipped(format!("another bot claimed it first ({why})")),
        Outcome::Taken => None,
    }
}

/// The identification status of the run. `confirmed`: it is the recorded run, and could be ended.
/// ts/orphans/orphan-events.ts uses the same words.
fn status(Decision { action, reason }: Decision) -> &'static str {
    match (action, reason) {
        (Action::End(_) | Action::Adopt(_) | Action::Leave, _) => "confirmed",
        (Action::Skip, Reason::Refused(_)) => "refused",
        (Action::Skip, _) => "unproven",
        (Action::DropReused, _) => "reused",
        (Action::Drop, _) => "dead",
    }
}
