//! Ends the members of a tree: signals, the grace period, SIGKILL until none is left, survivors.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use super::tree_search::{Member, TreeSearch};
use super::{EXITING_LIMIT, wait_for_all, wait_for_one};
use crate::contain::SIGKILL;
use crate::contain::termination::{Step, Termination};
use crate::identity::stat::Stat;
use crate::identity::{ProcessHandle, ProcessRef, State, ignored_signals, read_stat};
use crate::run::lifecycle::{Action, Event, Lifecycle, Rules};
use crate::run::reason::Ending;
use crate::run::{Ended, Force, ProcessInfo, Unlisted};
use crate::trace::trace;

/// Upper bound for the grace period, so that adding it to the clock cannot overflow.
const MAX_GRACE: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long to wait for the effect of one SIGKILL pass.
const KILL_WAIT: Duration = Duration::from_millis(100);

/// Maximum SIGSTOP passes before all members are killed, even if new ones still appear.
const MAX_STOP_PASSES: usize = 8;

/// Process handles that are open at the same time. This process may have few descriptors left.
const HANDLES_PER_BATCH: usize = 64;

impl TreeSearch<'_> {
    pub(super) fn end(&mut self, signal: i32, grace: Duration, limit: Duration) -> Ended {
        let mut found = self.scan();
        if self.target.root.state_without_lookup() == Some(State::Unknown) {
            let why = io::Error::other(
                "its PIDs are not valid here (another PID namespace, or /proc is not mounted)",
            );
            let survivors = vec![search_failed(self.target.root, &why)];
            return self.ended(survivors);
        }
        let mut life = TimedLifecycle::new(limit);
        if let Action::Terminate(signal) = life.on(Event::Cancel { signal, grace_ms: millis(grace) }) {
            let until = Instant::now() + grace.min(MAX_GRACE);
            // SIGKILL follows at once, so all members count as forced.
            if let (true, Ok(members)) = (grace.is_zero(), &found) {
                self.forced.add(members.iter().map(Member::info));
            }
            found = found.and_then(|members| self.terminate(members, signal, until));
        }
        // The grace period is over.
        life.on(Event::Cancel { signal: SIGKILL, grace_ms: 0 });
        let survivors = self.kill(found, &mut life);
        self.ended(survivors)
    }

    fn ended(&mut self, survivors: Vec<ProcessInfo>) -> Ended {
        if let Some(cgroup) = &self.cgroup {
            // The kernel refuses if the cgroup contains a process.
            let _ = cgroup.remove();
        }
        let found = !self.known.is_empty() || self.found_in_cgroup;
        let ending = if found { Ending::KeeperLost } else { Ending::AlreadyEnded };
        let (forced, unlisted) = std::mem::take(&mut self.forced).without(&survivors);
        let unlisted = Unlisted { forced: unlisted, ..Unlisted::default() };
        Ended { survivors, forced, unlisted, force: self.force, ..Ended::new(ending) }
    }

    /// Sends every member `signal` and SIGCONT, including members that appear meanwhile. Stops when
    /// a scan finds none, or at `until`. Returns the result of the last scan.
    fn terminate(
        &mut self,
        mut members: Vec<Member>,
        signal: i32,
        until: Instant,
    ) -> io::Result<Vec<Member>> {
        let mut termination = Termination::new(signal, Instant::now()).with_system_wide_passes();
        let mut began = Instant::now();
        while !members.is_empty() {
            let stats: Vec<&Stat> = members.iter().map(|member| &member.stat).collect();
            let found_new = self.signal_pass(&stats, &mut termination);
            termination.passed(&stats, found_new, began, Instant::now());
            wait_until_gone(&members, until.min(termination.next_pass()));
            began = Instant::now();
            members = self.scan()?;
            if began >= until {
                break;
            }
        }
        Ok(members)
    }

    /// One pass, see [`Termination`]. Returns true if at least one member received the signal.
    fn signal_pass(&mut self, members: &[&Stat], termination: &mut Termination) -> bool {
        let mut has_signalled = false;
        for step in Step::ALL {
            let plan = termination.plan(members, ignored_signals).into_iter();
            let chosen: Vec<_> = plan.filter(|(_, chosen)| *chosen == step).map(|(stat, _)| stat).collect();
            for batch in chosen.chunks(HANDLES_PER_BATCH) {
                // All handles are open before the first signal is sent, so no member can react to
                // another's death.
                let handles: Vec<_> =
                    batch.iter().filter_map(|stat| Some((*stat, open_handle(stat)?))).collect();
                for (index, signal) in step.signals(termination.signal()).into_iter().enumerate() {
                    for (stat, handle) in &handles {
                        let sent = handle.signal(signal);
                        if sent.is_ok() {
                            self.signalled.insert((stat.pid, stat.start));
                            self.force = self.force.max(Force::Signal);
                        }
                        if index == 0 && matches!(sent, Ok(()) | Err(Errno::EPERM)) {
                            termination.note(stat, step);
                            has_signalled |= step == Step::Signal;
                        }
                    }
                }
            }
        }
        has_signalled
    }

    /// Sends SIGKILL until no member is found. Returns the members that are left when time is up.
    ///
    /// Stops the members first and kills them after that. If a member forks and is killed, its
    /// child has no living parent or witness in the next scan, and nothing proves it any more. A
    /// stopped member cannot fork, and still proves the children that it forked before. When a scan
    /// finds no new member, all are known.
    fn kill(&mut self, mut found: io::Result<Vec<Member>>, life: &mut TimedLifecycle) -> Vec<ProcessInfo> {
        let mut stopped = HashSet::new();
        let mut stop_passes = 0;
        let mut empty = 0;
        loop {
            life.on(Event::Tick);
            let is_late = life.life.is_over();
            match found {
                Ok(members) if members.is_empty() && self.is_cgroup_populated() => {
                    if is_late {
                        return vec![hidden_members(self.target.root)];
                    }
                    self.kill_cgroup();
                    self.cgroup.as_ref().map(|cgroup| cgroup.wait_until_empty(KILL_WAIT));
                }
                Ok(members) if members.is_empty() && !is_late && self.wait_for_exiting() => {}
                // A carrier of the cookie shows no environment during an exec. So only two empty
                // scans in a row prove that no member is left.
                Ok(members) if members.is_empty() && (empty > 0 || self.known.is_empty()) => {
                    return Vec::new();
                }
                Ok(members) if members.is_empty() => empty += 1,
                Ok(mut members) => {
                    empty = 0;
                    let new_members = members.iter().filter(|member| stopped.insert(member.id())).count();
                    if new_members > 0 && stop_passes < MAX_STOP_PASSES && !is_late {
                        stop_passes += 1;
                        self.send(&members, libc::SIGSTOP);
                    } else {
                        self.send(&members, SIGKILL);
                        self.kill_cgroup();
                        wait_until_gone(&members, Instant::now() + KILL_WAIT);
                        members.retain(|member| {
                            !matches!(member.process.state(), State::Exited | State::Recycled)
                        });
                        // This process will never be permitted to signal the members that are left.
                        let forbidden = |member: &Member| member.process.signal(0) == Err(Errno::EPERM);
                        if is_late || members.iter().all(forbidden) && !members.is_empty() {
                            return members.iter().map(survivor).collect();
                        }
                    }
                }
                // A failed scan does not mean that no member is left.
                Err(error) if is_late => return vec![search_failed(self.target.root, &error)],
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
            found = self.scan();
        }
    }

    /// Waits for exiting processes that may have been members. Returns false if there are none, or
    /// their time is up.
    fn wait_for_exiting(&mut self) -> bool {
        let until = *self.leaves_until.get_or_insert_with(|| Instant::now() + EXITING_LIMIT);
        if self.leaving.is_empty() || Instant::now() >= until {
            return false;
        }
        wait_for_all(&self.leaving, until);
        true
    }

    /// Sends SIGSTOP or SIGKILL. If the group's leader is there, it signals the group as a whole,
    /// which no fork can escape. It signals the others one by one, children before parents: the
    /// death of a parent can wake stopped members of its children's groups.
    ///
    /// Errors are not lost: the next scan finds a process that could not be signalled, and it is
    /// reported as a survivor.
    fn send(&mut self, members: &[Member], signal: i32) {
        let by_group =
            self.may_signal_group && members.iter().any(|member| member.process == *self.target.root);
        let (group, others): (Vec<_>, Vec<_>) =
            members.iter().rev().partition(|member| by_group && member.in_group);
        for member in others {
            self.signal(member, signal);
        }
        if by_group && self.target.root.signal_group(signal).is_ok() {
            for member in group {
                self.note_signal(member, signal);
            }
        } else {
            for member in group {
                self.signal(member, signal);
            }
        }
    }

    fn signal(&mut self, member: &Member, signal: i32) {
        if member.process.signal(signal).is_ok() {
            self.note_signal(member, signal);
        }
    }

    fn note_signal(&mut self, member: &Member, signal: i32) {
        self.signalled.insert(member.id());
        if signal == SIGKILL {
            self.force = Force::Kill;
            self.forced.add([member.info()]);
        }
    }
}

/// The lifecycle state machine that ends every tree, with its clock.
struct TimedLifecycle {
    life: Lifecycle,
    began: Instant,
}

impl TimedLifecycle {
    fn new(limit: Duration) -> Self {
        let rules = Rules { kill_limit_ms: millis(limit), ..Rules::default() };
        Self { life: Lifecycle::new(rules), began: Instant::now() }
    }

    fn on(&mut self, event: Event) -> Action {
        let step = self.life.step(event, millis(self.began.elapsed()));
        if step.is_notable() {
            trace!("lifecycle from outside: {step}");
        }
        step.action
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn open_handle(stat: &Stat) -> Option<ProcessHandle> {
    ProcessRef::known(stat.pid, stat.start).open_handle().ok()
}

fn wait_until_gone(members: &[Member], deadline: Instant) {
    for member in members {
        wait_for_one(&member.process, deadline);
    }
}

fn survivor(member: &Member) -> ProcessInfo {
    let process = &member.process;
    let why = match process.signal(0) {
        Err(Errno::EPERM) => "not permitted to signal it (EPERM): it runs as another user",
        _ => "still alive after SIGKILL",
    };
    let command = read_stat(process.pid).map(|stat| stat.comm).unwrap_or_default();
    ProcessInfo { pid: process.pid, start: process.start, command, why: why.to_owned() }
}

fn hidden_members(root: &ProcessRef) -> ProcessInfo {
    let why = "the run's cgroup contains processes that are not visible in this PID namespace, and SIGKILL did not end them";
    ProcessInfo { pid: root.pid, start: root.start, command: String::new(), why: why.to_owned() }
}

fn search_failed(root: &ProcessRef, error: &io::Error) -> ProcessInfo {
    let why = format!("the search for processes of the run failed: {error}");
    ProcessInfo { pid: root.pid, start: root.start, command: String::new(), why }
}
