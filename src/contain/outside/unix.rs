//! Finds and ends the tree of a run whose keeper is dead or unreachable.
//!
//! Members are the root, its group, every process that carries the run's cookie, every process in
//! the run's cgroup, and all descendants of these. Without a cgroup, one kind of process cannot be
//! found: it cleared its environment, left the group *and* lost its parent before the scan. Only
//! the keeper finds it.

mod claim;
#[cfg(target_os = "linux")]
mod near;
#[cfg(target_os = "macos")]
#[path = "unix/near_macos.rs"]
mod near;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use self::claim::{Claim, Known, Proof};
pub use self::scan::Scan;
use super::{GroupState, Target};
use crate::contain::cgroup::{Cgroup, Recorded};
use crate::contain::termination::{Step, Termination};
use crate::contain::{SIGKILL, cookie};
use crate::identity::stat::Stat;
use crate::identity::{ProcessHandle, ProcessRef, State, ignored_signals, read_stat};
use crate::run::lifecycle::{Action, Event, Lifecycle, Rules};
use crate::run::reason::Ending;
use crate::run::{Ended, Force, Forced, ProcessInfo, Unlisted};
use crate::trace::trace;

/// Upper bound for the grace period, so that adding it to the clock cannot overflow.
const MAX_GRACE: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long to wait for the effect of one SIGKILL pass.
const KILL_WAIT: Duration = Duration::from_millis(100);

/// How long to wait for exiting processes that may have been members. Most exit within
/// milliseconds. A process that hangs in the kernel may not be the run's at all.
const EXITING_LIMIT: Duration = Duration::from_secs(1);

/// Maximum SIGSTOP passes before all members are killed, even if new ones still appear.
const MAX_STOP_PASSES: usize = 8;

/// Process handles that are open at the same time. This process may have few descriptors left.
const HANDLES_PER_BATCH: usize = 64;

impl Target<'_> {
    /// Returns whether the run's cgroup contains any process. A process that constantly forks and
    /// exits may be in no list, but the cgroup still counts it.
    fn is_cgroup_populated(&self) -> bool {
        self.cgroup.and_then(|cgroup| cgroup.abandoned()).is_some_and(|cgroup| cgroup.is_populated())
    }

    /// Returns whether the process is in the group whose ID is the root's PID, whether or not that
    /// group is the run's. A spawned run also has its own session.
    fn has_in_group(&self, stat: &Stat) -> bool {
        let root = self.root.pid;
        self.leads_group && stat.pgrp == root && (!self.spawned || stat.session == root)
    }
}

/// Ends all processes that provably belong to the run. Sends `signal` and SIGCONT, waits for
/// `grace`, then sends SIGKILL until no member is found, for at most `limit`.
///
/// Blocks, so never call it on the event loop. This process, its ancestors and PID 1 are never
/// members, whatever the target says.
///
/// The ending is [`Ending::AlreadyEnded`] if no process of the run was found alive.
pub fn end_tree(target: &Target, signal: i32, grace: Duration, limit: Duration) -> Ended {
    end_and_count(target, signal, grace, limit).0
}

/// Does the same as [`end_tree`]. Also returns how many processes got a signal, for tests.
fn end_and_count(target: &Target, signal: i32, grace: Duration, limit: Duration) -> (Ended, usize) {
    // A key in this process's own cookie proves nothing: its own helpers and runs carry it too.
    let is_ours = |key: &&str| cookie::around_us().any(|ours| ours == *key);
    let target = &Target { cookie_key: target.cookie_key.filter(|key| !is_ours(key)), ..*target };
    let mut search = TreeSearch::new(target);
    let ended = search.end(signal, grace, limit);
    (ended, search.signalled.len())
}

impl Scan {
    /// Returns the living members: seen in the scan, and proven again now.
    pub fn living(&self, target: &Target) -> io::Result<Vec<ProcessRef>> {
        let members = TreeSearch::new(target).find(self)?;
        Ok(members.into_iter().map(|member| member.process).collect())
    }

    /// Returns the processes in the group whose ID is the root's PID. The caller must prove that
    /// this is the run's group.
    pub fn grouped(&self, target: &Target) -> Vec<ProcessRef> {
        if self.is_shared(target.root.pid) {
            return Vec::new();
        }
        let members = self.group(target.root.pid).filter(|stat| target.has_in_group(stat));
        members.map(|stat| ProcessRef::known(stat.pid, stat.start)).collect()
    }

    /// Returns the tree for display: the processes below the keeper, or without a keeper the proven
    /// members.
    pub fn tree(&self, target: &Target, keeper: Option<&ProcessRef>) -> Vec<Stat> {
        let kept = keeper.filter(|keeper| self.state(keeper) == State::Alive);
        let members = match kept {
            Some(keeper) => self.below(keeper),
            None => {
                claim::ours(self, target, &Known::new(), &[]).into_iter().map(|claim| claim.stat).collect()
            }
        };
        members.into_iter().cloned().collect()
    }

    /// Waits a short time for processes that were exiting during the scan and may have been
    /// members, see [`Scan::leaving`].
    ///
    /// All runs share one deadline. Otherwise one process that hangs in the kernel could delay each
    /// of a thousand records.
    pub fn wait_for_exiting(&self, target: &Target) {
        let leaving = self.leaving(target);
        if !leaving.is_empty() {
            wait_for_all(&leaving, *self.leaves_until.get_or_init(|| Instant::now() + EXITING_LIMIT));
        }
    }

    /// Returns whether any process of the run is alive.
    pub fn has_living(&self, target: &Target) -> io::Result<bool> {
        Ok(!self.living(target)?.is_empty() || target.is_cgroup_populated())
    }

    /// The state of the run's group at the time of the scan.
    pub fn group_state(&self, target: &Target) -> GroupState {
        claim::group_state(self, target)
    }
}

/// A process that is proven to belong to the run.
#[derive(Debug)]
struct Member {
    stat: Stat,
    process: ProcessRef,
    in_group: bool,
}

/// Searches for the members of one tree and ends them.
struct TreeSearch<'a> {
    target: &'a Target<'a>,
    /// All members that were proven so far. They stay members when their parent or witness is gone.
    known: Known,
    /// The members that got a signal, and the strongest means that was used.
    signalled: HashSet<(i32, u64)>,
    force: Force,
    forced: Forced,
    /// No process in the group is off limits.
    may_signal_group: bool,
    /// The run's cgroup, if its keeper is dead; and whether no process in it is off limits.
    cgroup: Option<Cgroup>,
    may_kill_cgroup: bool,
    /// The cgroup contained a process when it was killed, visible or not.
    found_in_cgroup: bool,
    /// Exiting processes that may have been members, and how long to wait for them.
    leaving: Vec<ProcessRef>,
    leaves_until: Option<Instant>,
}

impl<'a> TreeSearch<'a> {
    fn new(target: &'a Target<'a>) -> Self {
        Self {
            target,
            known: Known::new(),
            signalled: HashSet::new(),
            force: Force::Nothing,
            forced: Forced::default(),
            may_signal_group: false,
            cgroup: None,
            may_kill_cgroup: false,
            found_in_cgroup: false,
            leaving: Vec::new(),
            leaves_until: None,
        }
    }

    fn scan(&mut self) -> io::Result<Vec<Member>> {
        self.find(&Scan::near(self.target, &self.known)?)
    }

    /// Returns the living members: the scan claims them, and a second read confirms the proof.
    fn find(&mut self, scan: &Scan) -> io::Result<Vec<Member>> {
        self.may_signal_group = self.target.leads_group && !scan.is_shared(self.target.root.pid);
        let inside = self.cgroup_pids()?;
        self.may_kill_cgroup = !inside.iter().any(|&pid| scan.is_off_limits(pid));
        let claims = claim::ours(scan, self.target, &self.known, &inside);
        let confirmed = confirm(self.target, &claims, self.cgroup.as_ref())?;
        self.leaving = scan.leaving(self.target);
        self.known.extend(confirmed.iter().map(|stat| (stat.pid, stat.start)));
        let member = |stat: &Stat| Member {
            stat: stat.clone(),
            process: ProcessRef::known(stat.pid, stat.start),
            in_group: self.target.has_in_group(stat),
        };
        Ok(confirmed.into_iter().map(member).collect())
    }

    /// Returns the PIDs in the cgroup. Opens the cgroup on each call until it works, because its
    /// keeper may have died only now.
    fn cgroup_pids(&mut self) -> io::Result<Vec<i32>> {
        if self.cgroup.is_none() {
            self.cgroup = self.target.cgroup.as_ref().and_then(Recorded::abandoned);
        }
        Ok(self.cgroup.as_ref().map_or(Ok(Vec::new()), Cgroup::members)?)
    }

    /// Returns whether the cgroup contains any process. A process in another PID namespace counts,
    /// although it has no PID here.
    fn is_cgroup_populated(&self) -> bool {
        self.cgroup.as_ref().is_some_and(|cgroup| self.may_kill_cgroup && cgroup.is_populated())
    }

    /// Kills the whole cgroup at once. The last scan showed that no process in it is off limits,
    /// and neither this process nor its ancestors move into it now.
    fn kill_cgroup(&mut self) {
        if let Some(cgroup) = self.cgroup.as_ref().filter(|_| self.may_kill_cgroup) {
            self.found_in_cgroup |= cgroup.is_populated();
            if cgroup.kill().is_ok() {
                self.force = Force::Kill;
            }
        }
    }

    fn end(&mut self, signal: i32, grace: Duration, limit: Duration) -> Ended {
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

impl Member {
    fn id(&self) -> (i32, u64) {
        (self.process.pid, self.process.start)
    }

    fn info(&self) -> ProcessInfo {
        ProcessInfo::of(&self.stat, "")
    }
}

/// Returns the claims that a second read confirms. Fails only if that read is not possible.
///
/// The scan read the processes one after the other. A parent or witness may have died in between,
/// and its PID may belong to another process now. So for each claim: open a handle to the process,
/// read its link again through the handle, and only *then* read the process it links to, which was
/// confirmed before. If that process still has the same start token, it existed when the link was
/// read, so the link means it. Once proven, an identity stays proven.
fn confirm<'a>(target: &Target, claims: &[Claim<'a>], cgroup: Option<&Cgroup>) -> io::Result<Vec<&'a Stat>> {
    let mut confirmed: HashMap<i32, &Stat> = HashMap::new();
    let mut list = Vec::new();
    for claim in claims {
        match holds(target, claim, &confirmed, cgroup) {
            Ok(true) => {
                confirmed.insert(claim.stat.pid, claim.stat);
                list.push(claim.stat);
            }
            Ok(false) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(list)
}

fn holds(
    target: &Target,
    claim: &Claim,
    confirmed: &HashMap<i32, &Stat>,
    cgroup: Option<&Cgroup>,
) -> Result<bool, Errno> {
    let handle = ProcessRef::known(claim.stat.pid, claim.stat.start).open_handle()?;
    let again = |pid: i32| {
        let now = read_stat(pid).ok()?;
        (confirmed.get(&pid)?.start == now.start).then_some(now)
    };
    Ok(match claim.proof {
        Proof::Itself => true,
        // The handle is valid after the read, so the read was about this process.
        Proof::InCgroup => cgroup.is_some_and(|cgroup| cgroup.has(claim.stat.pid)) && handle.stat().is_ok(),
        Proof::Group { witness } => {
            let is_witness = |stat: Stat| stat.pid == target.root.pid || target.has_in_group(&stat);
            target.has_in_group(&handle.stat()?) && again(witness).is_some_and(is_witness)
        }
        Proof::ChildOf(parent) => handle.stat()?.ppid == parent && again(parent).is_some(),
        // The child names its parent, and the parent exists after that. So it is the process that
        // was named.
        Proof::HelperAbove(child) => {
            again(child).is_some_and(|child| child.ppid == claim.stat.pid) && handle.stat().is_ok()
        }
    })
}

fn open_handle(stat: &Stat) -> Option<ProcessHandle> {
    ProcessRef::known(stat.pid, stat.start).open_handle().ok()
}

fn wait_until_gone(members: &[Member], deadline: Instant) {
    for member in members {
        wait_for_one(&member.process, deadline);
    }
}

fn wait_for_all(processes: &[ProcessRef], deadline: Instant) {
    for process in processes {
        wait_for_one(process, deadline);
    }
}

fn wait_for_one(process: &ProcessRef, deadline: Instant) {
    if let Ok(handle) = process.open_handle() {
        let _ = handle.wait_exited(Some(deadline.saturating_duration_since(Instant::now())));
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
