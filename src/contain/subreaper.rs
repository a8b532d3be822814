//! The process tree of a run, as the keeper (its child subreaper) sees it: complete, no member can
//! leave.
//!
//! When a process in the tree loses its parent, the kernel makes the subreaper its new parent. This
//! also holds after setsid and a double fork. Two facts follow, and this module relies on them:
//!
//! - A descendant exists **iff** the keeper has a child. Every chain of parents ends at a child of
//!   the keeper, and only the keeper reaps its own children.
//! - The kernel does not reuse the PID of a child before the *keeper* has reaped it. So the keeper
//!   may signal its direct children by PID, and also the root's group while it keeps the root's
//!   zombie. It signals every other member through a pidfd. It opens the pidfd first and then reads
//!   the whole chain of parents again.

mod reap;
mod remaining;

use std::collections::HashSet;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::PollFd;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use self::reap::Check;
use super::cgroup::Cgroup;
use super::snapshot::{Snapshot, children};
use super::termination::{Step, Termination};
use super::wait::{kill, wait_for};
use super::{Leftover, SIGKILL, Usage, inside};
use crate::identity::stat::Stat;
use crate::identity::{ignored_signals, read_stat, resident_bytes, ticks_to_ms};
use crate::run::{ExitStatus, ProcessInfo};

/// Makes this process the child subreaper, which adopts orphaned descendants.
pub fn become_subreaper() -> Result<(), Errno> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// The process tree below this process, with the given root process.
#[derive(Debug)]
pub struct Tree {
    me: i32,
    root: i32,
    status: Option<ExitStatus>,
    /// The keeper has reaped the root. From then on, the root's PID and group ID may belong to
    /// another process.
    root_reaped: bool,
    /// A member was reaped since the last [`Tree::has_shrunk`].
    shrunk: bool,
    /// The last [`Tree::reap`] ran out of time.
    unfinished: bool,
    check: Check,
    /// The run's cgroup, if it has one. Another program may have put a process into it that is not
    /// a descendant.
    cgroup: Option<Cgroup>,
    /// Set between the first signal and SIGKILL.
    termination: Option<Termination>,
    /// Number of SIGKILL passes so far.
    kill_passes: u64,
}

impl Tree {
    /// Creates the tree. `root` must be an unreaped child of the calling process, and in `cgroup`
    /// if that is given.
    #[allow(clippy::unnecessary_wraps)] // On macOS this opens a kqueue, which can fail.
    pub fn new(root: i32, cgroup: Option<Cgroup>) -> Result<Self, Errno> {
        let me = nix::unistd::getpid().as_raw();
        Ok(Self {
            me,
            root,
            status: None,
            root_reaped: false,
            shrunk: false,
            unfinished: false,
            check: Check::new(),
            cgroup,
            termination: None,
            kill_passes: 0,
        })
    }

    /// No-op: a subreaper sees all members without the cookie. On macOS the keeper needs the key.
    #[allow(clippy::unused_self)]
    pub fn expect_carriers(&mut self, _cookie_key: &str) {}

    /// A descriptor to poll after the root has exited: the last process in the cgroup may not be a
    /// child. It stays ready until [`Tree::reap`] reads the cgroup.
    pub fn changes(&self) -> Option<PollFd<'_>> {
        self.cgroup.as_ref().filter(|_| self.status.is_some()).map(Cgroup::changes)
    }

    /// Closes the cgroup and removes it if it is empty. Call it last.
    pub fn remove_cgroup(&mut self) {
        if let Some(cgroup) = self.cgroup.take() {
            // A cgroup whose removal fails is empty anyway. The next sweep of this directory
            // removes it.
            let _ = cgroup.remove();
        }
    }

    /// The root's exit status, after [`Tree::reap`] has seen it.
    pub fn root_status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Returns whether a member has died since the last call.
    pub fn has_shrunk(&mut self) -> bool {
        std::mem::take(&mut self.shrunk)
    }

    /// Returns whether the last [`Tree::reap`] ran out of time, so that it must be called again.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    fn is_cgroup_populated(&self) -> bool {
        self.cgroup.as_ref().is_some_and(Cgroup::is_populated)
    }

    /// Reaps the root's zombie. Call it when nothing else is left of the tree. Returns true if the
    /// kernel confirms that there is no child (`ECHILD`), and so no descendant.
    pub fn release_root(&mut self) -> bool {
        if !self.root_reaped {
            wait_for(self.root, 0);
            self.root_reaped = true;
        }
        has_no_child()
    }

    /// Signals only the root, as `ChildProcess.kill` does.
    pub fn signal_root(&self, signal: i32) -> Result<(), Errno> {
        if self.root_reaped { Err(Errno::ESRCH) } else { kill(self.root, signal) }
    }

    /// Living processes in the cgroup that are not descendants of the keeper.
    fn non_descendants(&self, snapshot: &Snapshot) -> Vec<Stat> {
        let listed = self.cgroup.as_ref().and_then(|cgroup| cgroup.members().ok()).unwrap_or_default();
        let non_descendants = listed.into_iter().filter(|&pid| pid != self.me && !snapshot.has_seen(pid));
        non_descendants.filter_map(|pid| read_stat(pid).ok()).filter(|stat| !stat.is_dead()).collect()
    }

    /// Resource usage of the tree, from one snapshot. The kernel counts the CPU time of reaped
    /// children in the keeper's own figures. It counts that of zombies, such as the root, in
    /// theirs.
    pub fn usage(&self) -> Usage {
        let snapshot = Snapshot::take(self.me);
        let waited_for = read_stat(self.me).map_or(0, |stat| stat.children_cpu);
        let ticks: u64 = snapshot.descendants().map(|stat| stat.cpu + stat.children_cpu).sum();
        let living = snapshot.members(|_| true);
        Usage {
            processes: u32::try_from(living.len()).unwrap_or(u32::MAX),
            cpu_ms: ticks_to_ms(ticks + waited_for),
            rss_bytes: living.iter().map(|stat| resident_bytes(stat.pid)).sum(),
        }
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
    ///
    /// The next pass finds what this one misses: if a parent dies during the snapshot, its child
    /// becomes a child of the keeper, or of another subreaper in the tree. A process that neither
    /// handles, blocks nor ignores the signal cannot fork after it: the kernel delivers the signal
    /// first.
    pub fn pass(&mut self) -> Vec<Leftover> {
        let Some(mut termination) = self.termination.take() else { return Vec::new() };
        let began = Instant::now();
        let snapshot = Snapshot::take(self.me);
        let non_descendants = self.non_descendants(&snapshot);
        let mut members = snapshot.members(|_| true);
        members.extend(&non_descendants);
        let plan = termination.plan(&members, ignored_signals);
        let mut signalled = Vec::new();
        for step in Step::ALL {
            let chosen: Vec<_> =
                plan.iter().filter(|(_, chosen)| *chosen == step).map(|(stat, _)| *stat).collect();
            let (below, beside): (Vec<_>, Vec<_>) =
                chosen.into_iter().partition(|stat| snapshot.has_seen(stat.pid));
            let signals = step.signals(termination.signal());
            let mut done = snapshot.send(&below, &signals);
            done.extend(self.cgroup.iter().flat_map(|cgroup| cgroup.send(&beside, &signals)));
            for stat in &done {
                termination.note(stat, step);
            }
            if step == Step::Signal {
                signalled = done;
            }
        }
        // A process that another program put into the cgroup never was in the root's session, so it
        // did not escape from it.
        let mut leftovers = inside::leftovers(self.root, &signalled);
        for leftover in leftovers.iter_mut().filter(|leftover| !snapshot.has_seen(leftover.process.pid)) {
            leftover.has_escaped = false;
        }
        termination.forget_dead(|pid, start| read_stat(pid).is_ok_and(|stat| stat.start == start));
        termination.passed(&members, !signalled.is_empty(), began, Instant::now());
        self.termination = Some(termination);
        leftovers
    }

    /// Sends SIGKILL once to every member. Returns the members that it found.
    ///
    /// The first pass takes its snapshot before the first SIGKILL, so that it finds all members.
    /// Later passes take it after they have killed the direct children: a process that only forks,
    /// calls setsid and exits is a direct child for microseconds only.
    pub fn kill(&mut self) -> Vec<ProcessInfo> {
        self.termination = None;
        self.kill_passes += 1;
        let before = (self.kill_passes == 1).then(|| Snapshot::take(self.me));
        let beside = before.as_ref().map_or_else(Vec::new, |snapshot| self.non_descendants(snapshot));
        // The kernel kills the whole cgroup at once. The other members follow, because a descendant
        // may have moved to another cgroup.
        if let Some(cgroup) = &self.cgroup {
            let _ = cgroup.kill();
        }
        let direct: HashSet<i32> = children(self.me).unwrap_or_default().into_iter().collect();
        for &child in &direct {
            let _ = kill(child, SIGKILL);
        }
        if !self.root_reaped {
            let _ = kill(-self.root, SIGKILL);
        }
        let in_group = |stat: &Stat| !self.root_reaped && stat.pgrp == self.root;
        let has_got_it = |stat: &Stat| direct.contains(&stat.pid) || in_group(stat);
        let is_first = before.is_some();
        let snapshot = before.unwrap_or_else(|| Snapshot::take(self.me));
        let mut members = snapshot.members(|_| true);
        let others: Vec<_> = members.iter().copied().filter(|stat| !(is_first && has_got_it(stat))).collect();
        snapshot.send(&others, &[SIGKILL]);
        members.extend(&beside);
        inside::killed(&members)
    }
}

/// Returns whether the kernel reports that this process has no child, dead or alive.
fn has_no_child() -> bool {
    let any = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, any) == Err(Errno::ECHILD)
}
