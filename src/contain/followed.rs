//! The tree as its keeper follows it where nobody's descendants come back to it: by everybody's forks and exits.
//!
//! The kernel tells of each fork and each exit of a member (`kqueue`), and each makes us look at all processes. Who is a member
//! is decided by [`members`]. What can be missed: somebody who is forked, leaves its session, and loses its parent, all between a fork
//! and our look, and does not show the run's cookie either, because it has cleared its environment or is a program of the system's own, of
//! which the kernel hides it.
//!
//! The root is our child. Its number, and with it its group's and its session's, is nobody else's while we keep its zombie. Everybody else
//! is signalled by identity, see [`crate::identity::Pin`].

mod end;

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags};

use super::cgroup::Cgroup;
use super::members::{Members, Seen};
use super::shell::Asking;
use super::wait::{wait_for, wait_for_leaving};
use super::{ProcessInfo, Usage, cookie};
use crate::identity::macos::{Happened, Queue, everybody, task};
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, read_stat};
use crate::run::ExitStatus;

/// Looks in a row, as long as each finds somebody new.
const LOOKS: usize = 16;

/// A tree that forks all the while costs us one part in so many of a processor, and each look may wait so long for that.
const SHARE: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Nobody forks 99,999 times in so short a time, so every number still means what it meant.
const RECENTLY: Duration = Duration::from_secs(1);

/// How long somebody may take from its exit to being a zombie before we look again, and how long a look that failed is put off.
const MOMENT: Duration = Duration::from_micros(500);
const PUT_OFF: Duration = Duration::from_millis(10);

/// Nobody's descendants come back here.
#[allow(clippy::unnecessary_wraps)] // Elsewhere the kernel is asked to see to that.
pub fn become_subreaper() -> Result<(), Errno> {
    Ok(())
}

/// The tree that has the given root.
#[derive(Debug)]
pub struct Tree {
    me: i32,
    root: i32,
    root_start: u64,
    run_id: Option<String>,
    queue: Queue,
    members: Members,
    /// Members of which the kernel has said that they exit, by number.
    leaving: HashSet<i32>,
    /// Whose environment was read, and shows no cookie of ours.
    strangers: HashSet<(i32, u64)>,
    status: Option<ExitStatus>,
    /// Once the root has been waited for, its number, and with it the group's, may belong to somebody else.
    root_reaped: bool,
    /// Somebody has gone since this was last asked for.
    shrunk: bool,
    unfinished: bool,
    /// Nothing that happens is of interest any more.
    over: bool,
    not_before: Instant,
    /// When the last look began.
    looked_at: Instant,
    /// What members had used when somebody last asked, those that are gone included.
    used: HashMap<(i32, u64), u64>,
    /// Somebody at a terminal was asked to end, and may be a shell that did not hear it.
    asking: Option<Asking>,
}

/// What the kernel has told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Heard {
    Nothing,
    Forks,
    Exits,
}

impl Tree {
    /// `root` must be an unreaped child of the calling process. There is no cgroup that it could be in.
    pub fn new(root: i32, _cgroup: Option<Cgroup>) -> Result<Self, Errno> {
        let me = nix::unistd::getpid().as_raw();
        let queue = Queue::new()?;
        // Dead already is as good: then the first look finds its zombie.
        let _ = queue.watch(root);
        let stat = read_stat(root)?;
        Ok(Self {
            me,
            root,
            root_start: stat.start,
            run_id: None,
            queue,
            members: Members::new(me, &stat),
            leaving: HashSet::new(),
            strangers: HashSet::new(),
            status: None,
            root_reaped: false,
            shrunk: false,
            unfinished: false,
            over: false,
            not_before: Instant::now(),
            looked_at: Instant::now(),
            used: HashMap::new(),
            asking: None,
        })
    }

    /// The run whose cookie its members carry.
    pub fn expect_carriers(&mut self, run_id: &str) {
        self.run_id = Some(run_id.to_owned());
    }

    /// To be polled among others. Ready until [`Tree::reap`] has looked.
    pub fn changes(&self) -> Option<PollFd<'_>> {
        (!self.over).then(|| PollFd::new(self.queue.as_fd(), PollFlags::POLLIN))
    }

    /// There is none; but from here on nobody looks any more.
    pub fn remove_cgroup(&mut self) {
        self.over = true;
    }

    /// How the root ended, once [`Tree::reap`] has seen it.
    pub fn root_status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Whether members have gone since this was last asked.
    pub fn has_shrunk(&mut self) -> bool {
        std::mem::take(&mut self.shrunk)
    }

    /// Whether [`Tree::reap`] has stopped before it was through.
    pub fn needs_another_look(&self) -> bool {
        self.unfinished
    }

    /// Takes note of who has come and gone. True if nothing is left of the tree but the root's zombie, which stays.
    ///
    /// That nobody is left takes two looks: a carrier of the cookie that is just being executed shows no environment for a moment.
    pub fn reap(&mut self) -> bool {
        self.unfinished = false;
        if self.hear() == Heard::Forks {
            self.pace();
        }
        // Before the look: then it is a zombie in it.
        self.look_at_root();
        let Ok(seen) = self.look() else { return self.put_off(PUT_OFF) };
        if self.status.is_none() || self.has_living(&seen) {
            // Nobody tells when somebody who exits has become a zombie.
            return if self.is_somebody_leaving(&seen) { self.put_off(MOMENT) } else { false };
        }
        self.strangers.clear();
        match self.look() {
            Ok(seen) => !self.has_living(&seen),
            Err(_) => self.put_off(PUT_OFF),
        }
    }

    fn put_off(&mut self, pause: Duration) -> bool {
        std::thread::sleep(pause);
        self.unfinished = true;
        false
    }

    /// Lets go of the root's zombie, to be called when nothing else is left. We have no other child.
    pub fn release_root(&mut self) -> bool {
        if !self.root_reaped {
            wait_for(self.root, 0);
            self.root_reaped = true;
        }
        true
    }

    /// Members that have left the root's session.
    pub fn escaped(&mut self) -> Vec<ProcessInfo> {
        let why = "left the run's session and outlived its root";
        self.strangers.clear();
        let living = self.living();
        // A bot below us that has just exited leaves keepers of its own, which are about to go.
        let left = living.iter().filter(|stat| stat.session != self.root && stat.comm != crate::keeper::NAME);
        left.map(|stat| info(stat, why)).collect()
    }

    /// What is left after everything was tried, each with the reason.
    pub fn survivors(&mut self) -> Vec<ProcessInfo> {
        match self.look() {
            Ok(seen) => {
                let living = self.members.living(&seen);
                living
                    .into_iter()
                    .map(|stat| match process(stat).signal(0) {
                        Err(Errno::EPERM) => {
                            info(stat, "not permitted to signal it (EPERM): it runs as another user")
                        }
                        _ => info(stat, "still there after SIGKILL"),
                    })
                    .collect()
            }
            Err(errno) => vec![ProcessInfo {
                pid: self.root,
                start: self.root_start,
                command: String::new(),
                why: format!("what is left of the run could not be looked for: {errno}"),
            }],
        }
    }

    /// What the tree uses: one look at its members. Of those that are gone the time is what it was when somebody last asked.
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

    /// The members that live. If nobody can be looked at, those of the group are reached all the same.
    fn living(&mut self) -> Vec<Stat> {
        let Ok(seen) = self.look() else { return Vec::new() };
        self.members.living(&seen).into_iter().cloned().collect()
    }

    fn has_living(&self, seen: &Seen) -> bool {
        !self.members.living(seen).is_empty()
    }

    fn is_somebody_leaving(&self, seen: &Seen) -> bool {
        self.members.living(seen).iter().any(|stat| self.leaving.contains(&stat.pid))
    }

    /// Takes what the kernel has told. A fork needs no more than the look that follows.
    fn hear(&mut self) -> Heard {
        let mut heard = Heard::Nothing;
        while let Ok(events) = self.queue.take(Some(Duration::ZERO))
            && !events.is_empty()
        {
            for event in events {
                heard = heard.max(if let Happened::Exited(_) = event { Heard::Exits } else { Heard::Forks });
                if let Happened::Exited(pid) = event
                    && self.members.has_number(pid)
                {
                    self.leaving.insert(pid);
                }
            }
        }
        heard
    }

    /// A tree that does nothing but fork must not make us do nothing but look.
    fn pace(&self) {
        std::thread::sleep(self.not_before.saturating_duration_since(Instant::now()).min(LONGEST_PAUSE));
    }

    /// Looks at all processes until nobody new turns up. A newcomer is watched before the next look: who was forked before that is found by it,
    /// who is forked later is told.
    fn look(&mut self) -> Result<Seen, Errno> {
        let began = Instant::now();
        let mut seen = self.look_once()?;
        for _ in 1..LOOKS {
            if !self.admit_newcomers(&seen) {
                break;
            }
            seen = self.look_once()?;
        }
        let ended = Instant::now();
        self.not_before = ended + (ended - began) * SHARE;
        Ok(seen)
    }

    fn look_once(&mut self) -> Result<Seen, Errno> {
        let began = Instant::now();
        let seen: Seen = everybody()?.into_iter().map(|stat| (stat.pid, stat)).collect();
        let is_recent = self.looked_at.elapsed() < RECENTLY;
        self.looked_at = began;
        for gone in self.members.forget_the_gone(&seen, is_recent) {
            self.leaving.remove(&gone);
            // The root's own end is told by its status.
            self.shrunk |= gone != self.root;
        }
        Ok(seen)
    }

    /// Whoever was seen to be a member is one, also if it is gone by now: then the next look finds whom it has left.
    fn admit_newcomers(&mut self, seen: &Seen) -> bool {
        let carriers = self.carriers(seen);
        let claims = self.members.claims(seen, !self.root_reaped, |stat| carriers.contains(&stat.pid));
        for claim in &claims {
            // Who cannot be watched is gone, or is looked at all the same whenever somebody else gives us cause.
            let _ = self.queue.watch(claim.stat.pid);
            self.members.admit(claim.stat);
        }
        !claims.is_empty()
    }

    /// Who carries the run's cookie. Each is asked once: it is inherited, not acquired. Who was there before the run cannot have inherited it.
    fn carriers(&mut self, seen: &Seen) -> HashSet<i32> {
        let Some(run_id) = self.run_id.clone() else { return HashSet::new() };
        let is_new = |stat: &&Stat| {
            stat.start >= self.root_start
                && !stat.is_dead()
                && !self.members.has(stat)
                && !self.strangers.contains(&(stat.pid, stat.start))
        };
        let (carriers, others): (Vec<&Stat>, Vec<&Stat>) =
            seen.values().filter(is_new).partition(|stat| self.carries(&run_id, stat, seen));
        self.strangers.retain(|(pid, start)| seen.get(pid).is_some_and(|stat| stat.start == *start));
        self.strangers.extend(others.iter().map(|stat| (stat.pid, stat.start)));
        carriers.into_iter().map(|stat| stat.pid).collect()
    }

    /// Whether it carries the cookie, and not because another bot has chosen the same id: then another keeper, which is not itself part of the
    /// run, is above it.
    fn carries(&self, run_id: &str, stat: &Stat, seen: &Seen) -> bool {
        let shows =
            |stat: &Stat| cookie::carried_by(stat).is_ok_and(|runs| runs.iter().any(|run| run == run_id));
        let keeps = |above: &Stat| above.comm == crate::keeper::NAME && !shows(above);
        shows(stat) && !line(stat, seen).take_while(|above| above.pid != self.me).any(keeps)
    }

    /// How the root has ended, if it has.
    fn look_at_root(&mut self) {
        if self.status.is_some() || self.root_reaped {
            return;
        }
        self.status = if self.leaving.contains(&self.root) {
            wait_for_leaving(self.root, libc::WNOWAIT)
        } else {
            wait_for(self.root, libc::WNOWAIT)
        };
    }
}

/// Who is above a process, as they were seen. Stale links may lead in a circle, which ends.
fn line<'a>(stat: &'a Stat, seen: &'a Seen) -> impl Iterator<Item = &'a Stat> {
    std::iter::successors(seen.get(&stat.ppid), |above| seen.get(&above.ppid)).take(seen.len())
}

fn process(stat: &Stat) -> ProcessRef {
    ProcessRef::known(stat.pid, stat.start)
}

fn info(stat: &Stat, why: &str) -> ProcessInfo {
    ProcessInfo { pid: stat.pid, start: stat.start, command: stat.comm.clone(), why: why.to_owned() }
}
