//! By a queue of the kernel's, which tells of signals whatever else becomes of them.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, sigprocmask};

use crate::identity::macos::{Happened, Queue};

/// Those that ask us to end.
const REQUESTS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Every signal as in a fresh process. What the bot ignores or blocks is no business of its commands, and an
/// ignored signal would survive `exec`.
pub fn reset() -> Result<(), Errno> {
    for signal in Signal::iterator() {
        // SIGKILL and SIGSTOP refuse, which is fine.
        // SAFETY: no handler is installed.
        let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// The signals a keeper listens to: requests to end by whoever may signal us. The end of its child is told elsewhere. All others are put
/// aside, so that nobody ends a keeper by accident.
pub fn listen() -> Result<Signals, Errno> {
    queue_for(&REQUESTS)
}

/// The one that a zygote listens to. It is told, too, of a keeper that was stopped, which nothing else tells.
pub fn listen_for_children() -> Result<Signals, Errno> {
    queue_for(&[Signal::SIGCHLD])
}

/// A signal that is told must not be blocked. Those that would end us are ignored instead; SIGCHLD is by default, in a way that still
/// leaves us its zombies.
fn queue_for(signals: &[Signal]) -> Result<Signals, Errno> {
    let queue = Queue::new()?;
    let mut aside = SigSet::all();
    for &signal in signals {
        if signal != Signal::SIGCHLD {
            // SAFETY: no handler is installed.
            unsafe { nix::sys::signal::signal(signal, SigHandler::SigIgn) }?;
        }
        aside.remove(signal);
        queue.listen(signal as libc::c_int)?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&aside), None)?;
    Ok(Signals(queue))
}

/// Readable when one has come. A child that is forked does not have it; to close it there is nothing to close, and as long as nothing
/// was opened since, nobody else's.
#[derive(Debug)]
pub struct Signals(Queue);

impl Signals {
    /// Takes those that have come. True if one of them asks us to end.
    pub fn take(&self) -> bool {
        let mut asked = false;
        while let Ok(events) = self.0.take(Some(Duration::ZERO))
            && !events.is_empty()
        {
            asked |= events.iter().any(|event| {
                matches!(event, Happened::Signal(signal) if *signal != Signal::SIGCHLD as libc::c_int)
            });
        }
        asked
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
