//! Ends a tree that is followed with kqueue.

use std::collections::HashSet;
use std::time::Instant;

use nix::errno::Errno;
use nix::libc;

use super::{Tree, process};
use crate::contain::termination::{Step, Termination};
use crate::contain::wait::kill;
use crate::contain::{Leftover, SIGKILL, inside};
use crate::identity::stat::Stat;
use crate::identity::{ignored_signals, read_stat};
use crate::run::ProcessInfo;

/// Maximum SIGSTOP passes before all members are killed, even if new ones still appear.
const MAX_STOP_PASSES: usize = 8;

impl Tree {
    /// Signals only the root, as `ChildProcess.kill` does.
    pub fn signal_root(&self, signal: i32) -> Result<(), Errno> {
        if self.root_reaped { Err(Errno::ESRCH) } else { kill(self.root, signal) }
    }

    /// Starts to terminate the tree: sends every member `signal`, then SIGCONT so that a stopped
    /// member handles it. Returns the members that received it.
    pub fn terminate(&mut self, signal: i32) -> Vec<Leftover> {
        self.termination = Some(Termination::new(signal, Instant::now()));
        self.pass()
    }

    /// When the next [`Tree::pass`] is due. `None` after [`Tree::kill`].
    pub fn next_pass(&self) -> Option<Instant> {
        self.termination.as_ref().map(Termination::next_pass)
    }

    /// Signals the members that appeared since the last pass, see [`Termination`]. Returns them.
    pub fn pass(&mut self) -> Vec<Leftover> {
        let began = Instant::now();
        let mut living = self.living();
        // Parents before their children: a parent is never younger.
        living.sort_by_key(|stat| (stat.start, stat.pid));
        // After the scan, because the scan records deaths in it.
        let Some(mut termination) = self.termination.take() else { return Vec::new() };
        let members: Vec<&Stat> = living.iter().collect();
        let plan = termination.plan(&members, ignored_signals);
        let mut signalled = Vec::new();
        for step in Step::ALL {
            let chosen = plan.iter().filter(|(_, chosen)| *chosen == step).map(|(stat, _)| *stat);
            let mut sent: Vec<&Stat> = chosen.collect();
            for (index, signal) in step.signals(termination.signal()).into_iter().enumerate() {
                let arrives =
                    |stat: &&Stat| matches!(self.signal_member(stat, signal), Ok(()) | Err(Errno::EPERM));
                if index == 0 {
                    sent.retain(arrives);
                } else {
                    // A member that has exited meanwhile needs no SIGCONT.
                    for stat in &sent {
                        let _ = self.signal_member(stat, signal);
                    }
                }
            }
            for stat in &sent {
                termination.note(stat, step);
            }
            if step == Step::Signal {
                signalled = sent;
            }
        }
        termination.forget_dead(|pid, start| read_stat(pid).is_ok_and(|stat| stat.start == start));
        termination.passed(&members, !signalled.is_empty(), began, Instant::now());
        self.termination = Some(termination);
        inside::leftovers(self.root, &signalled)
    }

    /// Signals a member. The root's PID is not reused while the keeper keeps its zombie.
    fn signal_member(&self, stat: &Stat, signal: i32) -> Result<(), Errno> {
        if stat.pid == self.root { self.signal_root(signal) } else { process(stat).signal(signal) }
    }

    /// Sends SIGKILL once to every member. Returns them.
    ///
    /// Stops the members first and kills them after that. If a member forks and is killed, nothing
    /// leads to its child in the next scan. A stopped member cannot fork, and still leads to the
    /// children that it forked before. When a scan finds no new member, all are known.
    pub fn kill(&mut self) -> Vec<ProcessInfo> {
        self.termination = None;
        let mut stopped = HashSet::new();
        for _ in 0..MAX_STOP_PASSES {
            let living = self.living();
            if living.iter().filter(|stat| stopped.insert((stat.pid, stat.start))).count() == 0 {
                break;
            }
            self.send(&living, libc::SIGSTOP);
        }
        let living = self.living();
        self.send(&living, SIGKILL);
        inside::killed(&living.iter().collect::<Vec<_>>())
    }

    /// Signals the root's group as a whole, which no fork can escape, and then the others, youngest
    /// first. The death of a parent can wake stopped members of its children's groups.
    fn send(&self, living: &[Stat], signal: i32) {
        if !self.root_reaped {
            let _ = kill(-self.root, signal);
        }
        let mut others: Vec<_> =
            living.iter().filter(|stat| self.root_reaped || stat.pgrp != self.root).collect();
        others.sort_by_key(|stat| std::cmp::Reverse(stat.start));
        for stat in others {
            // An exited process needs no signal. A process that may not be signalled is reported as
            // a survivor.
            let _ = process(stat).signal(signal);
        }
    }
}
