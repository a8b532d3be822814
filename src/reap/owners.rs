//! Being told that an owner is gone, at once: what it has left may be an orphan.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::AbortHandle;

use crate::identity::{ProcessRef, State};
use crate::registry::{Instance, RegistryError};
use crate::runtime;
use crate::spawn::watch::ended;

/// Somebody who wants to know when one of the registry's owners has died.
pub struct Owners {
    tell: Box<dyn Fn() + Send + Sync>,
    /// Each owner whose end is waited for, or was told. `None`: nobody wants to know any more.
    followed: Mutex<Option<HashMap<ProcessRef, AbortHandle>>>,
}

impl Owners {
    /// `tell` is called on the native thread, and must not block.
    pub fn new(tell: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { tell: Box::new(tell), followed: Mutex::new(Some(HashMap::new())) })
    }

    /// Follows the owners that the registry names now. Blocks for a disk.
    ///
    /// Each is told of once, for as long as it is named: who has left something that stays would be told of for ever otherwise. One
    /// that is dead already is told of as well, because it may have come and gone between two looks at the registry.
    pub fn follow(self: &Arc<Self>, instance: &Instance) -> Result<(), RegistryError> {
        let table = instance.registry.load()?;
        let named: HashSet<&ProcessRef> = table
            .sorted()
            .into_iter()
            .filter_map(|record| record.bot_start_token.as_ref())
            .filter(|owner| *owner != instance.registry.me())
            .filter(|owner| owner.without_a_look() != Some(State::Unknown))
            .collect();
        let Ok(runtime) = runtime::get() else { return Ok(()) };
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(followed) = followed.as_mut() else { return Ok(()) };
        followed.retain(|owner, wait| {
            let is_named = named.contains(owner);
            if !is_named {
                wait.abort();
            }
            is_named
        });
        for owner in named {
            followed.entry(owner.clone()).or_insert_with(|| {
                let (owners, owner) = (self.clone(), owner.clone());
                let wait = async move {
                    ended(&owner).await;
                    (owners.tell)();
                };
                runtime.loop_handle.spawn(wait).abort_handle()
            });
        }
        Ok(())
    }

    /// Nobody is followed from here on.
    pub fn stop(&self) {
        let followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner).take();
        for wait in followed.into_iter().flat_map(HashMap::into_values) {
            wait.abort();
        }
    }
}

impl std::fmt::Debug for Owners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owners").finish_non_exhaustive()
    }
}
