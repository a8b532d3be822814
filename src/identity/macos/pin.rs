//! Holding on to one process, and signalling it, where nothing holds it.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use super::queue::Queue;
use super::system::read_stat;
use crate::identity::stat::Stat;

/// How often one is looked at that is about to be a zombie.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// One process: its number, and the start token of whoever had the number when it was opened.
///
/// Nothing that macOS hands out refers to a process and can be signalled through. So a signal goes by number, right after a look
/// at the start token, and there is a window: the time between two system calls of ours in a row. To be hit by a signal that is not
/// meant for it, a stranger must get the number in that time: the process seen alive must end, its parent must wait for it, and the
/// kernel, which hands numbers out in a circle, must have gone all the way round (99,999 of them). For a group, all of its members must
/// be gone as well, as a number is not given out while a group has it. A keeper's own child has no window: its zombie keeps the number.
#[derive(Debug)]
pub struct Pin {
    pid: i32,
    start: u64,
}

impl Pin {
    pub fn open(pid: i32) -> Result<Self, Errno> {
        Ok(Self { pid, start: read_stat(pid)?.start })
    }

    /// The facts about this process right now. `ESRCH` once it is gone; a zombie is still there.
    pub fn stat(&self) -> Result<Stat, Errno> {
        let stat = read_stat(self.pid)?;
        if stat.start == self.start { Ok(stat) } else { Err(Errno::ESRCH) }
    }

    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        // A zombie hears nothing, and is all it takes to lose the number: its parent may be waiting for it right now.
        if self.stat()?.is_dead() { Err(Errno::ESRCH) } else { kill(self.pid, signal) }
    }

    /// Signals the group this process leads, or nobody (`ESRCH`) if it is in another one.
    pub fn signal_group(&self, signal: i32) -> Result<(), Errno> {
        if self.stat()?.pgrp == self.pid { kill(-self.pid, signal) } else { Err(Errno::ESRCH) }
    }

    /// Waits until the process is dead (a zombie counts), at most `timeout`. `false` if it still runs.
    pub fn wait_exited(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let began = Instant::now();
        let left = || timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        let queue = Queue::new()?;
        // Watched first, looked at second: then the number was its own when it was watched, and its end is told.
        let watched = queue.watch_exit(self.pid);
        let mut told = false;
        loop {
            match self.stat() {
                Ok(stat) if !stat.is_dead() => {}
                Ok(_) | Err(Errno::ESRCH) => return Ok(true),
                Err(errno) => return Err(errno),
            }
            if left().is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            if told || watched.is_err() {
                // On its way, or nothing tells.
                std::thread::sleep(LOOK_EVERY);
            } else {
                told = !queue.take(left())?.is_empty();
            }
        }
    }

    /// Something to be waited for among others: readable when the process is dead, or will be in a moment. `None` if it is already, or
    /// nothing tells; whoever asks has to look then.
    pub fn into_pollable(self) -> Option<OwnedFd> {
        let queue = Queue::new().ok()?;
        queue.watch_exit(self.pid).ok()?;
        // As above.
        self.stat().ok().filter(|stat| !stat.is_dead())?;
        Some(queue.into())
    }
}

/// Only right after the number was seen to mean the process, or its group: see the window at [`Pin`].
fn kill(pid: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes two integers.
    Errno::result(unsafe { libc::kill(pid, signal) }).map(drop)
}
