//! The process tree of a run on macOS, which the keeper follows by the forks and exits of its
//! members.
//!
//! macOS has no subreaper. `kqueue` reports each fork and exit of a member, and after each report
//! the keeper scans all processes. [`super::kqueue_members`] decides which are members. A process
//! is missed only if it leaves its session and loses its parent between its fork and the scan, and
//! shows no cookie. A process shows no cookie if it cleared its environment, or if it is a system
//! program, whose environment the kernel hides.
//!
//! The root is the keeper's child. While the keeper keeps the root's zombie, no other process can
//! have the root's PID, group ID or session ID. Other members are signalled by identity, see
//! [`crate::identity::ProcessHandle`].

mod end;

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags};

use super::cgroup::Cgroup;
use super::cookie::{self, Carried};
use super::kqueue_members::{Members, Seen};
use super::termination::Termination;
use super::wait::{wait_for, wait_for_exiting};
use super::{Leftover, Usage, inside};
use crate::identity::macos::{Happened, Queue, all_processes, task};
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, read_stat};
use crate::run::ExitStatus;
use crate::run::ProcessInfo;

/// Maximum number of consecutive scans while each finds a new member.
const MAX_SCANS: usize = 16;

/// After a scan the keeper pauses for this many times its duration, at most `LONGEST_PAUSE`. So a
/// tree that forks constantly costs only a part of a processor.
const IDLE_PER_SCAN: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// The kernel cannot assign 99,999 PIDs in this time, so no PID was reused since.
const PID_REUSE_TIME: Duration = Duration::from_secs(1);

/// Pause before the next scan while an exiting member is not a zombie yet, and after a failed scan.
const ZOMBIE_PAUSE: Duration = Duration::from_micros(500);
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// No-op: macOS has no subreaper.
#[allow(clippy::unnecessary_wraps)] // On Linux the system call can fail.
pub fn become_subreaper() -> Result<(), Errno> {
    Ok(())
}

/// The process tree with the given root process.
#[derive(Debug)]
pub struct Tree {
    root: i32,
    root_start: u64,
    cookie_key: Option<String>,
    queue: Queue,
    members: Members,
    /// PIDs of members whose exit the kernel has reported.
    leaving: HashSet<i32>,
    /// Processes whose environment was read and does not contain the run's key.
    non_carriers: HashSet<(i32, u64)>,
    status: Option<ExitStatus>,
    /// The keeper has reaped the root. From then on, the root's PID and group ID may belong to
    /// another process.
    root_reaped: bool,
    /// A member is gone since the last [`Tree::has_shrunk`].
    shrunk: bool,
    unfinished: bool,
    /// Events are ignored from now on.
    over: bool,
    not_before: Instant,
    /// Start of the last scan.
    last_scan: Instant,
    /// CPU time of each member at the last [`Tree::usage`], including exited members.
    used: HashMap<(i32, u64), u64>,
    /// Set between the first signal and SIGKILL.
    termination: Option<Termination>,
}

/// The most important event in a batch of kernel events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EventKind {
    None,
    Fork,
    Exit,
}

impl Tree {
    /// Creates the tree. `root` must be an unreaped child of the calling process. macOS has no
    /// cgroups.
    pub fn new(root: i32, _cgroup: Option<Cgroup>) -> Result<Self, Errno> {
        let me = nix::unistd::getpid().as_raw();
        let queue = Queue::new()?;
        // Fails if the root is already dead. Then the first scan finds its zombie.
        let _ = queue.watch(root);
        let stat = read_stat(root)?;
        Ok(Self {
            root,
            root_start: stat.start,
            cookie_key: None,
            queue,
            members: Members::new(me, &stat),
            leaving: HashSet::new(),
            non_carriers: HashSet::new(),
            status: None,
            root_reaped: false,
            shrunk: false,
            unfinished: false,
            over: false,
            not_before: Instant::now(),
            last_scan: Instant::now(),
            used: HashMap::new(),
            termination: None,
        })
    }

    /// Sets the key that members carry in their cookie.
    pub fn expect_carriers(&mut self, cookie_key: &str) {
        self.cookie_key = Some(cookie_key.to_owned());
    }

    /// A descriptor to poll. It stays ready until [`Tree::reap`] reads the events.
    pub fn changes(&self) -> Option<PollFd<'_>> {
        (!self.over).then(|| PollFd::new(self.queue.as_fd(), PollFlags::POLLIN))
    }

    /// Ignores all further events. There is no cgroup to remove.
    pub fn remove_cgroup(&mut self) {
        self.over = true;
    }

    /// The root's exit status, after [`Tree::reap`] has seen it.
    pub fn root_status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Returns whether a member is gone since the last call.
    pub fn has_shrunk(&mut self) -> bool {
        std::mem::take(&mut self.shrunk)
    }

    /// Returns whether the last [`Tree::reap`] was not conclusive, so that it must be called again.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Updates the members. Returns true if nothing is left of the tree except the root's zombie,
    /// which stays.
    ///
    /// Two empty scans are needed: a carrier of the cookie shows no environment for a moment during
    /// an exec.
    pub fn reap(&mut self) -> bool {
        self.unfinished = false;
        if self.drain_events() == EventKind::Fork {
            self.pause_after_scan();
        }
        // Before the scan, so that the scan sees a dead root as a zombie.
        self.update_root_status();
        let Ok(seen) = self.scan() else { return self.retry_after(RETRY_PAUSE) };
        if self.status.is_none() || self.has_living(&seen) {
            // No event reports when an exiting process becomes a zombie.
            return if self.is_member_leaving(&seen) { self.retry_after(ZOMBIE_PAUSE) } else { false };
        }
        self.non_carriers.clear();
        match self.scan() {
            Ok(seen) => !self.has_living(&seen),
            Err(_) => self.retry_after(RETRY_PAUSE),
        }
    }

    fn retry_after(&mut self, pause: Duration) -> bool {
        std::thread::sleep(pause);
        self.unfinished = true;
        false
    }

    /// Reaps the root's zombie. Call it when nothing else is left of the tree. The keeper has no
    /// other child.
    pub fn release_root(&mut self) -> bool {
        if !self.root_reaped {
            wait_for(self.root, 0);
            self.root_reaped = true;
        }
        true
    }

    /// Returns the members that are alive after the root has exited.
    pub fn left_behind(&mut self) -> Vec<Leftover> {
        self.non_carriers.clear();
        let living = self.living();
        inside::leftovers(self.root, &living.iter().collect::<Vec<_>>())
    }

    /// Returns the members that are left after SIGKILL, each with the reason.
    pub fn survivors(&mut self) -> Vec<ProcessInfo> {
        match self.scan() {
            Ok(seen) => {
                let living = self.members.living(&seen);
                living
                    .into_iter()
                    .map(|stat| match process(stat).signal(0) {
                        Err(Errno::EPERM) => ProcessInfo::of(
                            stat,
                            "not permitted to signal it (EPERM): it runs as another user",
                        ),
                        _ => ProcessInfo::of(stat, "still alive after SIGKILL"),
                    })
                    .collect()
            }
            Err(errno) => vec![ProcessInfo {
                pid: self.root,
                start: self.root_start,
                command: String::new(),
                why: format!("the search for processes of the run failed: {errno}"),
            }],
        }
    }

    /// Resource usage of the tree, from one scan. For exited members it uses the CPU time of the
    /// last call in which they were alive.
    pub fn usage(&mut self) -> Usage {
        let living = self.living();
        let mut rss_bytes = 0;
        for stat in &living {
            if let Some(task) = task(stat.pid) {
                rss_bytes += task.resident_bytes;
                self.used.insert((stat.pid, stat.start), task.cpu_ms);
            }
        }
        Usage {
            processes: u32::try_from(living.len()).unwrap_or(u32::MAX),
            cpu_ms: self.used.values().sum(),
            rss_bytes,
        }
    }

    /// Returns the living members. If the scan fails, it returns none; signals still reach the
    /// root's group.
    fn living(&mut self) -> Vec<Stat> {
        let Ok(seen) = self.scan() else { return Vec::new() };
        self.members.living(&seen).into_iter().cloned().collect()
    }

    fn has_living(&self, seen: &Seen) -> bool {
        !self.members.living(seen).is_empty()
    }

    fn is_member_leaving(&self, seen: &Seen) -> bool {
        self.members.living(seen).iter().any(|stat| self.leaving.contains(&stat.pid))
    }

    /// Reads the kernel's events. A fork needs no further action, because a scan follows.
    fn drain_events(&mut self) -> EventKind {
        let mut kind = EventKind::None;
        while let Ok(events) = self.queue.take(Some(Duration::ZERO))
            && !events.is_empty()
        {
            for event in events {
                kind =
                    kind.max(if let Happened::Exited(_) = event { EventKind::Exit } else { EventKind::Fork });
                if let Happened::Exited(pid) = event
                    && self.members.has_pid(pid)
                {
                    self.leaving.insert(pid);
                }
            }
        }
        kind
    }

    /// Pauses, so that a tree that only forks does not keep the keeper scanning all the time.
    fn pause_after_scan(&self) {
        std::thread::sleep(self.not_before.saturating_duration_since(Instant::now()).min(LONGEST_PAUSE));
    }

    /// Scans all processes until no new member appears. A new member is watched before the next
    /// scan. That scan finds its earlier children, and kqueue reports its later forks.
    fn scan(&mut self) -> Result<Seen, Errno> {
        let began = Instant::now();
        let mut seen = self.scan_once()?;
        for _ in 1..MAX_SCANS {
            if !self.admit_new_members(&seen) {
                break;
            }
            seen = self.scan_once()?;
        }
        let ended = Instant::now();
        self.not_before = ended + (ended - began) * IDLE_PER_SCAN;
        Ok(seen)
    }

    fn scan_once(&mut self) -> Result<Seen, Errno> {
        let began = Instant::now();
        let seen: Seen = all_processes()?.into_iter().map(|stat| (stat.pid, stat)).collect();
        let is_recent = self.last_scan.elapsed() < PID_REUSE_TIME;
        self.last_scan = began;
        for gone in self.members.remove_gone(&seen, is_recent) {
            self.leaving.remove(&gone);
            // The caller learns of the root's end through its exit status.
            self.shrunk |= gone != self.root;
            if let Some(termination) = &mut self.termination {
                termination.member_died();
            }
        }
        Ok(seen)
    }

    /// Adds the new members of a scan, even if they have exited since. Then the next scan finds
    /// their children.
    fn admit_new_members(&mut self, seen: &Seen) -> bool {
        let carriers = self.carriers(seen);
        let claims = self.members.claims(seen, !self.root_reaped, |stat| carriers.contains(&stat.pid));
        for claim in &claims {
            // If it cannot be watched, it has exited, or the scans after other events still find
            // it.
            let _ = self.queue.watch(claim.stat.pid);
            self.members.admit(claim.stat);
        }
        !claims.is_empty()
    }

    /// Returns the PIDs that carry the run's cookie. Each process is read once, because a cookie is
    /// inherited and cannot be acquired later. A process that is older than the root cannot have
    /// inherited it.
    fn carriers(&mut self, seen: &Seen) -> HashSet<i32> {
        let Some(key) = self.cookie_key.clone() else { return HashSet::new() };
        let is_new = |stat: &&Stat| {
            stat.start >= self.root_start
                && !stat.is_dead()
                && !self.members.has(stat)
                && !self.non_carriers.contains(&(stat.pid, stat.start))
        };
        let (carriers, others): (Vec<&Stat>, Vec<&Stat>) =
            seen.values().filter(is_new).partition(|stat| carries(&key, stat));
        self.non_carriers.retain(|(pid, start)| seen.get(pid).is_some_and(|stat| stat.start == *start));
        self.non_carriers.extend(others.iter().map(|stat| (stat.pid, stat.start)));
        carriers.into_iter().map(|stat| stat.pid).collect()
    }

    /// Reads the root's exit status if it has ended.
    fn update_root_status(&mut self) {
        if self.status.is_some() || self.root_reaped {
            return;
        }
        self.status = if self.leaving.contains(&self.root) {
            wait_for_exiting(self.root, libc::WNOWAIT)
        } else {
            wait_for(self.root, libc::WNOWAIT)
        };
    }
}

/// Returns whether the process carries the run's key. Only members have the key, and an environment
/// is inherited.
fn carries(key: &str, stat: &Stat) -> bool {
    matches!(cookie::carried_by(stat), Ok(Carried::Keys(keys)) if keys.iter().any(|carried| carried == key))
}

fn process(stat: &Stat) -> ProcessRef {
    ProcessRef::known(stat.pid, stat.start)
}
