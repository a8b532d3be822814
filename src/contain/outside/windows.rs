//! Finds and ends the tree of a run whose bot is gone, on Windows.
//!
//! If the run's job can be opened by its name, members are the processes in it. Otherwise they are
//! the root, the recorded members, and their descendants.
//!
//! A process keeps its parent's PID after the parent has exited. So a parent link counts only
//! during the parent's lifetime: the parent is alive, or this process has a handle to it (then
//! Windows does not reuse its PID), and it is not younger than its child.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, FromRawHandle, OwnedHandle};
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};

use super::{GroupState, Target};
use crate::contain::job::Job;
use crate::contain::tree::is_child;
use crate::errno::Errno;
use crate::identity::stat::Stat;
use crate::identity::{ProcessHandle, ProcessRef, State, ancestors, read_stat};
use crate::run::lifecycle::{Action, Event, Lifecycle, Rules};
use crate::run::reason::Ending;
use crate::run::signal::{SIGKILL, exit_code};
use crate::run::{Ended, Force, Forced, ProcessInfo, Unlisted};

/// How long to wait for the effect of one termination pass.
const TERMINATION_WAIT: Duration = Duration::from_millis(100);

/// Pause between two scans while the job is not empty.
const SCAN_PAUSE: Duration = Duration::from_millis(5);

/// A scan of all processes.
#[derive(Debug)]
pub struct Scan {
    /// The parent's PID of each process, by PID.
    parents: HashMap<i32, i32>,
    /// This process, its ancestors and the system processes. Whatever a record says, they are never
    /// members and prove nothing.
    off_limits: HashSet<i32>,
}

impl Scan {
    pub fn take() -> io::Result<Self> {
        let me = std::process::id().cast_signed();
        let mut off_limits: HashSet<i32> = ancestors(me).into_iter().collect();
        // The idle process and the system process.
        off_limits.extend([me, 0, 4]);
        Ok(Self { parents: snapshot()?, off_limits })
    }

    /// The same as [`Scan::take`]: environments are not read on Windows.
    pub fn take_since(_oldest: u64) -> io::Result<Self> {
        Self::take()
    }

    /// The same as [`Scan::take`]: Windows lists all processes in one system call.
    pub fn below_each<'a>(
        _processes: impl IntoIterator<Item = &'a ProcessRef>,
        _groups: impl IntoIterator<Item = i32>,
    ) -> io::Result<Self> {
        Self::take()
    }

    /// Returns whether any process might belong to the run. Without the root or a recorded member,
    /// no process proves that a job is the run's.
    pub fn may_have(&self, target: &Target) -> bool {
        self.parents.contains_key(&target.root.pid)
            || target.members.iter().any(|member| self.parents.contains_key(&member.pid))
    }

    /// The state of a process at the time of the scan. The process must have started before the
    /// scan.
    pub fn state(&self, process: &ProcessRef) -> State {
        if self.parents.contains_key(&process.pid) {
            process.state()
        } else {
            process.state_without_lookup().unwrap_or(State::Exited)
        }
    }

    /// All processes that can be inspected, off limits or not.
    pub fn all_processes(&self) -> Vec<Stat> {
        self.parents.keys().filter_map(|&pid| read_stat(pid).ok()).collect()
    }

    /// This process, its ancestors and the system processes.
    pub fn off_limits(&self) -> &HashSet<i32> {
        &self.off_limits
    }

    /// Returns the living processes that provably belong to the run.
    pub fn living(&self, target: &Target) -> io::Result<Vec<ProcessRef>> {
        let mut search = TreeSearch::new(target);
        search.find(self)?;
        Ok(search.living().map(|(process, _)| process).collect())
    }

    /// Returns the tree for display. If another bot's job has no name, only descendants of the root
    /// are found.
    pub fn tree(&self, target: &Target, _keeper: Option<&ProcessRef>) -> Vec<Stat> {
        let living = self.living(target).unwrap_or_default();
        living.iter().filter_map(|process| read_stat(process.pid).ok()).collect()
    }

    /// No-op: an exiting process stays in its job until it is gone.
    #[allow(clippy::unused_self)]
    pub fn wait_for_exiting(&self, _target: &Target) {}

    pub fn has_living(&self, target: &Target) -> io::Result<bool> {
        Ok(!self.living(target)?.is_empty())
    }

    /// Always empty: Windows has no process groups that can be signalled.
    #[allow(clippy::unused_self)] // On Unix it needs the scan.
    pub fn group_state(&self, _target: &Target) -> GroupState {
        GroupState::Empty
    }

    fn is_off_limits(&self, pid: i32) -> bool {
        self.off_limits.contains(&pid)
    }
}

/// Ends all processes that provably belong to the run, without a grace period: a console event
/// needs a console that both processes share. Processes that are left `limit` after the last death
/// are survivors.
///
/// Blocks, so never call it on the event loop. This process, its ancestors and the system processes
/// are never members, whatever the target says.
pub fn end_tree(target: &Target, signal: i32, _grace: Duration, limit: Duration) -> Ended {
    TreeSearch::new(target).end(signal, limit)
}

/// Searches for the members of one tree and ends them.
struct TreeSearch<'a> {
    target: &'a Target<'a>,
    /// All members that were proven so far, each with an open handle. Windows does not reuse their
    /// PIDs, so they prove their children even after they have exited.
    known: HashMap<i32, ProcessHandle>,
    /// The run's job: a proven member is in it, and no process that is off limits.
    job: Option<Job>,
    has_terminated: bool,
    forced: Forced,
    /// PIDs that were seen in the job, including processes that cannot be opened. The job ends and
    /// counts those.
    listed: HashSet<i32>,
    /// Recorded processes that cannot be opened and were not seen in the job.
    unopened: Vec<(ProcessRef, Errno)>,
}

impl<'a> TreeSearch<'a> {
    fn new(target: &'a Target<'a>) -> Self {
        Self {
            target,
            known: HashMap::new(),
            job: None,
            has_terminated: false,
            forced: Forced::default(),
            listed: HashSet::new(),
            unopened: Vec::new(),
        }
    }

    /// Adds the processes that can be proven now.
    fn find(&mut self, scan: &Scan) -> io::Result<()> {
        self.unopened.clear();
        let named = std::iter::once(self.target.root).chain(self.target.members);
        for process in named.filter(|process| !scan.is_off_limits(process.pid)) {
            match process.open_handle() {
                Ok(handle) => drop(self.known.entry(process.pid).or_insert(handle)),
                Err(Errno::ESRCH) => {}
                // The process that has this PID now cannot be opened. It may be another user's, so
                // it must not be ended.
                Err(errno) => self.unopened.push((process.clone(), errno)),
            }
        }
        self.find_job(scan)?;
        self.unopened.retain(|(process, _)| !self.listed.contains(&process.pid));
        while !self.target.alone
            && let Some(handle) = self.find_child(scan)
        {
            self.known.insert(handle.pid(), handle);
        }
        Ok(())
    }

    /// Opens the job with that name, if a proven member is in it. If this process is in the job, it
    /// fails: the job may also contain this process's own children.
    fn find_job(&mut self, scan: &Scan) -> io::Result<()> {
        if self.job.is_none()
            && let Some(job) = self.target.job.and_then(|name| Job::open(name).ok())
            && self.known.values().any(|handle| job.has(handle.as_handle()).unwrap_or(false))
        {
            self.job = Some(job);
        }
        let Some(job) = &self.job else { return Ok(()) };
        // By PID, because this process may not be permitted to open an ancestor.
        let pids = job.pids()?;
        if pids.iter().any(|&pid| scan.is_off_limits(pid)) {
            return Err(io::Error::other("this process is itself in the run's job"));
        }
        self.listed.extend(pids);
        for member in job.members()? {
            self.known.entry(member.pid()).or_insert(member);
        }
        Ok(())
    }

    /// Returns a new process whose parent is known.
    fn find_child(&self, scan: &Scan) -> Option<ProcessHandle> {
        let candidates = scan.parents.iter().filter(|(pid, ppid)| {
            self.known.contains_key(ppid) && !self.known.contains_key(pid) && !scan.is_off_limits(**pid)
        });
        // The snapshot contains only PIDs. The opened process must itself name that parent.
        let mut held = candidates
            .filter_map(|(&pid, ppid)| Some((ProcessHandle::open(pid).ok()?, self.known.get(ppid)?)));
        let (child, _) = held.find(|(child, parent)| {
            let (Ok(child), Ok(parent)) = (child.stat(), parent.stat()) else { return false };
            is_child(&child, &parent) && !child.is_dead()
        })?;
        Some(child)
    }

    fn living(&self) -> impl Iterator<Item = (ProcessRef, &ProcessHandle)> {
        let named = |handle: &ProcessHandle| Some(ProcessRef::known(handle.pid(), handle.start().ok()?));
        self.known
            .values()
            .filter(|handle| !handle.has_ended())
            .filter_map(move |handle| Some((named(handle)?, handle)))
    }

    fn end(mut self, signal: i32, limit: Duration) -> Ended {
        if self.target.root.state_without_lookup() == Some(State::Unknown) {
            let survivors = vec![unknown(self.target.root, "its PID is not valid on this system")];
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
            let died = self.known.values().filter(|handle| handle.has_ended()).count();
            if died > dead {
                dead = died;
                life.on(Event::Progress, now);
            }
            let is_late = life.on(Event::Tick, now) == Action::Finish;
            match found {
                Err(error) if is_late => {
                    let survivors = vec![unknown(self.target.root, &error.to_string())];
                    return self.ended(survivors);
                }
                Err(_) => {}
                Ok(()) if self.is_gone() => {
                    let unknown =
                        self.unopened.iter().map(|(process, errno)| unknown(process, &errno.to_string()));
                    return self.ended(unknown.collect());
                }
                Ok(()) => {
                    let refused = self.kill(code);
                    let survivors: Vec<_> =
                        self.living().map(|(process, handle)| survivor(&process, handle)).collect();
                    let all_refused = !survivors.is_empty() && survivors.len() == refused;
                    if is_late && survivors.is_empty() {
                        return self.ended(vec![unknown(
                            self.target.root,
                            "its job contains a process that cannot be inspected",
                        )]);
                    }
                    if is_late || all_refused {
                        return self.ended(survivors);
                    }
                }
            }
            std::thread::sleep(SCAN_PAUSE);
        }
    }

    fn is_gone(&self) -> bool {
        self.living().next().is_none() && self.job.as_ref().is_none_or(|job| job.active() == Ok(0))
    }

    /// Terminates all members. Returns how many of them this process must not terminate.
    fn kill(&mut self, code: u32) -> usize {
        let living = self.known.values().filter(|handle| !handle.has_ended());
        let stats = living.filter_map(|handle| handle.stat().ok());
        self.forced.add(stats.map(|stat| ProcessInfo::of(&stat, "")));
        if let Some(job) = &self.job {
            // If this fails, the members are terminated one by one.
            let _ = job.terminate(code);
        }
        let mut refused = 0;
        let until = Instant::now() + TERMINATION_WAIT;
        for handle in self.known.values() {
            match handle.terminate(code) {
                Ok(()) | Err(Errno::ESRCH) => self.has_terminated = true,
                Err(_) => refused += 1,
            }
        }
        for handle in self.known.values() {
            let _ = handle.wait_exited(Some(until.saturating_duration_since(Instant::now())));
        }
        refused
    }

    fn ended(&mut self, survivors: Vec<ProcessInfo>) -> Ended {
        let ending = if self.known.is_empty() { Ending::AlreadyEnded } else { Ending::KeeperLost };
        let force = if self.has_terminated { Force::Kill } else { Force::Nothing };
        let (forced, unlisted) = std::mem::take(&mut self.forced).without(&survivors);
        let unlisted = Unlisted { forced: unlisted, ..Unlisted::default() };
        Ended { survivors, forced, unlisted, force, ..Ended::new(ending) }
    }
}

fn survivor(process: &ProcessRef, handle: &ProcessHandle) -> ProcessInfo {
    let why = match handle.signal(0) {
        Ok(()) => "still alive after TerminateProcess".to_owned(),
        Err(errno) => format!("it cannot be terminated: {errno}"),
    };
    let Stat { comm: command, .. } = handle.stat().unwrap_or_default();
    ProcessInfo { pid: process.pid, start: process.start, command, why }
}

fn unknown(root: &ProcessRef, why: &str) -> ProcessInfo {
    let command = read_stat(root.pid).map(|stat| stat.comm).unwrap_or_default();
    ProcessInfo {
        pid: root.pid,
        start: root.start,
        command,
        why: format!("cannot determine whether it is gone: {why}"),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn snapshot() -> io::Result<HashMap<i32, i32>> {
    // SAFETY: the arguments are integers. The returned handle belongs to this function alone.
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
    // SAFETY: the snapshot is open, and `dwSize` contains the size of the structure.
    let mut has_entry = unsafe { Process32FirstW(snapshot.as_raw_handle(), &raw mut entry) } != 0;
    while has_entry {
        parents.insert(entry.th32ProcessID.cast_signed(), entry.th32ParentProcessID.cast_signed());
        // SAFETY: as above.
        has_entry = unsafe { Process32NextW(snapshot.as_raw_handle(), &raw mut entry) } != 0;
    }
    Ok(parents)
}
