//! A supervisor as the owner of runs ([`Instance`]), and its entries ([`Entry`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::error::RegistryError;
use super::leases::millis;
use super::now_ms;
use super::open_registry::Registry;
#[cfg(windows)]
use super::record::Keeper;
use super::record::{Claim, Line, Record};
use crate::counters::Counters;
use crate::identity::{self, ProcessRef};
use crate::registry::orphan_log::OrphanLog;

/// One supervisor of this process: the owner of the runs that it starts, registers or takes over.
#[derive(Clone)]
pub struct Instance {
    pub registry: Arc<Registry>,
    pub id: String,
    pub lease: Duration,
    /// Counts the events of its runs.
    pub counters: Arc<Counters>,
    /// The log of decisions about orphans.
    pub orphan_log: Option<Arc<OrphanLog>>,
}

impl Instance {
    /// Writes a new entry with this instance as the owner. See [`Registry::begin`].
    ///
    /// The file is updated after a call of [`Entry::wake_checkpoint_thread`].
    pub fn begin(&self, mut record: Record, is_given: bool) -> Result<Entry, RegistryError> {
        if identity::boot_id().is_empty() {
            return Err(RegistryError::NoBootId);
        }
        self.set_owner(&mut record);
        self.registry.begin(record, self.lease, is_given)
    }

    /// Like [`Instance::begin`], for an entry whose bot is gone: `record` replaces that bot's
    /// entry.
    ///
    /// `None` if another process claims the entry first.
    pub fn take_over(
        &self,
        mut record: Record,
        from: Option<String>,
    ) -> Result<Option<Entry>, RegistryError> {
        if self.claim(vec![Claim { key: record.key(), from }])?.is_empty() {
            return Ok(None);
        }
        self.set_owner(&mut record);
        self.registry.rewrite(record, self.lease).map(Some)
    }

    /// Replaces the keeper of a claimed entry by this process. On Windows the bot is the keeper, so
    /// a new owner means a new keeper.
    #[cfg(windows)]
    pub fn keep(&self, record: &Record, keeper: Keeper) -> Result<Entry, RegistryError> {
        let mut record = Record { keeper: Some(keeper), ..record.clone() };
        self.set_owner(&mut record);
        self.registry.rewrite(record, self.lease)
    }

    fn set_owner(&self, record: &mut Record) {
        record.bot_pid = self.registry.me().pid;
        record.bot_start_token = Some(self.registry.me().clone());
        record.owner_instance_id = Some(self.id.clone());
        record.lease_expires_at_ms = Some(now_ms().saturating_add(millis(self.lease)));
    }

    /// See [`Registry::claim`].
    pub fn claim(&self, wanted: Vec<Claim>) -> Result<Vec<Record>, RegistryError> {
        self.registry.claim(wanted, &self.id, self.lease)
    }

    /// The existing entries with these keys.
    ///
    /// Our own entries come from memory, so they are found even if the files cannot be read.
    pub fn entries(&self, keys: &[String]) -> Result<Vec<Record>, RegistryError> {
        let own = |key: &String| self.registry.entry(key).map(|(_, record)| record);
        if let Some(records) = keys.iter().map(own).collect() {
            return Ok(records);
        }
        let table = self.registry.load()?;
        Ok(keys.iter().filter_map(|key| table.get(key)).cloned().collect())
    }

    /// See [`Registry::adopt`].
    pub fn adopt(&self, record: Record, former: Record) {
        self.registry.adopt(record, former, self.lease);
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance")
            .field("id", &self.id)
            .field("registry", &self.registry.path())
            .finish_non_exhaustive()
    }
}

/// An entry of this process.
#[derive(Clone)]
pub struct Entry {
    registry: Arc<Registry>,
    key: String,
}

impl Entry {
    pub(super) fn new(registry: Arc<Registry>, key: String) -> Self {
        Self { registry, key }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// Wakes the thread that updates the file.
    ///
    /// Separate from writing the entry, so that the caller can do it when time matters less.
    pub fn wake_checkpoint_thread(&self) {
        self.registry.wake_checkpoint_thread();
    }

    /// The command runs.
    pub fn started(&self) {
        self.registry.note(Line::Started { key: self.key.clone(), at: now_ms() });
    }

    /// The tree is being ended.
    pub fn exiting(&self) {
        self.registry.note(Line::Exiting { key: self.key.clone(), at: now_ms() });
    }

    /// The run has written output.
    ///
    /// This alone does not write the file: the time is written with the next change or heartbeat.
    pub fn note_output(&self) {
        self.registry.note_output(&self.key, now_ms());
    }

    /// Replaces the members of its process group.
    pub fn members(&self, members: Vec<ProcessRef>) {
        self.registry.note(Line::Members { key: self.key.clone(), members, at: now_ms() });
    }

    /// Replaces its labels and its metadata.
    pub fn update(&self, labels: BTreeMap<String, String>, metadata: Option<serde_json::Value>) {
        self.registry.note(Line::Updated { key: self.key.clone(), labels, metadata, at: now_ms() });
    }

    /// Drops the entry, because no process of the run is left.
    pub fn remove(&self) {
        self.registry.drop_own(&self.key);
    }

    /// Ends when the entry is no longer ours: unregistered, over, or claimed by another owner.
    pub async fn gone(&self) {
        let _ = self.registry.gone(&self.key).await;
    }

    /// Whether the entry is still ours.
    pub fn is_live(&self) -> bool {
        self.registry.is_live(&self.key)
    }

    /// Leaves the entry to its keeper.
    pub fn abandon(&self) {
        self.registry.abandon(&self.key);
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Entry").field(&self.key).finish()
    }
}
