//! Who answers for runs, and the entries of these runs.

use std::sync::Arc;
use std::time::Duration;

use super::error::RegistryError;
use super::ledger::Registry;
use super::now_ms;
use super::own::millis;
#[cfg(windows)]
use super::record::Keeper;
use super::record::{Claim, Line, Record};
use crate::identity::{self, ProcessRef};
use crate::observe::counters::Counters;
use crate::observe::orphan_log::OrphanLog;

/// One supervisor of this process: who answers for the runs it starts, registers or takes over.
#[derive(Clone)]
pub struct Instance {
    pub registry: &'static Registry,
    pub id: String,
    pub lease: Duration,
    /// How often what has happened to its runs.
    pub counters: Arc<Counters>,
    /// Where it is written down what was decided about orphans.
    pub orphan_log: Option<Arc<OrphanLog>>,
}

impl Instance {
    /// Writes an entry down, as ours. See [`Registry::begin`]. The file is to be told with [`Entry::follow`].
    pub fn begin(&self, mut record: Record, is_given: bool) -> Result<Entry, RegistryError> {
        if identity::boot_id().is_empty() {
            return Err(RegistryError::Nameless);
        }
        self.sign(&mut record);
        self.registry.begin(record, self.lease, is_given)
    }

    /// The same for one that a bot has had which is gone: what we say of it replaces what that bot said. `None` if another is faster.
    pub fn take_over(
        &self,
        mut record: Record,
        from: Option<String>,
    ) -> Result<Option<Entry>, RegistryError> {
        if self.claim(vec![Claim { key: record.key(), from }])?.is_empty() {
            return Ok(None);
        }
        self.sign(&mut record);
        self.registry.rewrite(record, self.lease).map(Some)
    }

    /// Writes down that an entry which was claimed has a keeper of ours from here on: where the bot is the keeper, it has changed with it.
    #[cfg(windows)]
    pub fn keep(&self, record: &Record, keeper: Keeper) -> Result<Entry, RegistryError> {
        let mut record = Record { keeper: Some(keeper), ..record.clone() };
        self.sign(&mut record);
        self.registry.rewrite(record, self.lease)
    }

    fn sign(&self, record: &mut Record) {
        record.bot_pid = self.registry.me().pid;
        record.bot_start_token = Some(self.registry.me().clone());
        record.owner_instance_id = Some(self.id.clone());
        record.lease_expires_at_ms = Some(now_ms().saturating_add(millis(self.lease)));
    }

    /// See [`Registry::claim`].
    pub fn claim(&self, wanted: Vec<Claim>) -> Result<Vec<Record>, RegistryError> {
        self.registry.claim(wanted, &self.id, self.lease)
    }

    /// The entries of these keys that there are. Our own are in memory, and are found whatever state the files are in.
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

/// An entry of this process's.
#[derive(Clone)]
pub struct Entry {
    registry: &'static Registry,
    key: String,
}

impl Entry {
    pub(super) fn new(registry: &'static Registry, key: String) -> Self {
        Self { registry, key }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// Has the file follow the journal. Waking the thread that does it is for whoever has the time.
    pub fn follow(&self) {
        self.registry.follow();
    }

    /// The command runs.
    pub fn started(&self) {
        self.registry.note(Line::Started { key: self.key.clone(), at: now_ms() });
    }

    /// The tree is being ended.
    pub fn exiting(&self) {
        self.registry.note(Line::Exiting { key: self.key.clone(), at: now_ms() });
    }

    /// Something was heard of it. That alone is no reason to write: the file has it with the next change, or the next heartbeat.
    pub fn heard(&self) {
        self.registry.heard(&self.key, now_ms());
    }

    /// Who is in its group.
    pub fn members(&self, members: Vec<ProcessRef>) {
        self.registry.note(Line::Members { key: self.key.clone(), members, at: now_ms() });
    }

    /// Nothing of it exists any more.
    pub fn over(&self) {
        self.registry.drop_own(&self.key);
    }

    /// Whether it is still ours.
    pub fn is_live(&self) -> bool {
        self.registry.is_live(&self.key)
    }

    /// It is its keeper's from here on.
    pub fn abandon(&self) {
        self.registry.abandon(&self.key);
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Entry").field(&self.key).finish()
    }
}
