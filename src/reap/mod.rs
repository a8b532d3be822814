//! Orphans: runs that earlier bots have left, found in the registry only. A process that is not in
//! the registry can at most be a suspect ([`suspects`]); the reaper never touches it.
//!
//! ```text
//!   plan         read the registry, check every process it names (`observe`), decide (`classify`).
//!                Changes nothing.
//!   carry out    claim (recorded before the first signal; the first claim wins), end as decided
//!                (`end`), drop the entry.
//! ```
//!
//! Between the two, the caller's policy can change the action for an entry.

pub mod classify;
pub mod end;
mod event_log;
mod observe;
mod owner_watch;
mod parallel;
mod present;
pub mod survey;
pub mod suspects;
#[cfg(test)]
mod tests;

pub use event_log::{Line, log_events};
pub use observe::target;
pub use owner_watch::Owners;
pub use parallel::in_parallel;
pub use present::present;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize};

use crate::identity;
use crate::registry::{
    CachedRecord, Claim, Contents, Instance, Record, RegistryError, State, UnreadableContent,
};
use crate::run::signal::SIGTERM;
use crate::run::{Ended, Policy};
use crate::trace::{self, trace};
use classify::{Action, Decision, Facts, Owner, Reason, Via};
use observe::Observer;

/// The decision for one entry.
#[derive(Debug, Clone)]
pub struct Planned {
    pub key: String,
    pub record: Arc<CachedRecord>,
    pub decided: Decided,
}

impl Planned {
    /// Whether the owner is not known to be dead, so that a claim takes the run from a live owner.
    pub fn is_owned(&self) -> bool {
        matches!(self.decided.facts.owner, Owner::Alive | Owner::Unknown)
    }

    pub fn action(&self) -> Action {
        self.decided.decision.action
    }

    pub fn reason(&self) -> Reason {
        self.decided.decision.reason
    }

    /// Applies the verdict of a policy. It counts only for a run that would be ended: a policy cannot
    /// make the reaper touch a run that [`classify::classify`] leaves alone.
    pub fn apply(&mut self, verdict: Verdict) {
        if let Action::End(via) = self.action() {
            self.decided.decision.action = match verdict {
                Verdict::Adopt => Action::Adopt(via),
                Verdict::Leave => Action::Leave,
            };
        }
    }
}

/// A decision without its entry, and its facts. Thousands of entries share a few different values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    pub facts: Facts,
    pub decision: Decision,
}

impl Serialize for Decided {
    /// The action as one word, the reason as a sentence, and the facts as one word each. The word of
    /// the reason is among the facts.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Words<'a> {
            #[serde(flatten)]
            facts: &'a Facts,
            reason: &'static str,
        }
        let Decision { action, reason } = self.decision;
        let mut decided = serializer.serialize_struct("Decided", 3)?;
        decided.serialize_field("action", action.name())?;
        decided.serialize_field("reason", &reason.to_string())?;
        decided.serialize_field("facts", &Words { facts: &self.facts, reason: reason.word() })?;
        decided.end()
    }
}

/// What a policy may do with a run that would be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Adopt,
    Leave,
}

/// The outcome for one entry.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    pub outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The entry as it is now, if this bot owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Left,
    Skipped,
    AlreadyDead,
    Ended,
    Failed,
    Adopted,
    /// Another bot claimed the entry first, and reports it.
    Taken,
}

/// The decisions for all readable entries.
#[derive(Debug)]
pub struct Plan {
    pub planned: Vec<Planned>,
    /// Why a part of the registry could not be read. There may be orphans that the plan does not
    /// contain.
    pub flaw: Option<UnreadableContent>,
}

/// Checks every entry and decides. `bot_pid` is the bot for which this happens, usually our own.
pub fn plan(instance: &Instance, bot_pid: i32, steal_from_live: bool) -> Result<Plan, RegistryError> {
    let Contents { table, flaw } = instance.registry.contents()?;
    let is_unsettled = |record: &Record| instance.registry.is_unsettled(&record.key());
    let records = table.sorted();
    let observer = || {
        let observer = Observer::new(instance.registry.me(), bot_pid, steal_from_live, &is_unsettled);
        observer.concerning(records.iter().map(|record| &****record))
    };
    let first = observer();
    let mut planned: Vec<_> = records.iter().map(|record| decide(&first, record)).collect();
    check_again(&mut planned, &observer());
    Ok(Plan { planned, flaw })
}

/// Checks one entry and decides.
pub fn judge(instance: &Instance, record: &Record) -> Planned {
    let me = instance.registry.me();
    let is_unsettled = |record: &Record| instance.registry.is_unsettled(&record.key());
    let observer = Observer::new(me, me.pid, false, &is_unsettled).concerning(std::iter::once(record));
    decide(&observer, &Arc::new(CachedRecord::new(record.clone())))
}

fn decide(observer: &Observer, record: &Arc<CachedRecord>) -> Planned {
    let facts = observer.facts(record);
    let decided = Decided { facts, decision: classify::classify(&facts) };
    let planned = Planned { key: record.key(), record: record.clone(), decided };
    trace_decision(&planned);
    planned
}

fn trace_decision(planned: &Planned) {
    if trace::is_on() {
        let Planned { key, record, decided } = planned;
        trace::add_key(key, &record.run_id);
        let facts = serde_json::to_string(&decided.facts).unwrap_or_default().replace('"', "");
        let (action, reason) = (planned.action(), planned.reason().word());
        trace!(run: &record.run_id, "reap: {action:?} ({reason}), facts {facts}");
    }
}

/// Carries out a plan, and returns one outcome per entry. Blocks up to the longest grace period.
pub fn carry_out(
    instance: &Instance,
    planned: &mut [Planned],
    grace_ms: Option<u64>,
) -> Result<Vec<Done>, RegistryError> {
    for planned in planned.iter_mut().filter(|planned| is_ending(planned)) {
        if let Action::Adopt(via) = planned.action() {
            planned.decided.decision.action = Action::End(via);
        }
    }
    let mut event_log = event_log::EventLog::new(instance);
    event_log.detected(planned);
    let result = claim_and_settle(instance, planned, grace_ms);
    event_log.settled(planned, &result);
    result
}

fn claim_and_settle(
    instance: &Instance,
    planned: &[Planned],
    grace_ms: Option<u64>,
) -> Result<Vec<Done>, RegistryError> {
    let claimed_entries = claim(instance, planned)?;
    Ok(settle_all(instance, planned, claimed_entries, grace_ms))
}

/// Settles every claimed entry, even after errors, because no other bot ends a run that we claimed.
/// A failed registry write is reported in the outcome. Memory has the correct state; if this bot
/// loses it, the entry leads the next reaper to the run.
fn settle_all(
    instance: &Instance,
    planned: &[Planned],
    mut claimed_entries: HashMap<String, Record>,
    grace_ms: Option<u64>,
) -> Vec<Done> {
    let is_drop = |planned: &Planned| matches!(planned.action(), Action::Drop | Action::DropReused);
    let is_gone = |planned: &&Planned| is_drop(planned) && claimed_entries.contains_key(&planned.key);
    let (gone, repopulated): (Vec<&Planned>, Vec<&Planned>) =
        planned.iter().filter(is_gone).partition(|planned| is_cgroup_removed(&planned.record));
    let gone: Vec<String> = gone.iter().map(|planned| planned.key.clone()).collect();
    let undropped = if gone.is_empty() { None } else { instance.registry.drop_claimed(gone).err() };
    let undropped = undropped.as_ref().map(entry_stays);
    let repopulated: HashSet<&str> = repopulated.iter().map(|planned| planned.key.as_str()).collect();
    let (mut done, mut to_end) = (Vec::with_capacity(planned.len()), Vec::new());
    for (index, planned) in planned.iter().enumerate() {
        let claimed = claimed_entries.remove(&planned.key);
        if repopulated.contains(planned.key.as_str()) {
            let why = "a process has entered its cgroup since the check. Run reapOrphans again".to_owned();
            let error = Some(give_back(instance, &planned.record, why));
            done.push(Done { outcome: Outcome::Failed, error, record: None });
            continue;
        }
        let is_dropped = is_drop(planned) && claimed.is_some();
        let (outcome, record) = match (planned.action(), claimed) {
            (Action::Leave, _) => (Outcome::Left, None),
            (Action::Skip, _) | (Action::DropReused, Some(_)) => (Outcome::Skipped, None),
            (Action::Drop, Some(_)) => (Outcome::AlreadyDead, None),
            (Action::Adopt(_), Some(record)) => {
                instance.adopt(record.clone(), Record::clone(&planned.record));
                (Outcome::Adopted, Some(record))
            }
            (Action::End(via), Some(_)) => {
                to_end.push((index, planned.record.clone(), via));
                (Outcome::Failed, None)
            }
            (_, None) => (Outcome::Taken, None),
        };
        done.push(Done { outcome, error: undropped.clone().filter(|_| is_dropped), record });
    }
    let settled =
        in_parallel(to_end, |(index, record, via)| (index, settle(instance, &record, via, grace_ms)));
    for (index, ended) in settled {
        done[index] = ended;
    }
    let ended = done.iter().filter(|done| done.outcome == Outcome::Ended).count();
    instance.counters.reconciled(ended as u64);
    instance.registry.catch_up();
    done
}

/// Gives back the entry of a run that has not ended. Returns `why`, extended if the registry could
/// not be written.
fn give_back(instance: &Instance, record: &Record, why: String) -> String {
    match instance.registry.give_back(record, &instance.id) {
        Ok(()) => why,
        Err(error) => {
            format!(
                "{why}. The registry shows this bot as the owner until it can be written: {}",
                error.behind()
            )
        }
    }
}

fn entry_stays(error: &RegistryError) -> String {
    format!("the run has ended, but its entry could not be removed yet: {}", error.behind())
}

/// Removes the cgroup of a run that has ended, if it has one. False if the kernel refuses, because
/// the cgroup contains a process.
#[cfg(unix)]
fn is_cgroup_removed(record: &Record) -> bool {
    let abandoned = record.recorded_cgroup().and_then(|cgroup| cgroup.abandoned());
    abandoned.is_none_or(|cgroup| cgroup.remove().is_ok() || !cgroup.is_populated())
}

/// Always true: Windows has no cgroups.
#[cfg(windows)]
fn is_cgroup_removed(_record: &Record) -> bool {
    true
}

/// Checks once more every run that the first check found to be gone. A process in the middle of
/// `exec` has no environment, so its cookie is not visible; and a scan can miss a process that
/// forks and exits. This happens before the policy is called, so a run found here is decided about
/// like every other.
fn check_again(planned: &mut [Planned], observer: &Observer) {
    let seems_gone = |planned: &&mut Planned| {
        matches!(planned.reason(), Reason::Gone | Reason::GoneKeyless | Reason::PidReused)
            && planned.record.keeper.is_some()
    };
    for planned in planned.iter_mut().filter(seems_gone) {
        if observer.may_have_processes(&planned.record) {
            *planned = decide(observer, &planned.record);
        }
        // The report says that no process of it is alive, so wait for those that are exiting. They
        // have no environment, and a scan cannot recognize them.
        observer.wait_for_exiting(&planned.record);
    }
}

/// Whether the run cannot be adopted: its keeper is ending it, or its end is recorded and left
/// processes.
fn is_ending(planned: &Planned) -> bool {
    let kept = planned.decided.facts.keeper == classify::Keeper::Alive;
    kept && planned.record.on_owner_exit == Policy::Kill || planned.record.state == State::Exited
}

/// Claims every entry that will be changed. An entry that another bot claims first is left out.
fn claim(instance: &Instance, planned: &[Planned]) -> Result<HashMap<String, Record>, RegistryError> {
    let wanted: Vec<Claim> = planned
        .iter()
        .filter(|planned| !matches!(planned.action(), Action::Leave | Action::Skip))
        .map(|planned| Claim { key: planned.key.clone(), from: planned.record.owner_instance_id.clone() })
        .collect();
    let claimed = if wanted.is_empty() { Vec::new() } else { instance.claim(wanted)? };
    let claimed_entries: HashMap<_, _> = claimed.into_iter().map(|record| (record.key(), record)).collect();
    let stolen = planned
        .iter()
        .filter(|planned| planned.is_owned() && claimed_entries.contains_key(&planned.key))
        .count();
    instance.counters.stole(stolen as u64);
    Ok(claimed_entries)
}

fn settle(instance: &Instance, record: &Record, via: Via, grace_ms: Option<u64>) -> Done {
    let grace = Duration::from_millis(grace_ms.unwrap_or(record.grace_ms));
    let ended = end::end(record, via, SIGTERM, grace, "owner-exit");
    // The entry of a run that could not be ended stays as it was: the next reaper may have
    // more permissions.
    if let Some(why) = ended.failure() {
        let error = Some(give_back(instance, record, why));
        return Done { outcome: Outcome::Failed, error, record: None };
    }
    let undropped = instance.registry.drop_claimed(vec![record.key()]).err();
    let outcome = if ended.was_terminated() { Outcome::Ended } else { Outcome::AlreadyDead };
    Done { outcome, error: undropped.as_ref().map(entry_stays), record: None }
}

/// Ends a run by its record, for a cancel, even if another bot owns it. Drops the entry too, unless
/// a live owner does that.
pub fn end_and_log(
    instance: &Instance,
    record: &Record,
    signal: i32,
    grace: Duration,
    reason: &str,
) -> Ended {
    let own = instance.registry.entry(&record.key()).map(|(entry, _)| entry);
    if let Some(entry) = &own {
        entry.exiting();
    }
    let ended = end::end(record, observe::via(record), signal, grace, reason);
    // The owner of a service may be stopped (SIGSTOP), and the next service of that name must not
    // wait for it. If the owner runs, it drops the entry a second time, which changes nothing.
    let by_owner = record.service.is_none()
        && record.bot_start_token.as_ref().is_some_and(|owner| owner.state() == identity::State::Alive);
    let has_owner = record.keeper.is_some() && own.is_some() || by_owner;
    if ended.survivors.is_empty() {
        match own {
            Some(entry) if record.keeper.is_none() => entry.remove(),
            None if !has_owner => drop(instance.registry.drop_claimed(vec![record.key()])),
            _ => {}
        }
    }
    ended
}
