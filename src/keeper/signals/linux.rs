//! Signals on Linux, through a signalfd.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Restores the default action of every signal, and unblocks all.
///
/// Commands must not inherit the bot's ignored or blocked signals, which `exec` preserves.
///
/// It uses the raw system call, because the C library refuses to change its own signals 32 and 33.
/// Its `posix_spawn`, which starts the zygote, leaves these two ignored.
pub fn reset() -> Result<(), Errno> {
    /// The kernel's structure for the default action: no handler, flags or restorer, an empty mask.
    const DEFAULT: [u64; 4] = [0; 4];
    const MASK_SIZE: usize = 8;
    for number in 1..=64 {
        // The call fails for SIGKILL and SIGSTOP, which cannot be changed.
        // SAFETY: the structure has the kernel's size on every 64-bit Linux. No handler is
        // installed, and the null pointer means that the old action is not returned.
        unsafe {
            let old_action = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, number, DEFAULT.as_ptr(), old_action, MASK_SIZE);
        }
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Watches the signals of a keeper: SIGCHLD, and the signals that request its end.
///
/// It blocks all other signals, so that no process ends a keeper by accident.
pub fn listen() -> Result<Signals, Errno> {
    signals(&[Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP])
}

/// Watches SIGCHLD, the only signal that a zygote needs. Blocks all others.
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

/// A file descriptor that is readable when a signal has arrived.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Takes all signals that have arrived. True if one of them requests the end of this process.
    pub fn take(&self) -> bool {
        let mut must_shut_down = false;
        while let Ok(Some(info)) = self.0.read_signal() {
            must_shut_down |= info.ssi_signo != Signal::SIGCHLD as u32;
        }
        must_shut_down
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
