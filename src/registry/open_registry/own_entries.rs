//! The entries of this process: writes, changes and drops them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Inner, Registry};
use crate::registry::error::RegistryError;
use crate::registry::instance::Entry;
use crate::registry::record::{Line, Record};

impl Registry {
    /// Writes a new entry. When this returns, a crash at any later time leaves the entry on disk.
    ///
    /// `is_given`: the user chose the run id, so it may be in use. Two bots that choose the same
    /// run id at exactly the same time both get it.
    pub(in crate::registry) fn begin(
        self: &Arc<Self>,
        record: Record,
        lease: Duration,
        is_given: bool,
    ) -> Result<Entry, RegistryError> {
        self.prepare()?;
        let run_id = record.run_id.clone();
        if is_given && self.is_in_use(&run_id)? {
            return Err(RegistryError::Duplicate { run_id });
        }
        let mut inner = self.inner();
        if inner.own.has_run(&run_id) {
            return Err(RegistryError::Duplicate { run_id });
        }
        self.write_own(&mut inner, record.clone(), lease, Line::Intent { entry: Box::new(record) })
    }

    /// Replaces an entry that this process has claimed, and makes it ours.
    pub(in crate::registry) fn rewrite(
        self: &Arc<Self>,
        record: Record,
        lease: Duration,
    ) -> Result<Entry, RegistryError> {
        let by = record.owner_instance_id.clone().unwrap_or_default();
        let (key, line) = (record.key(), Line::Returned { entry: Box::new(record.clone()), by });
        let mut inner = self.inner();
        let entry = self.write_own(&mut inner, record, lease, line);
        inner.own.release(&[key]);
        self.wake_thread(&mut inner);
        entry
    }

    /// Writes an entry of ours, to memory first.
    ///
    /// A checkpoint removes an entry of ours that is not in memory, so memory comes before the
    /// journal.
    fn write_own(
        self: &Arc<Self>,
        inner: &mut Inner,
        record: Record,
        lease: Duration,
        line: Line,
    ) -> Result<Entry, RegistryError> {
        let key = record.key();
        inner.own.lease(record.owner_instance_id.as_deref(), lease, Instant::now());
        inner.own.remember(record);
        if let Err(error) = self.append_without_wakeup(inner, &[line]) {
            inner.own.forget(&key);
            // No entry will wake the thread later. A checkpoint may make the journal
            // writable again.
            self.wake_thread(inner);
            return Err(error);
        }
        Ok(Entry::new(self.clone(), key))
    }

    /// An entry of this process.
    pub fn entry(self: &Arc<Self>, key: &str) -> Option<(Entry, Record)> {
        let record = self.inner().own.live.get(key)?.clone();
        Some((Entry::new(self.clone(), key.to_owned()), record))
    }

    /// Entries of this process: the one with that run id, or else with that PID; all if neither is
    /// given.
    pub fn own(&self, run_id: Option<&str>, pid: Option<i32>) -> Vec<Record> {
        self.inner().own.find(run_id, pid)
    }

    /// Number of entries that an instance of this process has.
    pub fn count(&self, instance: &str) -> usize {
        let inner = self.inner();
        inner
            .own
            .live
            .records()
            .filter(|record| record.owner_instance_id.as_deref() == Some(instance))
            .count()
    }

    /// Changes an entry of ours.
    ///
    /// If the line cannot be written, memory has the change, and the next checkpoint writes it.
    pub(in crate::registry) fn note(self: &Arc<Self>, line: Line) {
        let mut inner = self.inner();
        inner.own.live.apply(line.clone());
        let _ = self.append(&mut inner, &[line]);
    }

    /// Sets the time of the last output, see [`crate::registry::Entry::note_output`].
    pub(in crate::registry) fn note_output(&self, key: &str, at: u64) {
        // Runs on the event loop, so it must not wait for the lock. The next output comes soon.
        if let Ok(mut inner) = self.inner.try_lock() {
            inner.own.live.note_output(key, at);
        }
    }

    /// Drops an entry of ours whose run is over.
    pub(in crate::registry) fn drop_own(self: &Arc<Self>, key: &str) {
        let mut inner = self.inner();
        inner.own.forget(key);
        inner.gone_senders.remove(key);
        let _ = self.append(&mut inner, &[Line::Dropped { keys: vec![key.to_owned()] }]);
    }

    pub(in crate::registry) fn abandon(&self, key: &str) {
        let mut inner = self.inner();
        inner.gone_senders.remove(key);
        inner.own.abandon(key);
        if inner.is_retired() {
            self.changed.notify_all();
        }
    }

    /// A receiver that ends when the entry is no longer ours. Only one receiver per entry.
    pub(in crate::registry) fn gone(&self, key: &str) -> oneshot::Receiver<()> {
        let (sender, gone) = oneshot::channel();
        let mut inner = self.inner();
        if inner.own.live.contains(key) {
            inner.gone_senders.insert(key.to_owned(), sender);
        }
        gone
    }

    /// Ends the receivers of entries that another owner has taken.
    pub(in crate::registry) fn end_gone_receivers(&self) {
        let mut inner = self.inner();
        let Inner { gone_senders, own, .. } = &mut *inner;
        gone_senders.retain(|key, _| own.live.contains(key));
    }

    pub(in crate::registry) fn is_live(&self, key: &str) -> bool {
        self.inner().own.live.contains(key)
    }
}
