//! Reports immediately when an owner has exited, because its runs may be orphans.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::AbortHandle;

use crate::identity::{ProcessRef, State, exited};
use crate::registry::{Instance, RegistryError};
use crate::runtime;

/// Watches the owners that the registry names, and calls back when one has exited.
pub struct Owners {
    on_exit: Box<dyn Fn() + Send + Sync>,
    /// Each owner that is watched, or whose exit was reported. `None` after `stop`.
    watched: Mutex<Option<HashMap<ProcessRef, AbortHandle>>>,
}

impl Owners {
    /// Calls `on_exit` on the native thread; it must not block.
    pub fn new(on_exit: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { on_exit: Box::new(on_exit), watched: Mutex::new(Some(HashMap::new())) })
    }

    /// Watches the owners that the registry names now. Blocks on disk I/O.
    ///
    /// The exit of each owner is reported once, while the registry names it. Otherwise an owner
    /// whose entry stays would be reported forever. An owner that is dead already is reported too,
    /// because it may have started and exited between two reads of the registry.
    pub fn refresh(self: &Arc<Self>, instance: &Instance) -> Result<(), RegistryError> {
        let table = instance.registry.load()?;
        let named: HashSet<&ProcessRef> = table
            .sorted()
            .into_iter()
            .filter_map(|record| record.bot_start_token.as_ref())
            .filter(|owner| *owner != instance.registry.me())
            .filter(|owner| owner.state_without_lookup() != Some(State::Unknown))
            .collect();
        let Ok(runtime) = runtime::get() else { return Ok(()) };
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(watched) = watched.as_mut() else { return Ok(()) };
        watched.retain(|owner, wait| {
            let is_named = named.contains(owner);
            if !is_named {
                wait.abort();
            }
            is_named
        });
        for owner in named {
            watched.entry(owner.clone()).or_insert_with(|| {
                let (owners, owner) = (self.clone(), owner.clone());
                let wait = async move {
                    exited(&owner).await;
                    (owners.on_exit)();
                };
                runtime.loop_handle.spawn(wait).abort_handle()
            });
        }
        Ok(())
    }

    /// Stops all watches.
    pub fn stop(&self) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner).take();
        for wait in watched.into_iter().flat_map(HashMap::into_values) {
            wait.abort();
        }
    }
}

impl std::fmt::Debug for Owners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owners").finish_non_exhaustive()
    }
}
