//! Signals of the keeper's own process.

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Every signal as in a fresh process. What the bot ignores or blocks is no business of its commands, and an
/// ignored signal would survive `exec`.
pub fn reset() -> Result<(), Errno> {
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: the default action is no handler of ours. SIGKILL and SIGSTOP refuse, which is fine.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Lets the kernel collect our dead children: for the zygote, which has nothing to learn from them.
pub fn ignore_children() -> Result<(), Errno> {
    // SAFETY: no handler is installed, the signal is ignored.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }.map(drop)
}

/// The signals a keeper listens to, as a descriptor: a child's end, and requests to end by whoever may signal us.
pub fn listen() -> Result<SignalFd, Errno> {
    // A forked keeper inherits the zygote's "ignored", under which the kernel would reap for us: never.
    // SAFETY: the default action is no handler of ours.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    let mut set = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}
