//! The entries that result from all journal lines. Pure: lines in, entries out.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use super::cached_record::CachedRecord;
use super::record::{Exit, Line, Record, State};

/// The entries of a registry, by [`Record::key`].
///
/// Copies of a table share the entries until one changes, because a table may be large.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    entries: HashMap<String, Arc<CachedRecord>>,
}

impl Table {
    pub fn new(entries: impl IntoIterator<Item = Record>) -> Self {
        Self {
            entries: entries
                .into_iter()
                .map(|entry| (entry.key(), Arc::new(CachedRecord::new(entry))))
                .collect(),
        }
    }

    pub fn of(entries: impl IntoIterator<Item = Arc<CachedRecord>>) -> Self {
        Self { entries: entries.into_iter().map(|entry| (entry.key(), entry)).collect() }
    }

    pub fn entry(&self, key: &str) -> Option<&Arc<CachedRecord>> {
        self.entries.get(key)
    }

    pub fn entries(&self) -> impl Iterator<Item = &Arc<CachedRecord>> {
        self.entries.values()
    }

    pub fn get(&self, key: &str) -> Option<&Record> {
        self.entries.get(key).map(|entry| &***entry)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Record)> {
        self.entries.iter().map(|(key, entry)| (key, &***entry))
    }

    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.entries.values().map(|entry| &***entry)
    }

    pub fn remove(&mut self, key: &str) -> Option<Record> {
        self.entries.remove(key).map(CachedRecord::into_record)
    }

    pub fn retain(&mut self, wanted: impl Fn(&Record) -> bool) {
        self.entries.retain(|_, entry| wanted(entry));
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn insert(&mut self, entry: Record) {
        self.entries.insert(entry.key(), Arc::new(CachedRecord::new(entry)));
    }

    /// The entries in the order of the file: oldest first.
    pub fn sorted(&self) -> Vec<&Arc<CachedRecord>> {
        let mut entries: Vec<_> = self.entries.values().collect();
        entries.sort_by(|a, b| (a.started_at, a.pid, &a.run_id).cmp(&(b.started_at, b.pid, &b.run_id)));
        entries
    }

    /// Applies one line.
    ///
    /// Applying the same lines again, from their beginning, changes nothing. This is needed because
    /// a crash can leave a journal whose lines are already in the checkpoint.
    pub fn apply(&mut self, line: Line) {
        match line {
            Line::Intent { entry } => {
                // A writer repeats a line if the journal was replaced meanwhile. The repeated line
                // must not undo later changes.
                self.entries.entry(entry.key()).or_insert_with(|| Arc::new(CachedRecord::new(*entry)));
            }
            Line::Started { key, at } => self.change(&key, at, |entry| {
                if entry.state == State::Starting {
                    entry.state = State::Running;
                }
            }),
            Line::Exiting { key, at } => self.change(&key, at, |entry| {
                if entry.state != State::Exited {
                    entry.state = State::Exiting;
                }
            }),
            Line::Ended { key, exit } => self.change(&key, exit.at_ms, |entry| {
                entry.state = State::Exited;
                entry.exit = Some(exit.clone());
            }),
            Line::Dropped { keys } => {
                for key in &keys {
                    self.entries.remove(key);
                }
            }
            Line::Claimed { claims, by, at } => {
                for claim in claims {
                    self.change(&claim.key, at, |entry| {
                        // Only the first claim succeeds: for the second one, the owner is no longer
                        // `claim.from`.
                        if entry.owner_instance_id == claim.from {
                            entry.bot_pid = by.process.pid;
                            entry.bot_start_token = Some(by.process.clone());
                            entry.owner_instance_id = Some(by.instance.clone());
                            entry.lease_expires_at_ms = Some(by.lease_until);
                            entry.leave_out(&by.process);
                        }
                    });
                }
            }
            Line::Returned { entry, by } => {
                // A repeated line may come after another process's claim. Then it must do nothing.
                let claimed = |present: &&Record| present.owner_instance_id.as_ref() == Some(&by);
                if let Some(present) = self.get(&entry.key()).filter(claimed) {
                    let mut entry = *entry;
                    // The run may have ended while it was claimed, and only the present entry says
                    // how. But an end before the entry's creation does not count if it left
                    // survivors: a bot has seen a survivor alive and has registered it since.
                    let is_earlier = |exit: &Exit| exit.survivors > 0 && exit.at_ms < entry.created_at_ms;
                    if present.state == State::Exited && !present.exit.as_ref().is_some_and(is_earlier) {
                        (entry.state, entry.exit) = (State::Exited, present.exit.clone());
                        entry.updated_at_ms = present.updated_at_ms;
                    }
                    self.insert(entry);
                }
            }
            Line::Lease { instance, until } => {
                for entry in self.entries.values_mut() {
                    if entry.owner_instance_id.as_ref() == Some(&instance) {
                        let entry = CachedRecord::change(entry);
                        entry.lease_expires_at_ms = entry.lease_expires_at_ms.max(Some(until));
                    }
                }
            }
            Line::Updated { key, labels, metadata, at } => self.change(&key, at, |entry| {
                (entry.labels, entry.metadata) = (labels, metadata);
            }),
            Line::Members { key, members, at } => {
                self.change(&key, at, |entry| {
                    entry.members.clone_from(&members);
                    if let Some(owner) = entry.bot_start_token.clone() {
                        entry.leave_out(&owner);
                    }
                });
            }
        }
    }

    /// Sets the time of the last output, if it is later than before.
    pub fn note_output(&mut self, key: &str, at: u64) {
        if self.get(key).is_some_and(|entry| entry.last_output_at_ms < Some(at)) {
            self.change(key, at, |entry| entry.last_output_at_ms = Some(at));
        }
    }

    fn change(&mut self, key: &str, at: u64, change: impl FnOnce(&mut Record)) {
        if let Some(entry) = self.entries.get_mut(key) {
            let entry = CachedRecord::change(entry);
            change(entry);
            entry.updated_at_ms = entry.updated_at_ms.max(at);
        }
    }
}
