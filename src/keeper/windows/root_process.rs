//! The root process of a run, with an open handle.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::errno::Errno;
use crate::identity::{ProcessHandle, ProcessRef};
use crate::run::{ExitStatus, signal};

/// The root process. Its open handle reserves its PID, so no other process can get it.
#[derive(Debug)]
pub struct RootProcess {
    pub pin: ProcessHandle,
    pub process: ProcessRef,
    /// The last signal for which the bot has terminated it, or 0.
    last_signal: AtomicI32,
    /// All signals for which the bot has terminated it, one bit for each.
    all_signals: AtomicU32,
}

impl RootProcess {
    pub fn new(pin: ProcessHandle, process: ProcessRef) -> Self {
        Self { pin, process, last_signal: AtomicI32::new(0), all_signals: AtomicU32::new(0) }
    }

    /// Signals the root only, as Node does.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        if signal != 0 {
            self.will_end_for(signal);
        }
        self.pin.signal(signal)
    }

    /// Stores the signal for which the bot is about to terminate the root.
    ///
    /// Call it before the termination. Otherwise another thread could see the exit before the
    /// signal is stored.
    pub fn will_end_for(&self, signal: i32) {
        if !self.pin.has_ended() {
            self.all_signals.fetch_or(signal::bit(signal), Ordering::AcqRel);
            self.last_signal.store(signal, Ordering::Release);
        }
    }

    /// The root's exit status, if it has exited. A root that the bot has terminated reports the
    /// signal for it, see [`signal::ended_by`]. `terminated_with` is the tree's terminate signal.
    pub fn status(&self, terminated_with: Option<i32>) -> Option<ExitStatus> {
        let all_signals = self.all_signals.load(Ordering::Acquire);
        Some(signal::ended_by(
            self.pin.exit_code()?,
            self.last_signal.load(Ordering::Acquire),
            all_signals,
            terminated_with,
        ))
    }
}
