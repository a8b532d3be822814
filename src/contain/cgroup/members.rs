//! The processes in a run's cgroup: which they are, and signals to exactly these.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::{Cgroup, DEPTH, files};
use crate::contain::SIGKILL;
use crate::contain::snapshot::HANDLES_PER_BATCH;
use crate::identity::stat::Stat;
use crate::identity::{ProcessHandle, read_stat};
use crate::trace::trace;

/// Interval between two kill attempts while the cgroup is not empty.
const KILL_INTERVAL: Duration = Duration::from_millis(2);

impl Cgroup {
    /// Returns all processes in the cgroup and below it that are visible in this PID namespace.
    pub fn members(&self) -> Result<Vec<i32>, Errno> {
        let mut members = Vec::new();
        collect(&self.dir, &mut members, DEPTH)?;
        Ok(members)
    }

    /// Returns whether this process is in the cgroup or below it now, according to
    /// `/proc/PID/cgroup`.
    pub fn has(&self, pid: i32) -> bool {
        let Ok(text) = std::fs::read(format!("/proc/{pid}/cgroup")) else { return false };
        let text = String::from_utf8_lossy(&text);
        let own = text.lines().find_map(|line| line.strip_prefix("0::"));
        own.is_some_and(|path| path.split('/').any(|part| part == self.name))
    }

    /// Sends `signal` to each member that `wanted` selects. Returns how many received it.
    ///
    /// It opens a handle to each listed process, and reads the list again after that. A living
    /// process that is still listed had its PID during the whole time. So the handle refers to the
    /// process in this cgroup. A PID alone could belong to another process by now.
    pub fn signal(&self, signal: i32, wanted: impl Fn(i32) -> bool) -> Result<usize, Errno> {
        let listed: Vec<_> = self.members()?.into_iter().filter(|&pid| wanted(pid)).collect();
        let mut count = 0;
        // In batches, because the caller may have few descriptors, and the second read needs some
        // too.
        for batch in listed.chunks(HANDLES_PER_BATCH) {
            let handles: Vec<_> =
                batch.iter().filter_map(|&pid| Some((pid, ProcessHandle::open(pid).ok()?))).collect();
            let again: HashSet<i32> = self.members()?.into_iter().collect();
            let still = handles.iter().filter(|(pid, _)| again.contains(pid));
            count += still.filter(|(_, handle)| handle.signal(signal).is_ok()).count();
        }
        Ok(count)
    }

    /// Sends all `signals` to each of these members, one signal after the other. Returns the
    /// members that received the first one, and those that may not be signalled (`EPERM`).
    ///
    /// Same method as [`Cgroup::signal`]. It also reads the start token again, so the handle refers
    /// to the process in `members`.
    pub fn send<'a>(&self, members: &[&'a Stat], signals: &[i32]) -> Vec<&'a Stat> {
        // In batches, as in `Cgroup::signal`.
        members.chunks(HANDLES_PER_BATCH).flat_map(|batch| self.send_batch(batch, signals)).collect()
    }

    fn send_batch<'a>(&self, batch: &[&'a Stat], signals: &[i32]) -> Vec<&'a Stat> {
        let handles: Vec<_> =
            batch.iter().filter_map(|stat| Some((*stat, ProcessHandle::open(stat.pid).ok()?))).collect();
        let Ok(again) = self.members() else { return Vec::new() };
        let again: HashSet<i32> = again.into_iter().collect();
        let is_it = |stat: &Stat| {
            again.contains(&stat.pid) && read_stat(stat.pid).is_ok_and(|now| now.start == stat.start)
        };
        let still: Vec<_> = handles.into_iter().filter(|(stat, _)| is_it(stat)).collect();
        let mut sent = Vec::new();
        for (index, &signal) in signals.iter().enumerate() {
            for (stat, handle) in &still {
                let result = handle.signal(signal);
                if index == 0 && matches!(result, Ok(()) | Err(Errno::EPERM)) {
                    sent.push(*stat);
                }
            }
        }
        sent
    }

    /// Sends SIGKILL to all processes in the cgroup and below it at once. No fork can escape it.
    /// Before Linux 5.14 it kills one by one, and the caller must repeat it until the cgroup is
    /// empty.
    pub fn kill(&self) -> Result<(), Errno> {
        trace!("signal: SIGKILL to the whole cgroup");
        match files::write(&self.dir, "cgroup.kill", "1") {
            Err(Errno::ENOENT) => self.signal(SIGKILL, |_| true).map(drop),
            written => written,
        }
    }

    /// Kills until the cgroup is empty, for at most `limit`. Returns true if it is empty.
    pub fn kill_all(&self, limit: Duration) -> bool {
        let give_up_at = Instant::now() + limit;
        loop {
            let _ = self.kill();
            if self.wait_until_empty(KILL_INTERVAL) {
                return true;
            }
            if Instant::now() >= give_up_at {
                return false;
            }
        }
    }
}

fn collect(dir: &impl AsFd, members: &mut Vec<i32>, depth: usize) -> Result<(), Errno> {
    match files::read(dir, "cgroup.procs") {
        // 0 is a process in another PID namespace. It has no PID here, and ends only with the
        // cgroup.
        Ok(list) => {
            members.extend(list.lines().filter_map(|pid| pid.parse().ok()).filter(|&pid: &i32| pid > 0));
        }
        // A threaded cgroup lists its processes in a cgroup above it. A removed one has none.
        Err(Errno::EOPNOTSUPP | Errno::ENODEV | Errno::ENOENT) => {}
        Err(errno) => return Err(errno),
    }
    for child in if depth > 0 { files::children(dir)? } else { Vec::new() } {
        match files::directory_in(dir, &child) {
            Ok(child) => collect(&child, members, depth - 1)?,
            Err(Errno::ENOENT | Errno::ENODEV) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
