//! When the leases of this process's supervisors are renewed. Pure: no disk, no clock.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::record::Line;

/// The leases of this process's supervisor instances, by instance.
#[derive(Debug, Clone, Default)]
pub struct Leases(HashMap<String, Lease>);

#[derive(Debug, Clone)]
struct Lease {
    length: Duration,
    renew_at: Instant,
}

impl Leases {
    /// Starts to renew the lease of an instance, unless that has started already.
    pub fn start(&mut self, instance: &str, length: Duration, now: Instant) {
        if !self.0.contains_key(instance) {
            self.0.insert(instance.to_owned(), Lease { length, renew_at: now + length / 3 });
        }
    }

    /// When the next lease is due.
    pub fn renew_at(&self) -> Option<Instant> {
        self.0.values().map(|lease| lease.renew_at).min()
    }

    /// Renews the leases that are due, and returns the lines to write.
    ///
    /// Ends those that are due and whose instance is not in `holders`.
    pub fn renew(&mut self, holders: &HashSet<&str>, now: Instant, now_ms: u64) -> Vec<Line> {
        self.0.retain(|instance, lease| lease.renew_at > now || holders.contains(&**instance));
        let due = self.0.iter_mut().filter(|(_, lease)| lease.renew_at <= now);
        due.map(|(instance, lease)| {
            lease.renew_at = now + lease.length / 3;
            Line::Lease { instance: instance.clone(), until: now_ms.saturating_add(millis(lease.length)) }
        })
        .collect()
    }
}

pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
