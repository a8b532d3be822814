//! The tree as its subreaper sees it: from inside, complete, and nobody can leave.
//!
//! The caller is the child subreaper: whatever the command forks, setsids or double-forks comes back to it as a
//! direct child once its own parent is gone. Hence the two facts everything here rests on:
//!
//! - A descendant exists **iff** we have a child: every chain of parents leads to one, and only we remove our own.
//! - The number of a child of ours cannot be recycled before *we* have waited for it. So direct children, and the
//!   root's group for as long as we keep the root's zombie, may be signalled by number. Everybody else is
//!   signalled through a pidfd whose identity was checked after it was opened.

use std::collections::HashMap;
use std::fs;

use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::{ProcessInfo, SIGCONT, SIGKILL, tree};
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, read_stat};
use crate::run::ExitStatus;

/// Looks of [`Tree::escaped`] in a row.
const ESCAPE_LOOKS: usize = 64;

/// Passes of [`Tree::reap`] in a row.
const REAP_PASSES: usize = 16;

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
}

impl Tree {
    /// `root` must be an unreaped child of the calling process.
    pub fn new(root: i32) -> Self {
        Self { me: nix::unistd::getpid().as_raw(), root, status: None, root_reaped: false }
    }

    /// How the root ended, once [`Tree::reap`] has seen it.
    pub fn root_status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Collects every dead child but the root, whose zombie stays. True if nothing else is left of the tree.
    ///
    /// A pass that reaped somebody is repeated: that child's own children have become ours meanwhile. A pass that
    /// reaped nobody and saw nobody but the dead root is conclusive, because only we can shorten the list. But a tree that
    /// does nothing but fork and die must not keep us from everything else; whoever dies later signals again.
    pub fn reap(&mut self) -> bool {
        for _ in 0..REAP_PASSES {
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
            }
            if !reaped {
                return !left && self.status.is_some();
            }
        }
        false
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

    /// Every living member, the root included.
    fn members(&self) -> Vec<Stat> {
        descendants(self.me, |_| true)
    }

    /// Members that have left the root's session.
    ///
    /// One look is not enough: somebody seen dead may have a successor that came after its turn, and so may somebody who was
    /// gone when we asked for its state. As long as that is possible, and nobody was found, look again.
    pub fn escaped(&self) -> Vec<ProcessInfo> {
        let why = "left the run's session and outlived its root";
        for _ in 0..ESCAPE_LOOKS {
            let children = children(self.me);
            let members = self.members();
            let left: Vec<_> = members.iter().filter(|stat| stat.session != self.root).collect();
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

    /// What is left after everything was tried, each with the reason.
    pub fn survivors(&self) -> Vec<ProcessInfo> {
        self.members()
            .iter()
            .map(|stat| match signal_member(self.me, stat, 0) {
                Err(Errno::EPERM) => {
                    info(stat, "not permitted to signal it (EPERM): it runs as another user")
                }
                _ if stat.state == 'D' => info(stat, "in uninterruptible sleep (state D)"),
                _ => info(stat, "still there after SIGKILL"),
            })
            .collect()
    }

    /// Asks every member to end: `signal`, then SIGCONT so that a stopped one hears it. Each gets it once: the
    /// group as a group, the others one by one.
    pub fn terminate(&self, signal: i32) {
        let outside_group: Vec<_> =
            self.members().into_iter().filter(|stat| self.root_reaped || stat.pgrp != self.root).collect();
        for signal in [signal, SIGCONT] {
            if !self.root_reaped {
                let _ = kill(-self.root, signal);
            }
            for stat in &outside_group {
                // Gone meanwhile is what we want; not permitted shows up among the survivors.
                let _ = signal_member(self.me, stat, signal);
            }
        }
    }

    /// One pass of SIGKILL over everything there is. Direct children first and without a look: a process that does
    /// nothing but fork, setsid and exit is our child for microseconds only.
    pub fn kill(&self) {
        for child in children(self.me) {
            let _ = kill(child, SIGKILL);
        }
        if !self.root_reaped {
            let _ = kill(-self.root, SIGKILL);
        }
        for stat in self.members().iter().filter(|stat| stat.ppid != self.me) {
            let _ = signal_member(self.me, stat, SIGKILL);
        }
    }
}

/// Every living descendant of `me` whose branch (the child of `me` it comes from) is wanted.
pub(super) fn descendants(me: i32, wanted: impl Fn(i32) -> bool) -> Vec<Stat> {
    let seen = observe(me);
    seen.values()
        .filter(|stat| !stat.is_dead() && tree::branch_of(stat.pid, me, &seen).is_some_and(&wanted))
        .cloned()
        .collect()
}

/// Everything below `me`, or, on a kernel without `children` files, everything there is.
fn observe(me: i32) -> HashMap<i32, Stat> {
    let mut seen = HashMap::new();
    let Some(mut pending) = children_of(me) else {
        return all_processes().into_iter().map(|stat| (stat.pid, stat)).collect();
    };
    while let Some(pid) = pending.pop() {
        if seen.contains_key(&pid) {
            continue;
        }
        if let Ok(stat) = read_stat(pid) {
            pending.extend(children_of(pid).unwrap_or_default());
            seen.insert(pid, stat);
        }
    }
    seen
}

/// Signals a descendant of `me`, the calling process.
pub(super) fn signal_member(me: i32, stat: &Stat, signal: i32) -> Result<(), Errno> {
    if stat.ppid == me {
        kill(stat.pid, signal)
    } else {
        ProcessRef::known(stat.pid, stat.start).signal(signal)
    }
}

/// The children of `me`, dead or alive.
pub(super) fn children(me: i32) -> Vec<i32> {
    children_of(me).unwrap_or_else(|| {
        all_processes().into_iter().filter(|stat| stat.ppid == me).map(|stat| stat.pid).collect()
    })
}

fn info(stat: &Stat, why: &str) -> ProcessInfo {
    ProcessInfo { pid: stat.pid, start: stat.start, command: stat.comm.clone(), why: why.to_owned() }
}

/// The children of every thread of a process. `None` if this kernel has no such files (CONFIG_PROC_CHILDREN).
fn children_of(pid: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    let mut supported = false;
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        if let Ok(list) = fs::read_to_string(task.path().join("children")) {
            supported = true;
            children.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    supported.then_some(children)
}

fn all_processes() -> Vec<Stat> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| read_stat(entry.file_name().to_str()?.parse().ok()?).ok())
        .collect()
}

/// Waits for one child by number, never for "any". `None` if it has not ended.
///
/// Not nix's `waitid`, which takes an end by a real-time signal for an error.
pub(super) fn wait_for(child: i32, flags: libc::c_int) -> Option<ExitStatus> {
    // SAFETY: all zeroes is a valid siginfo_t, and the kernel fills it in; si_pid stays 0 if nobody has ended.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = flags | libc::WEXITED | libc::WNOHANG | libc::__WALL;
        if libc::waitid(libc::P_PID, child.cast_unsigned(), &raw mut info, flags) != 0 || info.si_pid() == 0 {
            return None;
        }
        let status = info.si_status();
        Some(if info.si_code == libc::CLD_EXITED {
            ExitStatus::Code(status)
        } else {
            ExitStatus::Signal(status)
        })
    }
}

/// Only for children of ours that were not waited for, and for the group such a child leads.
pub(super) fn kill(pid: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes two integers; the caller guarantees that the number still means our own child.
    Errno::result(unsafe { libc::kill(pid, signal) }).map(drop)
}
