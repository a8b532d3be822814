//! What is left of runs whose keepers were killed, as their zygote sees it.
//!
//! The zygote is a subreaper too: when a keeper is killed, its tree comes to the zygote, wherever its members went. So a
//! child of the zygote is either a keeper that it forked itself, or an orphan of one that is gone.

use std::collections::HashSet;

use super::snapshot::{Snapshot, children};
use super::wait::{has_stopped, kill, wait_for};
use super::{SIGCONT, SIGKILL};
use crate::run::ExitStatus;

/// Passes of [`Family::reap`] in a row.
const REAP_PASSES: usize = 16;

/// The zygote's children.
#[derive(Debug)]
pub struct Family {
    me: i32,
    /// Keepers that were not waited for: nobody else can have their numbers.
    keepers: HashSet<i32>,
}

impl Family {
    /// That of the calling process.
    pub fn mine() -> Self {
        Self { me: nix::unistd::getpid().as_raw(), keepers: HashSet::new() }
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

    pub fn has_orphans(&self) -> bool {
        children(self.me).iter().any(|child| self.is_orphan(*child))
    }

    /// Collects whoever has ended, and lets whoever was stopped go on: a command can stop its keeper. True if a keeper did not
    /// end as if all were well, so that there may be orphans.
    pub fn reap(&mut self) -> bool {
        let mut left_something = false;
        // A list of children may be longer than what is read of it at a time, and the dead do not signal twice.
        for _ in 0..REAP_PASSES {
            let mut reaped = false;
            for child in children(self.me) {
                let Some(status) = wait_for(child, 0) else { continue };
                left_something |= self.keepers.remove(&child) && status != ExitStatus::Code(0);
                reaped = true;
            }
            if !reaped {
                break;
            }
        }
        for &keeper in self.keepers.iter().filter(|&&keeper| has_stopped(keeper)) {
            let _ = kill(keeper, SIGCONT);
        }
        left_something
    }

    /// Lets all keepers go on.
    pub fn wake_keepers(&self) {
        for &keeper in &self.keepers {
            let _ = kill(keeper, SIGCONT);
        }
    }

    /// Asks every orphan, and all that descends from one, to end.
    pub fn terminate_orphans(&self, signal: i32) {
        let snapshot = Snapshot::take(self.me);
        let members = snapshot.members(|child| self.is_orphan(child));
        for signal in [signal, SIGCONT] {
            for member in &members {
                let _ = snapshot.signal(member, signal);
            }
        }
    }

    /// One pass of SIGKILL over the orphans and all that descends from them.
    pub fn kill_orphans(&self) {
        for child in children(self.me).into_iter().filter(|child| self.is_orphan(*child)) {
            let _ = kill(child, SIGKILL);
        }
        let snapshot = Snapshot::take(self.me);
        for member in snapshot.members(|child| self.is_orphan(child)) {
            let _ = snapshot.signal(member, SIGKILL);
        }
    }

    fn is_orphan(&self, child: i32) -> bool {
        !self.keepers.contains(&child)
    }
}
