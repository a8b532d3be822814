//! Orphans: what earlier bots have left, found in the registry and nowhere else. Whoever else might be one is a suspect
//! ([`suspects`]), and never touched by what is said here.
//!
//! ```text
//!   plan         read the registry, look at every process it names (`observe`), decide (`classify`). Changes nothing.
//!   carry out    claim (recorded before the first signal; the first claim wins), end (`end`), drop the entry.
//! ```
//!
//! Between the two the caller may change its mind about an entry: that is what a policy is.

mod at_once;
pub mod classify;
pub mod end;
mod note;
mod observe;
mod owners;
pub mod survey;
pub mod suspects;
#[cfg(test)]
mod tests;

pub use at_once::at_once;
pub use note::{Line, write_down};
pub use observe::target;
pub use owners::Owners;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::identity;
use crate::registry::{Claim, Instance, Kept, Record, RegistryError, State};
use crate::run::Policy;
use crate::run::signal::SIGTERM;
use classify::{Action, Facts, Owner, Reason, Report};
use observe::Observer;

/// What is to become of one entry.
#[derive(Debug, Clone)]
pub struct Planned {
    pub key: String,
    pub record: Arc<Kept>,
    pub decided: Decided,
}

impl Planned {
    /// Its owner is not known to be dead: to take it is a theft.
    pub fn is_owned(&self) -> bool {
        matches!(self.decided.facts.seen.owner, Owner::Alive | Owner::Unknown)
    }
}

/// A decision, apart from what it is about. Among thousands of entries there are few that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Decided {
    pub action: Verb,
    /// One sentence for people.
    #[serde(serialize_with = "sentence")]
    pub reason: Reason,
    pub facts: Basis,
}

/// What a decision rests on, one word each, and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Basis {
    #[serde(flatten)]
    seen: Facts,
    #[serde(serialize_with = "word")]
    reason: Reason,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde wants it.
fn sentence<S: serde::Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(reason)
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn word<S: serde::Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.word())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    Leave,
    /// Nothing of it is alive: the entry goes.
    Drop,
    /// The entry goes, and a stranger with its number is left alone.
    DropReused,
    Skip,
    End,
    /// By a policy, instead of `End`.
    Adopt,
}

/// What has become of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    pub outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// As it is now, if it is ours.
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
    /// Another bot was faster, and reports it.
    Taken,
}

/// Looks at every entry and decides. `bot_pid` is the bot on whose behalf this happens; usually our own.
pub fn plan(instance: &Instance, bot_pid: i32, steal_from_live: bool) -> Result<Vec<Planned>, RegistryError> {
    let table = instance.registry.load()?;
    let is_loose = |record: &Record| instance.registry.is_loose(&record.key());
    let observer = || Observer::new(instance.registry.me(), bot_pid, steal_from_live, &is_loose);
    let first = observer();
    let mut planned: Vec<_> = table.sorted().into_iter().map(|record| decide(&first, record)).collect();
    look_again(&mut planned, &observer());
    Ok(planned)
}

/// The same for one entry.
pub fn judge(instance: &Instance, record: &Record) -> Planned {
    let me = instance.registry.me();
    let is_loose = |record: &Record| instance.registry.is_loose(&record.key());
    decide(&Observer::new(me, me.pid, false, &is_loose), &Arc::new(Kept::new(record.clone())))
}

fn decide(observer: &Observer, record: &Arc<Kept>) -> Planned {
    let facts = observer.look_at(record);
    let decision = classify::classify(&facts);
    let action = match decision.action {
        Action::Leave => Verb::Leave,
        Action::Skip => Verb::Skip,
        Action::End(_) => Verb::End,
        Action::Drop { report: Report::AlreadyDead } => Verb::Drop,
        Action::Drop { report: Report::Skipped } => Verb::DropReused,
    };
    let reason = decision.reason;
    let facts = Basis { seen: facts, reason };
    Planned { key: record.key(), record: record.clone(), decided: Decided { action, reason, facts } }
}

/// Does what was planned, one outcome for each. Blocks for as long as the longest grace.
pub fn carry_out(
    instance: &Instance,
    planned: &mut [Planned],
    grace_ms: Option<u64>,
) -> Result<Vec<Done>, RegistryError> {
    for planned in
        planned.iter_mut().filter(|planned| planned.decided.action == Verb::Adopt && is_ending(planned))
    {
        planned.decided.action = Verb::End;
    }
    let mut notes = note::Notes::new(instance);
    notes.detected(planned);
    let result = claim_and_settle(instance, planned, grace_ms);
    notes.settled(planned, &result);
    result
}

fn claim_and_settle(
    instance: &Instance,
    planned: &[Planned],
    grace_ms: Option<u64>,
) -> Result<Vec<Done>, RegistryError> {
    let ours = claim(instance, planned)?;
    Ok(settle_all(instance, planned, ours, grace_ms))
}

/// What was claimed is settled whatever happens on the way: nobody else ends what is ours. That it could not be written down what became of
/// an entry is told with it. Memory knows, and should it be lost, the entry leads the next reaper there.
fn settle_all(
    instance: &Instance,
    planned: &[Planned],
    mut ours: HashMap<String, Record>,
    grace_ms: Option<u64>,
) -> Vec<Done> {
    let is_gone = |planned: &&Planned| {
        matches!(planned.decided.action, Verb::Drop | Verb::DropReused) && ours.contains_key(&planned.key)
    };
    let (gone, there_after_all): (Vec<&Planned>, Vec<&Planned>) =
        planned.iter().filter(is_gone).partition(|planned| has_left_its_cgroup(&planned.record));
    let gone: Vec<String> = gone.iter().map(|planned| planned.key.clone()).collect();
    let undropped = if gone.is_empty() { None } else { instance.registry.drop_claimed(gone).err() };
    let undropped = undropped.as_ref().map(stays);
    let there_after_all: HashSet<&str> = there_after_all.iter().map(|planned| planned.key.as_str()).collect();
    let (mut done, mut to_end) = (Vec::with_capacity(planned.len()), Vec::new());
    for (index, planned) in planned.iter().enumerate() {
        let claimed = ours.remove(&planned.key);
        if there_after_all.contains(planned.key.as_str()) {
            let why = "somebody has come into its cgroup since it was looked at; reap again".to_owned();
            let error = Some(given_back(instance, &planned.record, why));
            done.push(Done { outcome: Outcome::Failed, error, record: None });
            continue;
        }
        let is_dropped = matches!(planned.decided.action, Verb::Drop | Verb::DropReused) && claimed.is_some();
        let (outcome, record) = match (planned.decided.action, claimed) {
            (Verb::Leave, _) => (Outcome::Left, None),
            (Verb::Skip, _) | (Verb::DropReused, Some(_)) => (Outcome::Skipped, None),
            (Verb::Drop, Some(_)) => (Outcome::AlreadyDead, None),
            (Verb::Adopt, Some(record)) => {
                instance.adopt(record.clone(), Record::clone(&planned.record));
                (Outcome::Adopted, Some(record))
            }
            (Verb::End, Some(_)) => {
                to_end.push((index, planned.record.clone()));
                (Outcome::Failed, None)
            }
            (_, None) => (Outcome::Taken, None),
        };
        done.push(Done { outcome, error: undropped.clone().filter(|_| is_dropped), record });
    }
    for (index, ended) in at_once(to_end, |(index, record)| (index, settle(instance, &record, grace_ms))) {
        done[index] = ended;
    }
    let ended = done.iter().filter(|done| done.outcome == Outcome::Ended).count();
    instance.counters.reconciled(ended as u64);
    instance.registry.catch_up();
    done
}

/// Gives an entry back that is not over, for that reason; and says so if it could not be written down.
fn given_back(instance: &Instance, record: &Record, why: String) -> String {
    match instance.registry.give_back(record, &instance.id) {
        Ok(()) => why,
        Err(error) => {
            format!("{why}. In the registry it is ours until that can be written: {}", error.behind())
        }
    }
}

fn stays(error: &RegistryError) -> String {
    format!("it is over, but its entry stays for now: {}", error.behind())
}

/// Removes the cgroup of a run that was found to be gone, if it has one. False if the kernel refuses, because somebody is in it.
#[cfg(unix)]
fn has_left_its_cgroup(record: &Record) -> bool {
    let abandoned = record.recorded_cgroup().and_then(|cgroup| cgroup.abandoned());
    abandoned.is_none_or(|cgroup| cgroup.remove().is_ok() || !cgroup.is_populated())
}

/// There are no cgroups.
#[cfg(windows)]
fn has_left_its_cgroup(_record: &Record) -> bool {
    true
}

/// A carrier of the cookie that is in the middle of an exec has no environment for a moment, and one that forks and dies may be missed.
/// So what one look has found to be gone is looked for once more. Before anybody is asked what is to become of it: what is found then
/// is decided about like everything else.
fn look_again(planned: &mut [Planned], observer: &Observer) {
    let is_doubtful = |planned: &&mut Planned| {
        matches!(planned.decided.reason, Reason::Gone | Reason::PidReused) && planned.record.keeper.is_some()
    };
    for planned in planned.iter_mut().filter(is_doubtful) {
        if observer.may_be_there(&planned.record) {
            *planned = decide(observer, &planned.record);
        }
    }
}

/// There is nothing to take over: its keeper is at it, or was, and has left something.
fn is_ending(planned: &Planned) -> bool {
    let kept = planned.decided.facts.seen.keeper == classify::Keeper::Alive;
    kept && planned.record.on_owner_exit == Policy::Kill || planned.record.state == State::Exited
}

/// Makes every entry that is to be touched ours, for as far as nobody is faster.
fn claim(instance: &Instance, planned: &[Planned]) -> Result<HashMap<String, Record>, RegistryError> {
    let wanted: Vec<Claim> = planned
        .iter()
        .filter(|planned| !matches!(planned.decided.action, Verb::Leave | Verb::Skip))
        .map(|planned| Claim { key: planned.key.clone(), from: planned.record.owner_instance_id.clone() })
        .collect();
    let claimed = if wanted.is_empty() { Vec::new() } else { instance.claim(wanted)? };
    let ours: HashMap<_, _> = claimed.into_iter().map(|record| (record.key(), record)).collect();
    let stolen =
        planned.iter().filter(|planned| planned.is_owned() && ours.contains_key(&planned.key)).count();
    instance.counters.stole(stolen as u64);
    Ok(ours)
}

fn settle(instance: &Instance, record: &Record, grace_ms: Option<u64>) -> Done {
    let grace = Duration::from_millis(grace_ms.unwrap_or(record.grace_ms));
    let ended = end::end(record, SIGTERM, grace, "owner-exit");
    // What could not be ended stays in the registry, as it was: the next reaper may be allowed more.
    if let Some(why) = ended.failure() {
        let error = Some(given_back(instance, record, why));
        return Done { outcome: Outcome::Failed, error, record: None };
    }
    let undropped = instance.registry.drop_claimed(vec![record.key()]).err();
    let outcome = if ended.was_ended() { Outcome::Ended } else { Outcome::AlreadyDead };
    Done { outcome, error: undropped.as_ref().map(stays), record: None }
}

/// Ends a run by its record, for a cancel: whoever's it is. The entry goes with it, unless its owner is there to see to that.
pub fn end_and_note(
    instance: &Instance,
    record: &Record,
    signal: i32,
    grace: Duration,
    reason: &str,
) -> end::Ended {
    let own = instance.registry.entry(&record.key()).map(|(entry, _)| entry);
    if let Some(entry) = &own {
        entry.exiting();
    }
    let ended = end::end(record, signal, grace, reason);
    // The owner of a service may have been stopped, and the next one of that name must not have to wait for it. Should it be well, it
    // drops the entry a second time, which changes nothing.
    let by_owner = record.service.is_none()
        && record.bot_start_token.as_ref().is_some_and(|owner| owner.state() == identity::State::Alive);
    let answered_for = record.keeper.is_some() && own.is_some() || by_owner;
    if ended.survivors.is_empty() {
        match own {
            Some(entry) if record.keeper.is_none() => entry.over(),
            None if !answered_for => drop(instance.registry.drop_claimed(vec![record.key()])),
            _ => {}
        }
    }
    ended
}
