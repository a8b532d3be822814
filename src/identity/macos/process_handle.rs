//! A handle to one process on macOS, where the kernel offers no pidfd.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use super::queue::Queue;
use super::system::read_stat;
use crate::identity::stat::Stat;
use crate::identity::trace_signal;

/// Interval between checks of a process that is about to become a zombie.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// One process: its PID, and the start token that the PID had when the handle was opened.
///
/// macOS has no object that refers to a process and accepts signals. So this sends a signal by PID,
/// right after a check of the start token. The time between these two system calls is a window. A
/// signal hits a wrong process only if that process gets the PID within the window. For that, three
/// things must happen in this time: the process just seen alive ends, its parent waits for it, and
/// the kernel, which assigns PIDs in a circle, goes through the whole circle (99,999 PIDs). For a
/// group, all members must end as well, because the kernel does not reuse a PID while a group has
/// it. A keeper's own child has no window: its zombie keeps the PID.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: i32,
    start: u64,
}

impl ProcessHandle {
    pub fn open(pid: i32) -> Result<Self, Errno> {
        Ok(Self { pid, start: read_stat(pid)?.start })
    }

    /// The current facts about this process. `ESRCH` once it is gone; a zombie still exists.
    pub fn stat(&self) -> Result<Stat, Errno> {
        let stat = read_stat(self.pid)?;
        if stat.start == self.start { Ok(stat) } else { Err(Errno::ESRCH) }
    }

    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        // A zombie ignores signals, and its PID is not safe: its parent may wait for it at any
        // moment, and then the kernel can reuse the PID.
        let sent = if self.stat()?.is_dead() { Err(Errno::ESRCH) } else { kill(self.pid, signal) };
        trace_signal(self.pid, signal, sent);
        sent
    }

    /// Signals the group that this process leads. `ESRCH`, and no signal, if it leads none.
    pub fn signal_group(&self, signal: i32) -> Result<(), Errno> {
        let sent = if self.stat()?.pgrp == self.pid { kill(-self.pid, signal) } else { Err(Errno::ESRCH) };
        trace_signal(-self.pid, signal, sent);
        sent
    }

    /// Waits until the process is dead (a zombie counts), at most `timeout`. Returns `false` on
    /// timeout.
    pub fn wait_exited(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let began = Instant::now();
        let left = || timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        let queue = Queue::new()?;
        // Watch first, check second: the check then proves that the PID was this process's when the
        // watch began, so the queue reports its end.
        let watched = queue.watch_exit(self.pid);
        let mut is_ending = false;
        loop {
            match self.stat() {
                Ok(stat) if !stat.is_dead() => {}
                Ok(_) | Err(Errno::ESRCH) => return Ok(true),
                Err(errno) => return Err(errno),
            }
            if left().is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            if is_ending || watched.is_err() {
                // The process is about to become a zombie, or the queue cannot report it.
                std::thread::sleep(CHECK_INTERVAL);
            } else {
                is_ending = !queue.take(left())?.is_empty();
            }
        }
    }

    /// Returns a descriptor for `poll`, readable when the process is dead or about to be. `None` if
    /// it is dead already or cannot be watched; then the caller must check the process at
    /// intervals.
    pub fn into_pollable(self) -> Option<OwnedFd> {
        let queue = Queue::new().ok()?;
        queue.watch_exit(self.pid).ok()?;
        // Watch first, check second: see `wait_exited`.
        self.stat().ok().filter(|stat| !stat.is_dead())?;
        Some(queue.into())
    }
}

/// Always `None`: macOS has no descriptor for a group, so a group looks like a later one with the
/// same ID.
pub fn group_has_members(_queue: &OwnedFd) -> Option<bool> {
    None
}

/// Call this only right after a check that the PID is the process or its group: see the window at
/// [`ProcessHandle`].
fn kill(pid: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes two integers.
    Errno::result(unsafe { libc::kill(pid, signal) }).map(drop)
}
