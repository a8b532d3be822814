//! Ending a tree that is followed.

use std::collections::HashSet;

use nix::errno::Errno;
use nix::libc;

use super::{Tree, process};
use crate::contain::shell::Asking;
use crate::contain::wait::kill;
use crate::contain::{SIGCONT, SIGKILL};
use crate::identity::ignored_signals;
use crate::identity::stat::Stat;

/// Looks for newcomers before everybody is killed all the same.
const FREEZES: usize = 8;

impl Tree {
    /// Signals the root alone, as `ChildProcess.kill` does.
    pub fn signal_root(&self, signal: i32) -> Result<(), Errno> {
        if self.root_reaped { Err(Errno::ESRCH) } else { kill(self.root, signal) }
    }

    /// Asks every member to end: `signal`, then SIGCONT so that a stopped one hears it. Each gets it once: the
    /// group as a group, the others one by one. Who is deaf to it has its turn in [`Tree::ask_shells`].
    pub fn terminate(&mut self, signal: i32) {
        let living = self.living();
        self.asking = Asking::of(&living.iter().collect::<Vec<_>>(), signal, ignored_signals);
        self.send(&living, signal);
        self.send(&living, SIGCONT);
    }

    /// Whether [`Tree::ask_shells`] has something to wait for.
    pub fn awaits_shells(&self) -> bool {
        self.asking.is_some()
    }

    /// See [`Asking::again`].
    pub fn ask_shells(&mut self) {
        let Some(mut asking) = self.asking.take() else { return };
        let living = self.living();
        asking.again(&living.iter().collect::<Vec<_>>(), ignored_signals, |stat, signal| {
            let _ = process(stat).signal(signal);
        });
        self.asking = Some(asking);
    }

    /// One pass of SIGKILL over everything there is.
    ///
    /// Stop first, kill second: a member that forks and is killed leaves a child that nothing leads to when we look again. A stopped one
    /// does not fork, and is still there to lead to what it forked before. When a look finds nobody new, that is everybody.
    pub fn kill(&mut self) {
        let mut stopped = HashSet::new();
        for _ in 0..FREEZES {
            let living = self.living();
            if living.iter().filter(|stat| stopped.insert((stat.pid, stat.start))).count() == 0 {
                break;
            }
            self.send(&living, libc::SIGSTOP);
        }
        let living = self.living();
        self.send(&living, SIGKILL);
    }

    /// The group as a group, which no fork can slip through, and then the others, the youngest first: a parent's death wakes the stopped
    /// ones among its children's groups.
    fn send(&self, living: &[Stat], signal: i32) {
        if !self.root_reaped {
            let _ = kill(-self.root, signal);
        }
        let mut others: Vec<_> =
            living.iter().filter(|stat| self.root_reaped || stat.pgrp != self.root).collect();
        others.sort_by_key(|stat| std::cmp::Reverse(stat.start));
        for stat in others {
            // Gone meanwhile is what we want; not permitted shows up among the survivors.
            let _ = process(stat).signal(signal);
        }
    }
}
