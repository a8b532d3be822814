//! Claims entries of other owners, and settles the claims.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Registry, schedule};
use crate::registry::error::RegistryError;
use crate::registry::instance::Entry;
use crate::registry::leases::millis;
use crate::registry::now_ms;
use crate::registry::record::{Claim, Line, Owner, Record};
use crate::trace::trace;

impl Registry {
    /// Claims entries from the owners that the caller has read.
    ///
    /// Returns the entries that are ours now; other processes claimed the others first. Each
    /// returned entry must be settled by [`Registry::drop_claimed`] or [`Registry::adopt`].
    pub(in crate::registry) fn claim(
        self: &Arc<Self>,
        mut wanted: Vec<Claim>,
        instance: &str,
        lease: Duration,
    ) -> Result<Vec<Record>, RegistryError> {
        self.prepare()?;
        let now = now_ms();
        let mut inner = self.inner();
        // Skip entries that this process has or is claiming already.
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
            // The line may have been written in spite of the error.
            inner.own.claim_failed(&keys);
            return Err(error);
        }
        drop(inner);
        // Every later reader finds the same owner in the journal as this read.
        let owned_by_us = |record: &&Record| record.owner_instance_id.as_deref() == Some(instance);
        let found = self.read(|current| {
            keys.iter().map(|key| current.table().get(key).filter(owned_by_us).cloned()).collect::<Vec<_>>()
        });
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                let mut inner = self.inner();
                inner.own.claim_failed(&keys);
                // A checkpoint may have been made since the claim was written. Only a checkpoint
                // that begins later can settle these entries.
                schedule(&mut inner);
                self.wake_thread(&mut inner);
                return Err(error);
            }
        };
        let mut inner = self.inner();
        let mut ours = Vec::new();
        let mut has_unsettled = false;
        for (key, record) in keys.into_iter().zip(found) {
            trace!(key: &key, "claim {}", if record.is_some() { "won" } else { "lost" });
            if let Some(record) = record {
                ours.push(record);
            } else {
                inner.own.lose_claim(&key);
                has_unsettled |= inner.own.is_unsettled(&key);
            }
        }
        if has_unsettled {
            // As above: a checkpoint that ran during the claim has not settled these entries.
            schedule(&mut inner);
            self.wake_thread(&mut inner);
        }
        Ok(ours)
    }

    /// Drops claimed entries whose runs are over.
    pub fn drop_claimed(self: &Arc<Self>, keys: Vec<String>) -> Result<(), RegistryError> {
        let mut inner = self.inner();
        // If the line cannot be written, the next checkpoint removes the entries.
        inner.own.release(&keys);
        self.append(&mut inner, &[Line::Dropped { keys }])
    }

    /// Returns a claimed entry to its former owner, because its run could be neither ended nor
    /// taken over.
    pub fn give_back(self: &Arc<Self>, former: &Record, instance: &str) -> Result<(), RegistryError> {
        let key = former.key();
        let mut inner = self.inner();
        inner.own.give_back(&key);
        inner.gone_senders.remove(&key);
        self.append(
            &mut inner,
            &[Line::Returned { entry: Box::new(former.clone()), by: instance.to_owned() }],
        )
    }

    /// Makes a claimed entry ours, because its run continues. [`Registry::take_adopted`] returns
    /// it.
    pub(in crate::registry) fn adopt(self: &Arc<Self>, record: Record, former: Record, lease: Duration) {
        let mut inner = self.inner();
        inner.own.lease(record.owner_instance_id.as_deref(), lease, Instant::now());
        inner.own.adopt(record, former);
    }

    /// Returns an entry that [`Registry::adopt`] has made ours, and the same entry before the
    /// claim.
    ///
    /// The caller handles the entry from now on.
    pub fn take_adopted(self: &Arc<Self>, key: &str) -> Option<(Entry, Record, Record)> {
        let former = self.inner().own.take_adopted(key)?;
        self.entry(key).map(|(entry, record)| (entry, record, former))
    }

    /// Whether an entry is ours on disk only, so that no run or reaper handles it.
    pub fn is_unsettled(&self, key: &str) -> bool {
        self.inner().own.is_unsettled(key)
    }
}
