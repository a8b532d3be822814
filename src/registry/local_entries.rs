//! The entries of this process, as its memory has them. Pure: no disk, no clock.
//!
//! While a bot lives, it knows its own runs better than the files do. So its memory decides which
//! of its own entries a checkpoint contains ([`LocalEntries::settle`]), whatever happened to the
//! files.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::claim_state::{CheckpointNumber, ClaimState, Content, Event};
use super::index::Filter;
use super::leases::Leases;
use super::record::{Claim, Line, Record};
use super::table::Table;
use crate::identity::ProcessRef;

#[derive(Debug, Clone)]
pub struct LocalEntries {
    me: ProcessRef,
    /// The entries of this process, by key. The two maps below find the key.
    ///
    /// Contains an entry if and only if its claim state is live.
    pub live: Table,
    by_run_id: HashMap<String, String>,
    by_pid: HashMap<i32, String>,
    /// The state of each entry that this process owns, claims or has left, by key. A missing entry
    /// is [`ClaimState::Unclaimed`].
    claims: HashMap<String, ClaimState>,
    /// Number of checkpoints that this process has begun.
    last_checkpoint: CheckpointNumber,
    /// The instances that own these entries. Another copy of this library in the same process has
    /// other instances, and a memory of its own.
    instances: HashSet<String>,
    leases: Leases,
}

impl LocalEntries {
    pub fn new(me: ProcessRef) -> Self {
        Self {
            me,
            live: Table::default(),
            by_run_id: HashMap::new(),
            by_pid: HashMap::new(),
            claims: HashMap::new(),
            last_checkpoint: 0,
            instances: HashSet::new(),
            leases: Leases::default(),
        }
    }

    /// Whether this process has no entry, no pending claim and no unsettled entry.
    pub fn is_idle(&self) -> bool {
        !self.claims.values().any(ClaimState::needs_memory)
    }

    pub fn has_run(&self, run_id: &str) -> bool {
        self.by_run_id.contains_key(run_id)
    }

    /// The entry with that run id, or else with that PID; all entries if neither is given.
    pub fn find(&self, run_id: Option<&str>, pid: Option<i32>) -> Vec<Record> {
        let one =
            |key: Option<&String>| key.and_then(|key| self.live.get(key)).cloned().into_iter().collect();
        match (run_id, pid) {
            (Some(run_id), _) => one(self.by_run_id.get(run_id)),
            (None, Some(pid)) => one(self.by_pid.get(&pid)),
            (None, None) => self.live.records().cloned().collect(),
        }
    }

    // ---- claim states ----

    /// The state of an entry.
    pub fn claim_state(&self, key: &str) -> &ClaimState {
        self.claims.get(key).unwrap_or(&ClaimState::Unclaimed)
    }

    /// Whether the present checkpoint can judge what happened at that time.
    pub fn can_judge(&self, since: CheckpointNumber) -> bool {
        since < self.last_checkpoint
    }

    /// Applies an event to the state of an entry.
    fn on(&mut self, key: &str, event: Event) {
        let Some(claim) = self.claims.get_mut(key) else {
            let claim = ClaimState::Unclaimed.after(event);
            if claim != ClaimState::Unclaimed {
                self.claims.insert(key.to_owned(), claim);
            }
            return;
        };
        *claim = std::mem::take(claim).after(event);
        let (is_live, is_over) = (claim.is_live(), *claim == ClaimState::Unclaimed);
        if is_over {
            self.claims.remove(key);
        }
        if !is_live {
            self.remove_live(key);
        }
    }

    fn remove_live(&mut self, key: &str) {
        let Some(record) = self.live.remove(key) else { return };
        // Another entry may have the same run id or PID by now.
        if self.by_run_id.get(&record.run_id).is_some_and(|present| present == key) {
            self.by_run_id.remove(&record.run_id);
        }
        if self.by_pid.get(&record.pid).is_some_and(|present| present == key) {
            self.by_pid.remove(&record.pid);
        }
    }

    /// Adds or replaces an entry of this process.
    pub fn remember(&mut self, record: Record) {
        self.on(&record.key(), Event::Remember);
        self.insert_live(record);
    }

    fn insert_live(&mut self, record: Record) {
        let key = record.key();
        self.instances.extend(record.owner_instance_id.clone());
        self.by_run_id.insert(record.run_id.clone(), key.clone());
        self.by_pid.insert(record.pid, key);
        self.live.insert(record);
    }

    /// Removes an entry whose run is over.
    pub fn forget(&mut self, key: &str) {
        self.on(key, Event::Forget);
    }

    /// Leaves an entry to its keeper.
    pub fn abandon(&mut self, key: &str) {
        self.on(key, Event::Abandon);
    }

    /// Notes that this process is about to claim an entry.
    ///
    /// Until the claim is settled, a checkpoint leaves the entry unchanged. Returns false if this
    /// process already has the entry or is claiming it.
    pub fn claim(&mut self, claim: &Claim, instance: &str) -> bool {
        let Claim { key, from } = claim;
        self.instances.insert(instance.to_owned());
        let is_claimable = self.claim_state(key).is_claimable();
        self.on(key, Event::Claim { from: from.clone(), at: self.last_checkpoint });
        is_claimable
    }

    /// Ends a claim that another process won.
    pub fn lose_claim(&mut self, key: &str) {
        self.on(key, Event::LoseClaim);
    }

    /// Ends claims, because the runs are over.
    pub fn release(&mut self, keys: &[String]) {
        for key in keys {
            self.on(key, Event::Release);
        }
    }

    /// Ends claims that failed or whose result is unknown. On disk the entries may be ours, for
    /// some time or permanently.
    pub fn claim_failed(&mut self, keys: &[String]) {
        for key in keys {
            self.on(key, Event::ClaimFailed { at: self.last_checkpoint });
        }
    }

    /// Notes that this process returns an entry to its former owner. Until a checkpoint contains
    /// the returned entry, this process may own it on disk.
    pub fn give_back(&mut self, key: &str) {
        self.on(key, Event::Return { at: self.last_checkpoint });
    }

    pub fn is_unsettled(&self, key: &str) -> bool {
        matches!(self.claim_state(key), ClaimState::Unsettled { .. })
    }

    /// Makes a claimed entry ours. `former` is the entry before the claim. No [`super::Entry`]
    /// handles it yet.
    pub fn adopt(&mut self, record: Record, former: Record) {
        self.on(&record.key(), Event::Adopt { former: Box::new(former) });
        self.insert_live(record);
    }

    /// Returns the entry before the claim, if `key` is an adopted entry that no [`super::Entry`]
    /// handles yet. The caller handles it from now on.
    pub fn take_adopted(&mut self, key: &str) -> Option<Record> {
        let ClaimState::Adopted { former, .. } = self.claim_state(key) else { return None };
        let former = Record::clone(former);
        self.on(key, Event::Take);
        Some(former)
    }

    // ---- leases ----

    /// Starts to renew the lease of an instance, because the instance has a run.
    pub fn lease(&mut self, instance: Option<&str>, length: Duration, now: Instant) {
        if let Some(instance) = instance {
            self.leases.start(instance, length, now);
        }
    }

    pub fn renew_at(&self) -> Option<Instant> {
        self.leases.renew_at()
    }

    /// Renews the leases that are due, and returns the lines to write.
    ///
    /// An owner without entries has no lease to renew.
    pub fn renew(&mut self, now: Instant, now_ms: u64) -> Vec<Line> {
        let holders: HashSet<&str> =
            self.live.records().filter_map(|record| record.owner_instance_id.as_deref()).collect();
        let lines = self.leases.renew(&holders, now, now_ms);
        for line in &lines {
            self.live.apply(line.clone());
        }
        lines
    }

    // ---- corrections of what the files say ----

    /// Must be called before a checkpoint reads anything. The checkpoint ends with
    /// [`LocalEntries::settle`], or fails.
    pub fn begin_checkpoint(&mut self) {
        self.last_checkpoint += 1;
    }

    /// Corrects a table that is to be shown: removes stale entries of ours, adds missing ones.
    ///
    /// Returns whether entries were removed or added.
    pub fn correct(&self, table: &mut Table) -> bool {
        let (stale, missing) = (self.stale(table), self.missing(table));
        let changed = !stale.is_empty() || !missing.is_empty();
        for key in &stale {
            table.remove(key);
        }
        for record in missing {
            table.insert(record);
        }
        // Output times are not in the journal, and alone they are no reason to write the file.
        for (key, record) in self.live.iter() {
            if let Some(at) = record.last_output_at_ms {
                table.note_output(key, at);
            }
        }
        changed
    }

    /// Like [`LocalEntries::correct`], for a table that contains only the entries which `filter`
    /// matches.
    ///
    /// With a run id it does not iterate over the other entries.
    pub fn correct_matching(&self, table: &mut Table, filter: &Filter) {
        for key in self.stale(table) {
            table.remove(&key);
        }
        let named = filter.run_id.as_ref().map(|run_id| self.by_run_id.get(run_id).into_iter());
        let mut correct = |key: &str, record: &Record| {
            if !table.contains(key) {
                table.insert(record.clone());
            } else if let Some(at) = record.last_output_at_ms {
                table.note_output(key, at);
            }
        };
        match named {
            Some(keys) => {
                for key in keys {
                    if let Some(record) = self.live.get(key).filter(|record| filter.matches(record)) {
                        correct(key, record);
                    }
                }
            }
            None => {
                for (key, record) in self.live.iter().filter(|(_, record)| filter.matches(record)) {
                    correct(key, record);
                }
            }
        }
    }

    /// Like [`LocalEntries::correct`], for a table that is to be written.
    ///
    /// Returns whether the table was wrong, and the run ids that another owner has taken.
    pub fn settle(&mut self, table: &mut Table) -> (bool, Vec<String>) {
        let number = self.last_checkpoint;
        let mut claims = std::mem::take(&mut self.claims);
        let mut stolen = Vec::new();
        claims.retain(|key, claim| {
            let content = self.content(table.get(key));
            let was_live = claim.is_live();
            *claim = std::mem::take(claim).after(Event::Checkpoint { number, content });
            if was_live && !claim.is_live() {
                stolen.push(key.clone());
            }
            *claim != ClaimState::Unclaimed
        });
        self.claims = claims;
        let run_id = |key: &String| self.live.get(key).map(|record| record.run_id.clone());
        let run_ids = stolen.iter().filter_map(run_id).collect();
        for key in &stolen {
            self.remove_live(key);
        }
        (self.correct(table), run_ids)
    }

    /// What a table says about an entry.
    fn content<'a>(&self, record: Option<&'a Record>) -> Content<'a> {
        match record {
            None => Content::Missing,
            Some(record) if self.is_mine(record) => Content::Ours(record.state),
            Some(record) => Content::Others(record.owner_instance_id.as_deref()),
        }
    }

    /// Whether an entry belongs to one of this memory's instances.
    pub fn is_mine(&self, record: &Record) -> bool {
        let is_of = |instance: &String| self.instances.contains(instance);
        record.bot_start_token.as_ref() == Some(&self.me)
            && record.owner_instance_id.as_ref().is_some_and(is_of)
    }

    /// Keys of entries in the table that are ours on disk, but over.
    fn stale(&self, table: &Table) -> Vec<String> {
        table
            .iter()
            .filter(|(key, record)| self.is_mine(record) && !self.claim_state(key).keeps_entry(record.state))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Entries of ours that the table lacks.
    fn missing(&self, table: &Table) -> Vec<Record> {
        self.live.iter().filter(|(key, _)| !table.contains(key)).map(|(_, record)| record.clone()).collect()
    }
}
