//! Reads the entries of all bots.

use std::sync::PoisonError;

use super::Registry;
use crate::identity::{self, ProcessRef};
use crate::registry::error::RegistryError;
use crate::registry::index::Filter;
use crate::registry::record::{Record, State};
use crate::registry::table::Table;
use crate::registry::view::{Current, UnreadableContent};

/// The entries of the files, corrected by this process's memory.
#[derive(Debug)]
pub struct Contents {
    pub table: Table,
    /// What could not be read, if anything. Then entries may be missing.
    pub flaw: Option<UnreadableContent>,
}

impl Registry {
    /// All entries, of all bots.
    pub fn load(&self) -> Result<Table, RegistryError> {
        Ok(self.contents()?.table)
    }

    /// All entries, and what could not be read.
    pub fn contents(&self) -> Result<Contents, RegistryError> {
        let (mut table, flaw) = self.read(|current| (current.table().clone(), current.flaw(&self.paths)))?;
        self.inner().own.correct(&mut table);
        Ok(Contents { table, flaw })
    }

    /// The entries that a filter matches. With a run id it does not iterate over the other entries.
    pub fn matching(&self, filter: &Filter) -> Result<Contents, RegistryError> {
        let (found, flaw) = self.read(|current| (current.select(filter), current.flaw(&self.paths)))?;
        let mut table = Table::of(found);
        self.inner().own.correct_matching(&mut table, filter);
        Ok(Contents { table, flaw })
    }

    /// Calls `read` with the present content of the files. Reads only what has changed since the
    /// last call.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Current) -> T) -> Result<T, RegistryError> {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(read(view.refresh(&self.paths)?))
    }

    /// The entry of a process, if another owner has it.
    pub fn entry_of_other_owner(
        &self,
        process: Option<&ProcessRef>,
    ) -> Result<Option<Record>, RegistryError> {
        self.prepare()?;
        let Some(process) = process else { return Ok(None) };
        let found = self.read(|current| current.table().get(&process.to_string()).cloned())?;
        let inner = self.inner();
        Ok(found.filter(|record| !inner.own.is_mine(record)))
    }

    /// Whether a run with this id is alive, in this or another bot.
    pub(super) fn is_in_use(&self, run_id: &str) -> Result<bool, RegistryError> {
        if self.inner().own.has_run(run_id) {
            return Ok(true);
        }
        let others = self.read(|current| current.select(&Filter::run(run_id)))?;
        let inner = self.inner();
        let is_alive = |owner: &ProcessRef| owner.state() == identity::State::Alive;
        // Ignore entries of ours on disk: memory does not have the run, so it has just ended.
        let others =
            others.iter().filter(|record| record.state != State::Exited && !inner.own.is_mine(record));
        Ok(others.filter_map(|record| record.bot_start_token.as_ref()).any(is_alive))
    }

    /// Whether a run or process with this scope may be alive, in any bot.
    pub fn has_scope(&self, scope: &str) -> Result<bool, RegistryError> {
        let is_over = |record: &Record| {
            record.state == State::Exited && record.exit.as_ref().is_none_or(|exit| exit.survivors == 0)
        };
        let filter = Filter::scope(scope);
        let found = self.read(|current| current.select(&filter))?;
        let inner = self.inner();
        // For our own entries memory decides.
        let is_anothers = |record: &Record| !is_over(record) && !inner.own.is_mine(record);
        let is_ours = |record: &Record| filter.matches(record) && !is_over(record);
        Ok(found.iter().any(|record| is_anothers(record)) || inner.own.live.records().any(is_ours))
    }
}
