//! macOS: a zygote's children are its keepers and nobody else. What a killed keeper leaves goes to launchd, and is found from outside.

use std::collections::HashSet;

use super::wait::{has_stopped, kill, wait_for};
use super::{Reaped, SIGCONT};
use crate::run::ExitStatus;

/// The zygote's children.
#[derive(Debug)]
pub struct Family {
    /// Keepers that were not waited for: nobody else can have their numbers.
    keepers: HashSet<i32>,
}

impl Family {
    pub fn mine() -> Self {
        Self { keepers: HashSet::new() }
    }

    /// A keeper that was just forked.
    pub fn add(&mut self, keeper: i32) {
        self.keepers.insert(keeper);
    }

    pub fn has_keepers(&self) -> bool {
        !self.keepers.is_empty()
    }

    pub fn has_keeper(&self, keeper: i32) -> bool {
        self.keepers.contains(&keeper)
    }

    #[allow(clippy::unused_self)] // Elsewhere they come to us.
    pub fn has_orphans(&self) -> bool {
        false
    }

    /// Collects whoever has ended, and lets whoever was stopped go on: a command can stop its keeper.
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

    #[allow(clippy::unused_self)] // Elsewhere there is something to be ended then.
    pub fn has_lost(&mut self, _keeper: i32) -> bool {
        false
    }

    #[allow(clippy::unused_self)] // As above.
    pub fn has_lost_any(&mut self) -> bool {
        false
    }

    /// Lets all keepers go on.
    pub fn wake_keepers(&self) {
        for &keeper in &self.keepers {
            let _ = kill(keeper, SIGCONT);
        }
    }

    #[allow(clippy::unused_self)] // As above.
    pub fn terminate_orphans(&self, _signal: i32) {}

    #[allow(clippy::unused_self)] // As above.
    pub fn kill_orphans(&self) {}
}
