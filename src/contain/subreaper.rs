//! The tree as its subreaper sees it: from inside, complete, and nobody can leave.
//!
//! The caller is the child subreaper: whatever the command forks, setsids or double-forks comes back to it as a
//! direct child once its own parent is gone. Hence the two facts everything here rests on:
//!
//! - A descendant exists **iff** we have a child: every chain of parents leads to one, and only we remove our own.
//! - The number of a child of ours cannot be recycled before *we* have waited for it. So direct children, and the
//!   root's group for as long as we keep the root's zombie, may be signalled by number. Everybody else is
//!   signalled through a pidfd, and the whole line of descent is read again after it was opened.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::PollFd;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::cgroup::Cgroup;
use super::shell::Asking;
use super::snapshot::{Snapshot, children};
use super::wait::{kill, wait_for};
use super::{ProcessInfo, SIGCONT, SIGKILL, Usage};
use crate::identity::stat::Stat;
use crate::identity::{ignored_signals, read_stat, resident_bytes, ticks_to_ms};
use crate::keeper::is_helper;
use crate::run::ExitStatus;

/// How long [`Tree::reap`] may take. A tree that does nothing but fork and die must not keep us from everything else.
const REAP_LIMIT: Duration = Duration::from_millis(5);

/// How often, and after which pauses, a cgroup is looked at that should be empty: the kernel may take note of the last one's end a
/// moment after its parent has.
const EMPTY_LOOKS: usize = 20;
const EMPTY_PAUSE: Duration = Duration::from_micros(50);

/// Looks of [`Tree::escaped`] in a row.
const ESCAPE_LOOKS: usize = 64;

/// Makes this process the one to which orphaned descendants return.
pub fn become_subreaper() -> Result<(), Errno> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// The tree below this process, which has the given root.
#[derive(Debug)]
pub struct Tree {
    me: i32,
    root: i32,
    status: Option<ExitStatus>,
    /// Once the root has been waited for, its number, and with it the group's, may belong to somebody else.
    root_reaped: bool,
    /// Somebody was reaped since this was last asked for.
    shrunk: bool,
    /// The last look ran out of time.
    unfinished: bool,
    /// Where the run has one. Somebody else may have put a process into it that does not descend from us.
    cgroup: Option<Cgroup>,
    /// Somebody at a terminal was asked to end, and may be a shell that did not hear it.
    asking: Option<Asking>,
}

impl Tree {
    /// `root` must be an unreaped child of the calling process, and in the cgroup if there is one.
    #[allow(clippy::unnecessary_wraps)] // Elsewhere there is something to be had first.
    pub fn new(root: i32, cgroup: Option<Cgroup>) -> Result<Self, Errno> {
        let me = nix::unistd::getpid().as_raw();
        Ok(Self {
            me,
            root,
            status: None,
            root_reaped: false,
            shrunk: false,
            unfinished: false,
            cgroup,
            asking: None,
        })
    }

    /// The run whose cookie its members carry; whoever sees all of them does not need it.
    #[allow(clippy::unused_self)] // Elsewhere not all are seen.
    pub fn expect_carriers(&mut self, _run_id: &str) {}

    /// To be polled among others when the root has ended: the last process in the cgroup may not be our child. Ready until
    /// [`Tree::reap`] has looked.
    pub fn changes(&self) -> Option<PollFd<'_>> {
        self.cgroup.as_ref().filter(|_| self.status.is_some()).map(Cgroup::changes)
    }

    /// Lets go of the cgroup, and removes it if nobody is in it; to be called at the end.
    pub fn remove_cgroup(&mut self) {
        if let Some(cgroup) = self.cgroup.take() {
            // One that cannot be removed is empty all the same. Whoever makes the next one here sweeps it up.
            let _ = cgroup.remove();
        }
    }

    /// How the root ended, once [`Tree::reap`] has seen it.
    pub fn root_status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Whether members have died since this was last asked.
    pub fn has_shrunk(&mut self) -> bool {
        std::mem::take(&mut self.shrunk)
    }

    /// Whether [`Tree::reap`] has stopped before it was through.
    pub fn needs_another_look(&self) -> bool {
        self.unfinished
    }

    /// Collects every dead child but the root, whose zombie stays. True if nothing else is left of the tree.
    ///
    /// A pass that reaped somebody is repeated: that child's own children have become ours meanwhile. A pass that
    /// reaped nobody and saw nobody but the dead root is conclusive, because only we can shorten the list. If time is up
    /// before that, [`Tree::needs_another_look`] says so: the dead do not signal twice.
    pub fn reap(&mut self) -> bool {
        let began = Instant::now();
        self.unfinished = false;
        loop {
            let (mut reaped, mut left) = (false, false);
            for child in children(self.me) {
                if child == self.root && !self.root_reaped {
                    self.status = self.status.or_else(|| wait_for(child, libc::WNOWAIT));
                    left |= self.status.is_none();
                } else if wait_for(child, 0).is_some() {
                    reaped = true;
                } else {
                    left = true;
                }
                if began.elapsed() > REAP_LIMIT {
                    self.shrunk |= reaped;
                    self.unfinished = true;
                    return false;
                }
            }
            self.shrunk |= reaped;
            if !reaped {
                // One that the command has removed would wake us for ever.
                self.cgroup = self.cgroup.take().filter(|cgroup| !cgroup.is_removed());
                let populated = self.is_cgroup_populated();
                return !left && self.status.is_some() && !(populated && self.stays_populated());
            }
        }
    }

    fn is_cgroup_populated(&self) -> bool {
        self.cgroup.as_ref().is_some_and(Cgroup::is_populated)
    }

    fn stays_populated(&self) -> bool {
        (0..EMPTY_LOOKS).all(|_| {
            std::thread::sleep(EMPTY_PAUSE);
            self.is_cgroup_populated()
        })
    }

    /// Lets go of the root's zombie, to be called when nothing else is left. True if the kernel agrees that no child
    /// exists (`ECHILD`), and with it no descendant.
    pub fn release_root(&mut self) -> bool {
        if !self.root_reaped {
            wait_for(self.root, 0);
            self.root_reaped = true;
        }
        let any = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        waitid(Id::All, any) == Err(Errno::ECHILD)
    }

    /// Signals the root alone, as `ChildProcess.kill` does.
    pub fn signal_root(&self, signal: i32) -> Result<(), Errno> {
        if self.root_reaped { Err(Errno::ESRCH) } else { kill(self.root, signal) }
    }

    /// Members that have left the root's session.
    ///
    /// One look is not enough: somebody seen dead may have a successor that came after its turn, and so may somebody who was
    /// gone when we asked for its state. As long as that is possible, and nobody was found, look again.
    pub fn escaped(&self) -> Vec<ProcessInfo> {
        let why = "left the run's session and outlived its root";
        for _ in 0..ESCAPE_LOOKS {
            let children = children(self.me);
            let snapshot = Snapshot::take(self.me);
            let members = snapshot.members(|_| true);
            // A bot below us that has just exited leaves keepers of its own, which are about to go. Whoever borrows a name of theirs is
            // merely not reported.
            let left: Vec<_> =
                members.iter().filter(|stat| stat.session != self.root && !is_helper(&stat.comm)).collect();
            let settled =
                children.iter().all(|&pid| pid == self.root || members.iter().any(|stat| stat.pid == pid));
            if settled || !left.is_empty() {
                return left.into_iter().map(|stat| info(stat, why)).collect();
            }
            for child in children.into_iter().filter(|&child| child != self.root) {
                wait_for(child, 0);
            }
        }
        Vec::new()
    }

    /// What is left after everything was tried, each with the reason. A child that cannot even be looked at is left, too.
    pub fn survivors(&self) -> Vec<ProcessInfo> {
        let snapshot = Snapshot::take(self.me);
        let members = snapshot.members(|_| true);
        let hidden = children(self.me).into_iter().filter(|&pid| !snapshot.has_seen(pid));
        let hidden = hidden.map(|pid| ProcessInfo {
            pid,
            start: 0,
            command: String::new(),
            why: "it cannot be inspected: /proc hides it".to_owned(),
        });
        members
            .iter()
            .map(|stat| match snapshot.signal(stat, 0) {
                Err(Errno::EPERM) => {
                    info(stat, "not permitted to signal it (EPERM): it runs as another user")
                }
                _ if stat.state == 'D' => info(stat, "in uninterruptible sleep (state D)"),
                _ => info(stat, "still there after SIGKILL"),
            })
            .chain(hidden)
            .chain(self.strangers(&snapshot))
            .collect()
    }

    /// Who is in the cgroup and was not seen below us.
    fn strangers(&self, snapshot: &Snapshot) -> Vec<ProcessInfo> {
        let listed = self.cgroup.as_ref().and_then(|cgroup| cgroup.members().ok()).unwrap_or_default();
        let strangers = listed.into_iter().filter(|&pid| !snapshot.has_seen(pid));
        let mut seen: Vec<_> = strangers
            .filter_map(|pid| read_stat(pid).ok())
            .filter(|stat| !stat.is_dead())
            .map(|stat| info(&stat, "in the run's cgroup, and still there after SIGKILL"))
            .collect();
        if seen.is_empty() && snapshot.members(|_| true).is_empty() && self.is_cgroup_populated() {
            let why = "somebody is in the run's cgroup who cannot be seen from here".to_owned();
            seen.push(ProcessInfo { pid: self.root, start: 0, command: String::new(), why });
        }
        seen
    }

    /// What the tree uses: one look at what is below us. The time of those that we have waited for is in our own figures, that of
    /// the dead that nobody has waited for, such as the root, in theirs.
    pub fn usage(&self) -> Usage {
        let snapshot = Snapshot::take(self.me);
        let waited_for = read_stat(self.me).map_or(0, |stat| stat.children_cpu);
        let ticks: u64 = snapshot.everybody().map(|stat| stat.cpu + stat.children_cpu).sum();
        let living = snapshot.members(|_| true);
        Usage {
            processes: u32::try_from(living.len()).unwrap_or(u32::MAX),
            cpu_ms: ticks_to_ms(ticks + waited_for),
            rss_bytes: living.iter().map(|stat| resident_bytes(stat.pid)).sum(),
        }
    }

    /// Asks every member to end: `signal`, then SIGCONT so that a stopped one hears it. Each gets it once: the
    /// group as a group, the others one by one. Who is deaf to it has its turn in [`Tree::ask_shells`].
    pub fn terminate(&mut self, signal: i32) {
        let snapshot = Snapshot::take(self.me);
        let mut outside_group = snapshot.members(|_| true);
        self.asking = Asking::of(&outside_group, signal, ignored_signals);
        outside_group.retain(|stat| self.root_reaped || stat.pgrp != self.root);
        for signal in [signal, SIGCONT] {
            if !self.root_reaped {
                let _ = kill(-self.root, signal);
            }
            for stat in &outside_group {
                // Gone meanwhile is what we want; not permitted shows up among the survivors.
                let _ = snapshot.signal(stat, signal);
            }
            if let Some(cgroup) = &self.cgroup {
                let _ = cgroup.signal(signal, |pid| pid != self.me && !snapshot.has_seen(pid));
            }
        }
    }

    /// Whether [`Tree::ask_shells`] has something to wait for. The end of a shell's children is not told to us.
    pub fn awaits_shells(&self) -> bool {
        self.asking.is_some()
    }

    /// See [`Asking::again`].
    pub fn ask_shells(&mut self) {
        let Some(asking) = &mut self.asking else { return };
        let snapshot = Snapshot::take(self.me);
        // Gone meanwhile is what we want.
        asking.again(&snapshot.members(|_| true), ignored_signals, |stat, signal| {
            let _ = snapshot.signal(stat, signal);
        });
    }

    /// One pass of SIGKILL over everything there is. Direct children first and without a look: a process that does
    /// nothing but fork, setsid and exit is our child for microseconds only.
    pub fn kill(&self) {
        // All of it at once, where that is possible. Then the others: a descendant may have gone to another cgroup.
        if let Some(cgroup) = &self.cgroup {
            let _ = cgroup.kill();
        }
        for child in children(self.me) {
            let _ = kill(child, SIGKILL);
        }
        if !self.root_reaped {
            let _ = kill(-self.root, SIGKILL);
        }
        let snapshot = Snapshot::take(self.me);
        for stat in snapshot.members(|_| true) {
            let _ = snapshot.signal(stat, SIGKILL);
        }
    }
}

fn info(stat: &Stat, why: &str) -> ProcessInfo {
    ProcessInfo { pid: stat.pid, start: stat.start, command: stat.comm.clone(), why: why.to_owned() }
}
