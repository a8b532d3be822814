//! What is left of runs whose keepers were killed, as their zygote sees it.
//!
//! The zygote is a subreaper too: when a keeper is killed, its tree comes to the zygote, wherever its members went. So a
//! child of the zygote is either a keeper that it forked itself, or an orphan of one that is gone.

use std::collections::HashSet;
use std::iter;

use super::snapshot::{Snapshot, children};
use super::wait::{any_stopped, kill, wait_for_any};
use super::{Reaped, SIGCONT, SIGKILL};
use crate::identity::read_stat;
use crate::run::ExitStatus;

/// Of how many [`Family::reap`] takes note at a time. Orphans that do nothing but fork and die must not keep us from everything else.
const MOST_AT_ONCE: usize = 10_000;

/// Takes note of whoever comes next, up to [`MOST_AT_ONCE`]. False if there may be more: nothing tells of them again.
fn some<T>(next: impl FnMut() -> Option<T>, mut note: impl FnMut(T)) -> bool {
    let mut count = 0;
    for it in iter::from_fn(next).take(MOST_AT_ONCE) {
        count += 1;
        note(it);
    }
    count < MOST_AT_ONCE
}

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

    /// Collects whoever has ended, and lets whoever was stopped go on: a command can stop its keeper.
    ///
    /// What it costs does not depend on how many keepers there are: this is done for every run that begins or ends.
    pub fn reap(&mut self) -> Reaped {
        let mut reaped = Reaped::default();
        let all_ended = some(wait_for_any, |(child, status)| {
            let is_keeper = self.keepers.remove(&child);
            reaped.left_something |= is_keeper && status != ExitStatus::Code(0);
            reaped.has_orphan |= !is_keeper;
        });
        let all_stopped = some(any_stopped, |child| {
            if self.keepers.contains(&child) {
                let _ = kill(child, SIGCONT);
            }
        });
        reaped.may_be_more = !(all_ended && all_stopped);
        reaped
    }

    /// Whether this keeper is dead although nobody lets us wait for it. One that is traced is its tracer's to wait for, and we are not even
    /// told of its death, until the tracer has let go of it or is gone. That may never be: what has come to us may be the tracer.
    ///
    /// From here on it is one of the orphans, which there are until it can be waited for. To signal it does nothing, and hits nobody
    /// else: as long as we have not waited for it, nobody has its number. Should it have ended well in the very moment, there is nobody
    /// else to be ended, and the next look finds it gone.
    pub fn has_lost(&mut self, keeper: i32) -> bool {
        self.keepers.contains(&keeper)
            && read_stat(keeper).is_ok_and(|stat| stat.is_dead())
            && self.keepers.remove(&keeper)
    }

    /// The same for all of them, one look each.
    pub fn has_lost_any(&mut self) -> bool {
        let keepers: Vec<i32> = self.keepers.iter().copied().collect();
        keepers.into_iter().filter(|&keeper| self.has_lost(keeper)).count() > 0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_died_with_too_many_others_is_not_forgotten() {
        let mut dead = 0..2 * MOST_AT_ONCE + 1;
        let mut noted = 0;
        let mut turns = 1;
        while !some(|| dead.next(), |_| noted += 1) {
            turns += 1;
        }
        assert_eq!((noted, turns), (2 * MOST_AT_ONCE + 1, 3));
        assert!(some(|| None::<()>, |()| noted += 1));
    }
}
