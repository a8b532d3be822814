//! An open registry: opens, closes and writes it. Submodules add what this process reads, owns and
//! claims.
//!
//! An intent is one `write` on the caller's thread. A thread of its own writes the file later
//! ([`super::checkpoint_thread`]).

mod claims;
mod own_entries;
mod read;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::checkpoint::{Checkpointer, Outcome, Warning};
use super::checkpoint_thread::{self, LockedOut};
use super::disk::{self, Paths};
use super::error::RegistryError;
use super::journal::Journal;
use super::local_entries::LocalEntries;
use super::record::Line;
use super::view::View;
use crate::identity::{self, ProcessRef};

pub use read::Contents;

type OnWarning = Box<dyn Fn(&Warning) + Send>;

/// The registries that this process has open. Lock order: this one before [`Registry::inner`].
static OPEN: Mutex<BTreeMap<PathBuf, Arc<Registry>>> = Mutex::new(BTreeMap::new());

/// How long the thread retries a failed checkpoint after the last supervisor has closed. By then
/// the journal has all changes.
const RETIREMENT: Duration = Duration::from_secs(1);

/// A registry that this process has open: one per path.
///
/// It exists until the last supervisor on the path closes and no entry of this process is left.
pub struct Registry {
    pub(super) paths: Paths,
    me: ProcessRef,
    inner: Mutex<Inner>,
    pub(super) changed: Condvar,
    pub(super) checkpointer: Mutex<Checkpointer>,
    pub(super) view: Mutex<View>,
    /// The warning listeners, each with the id of its supervisor.
    pub(super) listeners: Mutex<Vec<(String, OnWarning)>>,
    ready: OnceLock<()>,
}

pub(super) struct Inner {
    pub(super) journal: Journal,
    pub(super) own: LocalEntries,
    pub(super) checkpoint_at: Option<Instant>,
    /// `checkpoint_at` was set, and the thread has not been woken since.
    needs_wakeup: bool,
    /// Duration of the last checkpoint.
    pub(super) cost: Duration,
    /// Set while another process holds the lock at each of our attempts.
    pub(super) locked_out: Option<LockedOut>,
    pub(super) has_thread: bool,
    /// The thread. To be joined after it has cleared `has_thread`.
    pub(super) thread: Option<JoinHandle<()>>,
    /// Number of supervisors that have opened this registry and not closed it.
    users: usize,
    /// When the last supervisor closed.
    unused_since: Option<Instant>,
    /// By entry key: a sender that is dropped when the entry is no longer ours, see
    /// [`Registry::gone`].
    gone_senders: HashMap<String, oneshot::Sender<()>>,
}

impl Inner {
    /// Whether the thread has nothing left to do, now or later.
    pub(super) fn is_retired(&self) -> bool {
        self.users == 0 && self.checkpoint_at.is_none() && self.own.is_idle()
    }

    /// Whether to stop retrying a failed checkpoint, because no supervisor waits for the file any
    /// more.
    pub(super) fn gives_up(&self) -> bool {
        self.users == 0 && self.unused_since.is_some_and(|since| since.elapsed() >= RETIREMENT)
    }
}

impl Registry {
    /// Opens the registry at this path for one more supervisor, which must call
    /// [`Registry::close`].
    ///
    /// Writes nothing.
    pub fn at(json: PathBuf) -> Result<Arc<Self>, RegistryError> {
        let json = canonical(json);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(registry) = open.get(&json) {
            let mut inner = registry.inner();
            inner.users += 1;
            inner.unused_since = None;
            if inner.users == 1 {
                // A caller of `wait_closed` waits for the end of a thread that now continues.
                registry.changed.notify_all();
            }
            return Ok(registry.clone());
        }
        identity::check_proc().map_err(RegistryError::NoProc)?;
        let me = identity::me().map_err(|errno| RegistryError::Exhausted { errno })?;
        let paths = Paths::new(json.clone());
        let registry = Arc::new(Self {
            checkpointer: Mutex::new(Checkpointer::new(paths.clone())),
            view: Mutex::default(),
            paths,
            inner: Mutex::new(Inner {
                journal: Journal::default(),
                own: LocalEntries::new(me.clone()),
                checkpoint_at: None,
                needs_wakeup: false,
                cost: Duration::ZERO,
                locked_out: None,
                has_thread: false,
                thread: None,
                users: 1,
                unused_since: None,
                gone_senders: HashMap::new(),
            }),
            me,
            changed: Condvar::new(),
            listeners: Mutex::default(),
            ready: OnceLock::new(),
        });
        open.insert(json, registry.clone());
        Ok(registry)
    }

    pub fn path(&self) -> &Path {
        &self.paths.json
    }

    /// The identity of this process: the owner of its entries.
    pub fn me(&self) -> &ProcessRef {
        &self.me
    }

    pub fn on_warning(&self, instance: &str, listener: OnWarning) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push((instance.to_owned(), listener));
    }

    /// Removes one supervisor.
    ///
    /// The last one ends the thread, which first brings the file up to date. If entries of ours are
    /// still alive (a service, a survivor), the thread runs until they are over.
    pub fn close(self: &Arc<Self>, instance: &str) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, _)| id != instance);
        let mut inner = self.inner();
        inner.users = inner.users.saturating_sub(1);
        if inner.users > 0 {
            return;
        }
        inner.unused_since = Some(Instant::now());
        if inner.has_thread {
            self.changed.notify_all();
        } else if inner.is_retired() {
            self.remove_from(&mut open);
        }
    }

    /// Waits for the result of [`Registry::close`]. Blocks.
    ///
    /// Then the file is up to date. If the last supervisor closed, the thread has ended.
    pub fn wait_closed(&self) {
        self.flush(RETIREMENT);
        // The thread clears `has_thread` last, under the lock. Before that it may still have to
        // make a checkpoint.
        let give_up_at = Instant::now() + 2 * RETIREMENT;
        let mut inner = self.inner();
        while inner.users == 0 && inner.has_thread && inner.own.is_idle() {
            let left = give_up_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            inner =
                self.changed.wait_timeout(inner, left).map_or_else(|error| error.into_inner().0, |it| it.0);
        }
        let thread = if inner.has_thread { None } else { inner.thread.take() };
        drop(inner);
        let _ = thread.map(JoinHandle::join);
    }

    /// Ends the thread if it has nothing left to do. Returns whether it ended.
    ///
    /// Holds both locks. So a supervisor that opens this path comes before this, and the thread
    /// continues; or it finds no open registry, and creates a new one.
    pub(super) fn retire(self: &Arc<Self>) -> bool {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut inner = self.inner();
        if !inner.is_retired() {
            return false;
        }
        inner.has_thread = false;
        self.remove_from(&mut open);
        self.changed.notify_all();
        true
    }

    /// Removes this registry from the open ones.
    ///
    /// If this registry was used after its end, another one may have its path by now. That one
    /// stays.
    fn remove_from(self: &Arc<Self>, open: &mut BTreeMap<PathBuf, Arc<Self>>) {
        if open.get(&self.paths.json).is_some_and(|registry| Arc::ptr_eq(registry, self)) {
            open.remove(&self.paths.json);
        }
    }

    /// Brings the file up to date now, within `limit`.
    ///
    /// While the thread makes a checkpoint, no checkpoint is due. But the thread would die with the
    /// process, in the middle of it. So this waits for the checkpointer first. On a disk that does
    /// not respond it gives up after `limit`.
    pub fn flush(&self, limit: Duration) {
        // Another process has held the lock for long, so it will not be free within `limit`. Do not
        // block the event loop for that.
        let is_locked_for_long = self.inner().locked_out.as_ref().is_some_and(LockedOut::is_long);
        let give_up_at = Instant::now() + if is_locked_for_long { Duration::ZERO } else { limit };
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

    /// Checks the files, once. So a registry that must not be written is refused before anything is
    /// started.
    pub(super) fn prepare(&self) -> Result<(), RegistryError> {
        if self.ready.get().is_some() {
            return Ok(());
        }
        self.paths.make_folder()?;
        disk::open_to_append(&self.paths.lock)?;
        disk::read(&self.paths.old)?;
        self.read(|_| ())?;
        let _ = self.ready.set(());
        Ok(())
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes lines and schedules a checkpoint. Lines about our own entries are already applied to
    /// memory.
    pub(super) fn append(self: &Arc<Self>, inner: &mut Inner, lines: &[Line]) -> Result<(), RegistryError> {
        let written = self.append_without_wakeup(inner, lines);
        self.wake_thread(inner);
        written
    }

    /// Writes lines and schedules a checkpoint, but leaves the thread asleep until
    /// [`Registry::wake_checkpoint_thread`] is called.
    fn append_without_wakeup(
        self: &Arc<Self>,
        inner: &mut Inner,
        lines: &[Line],
    ) -> Result<(), RegistryError> {
        self.start_thread(inner)?;
        let written = inner.journal.write(&self.paths, lines);
        schedule(inner);
        written
    }

    /// Wakes the thread, if a checkpoint was scheduled since it was last woken.
    pub(super) fn wake_checkpoint_thread(&self) {
        self.wake_thread(&mut self.inner());
    }

    /// Wakes the thread, if needed.
    ///
    /// Notifies all waiters: a caller of [`Registry::wait_closed`] waits for the same condition
    /// variable, and a single notification could go to it. The thread would then sleep through the
    /// checkpoint, because `needs_wakeup` is already false.
    fn wake_thread(&self, inner: &mut Inner) {
        if std::mem::take(&mut inner.needs_wakeup) {
            self.changed.notify_all();
        }
    }

    /// Schedules a checkpoint if there is a journal, for example of a bot that died before its own
    /// checkpoint.
    pub fn catch_up(self: &Arc<Self>) {
        if disk::stamp(&self.paths.journal).is_some() || disk::stamp(&self.paths.old).is_some() {
            let mut inner = self.inner();
            if self.start_thread(&mut inner).is_ok() {
                schedule(&mut inner);
                self.wake_thread(&mut inner);
            }
        }
    }
}

fn schedule(inner: &mut Inner) {
    if inner.checkpoint_at.is_none() {
        inner.checkpoint_at = Some(Instant::now() + checkpoint_thread::delay(inner.cost));
        inner.needs_wakeup = true;
    }
}

/// The path with its folder's canonical name, because one folder may have several names.
fn canonical(json: PathBuf) -> PathBuf {
    match (json.parent().map(std::fs::canonicalize), json.file_name()) {
        (Some(Ok(folder)), Some(name)) => disk::plain(folder.join(name)),
        _ => json,
    }
}
