//! The thread of an open registry: makes checkpoints and renews the leases.
//!
//! A slow disk does not block the event loop, and a blocked event loop does not let a lease expire.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::errno::Errno;
use crate::runtime;

use super::checkpoint::{Checkpointer, Outcome, Warning};
use super::disk::{self, FileId, Paths, Stamp};
use super::error::RegistryError;
use super::now_ms;
use super::open_registry::{Inner, Registry};
use super::table::Table;
use crate::identity;

/// Shortest time from a change to its checkpoint.
const MIN_DELAY: Duration = Duration::from_millis(60);
/// Longest time from a change to its checkpoint. The file may be 250 ms behind; the rest is reserve
/// for a busy machine.
const MAX_DELAY: Duration = Duration::from_millis(200);
/// Delay before the next attempt while another process holds the lock: the first value, and the
/// longest.
const BUSY_RETRY: Duration = Duration::from_millis(10);
const BUSY_RETRY_MAX: Duration = Duration::from_millis(500);
/// A lock that is held this long is held by a stopped process or by another program. A checkpoint
/// takes milliseconds.
const HELD_LONG: Duration = Duration::from_secs(2);
/// Delay before the next attempt after a failed checkpoint.
const RETRY_AFTER_ERROR: Duration = Duration::from_secs(1);
/// How long file operations are retried while another process has the file open (Windows).
const PATIENCE: Duration = Duration::from_secs(1);

impl Registry {
    pub(super) fn start_thread(self: &Arc<Self>, inner: &mut Inner) -> Result<(), RegistryError> {
        if inner.has_thread {
            return Ok(());
        }
        let registry = self.clone();
        let thread = runtime::thread("spawn-owned-log")
            .spawn(move || {
                // A panic in one turn must not end the thread.
                let turn = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| registry.turn()));
                while turn().unwrap_or(true) {}
            })
            .map_err(|_| RegistryError::Unwritable { path: self.paths.json.clone(), errno: Errno::EAGAIN })?;
        inner.has_thread = true;
        inner.thread = Some(thread);
        Ok(())
    }

    /// Waits for the next task and carries it out. Returns false if no task is left: then the
    /// thread ends.
    fn turn(self: &Arc<Self>) -> bool {
        if self.retire() {
            return false;
        }
        let now = Instant::now();
        let mut inner = self.inner();
        // The registry was closed after `retire`, and the notification came before this thread
        // waits.
        if inner.is_retired() {
            return true;
        }
        let due = inner.own.renew_at().into_iter().chain(inner.checkpoint_at).min();
        match due.map(|due| due.saturating_duration_since(now)) {
            None => drop(self.changed.wait(inner)),
            Some(wait) if !wait.is_zero() => drop(self.changed.wait_timeout(inner, wait)),
            Some(_) => {
                let renewed = inner.own.renew(now, now_ms());
                if !renewed.is_empty() {
                    let _ = self.append(&mut inner, &renewed);
                }
                let checkpoint = inner.checkpoint_at.is_some_and(|at| at <= now);
                drop(inner);
                if checkpoint {
                    let mut checkpointer = self.checkpointer.lock().unwrap_or_else(PoisonError::into_inner);
                    self.checkpoint(&mut checkpointer, PATIENCE);
                }
            }
        }
        true
    }

    /// Reports a warning to every supervisor on this registry.
    pub fn warn(&self, warning: &Warning) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|(_, listener)| listener(warning));
    }

    /// Makes a checkpoint. `None` if it failed.
    pub(super) fn checkpoint(&self, checkpointer: &mut Checkpointer, patience: Duration) -> Option<Outcome> {
        {
            // From here on a change schedules the next checkpoint.
            let mut inner = self.inner();
            inner.checkpoint_at = None;
            inner.own.begin_checkpoint();
        }
        let began = Instant::now();
        let (mut warnings, mut lost) = (Vec::new(), Vec::new());
        let settle = |table: &mut Table| {
            let changed;
            (changed, lost) = self.inner().own.settle(table);
            changed
        };
        let outcome = checkpointer.run(&self.view, patience, settle, &mut warnings);
        let replaced = {
            let mut inner = self.inner();
            inner.cost = began.elapsed();
            inner.journal.take_replaced(&self.paths)
        };
        // Closed outside the lock, because closing takes time.
        drop(replaced);
        if let Err(error) = &outcome {
            warnings.push(Warning::new("unwritable", error.behind(), &self.paths.json));
        }
        if !lost.is_empty() {
            self.end_gone_receivers();
            let message = format!(
                "another bot has taken over {} run(s), because this process did not renew its lease in time. This process no \
                 longer controls them.",
                lost.len()
            );
            warnings.push(Warning { run_ids: lost, ..Warning::new("lease-lost", message, &self.paths.json) });
        }
        let again = match &outcome {
            Ok(Outcome::Busy) => Some(self.locked_out(&mut warnings)),
            Ok(_) => {
                self.inner().locked_out = None;
                None
            }
            Err(_) => Some(RETRY_AFTER_ERROR),
        };
        if let Some(delay) = again {
            let mut inner = self.inner();
            if !inner.gives_up() {
                inner.checkpoint_at.get_or_insert_with(|| Instant::now() + delay);
            }
        }
        for warning in &warnings {
            self.warn(warning);
        }
        outcome.ok()
    }
}

impl Registry {
    /// Handles that another process holds the lock. Returns the delay before the next attempt.
    fn locked_out(&self, warnings: &mut Vec<Warning>) -> Duration {
        let (delay, is_new) = {
            let files = Files::look(&self.paths);
            let mut inner = self.inner();
            let out = inner.locked_out.get_or_insert_with(|| LockedOut::now(files));
            out.update(files);
            let is_new = out.is_long() && !out.is_reported;
            out.is_reported |= is_new;
            (out.next_try(), is_new)
        };
        if is_new {
            warnings.push(Warning::new("locked", self.lock_message(), &self.paths.lock));
        }
        delay
    }

    /// The warning about a lock that is held for long, with the holder's PID if the system provides
    /// it.
    ///
    /// Another process may hold the lock by the time of the message, which is only for people.
    fn lock_message(&self) -> String {
        let holder = disk::lock_holder(&self.paths.lock).map_or_else(
            || "another process".to_owned(),
            |pid| match identity::read_stat(pid) {
                Ok(stat) => format!("process {pid} ({})", stat.comm),
                Err(_) => format!("process {pid}"),
            },
        );
        let bytes = disk::stamp(&self.paths.journal).map_or(0, Stamp::size);
        format!(
            "{holder} has held the lock {} for {} s, so the file of the process registry cannot be updated. Runs still start and \
             end, and list(), ps and reap stay correct. But the journal grows ({bytes} bytes now). Resume that process (kill \
             -CONT), or terminate it.",
            self.paths.lock.display(),
            HELD_LONG.as_secs(),
        )
    }
}

/// The state while every attempt to lock fails.
#[derive(Debug)]
pub struct LockedOut {
    /// Since when no process has made a checkpoint.
    since: Instant,
    files: Files,
    tries: u32,
    is_reported: bool,
}

/// What every checkpoint of any process changes: it replaces the file, or at least renames the
/// journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Files {
    json: Option<Stamp>,
    journals: [Option<FileId>; 2],
}

impl Files {
    fn look(paths: &Paths) -> Self {
        let journals = [&paths.journal, &paths.old].map(|path| disk::stamp(path).map(Stamp::file));
        Self { json: disk::stamp(&paths.json), journals }
    }
}

impl LockedOut {
    fn now(files: Files) -> Self {
        Self { since: Instant::now(), files, tries: 0, is_reported: false }
    }

    /// Restarts the time if another process has made a checkpoint.
    ///
    /// Other bots may hold the lock at each of our attempts, one after the other. None of them is
    /// stuck, because the checkpoints are made.
    fn update(&mut self, files: Files) {
        if self.files != files {
            (self.files, self.since) = (files, Instant::now());
        }
    }

    pub fn is_long(&self) -> bool {
        self.since.elapsed() >= HELD_LONG
    }

    /// The delay before the next attempt.
    ///
    /// Many bots may share a registry, and each holds the lock for a few milliseconds. So the first
    /// attempts follow each other closely.
    fn next_try(&mut self) -> Duration {
        self.tries = self.tries.saturating_add(1);
        let doublings = (self.tries / 16).min(8);
        (BUSY_RETRY * (1 << doublings)).min(BUSY_RETRY_MAX)
    }
}

/// How long to collect further changes before a checkpoint that takes `cost`.
///
/// A large file must not keep a CPU busy, so the delay grows with the cost. But a change may have
/// to wait for the present checkpoint and then for its own, so two costs must fit into
/// `MAX_DELAY`.
pub fn delay(cost: Duration) -> Duration {
    (cost * 4).min(MAX_DELAY.saturating_sub(cost * 2)).max(MIN_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_other_bots_take_in_turn_is_not_reported_as_held_long() {
        let files = |inode| Files { json: None, journals: [Some((1, inode)), None] };
        let mut out = LockedOut::now(files(1));
        let Some(long_ago) = Instant::now().checked_sub(HELD_LONG) else { return };
        out.since = long_ago;
        out.update(files(1));
        assert!(out.is_long(), "no checkpoint was made");
        out.update(files(2));
        assert!(!out.is_long(), "another process has made one");
    }
}
