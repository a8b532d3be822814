//! Signals of the keeper's own process.

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Every signal as in a fresh process. What the bot ignores or blocks is no business of its commands, and an
/// ignored signal would survive `exec`.
///
/// The raw call, because the C library refuses to touch two signals of its own (32 and 33), and its `posix_spawn`, with
/// which we are started, leaves just those ignored.
pub fn reset() -> Result<(), Errno> {
    /// What the kernel takes for "the default action": no handler, no flags, no restorer, an empty mask.
    const DEFAULT: [u64; 4] = [0; 4];
    const MASK_SIZE: usize = 8;
    for number in 1..=64 {
        // SAFETY: the structure is as long as the kernel's on every 64-bit Linux, and no handler is installed. SIGKILL and
        // SIGSTOP refuse, which is fine.
        unsafe {
            let nowhere = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, number, DEFAULT.as_ptr(), nowhere, MASK_SIZE);
        }
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
