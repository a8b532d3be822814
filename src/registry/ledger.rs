//! A registry as a bot holds it: what it writes, reads and claims. An intent is one `write` on the caller's thread; the file
//! follows on a thread of its own ([`super::upkeep`]).

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::checkpoint::{self, Checkpointer, LastRead, Outcome, Trouble};
use super::disk::{self, Paths};
use super::error::RegistryError;
use super::instance::Entry;
use super::journal::{self, Journal};
use super::own::{Own, millis};
use super::record::{Claim, Line, Owner, Record, State};
use super::table::Table;
use super::{now_ms, upkeep};
use crate::identity::{self, ProcessRef};

type OnTrouble = Box<dyn Fn(&Trouble) + Send>;

/// One per path and process, for as long as the process lives.
pub struct Registry {
    pub(super) paths: Paths,
    me: ProcessRef,
    inner: Mutex<Inner>,
    pub(super) changed: Condvar,
    pub(super) checkpointer: Mutex<Checkpointer>,
    pub(super) last_read: Mutex<LastRead>,
    pub(super) listeners: Mutex<Vec<OnTrouble>>,
    ready: OnceLock<()>,
}

pub(super) struct Inner {
    pub(super) journal: Journal,
    pub(super) own: Own,
    pub(super) checkpoint_at: Option<Instant>,
    /// The thread has not been told of that.
    untold: bool,
    /// How long the last checkpoint took.
    pub(super) cost: Duration,
    pub(super) has_thread: bool,
}

impl Registry {
    /// The registry at this path, of which there may be several. Writes nothing.
    pub fn at(json: PathBuf) -> Result<&'static Self, RegistryError> {
        static OPEN: Mutex<Option<HashMap<PathBuf, &'static Registry>>> = Mutex::new(None);
        let json = canonical(json);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open.get_or_insert_default();
        if let Some(registry) = open.get(&json) {
            return Ok(registry);
        }
        let me =
            identity::me().map_err(|errno| RegistryError::Unreadable { path: "/proc/self".into(), errno })?;
        let paths = Paths::new(json.clone());
        let registry = Box::leak(Box::new(Self {
            checkpointer: Mutex::new(Checkpointer::new(paths.clone())),
            last_read: Mutex::default(),
            paths,
            inner: Mutex::new(Inner {
                journal: Journal::default(),
                own: Own::new(me.clone()),
                checkpoint_at: None,
                untold: false,
                cost: Duration::ZERO,
                has_thread: false,
            }),
            me,
            changed: Condvar::new(),
            listeners: Mutex::default(),
            ready: OnceLock::new(),
        }));
        open.insert(json, registry);
        Ok(registry)
    }

    pub fn path(&self) -> &Path {
        &self.paths.json
    }

    /// This process, as its entries name their owner.
    pub fn me(&self) -> &ProcessRef {
        &self.me
    }

    pub fn on_trouble(&self, listener: OnTrouble) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    /// Writes an entry down. When this returns, a crash at any later instant leaves a trace of it.
    ///
    /// A run id that was given, and not made up, may be in use. Two bots that give the same at the very same time both get it.
    pub(super) fn begin(
        &'static self,
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

    /// Somebody else's entry of a process.
    pub fn foreign(&self, process: Option<&ProcessRef>) -> Result<Option<Record>, RegistryError> {
        self.prepare()?;
        let Some(process) = process else { return Ok(None) };
        let search = |table: &Table| table.get(&process.to_string()).cloned().into_iter().collect();
        let found = self.find(search, |record| record.start_token.as_ref() == Some(process))?;
        let inner = self.inner();
        Ok(found.into_iter().find(|record| !inner.own.is_mine(record)))
    }

    /// An entry that was claimed, as we have it from here on.
    pub(super) fn rewrite(&'static self, record: Record, lease: Duration) -> Result<Entry, RegistryError> {
        let by = record.owner_instance_id.clone().unwrap_or_default();
        let (key, line) = (record.key(), Line::Returned { entry: Box::new(record.clone()), by });
        let mut inner = self.inner();
        let entry = self.write_own(&mut inner, record, lease, line);
        inner.own.unclaim(&[key]);
        self.wake_thread(&mut inner);
        entry
    }

    /// In memory first: a checkpoint that finds an entry of ours which we do not know throws it out.
    fn write_own(
        &'static self,
        inner: &mut Inner,
        record: Record,
        lease: Duration,
        line: Line,
    ) -> Result<Entry, RegistryError> {
        let key = record.key();
        inner.own.lease(record.owner_instance_id.as_deref(), lease, Instant::now());
        inner.own.remember(record);
        if let Err(error) = self.append_quietly(inner, &[line]) {
            inner.own.forget(&key);
            // There is no entry that would have the file follow, and a checkpoint may be what makes the next line possible.
            self.wake_thread(inner);
            return Err(error);
        }
        Ok(Entry::new(self, key))
    }

    /// Everything in the registry, everybody's.
    pub fn load(&self) -> Result<Table, RegistryError> {
        let mut table = self.read()?;
        self.inner().own.correct(&mut table);
        Ok(table)
    }

    /// Those that are wanted, by what never changes about an entry. If there are many others, that is much cheaper than all of them.
    pub fn load_wanted(&self, wanted: impl Fn(&Record) -> bool) -> Result<Table, RegistryError> {
        let search = |table: &Table| table.records().filter(|record| wanted(record)).cloned().collect();
        let mut table = Table::new(self.find(search, &wanted)?);
        self.inner().own.correct(&mut table);
        table.retain(wanted);
        Ok(table)
    }

    /// What is on the disk. The file is read again only if it is another one than last time.
    fn read(&self) -> Result<Table, RegistryError> {
        let mut last = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        checkpoint::load(&self.paths, &mut last)
    }

    /// Takes entries over from their owners as they were seen. Returns those that are ours now; the others went to somebody
    /// who was faster. To be settled, each, by [`Registry::drop_claimed`] or [`Registry::adopt`].
    pub(super) fn claim(
        &'static self,
        mut wanted: Vec<Claim>,
        instance: &str,
        lease: Duration,
    ) -> Result<Vec<Record>, RegistryError> {
        self.prepare()?;
        let now = now_ms();
        let mut inner = self.inner();
        // What somebody in this process has, or is about to have, is taken.
        wanted.retain(|claim| inner.own.claim(claim, instance));
        let keys: Vec<String> = wanted.iter().map(|claim| claim.key.clone()).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let owner = Owner {
            instance: instance.to_owned(),
            process: self.me.clone(),
            lease_until: now.saturating_add(millis(lease)),
        };
        if let Err(error) = self.append(&mut inner, &[Line::Claimed { claims: wanted, by: owner, at: now }]) {
            // It may have been written all the same.
            inner.own.loosen(&keys);
            return Err(error);
        }
        drop(inner);
        // What the journal says now is what everybody who reads it later will see, too.
        let mut table = match self.read() {
            Ok(table) => table,
            Err(error) => {
                self.inner().own.loosen(&keys);
                return Err(error);
            }
        };
        let mut inner = self.inner();
        let mut ours = Vec::new();
        for key in keys {
            match table.remove(&key).filter(|record| record.owner_instance_id.as_deref() == Some(instance)) {
                Some(record) => ours.push(record),
                None => inner.own.unclaim(&[key]),
            }
        }
        Ok(ours)
    }

    /// Entries that were claimed, and whose runs are over.
    pub fn drop_claimed(&'static self, keys: Vec<String>) -> Result<(), RegistryError> {
        let mut inner = self.inner();
        // Should it not be written down, the next checkpoint throws them out.
        inner.own.unclaim(&keys);
        self.append(&mut inner, &[Line::Dropped { keys }])
    }

    /// An entry that was claimed, and whose run could be neither ended nor taken over: it is again as it was.
    pub fn give_back(&'static self, former: &Record, instance: &str) -> Result<(), RegistryError> {
        let key = former.key();
        let mut inner = self.inner();
        inner.own.forget(&key);
        // Until a checkpoint has seen that, it is ours on paper.
        inner.own.loosen(&[key]);
        self.append(
            &mut inner,
            &[Line::Returned { entry: Box::new(former.clone()), by: instance.to_owned() }],
        )
    }

    /// An entry that [`Registry::adopt`] has made ours, for whoever looks after it from here on, and as it was before.
    pub fn take_adopted(&'static self, key: &str) -> Option<(Entry, Record, Record)> {
        let former = self.inner().own.take_adopted(key)?;
        self.entry(key).map(|(entry, record)| (entry, record, former))
    }

    /// An entry of ours.
    pub fn entry(&'static self, key: &str) -> Option<(Entry, Record)> {
        let record = self.inner().own.live.get(key)?.clone();
        Some((Entry::new(self, key.to_owned()), record))
    }

    /// An entry that was claimed, and whose run goes on as ours. To be taken with [`Registry::take_adopted`].
    pub(super) fn adopt(&'static self, record: Record, former: Record, lease: Duration) {
        let mut inner = self.inner();
        inner.own.lease(record.owner_instance_id.as_deref(), lease, Instant::now());
        inner.own.adopt(record, former);
    }

    /// This process's own entries: the one with that run id, or that PID, or all.
    pub fn own(&self, run_id: Option<&str>, pid: Option<i32>) -> Vec<Record> {
        self.inner().own.find(run_id, pid)
    }

    /// Brings the file up to date now, within `limit`.
    ///
    /// That nothing is due says nothing as long as the thread is at it: it would die with the process, half way. So it has to
    /// let go of the checkpointer first; on a disk that does not answer it may not.
    pub fn flush(&self, limit: Duration) {
        let give_up_at = Instant::now() + limit;
        loop {
            let checkpointer = match self.checkpointer.try_lock() {
                Ok(checkpointer) => Some(checkpointer),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(mut checkpointer) = checkpointer {
                let is_due = self.inner().checkpoint_at.is_some();
                if !is_due
                    || self
                        .checkpoint(&mut checkpointer, give_up_at.saturating_duration_since(Instant::now()))
                        != Some(Outcome::Busy)
                {
                    return;
                }
            }
            if Instant::now() >= give_up_at {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Looks at what is there, once: a registry that we must not write to is refused before anything is started.
    pub(super) fn prepare(&self) -> Result<(), RegistryError> {
        if self.ready.get().is_some() {
            return Ok(());
        }
        self.paths.make_folder()?;
        disk::open_to_append(&self.paths.lock)?;
        disk::read(&self.paths.old)?;
        self.read()?;
        let _ = self.ready.set(());
        Ok(())
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes lines, ours already applied, and has the file follow.
    pub(super) fn append(&'static self, inner: &mut Inner, lines: &[Line]) -> Result<(), RegistryError> {
        let written = self.append_quietly(inner, lines);
        self.wake_thread(inner);
        written
    }

    /// The file follows when [`Registry::follow`] is called.
    fn append_quietly(&'static self, inner: &mut Inner, lines: &[Line]) -> Result<(), RegistryError> {
        self.start_thread(inner)?;
        let written = inner.journal.append(&self.paths, &journal::encode(lines));
        schedule(inner);
        written
    }

    /// Tells the thread what it may not know yet.
    pub(super) fn follow(&self) {
        self.wake_thread(&mut self.inner());
    }

    fn wake_thread(&self, inner: &mut Inner) {
        if std::mem::take(&mut inner.untold) {
            self.changed.notify_one();
        }
    }

    /// Has the file follow what a bot has written that did not live to see to that.
    pub fn catch_up(&'static self) {
        if disk::stamp(&self.paths.journal).is_some() || disk::stamp(&self.paths.old).is_some() {
            let mut inner = self.inner();
            if self.start_thread(&mut inner).is_ok() {
                schedule(&mut inner);
                self.wake_thread(&mut inner);
            }
        }
    }

    /// Whether a living run has this id, here or in another bot.
    fn is_in_use(&self, run_id: &str) -> Result<bool, RegistryError> {
        if self.inner().own.has_run(run_id) {
            return Ok(true);
        }
        let wanted = |record: &Record| record.run_id == run_id && record.state != State::Exited;
        let search = |table: &Table| table.records().filter(|record| wanted(record)).cloned().collect();
        let others = self.find(search, wanted)?;
        let inner = self.inner();
        let is_alive = |owner: &ProcessRef| owner.state() == identity::State::Alive;
        // Of ours we know better: it has just ended.
        let others = others.iter().filter(|record| !inner.own.is_mine(record));
        Ok(others.filter_map(|record| record.bot_start_token.as_ref()).any(is_alive))
    }

    /// Whether there may be a living run or process with this scope, whoever's it is.
    pub fn has_scope(&self, scope: &str) -> Result<bool, RegistryError> {
        let is_over = |record: &Record| {
            record.state == State::Exited && record.exit.as_ref().is_none_or(|exit| exit.survivors == 0)
        };
        let wanted = |record: &Record| record.scope_key.as_deref() == Some(scope) && !is_over(record);
        let search = |table: &Table| table.records().filter(|record| wanted(record)).cloned().collect();
        let found = self.find(search, wanted)?;
        let inner = self.inner();
        // Of ours we know better.
        Ok(found.iter().any(|record| !inner.own.is_mine(record)) || inner.own.live.records().any(wanted))
    }

    fn find(
        &self,
        search: impl FnOnce(&Table) -> Vec<Record>,
        wanted: impl Fn(&Record) -> bool,
    ) -> Result<Vec<Record>, RegistryError> {
        let mut last = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = checkpoint::find(&self.paths, &mut last, search, &wanted)?;
        // The journal may have changed what was wanted.
        found.retain(wanted);
        Ok(found)
    }

    /// A change of an entry of ours. Should it not reach the disk, memory knows, and the next checkpoint tells.
    pub(super) fn note(&'static self, line: Line) {
        let mut inner = self.inner();
        inner.own.live.apply(line.clone());
        let _ = self.append(&mut inner, &[line]);
    }

    /// See [`super::instance::Entry::heard`].
    pub(super) fn heard(&self, key: &str, at: u64) {
        // On the event loop, where nothing is waited for: the next time is soon.
        if let Ok(mut inner) = self.inner.try_lock() {
            inner.own.live.heard(key, at);
        }
    }

    /// How many entries an instance of this process has.
    pub fn count(&self, instance: &str) -> usize {
        let inner = self.inner();
        inner
            .own
            .live
            .records()
            .filter(|record| record.owner_instance_id.as_deref() == Some(instance))
            .count()
    }

    /// An entry of ours whose run is over.
    pub(super) fn drop_own(&'static self, key: &str) {
        let mut inner = self.inner();
        inner.own.forget(key);
        let _ = self.append(&mut inner, &[Line::Dropped { keys: vec![key.to_owned()] }]);
    }

    pub(super) fn abandon(&self, key: &str) {
        self.inner().own.abandon(key);
    }

    /// Whether an entry is ours on paper only: nobody looks after it.
    pub fn is_loose(&self, key: &str) -> bool {
        self.inner().own.is_loose(key)
    }

    pub(super) fn is_live(&self, key: &str) -> bool {
        self.inner().own.live.contains(key)
    }
}

fn schedule(inner: &mut Inner) {
    if inner.checkpoint_at.is_none() {
        inner.checkpoint_at = Some(Instant::now() + upkeep::delay(inner.cost));
        inner.untold = true;
    }
}

/// One folder may have several names.
fn canonical(json: PathBuf) -> PathBuf {
    match (json.parent().map(std::fs::canonicalize), json.file_name()) {
        (Some(Ok(folder)), Some(name)) => disk::plain(folder.join(name)),
        _ => json,
    }
}
