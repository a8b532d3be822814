//! Listening for silence: whether anything was heard of a command lately. What that means is for [`crate::run::silence`] to say.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::run::Run;
use super::{OnEvent, RawStream, RunEvent};
use crate::run::Deadline;
use crate::run::silence::{Silence, Verdict, Waiting};
#[cfg(unix)]
use unix::{name_of, waiting_at};
#[cfg(windows)]
use windows::{name_of, waiting_at};

/// A run's outputs, and how long they may be silent.
#[derive(Debug)]
pub struct Listening {
    began: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    silence: Silence,
    outputs: Vec<Output>,
}

/// Our end of one of the command's outputs.
///
/// It belongs to JavaScript, which may close it at any time, and then its number goes to somebody else. So it is named by
/// what it is, too. Should the number change hands between that look and the count, we count a stranger's bytes, which
/// harms nobody: at worst a deadline is late by one look. A duplicate of ours would do worse: the command would not hear
/// that nobody reads any more.
#[derive(Debug)]
struct Output {
    fd: RawStream,
    name: u64,
    /// The bot has asked for this stream.
    is_read: bool,
}

impl Listening {
    /// The outputs are open.
    pub fn new(limit_ms: u64, outputs: impl Iterator<Item = RawStream>) -> Self {
        let output = |fd| Some(Output { fd, name: name_of(fd)?, is_read: false });
        let inner = Inner { silence: Silence::new(limit_ms), outputs: outputs.filter_map(output).collect() };
        Self { began: Instant::now(), inner: Mutex::new(inner) }
    }

    /// The bot has read something.
    pub fn heard(&self) {
        let now = self.now();
        self.inner().silence.heard(now);
    }

    /// The bot reads that stream from here on.
    pub fn reading(&self, fd: RawStream) {
        for output in self.inner().outputs.iter_mut().filter(|output| output.fd == fd) {
            output.is_read = true;
        }
    }

    /// Somebody else reads that stream from here on, and nobody tells what. If that was the last one, silence means nothing.
    pub fn lose(&self, fd: RawStream) {
        self.inner().outputs.retain(|output| output.fd != fd);
    }

    /// The bot is about to close that stream: its name may be another's in a moment.
    pub fn closing(&self, fd: RawStream) {
        for output in self.inner().outputs.iter_mut().filter(|output| output.fd == fd) {
            output.fd = -1;
        }
    }

    pub fn extend(&self, ms: u64) {
        self.inner().silence.extend(ms);
    }

    /// Until it has been silent for too long, from now on. To be ended from outside when the run is over.
    pub async fn listen(&self, run: &Run, on_event: &OnEvent) {
        let now = self.now();
        self.inner().silence.begin(now);
        while !self.inner().outputs.is_empty() {
            let now = self.now();
            let until = match self.look(now) {
                Verdict::Wait { until } => until,
                Verdict::Warn { until, limit_ms, remaining_ms } => {
                    on_event(RunEvent::Warning { deadline: Deadline::NoOutput, limit_ms, remaining_ms });
                    until
                }
                Verdict::Expired { limit_ms } => return run.silent(limit_ms),
            };
            tokio::time::sleep(Duration::from_millis(until.saturating_sub(now))).await;
        }
    }

    fn look(&self, now: u64) -> Verdict {
        let mut inner = self.inner();
        let mut waiting = Waiting::default();
        for output in &inner.outputs {
            let bytes = output.waiting().unwrap_or(0);
            if output.is_read {
                waiting.for_the_bot += bytes;
            } else {
                waiting.for_nobody += bytes;
            }
        }
        inner.silence.look(waiting, now)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Output {
    /// How many bytes nobody has read yet. `None` if it is closed.
    fn waiting(&self) -> Option<u64> {
        if name_of(self.fd)? == self.name { waiting_at(self.fd) } else { None }
    }
}

#[cfg(all(unix, test))]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use nix::libc;

    use super::*;

    #[test]
    fn counts_what_waits_and_not_what_somebody_else_has_under_the_same_number() {
        let (mut theirs, mut ours) = UnixStream::pair().unwrap();
        let listening = Listening::new(1_000, [ours.as_raw_fd()].into_iter());
        let waiting = || listening.inner().outputs[0].waiting();
        assert_eq!(waiting(), Some(0));
        theirs.write_all(b"abc").unwrap();
        assert_eq!(waiting(), Some(3));
        ours.read_exact(&mut [0; 2]).unwrap();
        assert_eq!(waiting(), Some(1));
        let number = ours.as_raw_fd();
        let (mut strangers, other) = UnixStream::pair().unwrap();
        strangers.write_all(b"more").unwrap();
        // SAFETY: `ours` is replaced by a copy of `other`; both stay open.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        assert_eq!(waiting(), None);
    }
}
