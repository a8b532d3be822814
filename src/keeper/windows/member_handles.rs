//! Handles of a job's members. Each stays open until its process has exited.
//!
//! A job's count of active processes shows only that a process no longer runs. Windows decrements
//! the count at once, and closes the handles of the terminated process (pipes, locked files) later.
//! The kernel signals the process object last, so only that proves that the process is gone. The
//! keeper must open a handle while the process lives, because later the job does not list it.

use std::os::windows::io::AsHandle;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::contain::job::Job;
use crate::identity::ProcessHandle;
use crate::identity::stat::Stat;
use crate::run::ProcessInfo;

/// The first prune happens at this number of open handles. Each later one happens at twice the
/// number that the last prune left, but not below this number.
const MIN_PRUNE_AT: usize = 64;

#[derive(Debug)]
pub struct MemberHandles {
    job: Arc<Job>,
    /// The root's PID. The keeper has a separate handle for the root.
    root: i32,
    handles: Mutex<OpenHandles>,
}

#[derive(Debug)]
struct OpenHandles {
    open: Vec<ProcessHandle>,
    prune_at: usize,
}

impl MemberHandles {
    pub fn new(job: Arc<Job>, root: i32) -> Self {
        let handles = OpenHandles { open: Vec::new(), prune_at: MIN_PRUNE_AT };
        Self { job, root, handles: Mutex::new(handles) }
    }

    /// Opens the member with this PID, unless it is the root.
    ///
    /// A member that has exited needs no handle. A member that the bot may not open (it runs
    /// elevated) gets none. For it, the job's count must suffice. The PID may have been recycled,
    /// so the opened process must be in the job.
    pub fn add(&self, pid: i32) {
        if pid == self.root {
            return;
        }
        if let Ok(handle) = ProcessHandle::open(pid)
            && self.job.has(handle.as_handle()) == Ok(true)
        {
            self.keep(handle);
        }
    }

    /// Opens all members. Call it before the job is terminated, for members whose message has not
    /// arrived.
    pub fn add_all(&self) {
        for handle in self.job.members().unwrap_or_default() {
            if handle.pid() != self.root {
                self.keep(handle);
            }
        }
    }

    /// True if every opened member has exited.
    pub fn have_exited(&self) -> bool {
        let mut handles = self.handles();
        handles.prune();
        handles.open.is_empty()
    }

    /// The members that have not exited, at most `limit`, as survivors.
    pub fn left(&self, limit: usize) -> Vec<ProcessInfo> {
        let mut handles = self.handles();
        handles.prune();
        let stats = handles.open.iter().take(limit).filter_map(|handle| handle.stat().ok());
        stats.map(|stat| survivor(&stat)).collect()
    }

    /// Stores a handle, unless its process already has one. An open handle reserves its PID, so
    /// handles with the same PID belong to the same process.
    fn keep(&self, handle: ProcessHandle) {
        let mut handles = self.handles();
        if handles.open.len() >= handles.prune_at {
            handles.prune();
        }
        if !handles.open.iter().any(|open| open.pid() == handle.pid()) {
            handles.open.push(handle);
        }
    }

    fn handles(&self) -> MutexGuard<'_, OpenHandles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn survivor(stat: &Stat) -> ProcessInfo {
    let why = "it was terminated, but has not exited".to_owned();
    ProcessInfo { pid: stat.pid, start: stat.start, command: stat.comm.clone(), why }
}

impl OpenHandles {
    /// Closes the handles of exited processes.
    fn prune(&mut self) {
        self.open.retain(|handle| !handle.has_ended());
        self.prune_at = MIN_PRUNE_AT.max(2 * self.open.len());
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::contain::Limits;

    #[test]
    fn a_member_counts_as_alive_until_its_process_object_is_signalled() {
        let job = Arc::new(Job::create(None, Limits::default()).unwrap());
        let start = || Command::new("cmd").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (mut member, mut outsider) = (start(), start());
        job.assign(member.as_handle()).unwrap();
        let handles = MemberHandles::new(job.clone(), 0);
        handles.add(outsider.id().cast_signed());
        assert!(handles.have_exited(), "a process outside of the job is not kept");
        handles.add(member.id().cast_signed());
        handles.add_all();
        assert!(!handles.have_exited());
        let left: Vec<_> = handles.left(9).iter().map(|info| info.pid).collect();
        assert_eq!(left, [member.id().cast_signed()], "a member that was added twice is listed once");
        job.terminate(1).unwrap();
        member.wait().unwrap();
        assert!(handles.have_exited());
        outsider.kill().unwrap();
        outsider.wait().unwrap();
    }

    #[test]
    fn member_handles_ignore_the_root() {
        let job = Arc::new(Job::create(None, Limits::default()).unwrap());
        let mut root = Command::new("cmd").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        job.assign(root.as_handle()).unwrap();
        let handles = MemberHandles::new(job.clone(), root.id().cast_signed());
        handles.add(root.id().cast_signed());
        handles.add_all();
        assert!(handles.have_exited());
        job.terminate(1).unwrap();
        root.wait().unwrap();
    }
}
