//! The zygote's children: its keepers, and the orphans of keepers that were killed.
//!
//! The zygote is a subreaper too. When a keeper is killed, the zygote adopts its whole tree. So
//! each child of the zygote is either a keeper that it forked, or an orphan of a dead keeper.

use std::collections::HashSet;
use std::iter;
use std::time::Instant;

use super::snapshot::{Snapshot, children};
use super::termination::{Step, Termination};
use super::wait::{any_stopped, kill, wait_for_any};
use super::{Reaped, SIGCONT, SIGKILL};
use crate::identity::{ignored_signals, read_stat};
use crate::run::ExitStatus;

/// Maximum number of children that one [`Family::reap`] handles. Orphans that only fork and exit
/// must not block the zygote.
const BATCH_SIZE: usize = 10_000;

/// Handles the next children, at most [`BATCH_SIZE`]. Returns false if there may be more: no
/// further event reports those.
fn handle_batch<T>(next: impl FnMut() -> Option<T>, mut handle: impl FnMut(T)) -> bool {
    let mut count = 0;
    for child in iter::from_fn(next).take(BATCH_SIZE) {
        count += 1;
        handle(child);
    }
    count < BATCH_SIZE
}

/// The zygote's children.
#[derive(Debug)]
pub struct Family {
    me: i32,
    /// Keepers that were not reaped. No other process can have their PIDs.
    keepers: HashSet<i32>,
    /// Set while the orphans have received the signal and not yet SIGKILL.
    termination: Option<Termination>,
}

impl Family {
    /// The children of the calling process.
    pub fn mine() -> Self {
        Self { me: nix::unistd::getpid().as_raw(), keepers: HashSet::new(), termination: None }
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

    /// Returns whether there are orphans. Also true if the list of children cannot be read.
    pub fn has_orphans(&self) -> bool {
        children(self.me).map_or(true, |children| children.iter().any(|child| self.is_orphan(*child)))
    }

    /// Reaps dead children, and continues stopped keepers, because a command can stop its keeper.
    ///
    /// The cost does not depend on the number of keepers, because this runs for each start and end
    /// of a run.
    pub fn reap(&mut self) -> Reaped {
        let mut reaped = Reaped::default();
        let all_ended = handle_batch(wait_for_any, |(child, status)| {
            let is_keeper = self.keepers.remove(&child);
            reaped.left_something |= is_keeper && status != ExitStatus::Code(0);
            reaped.has_orphan |= !is_keeper;
            if !is_keeper && let Some(termination) = &mut self.termination {
                termination.member_died();
            }
        });
        let all_stopped = handle_batch(any_stopped, |child| {
            if self.keepers.contains(&child) {
                let _ = kill(child, SIGCONT);
            }
        });
        reaped.may_be_more = !(all_ended && all_stopped);
        reaped
    }

    /// Returns whether this keeper is dead but cannot be reaped, because a process traces it.
    ///
    /// Only the tracer can wait for a traced keeper. The zygote does not even learn of its death
    /// until the tracer detaches or exits. That may never happen, because the tracer may be one of
    /// the orphans.
    ///
    /// From then on the keeper counts as an orphan, until it can be reaped. To signal it has no
    /// effect and reaches no other process: its PID is not reused before it is reaped. If it ended
    /// normally at this moment, there is nothing else to end, and the next call finds it gone.
    pub fn has_lost(&mut self, keeper: i32) -> bool {
        self.keepers.contains(&keeper)
            && read_stat(keeper).is_ok_and(|stat| stat.is_dead())
            && self.keepers.remove(&keeper)
    }

    /// Calls [`Family::has_lost`] for all keepers.
    pub fn has_lost_any(&mut self) -> bool {
        let keepers: Vec<i32> = self.keepers.iter().copied().collect();
        keepers.into_iter().filter(|&keeper| self.has_lost(keeper)).count() > 0
    }

    /// Sends SIGCONT to all keepers.
    pub fn wake_keepers(&self) {
        for &keeper in &self.keepers {
            let _ = kill(keeper, SIGCONT);
        }
    }

    /// Starts to terminate all orphans and their descendants, see [`Termination`].
    pub fn terminate_orphans(&mut self, signal: i32) {
        self.termination = Some(Termination::new(signal, Instant::now()));
        self.pass();
    }

    /// When the next [`Family::pass`] is due. `None` after the orphans were killed.
    pub fn next_pass(&self) -> Option<Instant> {
        self.termination.as_ref().map(Termination::next_pass)
    }

    /// Signals the orphans that appeared since the last pass.
    pub fn pass(&mut self) {
        let Some(mut termination) = self.termination.take() else { return };
        let began = Instant::now();
        let snapshot = self.snapshot_of_orphans();
        let members = snapshot.members(|child| self.is_orphan(child));
        let plan = termination.plan(&members, ignored_signals);
        let mut found_new = false;
        for step in Step::ALL {
            let chosen: Vec<_> =
                plan.iter().filter(|(_, other)| *other == step).map(|(stat, _)| *stat).collect();
            for stat in snapshot.send(&chosen, &step.signals(termination.signal())) {
                termination.note(stat, step);
                found_new |= step == Step::Signal;
            }
        }
        termination.forget_dead(|pid, start| read_stat(pid).is_ok_and(|stat| stat.start == start));
        termination.passed(&members, found_new, began, Instant::now());
        self.termination = Some(termination);
    }

    /// Stops the termination: the orphans are gone, or the zygote gives up.
    pub fn stop_terminating(&mut self) {
        self.termination = None;
    }

    /// Sends SIGKILL once to all orphans and their descendants.
    pub fn kill_orphans(&mut self) {
        self.termination = None;
        for child in children(self.me).unwrap_or_default().into_iter().filter(|child| self.is_orphan(*child))
        {
            let _ = kill(child, SIGKILL);
        }
        let snapshot = self.snapshot_of_orphans();
        snapshot.send(&snapshot.members(|child| self.is_orphan(child)), &[SIGKILL]);
    }

    /// A snapshot without the keepers and their runs, which may be thousands.
    fn snapshot_of_orphans(&self) -> Snapshot {
        Snapshot::take_branches(self.me, |child| self.is_orphan(child))
    }

    fn is_orphan(&self, child: i32) -> bool {
        !self.keepers.contains(&child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_beyond_the_batch_size_are_handled_in_the_next_batches() {
        let mut dead = 0..2 * BATCH_SIZE + 1;
        let mut handled = 0;
        let mut turns = 1;
        while !handle_batch(|| dead.next(), |_| handled += 1) {
            turns += 1;
        }
        assert_eq!((handled, turns), (2 * BATCH_SIZE + 1, 3));
        assert!(handle_batch(|| None::<()>, |()| handled += 1));
    }
}
