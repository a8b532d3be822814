//! A tree seen from outside, when its keeper is not there to ask: the root, its group, whoever carries the run's cookie, and
//! what descends from any of them; and whoever is in its cgroup, if it has one. Without one, a process that has cleared its environment, left the group, *and* lost its parent before we
//! looked cannot be found this way; that is what the keeper is for.

mod claim;
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
use super::{Ended, GroupState, Target};
use crate::contain::cgroup::{Cgroup, Recorded};
use crate::contain::{ProcessInfo, SIGCONT, SIGKILL};
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, State, read_stat};
use crate::run::lifecycle::{Action, Event, Lifecycle, Rules};

/// An absurdly long grace must not overflow the clock.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long one pass of SIGKILL may take to show.
const PASS: Duration = Duration::from_millis(100);

/// Looks for newcomers before they are killed all the same.
const FREEZES: usize = 8;

impl Target<'_> {
    /// Whether somebody is in the run's cgroup, whoever it is: one who forks and dies all the while is in no list long enough to be
    /// looked at.
    fn is_cgroup_populated(&self) -> bool {
        self.cgroup.and_then(|cgroup| cgroup.abandoned()).is_some_and(|cgroup| cgroup.is_populated())
    }

    /// Whether this process is in the group with the root's number, whosever that is. What was spawned has a session of its own.
    fn has_in_group(&self, stat: &Stat) -> bool {
        let root = self.root.pid;
        self.leads_group && stat.pgrp == root && (self.run_id.is_none() || stat.session == root)
    }
}

/// Ends whatever can be proven to belong to the run: `signal` and SIGCONT, `grace`, then SIGKILL until nothing is
/// found, at most `limit` after that. Blocks; never call it on the event loop.
///
/// We, our ancestors and PID 1 are never members, whatever the target says.
pub fn end_tree(target: &Target, signal: i32, grace: Duration, limit: Duration) -> Ended {
    let mut hunt = Hunt::new(target);
    let found = hunt.look();
    hunt.end(found, signal, grace, limit)
}

impl Scan {
    /// Who is alive and provably the run's: whoever was seen, and still is.
    pub fn living(&self, target: &Target) -> io::Result<Vec<ProcessRef>> {
        let members = Hunt::new(target).find(self)?;
        Ok(members.into_iter().map(|member| member.process).collect())
    }

    /// Who is in the tree, to be shown: whoever is below its keeper, or, without one, whoever is provably the run's.
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

    /// Whether anything of the run is alive.
    pub fn has_living(&self, target: &Target) -> io::Result<bool> {
        Ok(!self.living(target)?.is_empty() || target.is_cgroup_populated())
    }

    /// What there was of the run's group when the scan was taken.
    pub fn group_state(&self, target: &Target) -> GroupState {
        claim::group_state(self, target)
    }
}

/// One that was proven to be the run's.
#[derive(Debug)]
struct Member {
    process: ProcessRef,
    in_group: bool,
}

/// The ending of one tree.
struct Hunt<'a> {
    target: &'a Target<'a>,
    /// Everybody who was proven so far. They stay the run's when their parent or their witness is gone.
    known: Known,
    signalled: HashSet<(i32, u64)>,
    /// Nobody in the group who is off limits.
    may_signal_group: bool,
    /// The run's own, without its keeper; and nobody in it who is off limits.
    cgroup: Option<Cgroup>,
    may_kill_cgroup: bool,
    /// Somebody was in the cgroup when it was killed, seen or not.
    found_in_cgroup: bool,
}

impl<'a> Hunt<'a> {
    fn new(target: &'a Target<'a>) -> Self {
        Self {
            target,
            known: Known::new(),
            signalled: HashSet::new(),
            may_signal_group: false,
            cgroup: None,
            may_kill_cgroup: false,
            found_in_cgroup: false,
        }
    }

    fn look(&mut self) -> io::Result<Vec<Member>> {
        self.find(&Scan::take()?)
    }

    /// The living members: those that the scan claims, and whose proof holds on a second look.
    fn find(&mut self, scan: &Scan) -> io::Result<Vec<Member>> {
        self.may_signal_group = self.target.leads_group && !scan.is_shared(self.target.root.pid);
        let inside = self.look_inside()?;
        self.may_kill_cgroup = !inside.iter().any(|&pid| scan.is_above_us(pid));
        let claims = claim::ours(scan, self.target, &self.known, &inside);
        let confirmed = confirm(self.target, &claims, self.cgroup.as_ref())?;
        self.known.extend(confirmed.iter().map(|stat| (stat.pid, stat.start)));
        let member = |stat: &Stat| Member {
            process: ProcessRef::known(stat.pid, stat.start),
            in_group: self.target.has_in_group(stat),
        };
        Ok(confirmed.into_iter().map(member).collect())
    }

    /// Who is in the cgroup. Its keeper may have died only since we last looked.
    fn look_inside(&mut self) -> io::Result<Vec<i32>> {
        if self.cgroup.is_none() {
            self.cgroup = self.target.cgroup.as_ref().and_then(Recorded::abandoned);
        }
        Ok(self.cgroup.as_ref().map_or(Ok(Vec::new()), Cgroup::members)?)
    }

    /// Whether somebody is in it, seen or not: those of other PID namespaces have no number here.
    fn is_cgroup_populated(&self) -> bool {
        self.cgroup.as_ref().is_some_and(|cgroup| self.may_kill_cgroup && cgroup.is_populated())
    }

    /// All of it at once. That nobody in it is off limits was seen a moment ago, and neither we nor those above us go there now.
    fn kill_cgroup(&mut self) {
        if let Some(cgroup) = self.cgroup.as_ref().filter(|_| self.may_kill_cgroup) {
            self.found_in_cgroup |= cgroup.is_populated();
            let _ = cgroup.kill();
        }
    }

    fn end(
        mut self,
        mut found: io::Result<Vec<Member>>,
        signal: i32,
        grace: Duration,
        limit: Duration,
    ) -> Ended {
        if self.target.root.without_a_look() == Some(State::Unknown) {
            let why = io::Error::other("its numbers mean nothing here (another PID namespace, or no /proc)");
            let survivors = vec![unseen(self.target.root, &why)];
            return self.ended(survivors);
        }
        let mut ending = Ending::new(limit);
        if let Action::Terminate(signal) = ending.tell(Event::Cancel { signal, grace_ms: millis(grace) })
            && let Ok(members) = &found
            && !members.is_empty()
        {
            self.send(members, signal);
            self.send(members, SIGCONT);
            wait_until_gone(members, Instant::now() + grace.min(LONGEST));
            found = self.look();
        }
        // Who was asked is gone, or has had the time. Who came since gets none: without a keeper, every moment may take away what
        // leads to it.
        ending.tell(Event::Cancel { signal: SIGKILL, grace_ms: 0 });
        let survivors = self.kill(found, &mut ending);
        self.ended(survivors)
    }

    fn ended(self, survivors: Vec<ProcessInfo>) -> Ended {
        if let Some(cgroup) = &self.cgroup {
            // The kernel refuses if anybody is in it.
            let _ = cgroup.remove();
        }
        let found = !self.known.is_empty() || self.found_in_cgroup;
        Ended { found, survivors, signalled: self.signalled.len() }
    }

    /// Kills until nothing is found. Returns what is left when time is up.
    ///
    /// Stop first, kill second. A member that forks and is killed leaves a child whose parent, and whose witness, may be dead when
    /// we look again, and nothing leads to it then. A stopped one does not fork, and is still there to lead to what it forked
    /// before. When a look finds nobody new, that is everybody.
    fn kill(&mut self, mut found: io::Result<Vec<Member>>, ending: &mut Ending) -> Vec<ProcessInfo> {
        let mut stopped = HashSet::new();
        let mut freezes = 0;
        let mut empty = 0;
        loop {
            ending.tell(Event::Tick);
            let is_late = ending.life.is_over();
            match found {
                Ok(members) if members.is_empty() && self.is_cgroup_populated() => {
                    if is_late {
                        return vec![hidden(self.target.root)];
                    }
                    self.kill_cgroup();
                    self.cgroup.as_ref().map(|cgroup| cgroup.wait_until_empty(PASS));
                }
                // A carrier that is in the middle of an exec has no environment for a moment. Nobody is in two of them.
                Ok(members) if members.is_empty() && (empty > 0 || self.known.is_empty()) => {
                    return Vec::new();
                }
                Ok(members) if members.is_empty() => empty += 1,
                Ok(mut members) => {
                    empty = 0;
                    let newcomers = members.iter().filter(|member| stopped.insert(member.id())).count();
                    if newcomers > 0 && freezes < FREEZES && !is_late {
                        freezes += 1;
                        self.send(&members, libc::SIGSTOP);
                    } else {
                        self.send(&members, SIGKILL);
                        self.kill_cgroup();
                        wait_until_gone(&members, Instant::now() + PASS);
                        members.retain(|member| {
                            !matches!(member.process.state(), State::Exited | State::Recycled)
                        });
                        // Nobody who is left will ever be ours to signal.
                        let forbidden = |member: &Member| member.process.signal(0) == Err(Errno::EPERM);
                        if is_late || members.iter().all(forbidden) && !members.is_empty() {
                            return members.iter().map(survivor).collect();
                        }
                    }
                }
                // Not being able to look is not the same as seeing nothing.
                Err(error) if is_late => return vec![unseen(self.target.root, &error)],
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
            found = self.look();
        }
    }

    /// Signals each once: the group as a group if its leader is there, which no fork can slip through, and the others one by one,
    /// children before their parents. (A parent's death wakes the stopped ones among its children's groups.)
    ///
    /// Errors are not lost: a process that could not be signalled is found again and ends up among the survivors.
    fn send(&mut self, members: &[Member], signal: i32) {
        let by_group =
            self.may_signal_group && members.iter().any(|member| member.process == *self.target.root);
        let (group, others): (Vec<_>, Vec<_>) =
            members.iter().rev().partition(|member| by_group && member.in_group);
        for member in others {
            self.signal(member, signal);
        }
        if by_group && self.target.root.signal_group(signal).is_ok() {
            self.signalled.extend(group.iter().map(|member| member.id()));
        } else {
            for member in group {
                self.signal(member, signal);
            }
        }
    }

    fn signal(&mut self, member: &Member, signal: i32) {
        if member.process.signal(signal).is_ok() {
            self.signalled.insert(member.id());
        }
    }
}

/// The state machine by which every tree is ended, and its clock.
struct Ending {
    life: Lifecycle,
    began: Instant,
}

impl Ending {
    fn new(limit: Duration) -> Self {
        let rules = Rules { kill_limit_ms: millis(limit), ..Rules::default() };
        Self { life: Lifecycle::new(rules), began: Instant::now() }
    }

    fn tell(&mut self, event: Event) -> Action {
        self.life.on(event, millis(self.began.elapsed()))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Member {
    fn id(&self) -> (i32, u64) {
        (self.process.pid, self.process.start)
    }
}

/// The claims that hold on a second look. Fails only if that look is not possible.
///
/// The processes were read one after the other while others came and went: a parent or a witness may have died in between, and
/// its number may have gone to a stranger, or a stranger's number to a member. So each process is pinned, its link is read again
/// through the pin, and only *then* whom it links to, which was confirmed before. If that still is the process that was
/// seen, it was there when the link was read, and the link means it. Once proven, an identity stays proven.
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
    let pin = ProcessRef::known(claim.stat.pid, claim.stat.start).pinned()?;
    let again = |pid: i32| {
        let now = read_stat(pid).ok()?;
        (confirmed.get(&pid)?.start == now.start).then_some(now)
    };
    Ok(match claim.proof {
        Proof::Itself => true,
        // Still pinned after the look, hence it was looked at.
        Proof::InCgroup => cgroup.is_some_and(|cgroup| cgroup.has(claim.stat.pid)) && pin.stat().is_ok(),
        Proof::Group { witness } => {
            let vouches = |stat: Stat| stat.pid == target.root.pid || target.has_in_group(&stat);
            target.has_in_group(&pin.stat()?) && again(witness).is_some_and(vouches)
        }
        Proof::ChildOf(parent) => pin.stat()?.ppid == parent && again(parent).is_some(),
    })
}

fn wait_until_gone(members: &[Member], deadline: Instant) {
    for member in members {
        if let Ok(pin) = member.process.pinned() {
            let _ = pin.wait_exited(Some(deadline.saturating_duration_since(Instant::now())));
        }
    }
}

fn survivor(member: &Member) -> ProcessInfo {
    let process = &member.process;
    let why = match process.signal(0) {
        Err(Errno::EPERM) => "not permitted to signal it (EPERM): it runs as another user",
        _ => "still there after SIGKILL",
    };
    let command = read_stat(process.pid).map(|stat| stat.comm).unwrap_or_default();
    ProcessInfo { pid: process.pid, start: process.start, command, why: why.to_owned() }
}

fn hidden(root: &ProcessRef) -> ProcessInfo {
    let why =
        "processes that cannot be seen from here are in the run's cgroup, and still there after SIGKILL";
    ProcessInfo { pid: root.pid, start: root.start, command: String::new(), why: why.to_owned() }
}

fn unseen(root: &ProcessRef, error: &io::Error) -> ProcessInfo {
    let why = format!("what is left of the run could not be looked for: {error}");
    ProcessInfo { pid: root.pid, start: root.start, command: String::new(), why }
}
