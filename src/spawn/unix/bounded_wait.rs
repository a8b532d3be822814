//! Bounded waits for our own processes on the caller's thread, which is the event loop.
//!
//! A command runs as the same user as the zygote, the keepers and the exec stubs, and can stop each
//! of them. A stopped process must not block the event loop. So the wait sends SIGCONT at once, and
//! gives up if the process is stopped again.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use crate::identity::{ProcessRef, read_stat};

/// Interval between checks whether the process is stopped. An answer usually takes less than a
/// millisecond.
const SLICE: Duration = Duration::from_millis(4);

/// How long a process may take to answer after it was first seen stopped, SIGCONT included.
const STOPPED_LIMIT: Duration = Duration::from_millis(20);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// The process was stopped by a signal, and stopped again after SIGCONT.
    Stopped,
    Errno(Errno),
}

impl From<Errno> for NoAnswer {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// Calls `receive` until it returns anything except `ETIMEDOUT`.
///
/// `wake_if_stopped` returns whether the process is stopped now, and sends SIGCONT if so. A process
/// that is not stopped gets all of `limit`: the machine or a disk is slow, and
/// `child_process.spawn` would take as long.
pub fn wait_for<T>(
    limit: Duration,
    wake_if_stopped: impl Fn() -> bool,
    mut receive: impl FnMut(Duration) -> Result<T, Errno>,
) -> Result<T, NoAnswer> {
    let started = Instant::now();
    let mut first_seen_stopped = None;
    loop {
        match receive(SLICE) {
            Err(Errno::ETIMEDOUT) => {}
            result => return Ok(result?),
        }
        if wake_if_stopped() {
            let since: Instant = *first_seen_stopped.get_or_insert_with(Instant::now);
            if since.elapsed() >= STOPPED_LIMIT {
                return Err(NoAnswer::Stopped);
            }
        }
        if started.elapsed() >= limit {
            return Err(NoAnswer::Errno(Errno::ETIMEDOUT));
        }
    }
}

/// Stopped by a signal. A traced process (`t`) does not count: a debugger or strace is slow, but no
/// attack.
pub fn is_stopped(state: char) -> bool {
    state == 'T'
}

/// Wakes a process if it is stopped, and returns whether it was. The process is known by its
/// identity.
pub fn wake(process: &ProcessRef) -> bool {
    let stopped =
        read_stat(process.pid).is_ok_and(|stat| stat.start == process.start && is_stopped(stat.state));
    // `signal` checks the identity again before it signals.
    stopped && process.signal(libc::SIGCONT).is_ok()
}

/// Like [`wake`] for a process known by its PID only: an unreaped child of `parent`. Between the
/// read and the signal the process can die, and its PID can be reused. The signal goes only to the
/// process that was read.
pub fn wake_child(pid: i32, parent: i32) -> bool {
    let Ok(stat) = read_stat(pid) else { return false };
    stat.ppid == parent && wake(&ProcessRef::known(pid, stat.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_wait_gives_up_a_stopped_process_soon_and_a_slow_process_after_the_limit() {
        let started = Instant::now();
        let no_answer = |slice| {
            std::thread::sleep(slice);
            Err::<(), _>(Errno::ETIMEDOUT)
        };
        assert_eq!(wait_for(Duration::from_secs(5), || true, no_answer), Err(NoAnswer::Stopped));
        assert!(started.elapsed() >= STOPPED_LIMIT);
        let slow = wait_for(3 * STOPPED_LIMIT, || false, no_answer);
        assert_eq!(slow, Err(NoAnswer::Errno(Errno::ETIMEDOUT)));
    }

    #[test]
    fn the_wait_returns_the_answer_of_a_process_that_it_has_woken() {
        let woken = Cell::new(false);
        let answer = wait_for(
            Duration::from_secs(5),
            || !woken.replace(true),
            |slice| {
                std::thread::sleep(slice);
                if woken.get() { Ok(1) } else { Err(Errno::ETIMEDOUT) }
            },
        );
        assert_eq!(answer, Ok(1));
        assert_eq!(wait_for(SLICE, || true, |_| Err::<(), _>(Errno::EPIPE)), Err(Errno::EPIPE.into()));
    }
}
