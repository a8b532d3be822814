//! A tree seen from outside on Windows: whoever is in the run's job, if that can be found by its name; else the root and the
//! recorded members, and what descends from them.
//!
//! Who descends from whom is told by the number of the parent, which outlives it. So a link counts only within the parent's
//! lifetime: the parent is alive, or held by us (then its number is nobody else's), and not younger than its child.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, FromRawHandle, OwnedHandle};
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};

use super::{Ended, GroupState, Target};
use crate::contain::ProcessInfo;
use crate::contain::job::Job;
use crate::contain::tree::is_child;
use crate::errno::Errno;
use crate::identity::stat::Stat;
use crate::identity::{Pin, ProcessRef, State, ancestors, read_stat};
use crate::run::lifecycle::{Action, Event, Lifecycle, Rules};
use crate::run::signal::{SIGKILL, exit_code};

/// How long one pass may take to show.
const PASS: Duration = Duration::from_millis(100);

/// Between looks at a job that is not empty yet.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// All processes there were.
#[derive(Debug)]
pub struct Scan {
    /// Each with the number of its parent.
    parents: HashMap<i32, i32>,
    /// We, our ancestors, and those of the system: whatever a record says, they are no run's members and prove nothing.
    off_limits: HashSet<i32>,
}

impl Scan {
    pub fn take() -> io::Result<Self> {
        let me = std::process::id().cast_signed();
        let mut off_limits: HashSet<i32> = ancestors(me).into_iter().collect();
        // The idle process and the system itself.
        off_limits.extend([me, 0, 4]);
        Ok(Self { parents: snapshot()?, off_limits })
    }

    /// Whether there is anybody at all who might be of the run. Without one of these nobody can prove that a job is its.
    pub fn may_have(&self, target: &Target) -> bool {
        self.parents.contains_key(&target.root.pid)
            || target.members.iter().any(|member| self.parents.contains_key(&member.pid))
    }

    /// What had become of a process when the scan was taken, if it existed before.
    pub fn state(&self, process: &ProcessRef) -> State {
        if self.parents.contains_key(&process.pid) {
            process.state()
        } else {
            process.without_a_look().unwrap_or(State::Exited)
        }
    }

    /// All of those that can be looked at, off limits or not.
    pub fn everybody(&self) -> Vec<Stat> {
        self.parents.keys().filter_map(|&pid| read_stat(pid).ok()).collect()
    }

    /// We, our ancestors, and those of the system.
    pub fn off_limits(&self) -> &HashSet<i32> {
        &self.off_limits
    }

    /// Who is alive and provably the run's.
    pub fn living(&self, target: &Target) -> io::Result<Vec<ProcessRef>> {
        let mut hunt = Hunt::new(target);
        hunt.find(self)?;
        Ok(hunt.living().map(|(process, _)| process).collect())
    }

    /// Who is in the tree, to be shown. Of another bot's job that has no name only who descends from the root can be found.
    pub fn tree(&self, target: &Target, _keeper: Option<&ProcessRef>) -> Vec<Stat> {
        let living = self.living(target).unwrap_or_default();
        living.iter().filter_map(|process| read_stat(process.pid).ok()).collect()
    }

    pub fn has_living(&self, target: &Target) -> io::Result<bool> {
        Ok(!self.living(target)?.is_empty())
    }

    /// There are no groups here that could be signalled.
    #[allow(clippy::unused_self)] // As elsewhere.
    pub fn group_state(&self, _target: &Target) -> GroupState {
        GroupState::Empty
    }

    fn is_off_limits(&self, pid: i32) -> bool {
        self.off_limits.contains(&pid)
    }
}

/// Ends whatever can be proven to belong to the run, at once: from outside nobody can be asked to end, because that takes a console
/// that both share. At most `limit` after the last death what is left is a survivor. Blocks; never call it on the event loop.
///
/// We, our ancestors and the system are never members, whatever the target says.
pub fn end_tree(target: &Target, signal: i32, _grace: Duration, limit: Duration) -> Ended {
    Hunt::new(target).end(signal, limit)
}

/// The ending of one tree.
struct Hunt<'a> {
    target: &'a Target<'a>,
    /// Everybody who was proven so far, each held: their numbers are nobody else's, and so they lead to their children also when
    /// they are gone.
    known: HashMap<i32, Pin>,
    /// Proven to be the run's, and nobody in it who is off limits.
    job: Option<Job>,
    signalled: HashSet<i32>,
    /// The numbers of those who were seen in it, also of those who must not be looked at: it ends and counts them for us.
    listed: HashSet<i32>,
    /// Those who are named, cannot be looked at, and were not seen in the job.
    unseen: Vec<(ProcessRef, Errno)>,
}

impl<'a> Hunt<'a> {
    fn new(target: &'a Target<'a>) -> Self {
        Self {
            target,
            known: HashMap::new(),
            job: None,
            signalled: HashSet::new(),
            listed: HashSet::new(),
            unseen: Vec::new(),
        }
    }

    /// Adds whoever can be proven now.
    fn find(&mut self, scan: &Scan) -> io::Result<()> {
        self.unseen.clear();
        let named = std::iter::once(self.target.root).chain(self.target.members);
        for process in named.filter(|process| !scan.is_off_limits(process.pid)) {
            match process.pinned() {
                Ok(pin) => drop(self.known.entry(process.pid).or_insert(pin)),
                Err(Errno::ESRCH) => {}
                // Whoever has the number now cannot be looked at. It may be another user's, and is nobody of ours to touch.
                Err(errno) => self.unseen.push((process.clone(), errno)),
            }
        }
        self.find_job(scan)?;
        self.unseen.retain(|(process, _)| !self.listed.contains(&process.pid));
        while let Some(pin) = self.find_child(scan) {
            self.known.insert(pin.pid(), pin);
        }
        Ok(())
    }

    /// A job of that name, if somebody is in it who is proven to be the run's. If we are in it ourselves it is not ended from here: what
    /// else is in it may be our own.
    fn find_job(&mut self, scan: &Scan) -> io::Result<()> {
        if self.job.is_none()
            && let Some(job) = self.target.job.and_then(|name| Job::open(name).ok())
            && self.known.values().any(|pin| job.has(pin.as_handle()).unwrap_or(false))
        {
            self.job = Some(job);
        }
        let Some(job) = &self.job else { return Ok(()) };
        // By number: an ancestor of ours may be one that we must not look at.
        let pids = job.pids()?;
        if pids.iter().any(|&pid| scan.is_off_limits(pid)) {
            return Err(io::Error::other("we are a part of this run ourselves"));
        }
        self.listed.extend(pids);
        for member in job.members()? {
            self.known.entry(member.pid()).or_insert(member);
        }
        Ok(())
    }

    /// Somebody new whose parent is known.
    fn find_child(&self, scan: &Scan) -> Option<Pin> {
        let candidates = scan.parents.iter().filter(|(pid, ppid)| {
            self.known.contains_key(ppid) && !self.known.contains_key(pid) && !scan.is_off_limits(**pid)
        });
        // The snapshot told its number; whoever is held now must name that parent itself.
        let mut held =
            candidates.filter_map(|(&pid, ppid)| Some((Pin::open(pid).ok()?, self.known.get(ppid)?)));
        let (child, _) = held.find(|(child, parent)| {
            let (Ok(child), Ok(parent)) = (child.stat(), parent.stat()) else { return false };
            is_child(&child, &parent) && !child.is_dead()
        })?;
        Some(child)
    }

    fn living(&self) -> impl Iterator<Item = (ProcessRef, &Pin)> {
        let named = |pin: &Pin| Some(ProcessRef::known(pin.pid(), pin.start().ok()?));
        self.known.values().filter(|pin| !pin.has_ended()).filter_map(move |pin| Some((named(pin)?, pin)))
    }

    fn end(mut self, signal: i32, limit: Duration) -> Ended {
        if self.target.root.without_a_look() == Some(State::Unknown) {
            let survivors = vec![unseen(self.target.root, "its numbers mean nothing here")];
            return self.ended(survivors);
        }
        let code = exit_code(signal);
        let mut life = Lifecycle::new(Rules { kill_limit_ms: millis(limit), ..Rules::default() });
        let began = Instant::now();
        life.on(Event::Cancel { signal: SIGKILL, grace_ms: 0 }, 0);
        let mut dead = 0;
        loop {
            let found = Scan::take().and_then(|scan| self.find(&scan));
            let now = millis(began.elapsed());
            let died = self.known.values().filter(|pin| pin.has_ended()).count();
            if died > dead {
                dead = died;
                life.on(Event::Progress, now);
            }
            let is_late = life.on(Event::Tick, now) == Action::Finish;
            match found {
                Err(error) if is_late => {
                    let survivors = vec![unseen(self.target.root, &error.to_string())];
                    return self.ended(survivors);
                }
                Err(_) => {}
                Ok(()) if self.is_gone() => {
                    let unseen =
                        self.unseen.iter().map(|(process, errno)| unseen(process, &errno.to_string()));
                    return self.ended(unseen.collect());
                }
                Ok(()) => {
                    let refused = self.kill(code);
                    let survivors: Vec<_> =
                        self.living().map(|(process, pin)| survivor(&process, pin)).collect();
                    let all_refused = !survivors.is_empty() && survivors.len() == refused;
                    if is_late && survivors.is_empty() {
                        return self.ended(vec![unseen(
                            self.target.root,
                            "somebody is in its job who cannot be seen",
                        )]);
                    }
                    if is_late || all_refused {
                        return self.ended(survivors);
                    }
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn is_gone(&self) -> bool {
        self.living().next().is_none() && self.job.as_ref().is_none_or(|job| job.active() == Ok(0))
    }

    /// Returns how many of them we must not end.
    fn kill(&mut self, code: u32) -> usize {
        if let Some(job) = &self.job {
            // Who cannot be ended this way is, or is not, one by one.
            let _ = job.terminate(code);
        }
        let mut refused = 0;
        let until = Instant::now() + PASS;
        for (pid, pin) in &self.known {
            match pin.terminate(code) {
                Ok(()) | Err(Errno::ESRCH) => drop(self.signalled.insert(*pid)),
                Err(_) => refused += 1,
            }
        }
        for pin in self.known.values() {
            let _ = pin.wait_exited(Some(until.saturating_duration_since(Instant::now())));
        }
        refused
    }

    fn ended(&self, survivors: Vec<ProcessInfo>) -> Ended {
        Ended { found: !self.known.is_empty(), survivors, signalled: self.signalled.len() }
    }
}

fn survivor(process: &ProcessRef, pin: &Pin) -> ProcessInfo {
    let why = match pin.signal(0) {
        Ok(()) => "it was ended, and is still there".to_owned(),
        Err(errno) => format!("it cannot be ended ({errno})"),
    };
    let Stat { comm: command, .. } = pin.stat().unwrap_or_default();
    ProcessInfo { pid: process.pid, start: process.start, command, why }
}

fn unseen(root: &ProcessRef, why: &str) -> ProcessInfo {
    let command = read_stat(root.pid).map(|stat| stat.comm).unwrap_or_default();
    ProcessInfo {
        pid: root.pid,
        start: root.start,
        command,
        why: format!("whether it is gone cannot be seen: {why}"),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn snapshot() -> io::Result<HashMap<i32, i32>> {
    // SAFETY: integers in, a handle out, which is ours alone.
    let snapshot = unsafe {
        let handle = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
        if handle == INVALID_HANDLE_VALUE {
            return Err(io::Error::last_os_error());
        }
        OwnedHandle::from_raw_handle(handle)
    };
    let size = u32::try_from(size_of::<PROCESSENTRY32W>()).unwrap_or(0);
    let mut entry = PROCESSENTRY32W { dwSize: size, ..Default::default() };
    let mut parents = HashMap::new();
    // SAFETY: the snapshot is open, and the structure says how long it is.
    let mut is_there = unsafe { Process32FirstW(snapshot.as_raw_handle(), &raw mut entry) } != 0;
    while is_there {
        parents.insert(entry.th32ProcessID.cast_signed(), entry.th32ParentProcessID.cast_signed());
        // SAFETY: as above.
        is_there = unsafe { Process32NextW(snapshot.as_raw_handle(), &raw mut entry) } != 0;
    }
    Ok(parents)
}
