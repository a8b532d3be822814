//! The tree of a run on Windows: a job, with handles of its members.

use std::sync::Arc;
use std::time::Instant;

use super::completion_port::Subscription;
use super::member_handles::{self, MemberHandles};
use super::{Polite, RootProcess, console};
use crate::contain::contained_tree::{ContainedTree, Population, Unreachable};
use crate::contain::job::{Counts, Job};
use crate::contain::{Leftover, Usage};
use crate::errno::Errno;
use crate::identity::ProcessRef;
use crate::identity::stat::Stat;
use crate::run::ctrl_break::CtrlBreak;
use crate::run::lifecycle::KILL_LIMIT_MS;
use crate::run::signal::{SIGKILL, exit_code};
use crate::run::{ExitStatus, ProcessInfo};

/// Interval of checks while the members are being killed. They do not wait for a message.
const KILL_PASS_MS: u64 = 5;

/// Interval of checks while new members may still connect to the console.
const CONSOLE_PASS_MS: u64 = 20;

/// Interval of checks after the root's exit, because a message of the job can be lost.
const LINGER_PASS_MS: u64 = 1_000;

pub struct JobTree {
    pub job: Arc<Job>,
    pub root: Arc<RootProcess>,
    handles: Arc<MemberHandles>,
    /// `None` if the job posts no messages to this bot.
    subscription: Option<Subscription>,
    polite: Option<Polite>,
    /// For the times of this tree, which only this tree uses.
    created_at: Instant,
    /// The members that got Ctrl+Break, once it was sent.
    ctrl_break: Option<CtrlBreak<(i32, u64)>>,
    /// The signal of the terminate phase, once it has begun.
    terminated_with: Option<i32>,
    /// The signal for which the tree is killed, because no request to exit could reach it.
    killed_for: Option<i32>,
    is_killing: bool,
    root_exit: Option<ExitStatus>,
    active: u32,
    /// A member has exited since the last [`ContainedTree::has_shrunk`].
    has_shrunk: bool,
    /// Set when no process of the job runs.
    emptied: Option<Emptied>,
}

/// No process of the job runs, but some may still be exiting.
struct Emptied {
    at_ms: u64,
    /// All messages about new members have been handled: every member that can be opened is open.
    is_caught_up: bool,
}

impl JobTree {
    pub fn new(
        job: Arc<Job>,
        root: Arc<RootProcess>,
        handles: Arc<MemberHandles>,
        subscription: Option<Subscription>,
        polite: Option<Polite>,
    ) -> Self {
        Self {
            job,
            root,
            handles,
            subscription,
            polite,
            created_at: Instant::now(),
            ctrl_break: None,
            terminated_with: None,
            killed_for: None,
            is_killing: false,
            root_exit: None,
            active: u32::MAX,
            has_shrunk: false,
            emptied: None,
        }
    }

    /// Notes that all messages of the job have been handled. True if the job was empty before.
    pub fn caught_up(&mut self) -> bool {
        if let Some(emptied) = &mut self.emptied {
            emptied.is_caught_up = true;
        }
        self.emptied.is_some()
    }

    /// Checks whether all members have exited, see [`MemberHandles`].
    ///
    /// No process of the job runs, so no member can be added. If the root was the only member, one
    /// check suffices. If the kernel does not complete an exit, the tree counts as gone after
    /// [`KILL_LIMIT_MS`].
    fn check_exits(&mut self, total: u32) -> Population {
        let now = self.now();
        let emptied = self.emptied.get_or_insert_with(|| Emptied {
            at_ms: now,
            is_caught_up: total <= 1 || !self.subscription.as_ref().is_some_and(Subscription::catch_up),
        });
        let is_late = now.saturating_sub(emptied.at_ms) > KILL_LIMIT_MS;
        if is_late || emptied.is_caught_up && self.handles.have_exited() {
            Population::Gone(self.handles.left(usize::MAX))
        } else {
            Population::Exiting
        }
    }

    /// Sends Ctrl+Break to members that were created during the grace period.
    ///
    /// The grace period ends early when all members that got Ctrl+Break have exited, and Ctrl+Break
    /// cannot reach the others.
    fn signal_new_members(&mut self) -> Population {
        let now = self.now();
        if let (Some(ctrl_break), Some(signal), false) =
            (&mut self.ctrl_break, self.terminated_with, self.is_killing)
            && !console::signal_new_members(ctrl_break, &self.root.pin, &self.job, now)
        {
            self.killed_for = Some(signal);
            return Population::Unreachable;
        }
        Population::Living
    }

    /// The members that run now and can be inspected, with the root.
    fn members(&self) -> Vec<Stat> {
        let members = self.job.members().unwrap_or_default();
        let stats = members.iter().filter_map(|member| member.stat().ok());
        stats.filter(|stat| !stat.is_dead()).collect()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.created_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl ContainedTree for JobTree {
    const KILL_PASS_MS: u64 = KILL_PASS_MS;

    fn scan(&mut self) -> Population {
        if let Some(subscription) = &self.subscription {
            subscription.before_check();
        }
        let Ok(Counts { active, total }) = self.job.counts() else { return Population::Living };
        self.has_shrunk |= active < self.active;
        self.active = active;
        if self.root_exit.is_none() {
            self.root_exit = self.root.status(self.terminated_with);
        }
        if active == 0 && self.root_exit.is_some() {
            self.check_exits(total)
        } else {
            self.signal_new_members()
        }
    }

    fn has_shrunk(&mut self) -> bool {
        std::mem::take(&mut self.has_shrunk)
    }

    fn root_status(&self) -> Option<ExitStatus> {
        self.root_exit
    }

    fn signal_root(&self, signal: i32) -> Result<(), Errno> {
        self.root.signal(signal)
    }

    /// Requests the end of the tree: through its terminal, or with Ctrl+Break.
    ///
    /// If no request can reach the tree, the keeper kills it without a grace period, as Node does
    /// for any signal.
    fn terminate(&mut self, signal: i32) -> Result<Vec<Leftover>, Unreachable> {
        self.terminated_with = Some(signal);
        let was_sent = match &self.polite {
            Some(request_end) => request_end(),
            None => {
                self.ctrl_break = console::send_ctrl_break(&self.root.pin, &self.job);
                self.ctrl_break.is_some()
            }
        };
        if was_sent {
            return Ok(Vec::new());
        }
        self.killed_for = Some(signal);
        Err(Unreachable)
    }

    fn next_check_in(&self) -> Option<u64> {
        if self.emptied.is_some() {
            Some(KILL_PASS_MS)
        } else if self.ctrl_break.as_ref().is_some_and(CtrlBreak::awaits_console) {
            Some(CONSOLE_PASS_MS)
        } else {
            (self.root_exit.is_some() || self.subscription.is_none()).then_some(LINGER_PASS_MS)
        }
    }

    /// Terminates all members of the job. The next pass finds a member that is being created now.
    fn kill(&mut self) -> Vec<ProcessInfo> {
        self.is_killing = true;
        let signal = self.killed_for.unwrap_or(SIGKILL);
        self.root.will_end_for(signal);
        // Open the members before the termination, because the job does not list them afterwards.
        let mut members = Vec::new();
        if self.active > 0 {
            self.handles.add_all();
            members = self.members();
        }
        let _ = self.job.terminate(exit_code(signal));
        members.iter().map(|stat| ProcessInfo::of(stat, "")).collect()
    }

    /// None of them has escaped: no process leaves a job.
    fn left_behind(&mut self) -> Vec<Leftover> {
        let is_other = |stat: &Stat| stat.pid != self.root.process.pid;
        let leftover = |stat: Stat| Leftover {
            process: ProcessInfo::of(&stat, "outlived the run's root"),
            is_root: false,
            has_escaped: false,
        };
        self.members().into_iter().filter(is_other).map(leftover).collect()
    }

    /// The members that have not exited.
    ///
    /// If none is visible but the job's count is not 0, the list contains the root in their place.
    fn survivors(&mut self) -> Vec<ProcessInfo> {
        self.handles.add_all();
        let mut survivors = self.handles.left(usize::MAX);
        let root = self.root.pin.stat().ok().filter(|_| !self.root.pin.has_ended());
        survivors.extend(root.map(|stat| member_handles::survivor(&stat)));
        if survivors.is_empty() && self.job.active() != Ok(0) {
            let ProcessRef { pid, start, .. } = self.root.process;
            let why = "its job contains a process that cannot be inspected".to_owned();
            survivors.push(ProcessInfo { pid, start, command: String::new(), why });
        }
        survivors
    }

    fn usage(&mut self) -> Usage {
        self.job.usage()
    }
}
