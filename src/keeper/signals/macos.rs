//! Signals on macOS, through a kqueue. It reports a signal even if the process ignores it.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, sigprocmask};

use crate::identity::macos::{Happened, Queue};

/// The signals that request the end of a keeper.
const SHUTDOWN_SIGNALS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Restores the default action of every signal, and unblocks all.
///
/// Commands must not inherit the bot's ignored or blocked signals, which `exec` preserves.
pub fn reset() -> Result<(), Errno> {
    for signal in Signal::iterator() {
        // The call fails for SIGKILL and SIGSTOP, which cannot be changed.
        // SAFETY: no handler is installed.
        let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Watches the signals that request the end of a keeper. The tree's own kqueue reports exits of
/// children.
///
/// It blocks all other signals, so that no process ends a keeper by accident.
pub fn listen() -> Result<Signals, Errno> {
    queue_for(&SHUTDOWN_SIGNALS)
}

/// Watches SIGCHLD, the only signal that a zygote needs. Only SIGCHLD reports a stopped keeper.
pub fn listen_for_children() -> Result<Signals, Errno> {
    queue_for(&[Signal::SIGCHLD])
}

/// Reports `signals` through a kqueue, and blocks all others.
///
/// A signal that the kqueue reports must not be blocked. So this function ignores those whose
/// default action ends the process. SIGCHLD keeps its default action: the kernel discards it, but
/// still leaves zombies to reap.
fn queue_for(signals: &[Signal]) -> Result<Signals, Errno> {
    let queue = Queue::new()?;
    let mut blocked = SigSet::all();
    for &signal in signals {
        if signal != Signal::SIGCHLD {
            // SAFETY: no handler is installed.
            unsafe { nix::sys::signal::signal(signal, SigHandler::SigIgn) }?;
        }
        blocked.remove(signal);
        queue.listen(signal as libc::c_int)?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&blocked), None)?;
    Ok(Signals(queue))
}

/// A file descriptor that is readable when a signal has arrived.
///
/// A forked child does not inherit a kqueue. A drop there closes a number that is not open. So the
/// child must drop it before it opens another file, which could get the same number.
#[derive(Debug)]
pub struct Signals(Queue);

impl Signals {
    /// Takes all signals that have arrived. True if one of them requests the end of this process.
    pub fn take(&self) -> bool {
        let mut must_shut_down = false;
        while let Ok(events) = self.0.take(Some(Duration::ZERO))
            && !events.is_empty()
        {
            must_shut_down |= events.iter().any(|event| {
                matches!(event, Happened::Signal(signal) if *signal != Signal::SIGCHLD as libc::c_int)
            });
        }
        must_shut_down
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
