//! The thread that keeps a registry's file up to date: checkpoints, and the heartbeat that says that the owner is well.
//!
//! Neither a slow disk nor a blocked event loop gets in the other's way.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::errno::Errno;

use super::checkpoint::{Checkpointer, Outcome, Trouble};
use super::error::RegistryError;
use super::ledger::{Inner, Registry};
use super::now_ms;
use super::table::Table;

/// From a change to its checkpoint, at least.
const DELAY: Duration = Duration::from_millis(60);
/// The file may be 250 ms behind; the rest is for a busy machine.
const BEHIND: Duration = Duration::from_millis(200);
/// Until the next try when somebody else holds the lock, and when the file cannot be written.
const BUSY: Duration = Duration::from_millis(10);
const TROUBLED: Duration = Duration::from_secs(1);
/// How long somebody who has one of the files open is given to let go of it.
const PATIENCE: Duration = Duration::from_secs(1);

impl Registry {
    pub(super) fn start_thread(&'static self, inner: &mut Inner) -> Result<(), RegistryError> {
        if inner.has_thread {
            return Ok(());
        }
        std::thread::Builder::new()
            .name("spawn-owned-log".into())
            .spawn(|| {
                loop {
                    // Whatever goes wrong in one turn, the next is a new one.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.turn()));
                }
            })
            .map_err(|_| RegistryError::Unwritable { path: self.paths.json.clone(), errno: Errno::EAGAIN })?;
        inner.has_thread = true;
        Ok(())
    }

    fn turn(&'static self) {
        let now = Instant::now();
        let mut inner = self.inner();
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
    }

    /// Tells every supervisor on this registry.
    pub fn tell(&self, trouble: &Trouble) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|listener| listener(trouble));
    }

    /// `None` if it could not be made.
    pub(super) fn checkpoint(&self, checkpointer: &mut Checkpointer, patience: Duration) -> Option<Outcome> {
        {
            // Changes from here on ask for the next one.
            let mut inner = self.inner();
            inner.checkpoint_at = None;
            inner.own.begin_checkpoint();
        }
        let began = Instant::now();
        let (mut trouble, mut lost) = (Vec::new(), Vec::new());
        let settle = |table: &mut Table| {
            let changed;
            (changed, lost) = self.inner().own.settle(table);
            changed
        };
        let outcome = checkpointer.run(&self.last_read, patience, settle, &mut trouble);
        let replaced = {
            let mut inner = self.inner();
            inner.cost = began.elapsed();
            inner.journal.let_go(&self.paths)
        };
        // Nobody waits for us while it is closed.
        drop(replaced);
        if let Err(error) = &outcome {
            trouble.push(Trouble::new("unwritable", error.behind(), &self.paths.json));
        }
        if !lost.is_empty() {
            let message =
                format!("{} runs were taken over by another owner: our lease had expired", lost.len());
            trouble.push(Trouble { run_ids: lost, ..Trouble::new("lease-lost", message, &self.paths.json) });
        }
        let again = match &outcome {
            Ok(Outcome::Busy) => Some(BUSY),
            Ok(_) => None,
            Err(_) => Some(TROUBLED),
        };
        if let Some(delay) = again {
            self.inner().checkpoint_at.get_or_insert_with(|| Instant::now() + delay);
        }
        for trouble in &trouble {
            self.tell(trouble);
        }
        outcome.ok()
    }
}

/// How long to wait for more changes. A long file must not keep a processor busy; but a change may have to wait for the checkpoint
/// that is being made, and then for its own.
pub fn delay(cost: Duration) -> Duration {
    (cost * 4).min(BEHIND.saturating_sub(cost * 2)).max(DELAY)
}
