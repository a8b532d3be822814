//! The zygote as a child process of the bot: how it is executed, woken and reaped.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::contain::cookie;
use crate::identity::{FORCE_FALLBACK, ProcessHandle, read_stat};
use crate::keeper::{TITLE_ROOM, ZYGOTE};
use crate::spawn::LaunchError;
use crate::spawn::unix::{bounded_wait, errors};
use crate::start_environment::variable;
use crate::trace::{self, trace};

/// Interval between checks whether a dropped zygote has exited, if no event reports its exit in
/// time.
const REAP_INTERVAL: Duration = Duration::from_millis(250);

/// Longest interval between checks whether a dropped zygote is stopped.
const LONGEST_WAKE_INTERVAL: Duration = Duration::from_secs(60);

/// The zygote as our child process. Only this type reaps it, so its PID cannot be reused before.
#[derive(Debug)]
pub(super) struct Process(Mutex<Child>);

impl Process {
    /// Runs the keeper's executable as a zygote, with `socket` as its standard input.
    pub(super) fn start(executable: &Path, socket: OwnedFd) -> Result<Self, LaunchError> {
        Ok(Self(Mutex::new(execute(executable, socket)?)))
    }

    /// Sends SIGCONT. Another process may have stopped the zygote, and a stopped process does not
    /// see the end of file of its socket.
    pub(super) fn wake(&self) {
        self.if_alive(|pid| {
            // SAFETY: kill takes two integers. The PID is our own child's, and the lock prevents
            // its reaping.
            unsafe { libc::kill(pid, libc::SIGCONT) };
            trace!("signal: SIGCONT to zygote {pid}");
        });
    }

    /// Wakes the process if it is stopped, and returns whether it was.
    pub(super) fn wake_if_stopped(&self) -> bool {
        let is_stopped = |pid| read_stat(pid).is_ok_and(|stat| bounded_wait::is_stopped(stat.state));
        let stopped = self.if_alive(is_stopped).unwrap_or(false);
        if stopped {
            self.wake();
        }
        stopped
    }

    /// The PID. `None` after the process was reaped: its PID may be reused.
    pub(super) fn pid(&self) -> Option<i32> {
        self.if_alive(|pid| pid)
    }

    /// A descriptor that is readable when the process exits. `None` if the system has none, or the
    /// process was reaped.
    pub(super) fn exit_fd(&self) -> Option<OwnedFd> {
        self.if_alive(|pid| ProcessHandle::open(pid).ok()?.into_pollable())?
    }

    /// True after the process was reaped.
    fn is_reaped(&self) -> bool {
        self.if_alive(|_| ()).is_none()
    }

    /// Calls `then` with the PID while the lock prevents reaping. Reaps an exited process instead.
    fn if_alive<T>(&self, then: impl FnOnce(i32) -> T) -> Option<T> {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(child.try_wait(), Ok(None)).then(|| then(child.id().cast_signed()))
    }
}

/// Wakes a dropped zygote whenever it is stopped, at ever longer intervals, until it exits. The bot
/// may have dropped it because it was stopped. Most have exited at the first check.
pub(super) async fn wake_until_exit(process: Arc<Process>) {
    let mut pause = REAP_INTERVAL;
    while !process.is_reaped() {
        process.wake_if_stopped();
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST_WAKE_INTERVAL);
    }
}

/// Reaps the zygote when it exits, and its keepers if they become children of the bot.
pub(super) async fn reap(process: Arc<Process>, exit: Option<OwnedFd>) {
    let zygote = process.pid();
    if let Some(exit) = exit
        // SAFETY: the registered value owns the descriptor.
        && let Ok(exited) = unsafe { AsyncFd::register_with_interest(exit, Interest::READABLE) }
    {
        let _ = exited.readable().await;
    }
    // If no event reports the exit, or reports it a moment too early, a late reap does no harm.
    while !process.is_reaped() {
        tokio::time::sleep(REAP_INTERVAL).await;
    }
    #[cfg(target_os = "linux")]
    if let Some(zygote) = zygote {
        crate::spawn::unix::reparented::wait_for_keepers_of(zygote);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = zygote;
}

/// Runs the keeper's executable with `socket` as its standard input. Uses `posix_spawn`, so the bot
/// does not fork.
///
/// The zygote gets two variables of the bot's environment. The cookie: if the bot itself is an
/// owned run that is ended from outside, its keepers end with it. And `FORCE_FALLBACK`, which the
/// tests set. If the bot traces, the zygote's stderr is the target of the trace.
fn execute(executable: &Path, socket: OwnedFd) -> Result<Child, LaunchError> {
    let mut command = Command::new(executable);
    command.arg(ZYGOTE).arg(" ".repeat(TITLE_ROOM)).env_clear();
    for name in [cookie::VARIABLE, FORCE_FALLBACK] {
        if let Some(value) = variable(name) {
            command.env(name, value);
        }
    }
    command.stdin(Stdio::from(socket)).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(target) = trace::share() {
        command.env(trace::VARIABLE, trace::TO_STDERR).stderr(target);
    }
    command.spawn().map_err(|error| {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        match errno {
            Errno::EAGAIN | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => LaunchError::refused(errno),
            errno => LaunchError::KeeperUnavailable {
                path: executable.to_owned(),
                why: errors::not_executed(errno),
            },
        }
    })
}
