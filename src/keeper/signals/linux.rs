//! By a descriptor of the kernel's.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
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

/// The signals a keeper listens to, as a descriptor: a child's end, and requests to end by whoever may signal us. All others
/// are put aside, so that nobody ends a keeper by accident.
pub fn listen() -> Result<Signals, Errno> {
    signals(&[Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP])
}

/// The one that a zygote listens to.
pub fn listen_for_children() -> Result<Signals, Errno> {
    signals(&[Signal::SIGCHLD])
}

fn signals(signals: &[Signal]) -> Result<Signals, Errno> {
    let mut set = SigSet::empty();
    for signal in signals {
        set.add(*signal);
    }
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), None)?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Signals)
}

/// Readable when one has come.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Takes those that have come. True if one of them asks us to end.
    pub fn take(&self) -> bool {
        let mut asked = false;
        while let Ok(Some(info)) = self.0.read_signal() {
            asked |= info.ssi_signo != Signal::SIGCHLD as u32;
        }
        asked
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
