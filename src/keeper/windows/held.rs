//! The root of a run, held.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::errno::Errno;
use crate::identity::{Pin, ProcessRef};
use crate::run::{ExitStatus, signal};

/// The root, held: its number is nobody else's.
#[derive(Debug)]
pub struct Held {
    pub pin: Pin,
    pub process: ProcessRef,
    /// The last signal for which we have ended it, or 0; and one bit for each of them.
    ended_for: AtomicI32,
    ended_with: AtomicU32,
}

impl Held {
    pub fn new(pin: Pin, process: ProcessRef) -> Self {
        Self { pin, process, ended_for: AtomicI32::new(0), ended_with: AtomicU32::new(0) }
    }

    /// To the root alone, as Node does it.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        if signal != 0 {
            self.will_end_for(signal);
        }
        self.pin.signal(signal)
    }

    /// To be told before it is done: whoever sees its end then knows why.
    pub fn will_end_for(&self, signal: i32) {
        if !self.pin.has_ended() {
            self.ended_with.fetch_or(signal::bit(signal), Ordering::AcqRel);
            self.ended_for.store(signal, Ordering::Release);
        }
    }

    /// How it has ended, if it has. One that we have ended has ended by a signal: by the one that was asked for.
    pub fn status(&self, asked: Option<i32>) -> Option<ExitStatus> {
        let ended_with = self.ended_with.load(Ordering::Acquire);
        Some(signal::ended_by(
            self.pin.exit_code()?,
            self.ended_for.load(Ordering::Acquire),
            ended_with,
            asked,
        ))
    }
}
