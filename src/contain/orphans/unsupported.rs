//! macOS: the zygote's children are only its keepers. launchd adopts the processes of a killed
//! keeper, and [`super::outside`] finds them.

use std::collections::HashSet;
use std::time::Instant;

use super::wait::{has_stopped, kill, wait_for};
use super::{Reaped, SIGCONT};
use crate::run::ExitStatus;

/// The zygote's children.
#[derive(Debug)]
pub struct Family {
    /// Keepers that were not reaped. No other process can have their PIDs.
    keepers: HashSet<i32>,
}

impl Family {
    pub fn mine() -> Self {
        Self { keepers: HashSet::new() }
    }

    /// Adds a keeper that was just forked.
    pub fn add(&mut self, keeper: i32) {
        self.keepers.insert(keeper);
    }

    pub fn has_keepers(&self) -> bool {
        !self.keepers.is_empty()
    }

    pub fn has_keeper(&self, keeper: i32) -> bool {
        self.keepers.contains(&keeper)
    }

    #[allow(clippy::unused_self)] // On Linux the zygote adopts orphans.
    pub fn has_orphans(&self) -> bool {
        false
    }

    /// Reaps dead keepers, and continues stopped ones, because a command can stop its keeper.
    pub fn reap(&mut self) -> Reaped {
        let mut left_something = false;
        self.keepers.retain(|&keeper| match wait_for(keeper, 0) {
            Some(status) => {
                left_something |= status != ExitStatus::Code(0);
                false
            }
            None => true,
        });
        for &keeper in self.keepers.iter().filter(|&&keeper| has_stopped(keeper)) {
            let _ = kill(keeper, SIGCONT);
        }
        Reaped { left_something, ..Reaped::default() }
    }

    #[allow(clippy::unused_self)] // On Linux the keeper's tree must be ended then.
    pub fn has_lost(&mut self, _keeper: i32) -> bool {
        false
    }

    #[allow(clippy::unused_self)] // As above.
    pub fn has_lost_any(&mut self) -> bool {
        false
    }

    /// Sends SIGCONT to all keepers.
    pub fn wake_keepers(&self) {
        for &keeper in &self.keepers {
            let _ = kill(keeper, SIGCONT);
        }
    }

    #[allow(clippy::unused_self)] // As above.
    pub fn terminate_orphans(&mut self, _signal: i32) {}

    #[allow(clippy::unused_self)] // As above.
    pub fn next_pass(&self) -> Option<Instant> {
        None
    }

    #[allow(clippy::unused_self)] // As above.
    pub fn pass(&mut self) {}

    #[allow(clippy::unused_self)] // As above.
    pub fn stop_terminating(&mut self) {}

    #[allow(clippy::unused_self)] // As above.
    pub fn kill_orphans(&mut self) {}
}
