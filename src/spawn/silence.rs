//! Listening for silence: whether anything was heard of a command lately. What that means is for [`crate::run::silence`] to say.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::stat::fstat;

use super::run::Run;
use super::{OnEvent, RunEvent};
use crate::run::Deadline;
use crate::run::silence::{Silence, Verdict, Waiting};

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
    fd: RawFd,
    inode: u64,
    /// The bot has asked for this stream.
    is_read: bool,
}

impl Listening {
    /// The outputs are open.
    pub fn new(limit_ms: u64, outputs: impl Iterator<Item = RawFd>) -> Self {
        let output = |fd| Some(Output { fd, inode: inode(fd)?, is_read: false });
        let inner = Inner { silence: Silence::new(limit_ms), outputs: outputs.filter_map(output).collect() };
        Self { began: Instant::now(), inner: Mutex::new(inner) }
    }

    /// The bot has read something.
    pub fn heard(&self) {
        let now = self.now();
        self.inner().silence.heard(now);
    }

    /// The bot reads that stream from here on.
    pub fn reading(&self, fd: RawFd) {
        for output in self.inner().outputs.iter_mut().filter(|output| output.fd == fd) {
            output.is_read = true;
        }
    }

    /// Somebody else reads that stream from here on, and nobody tells what. If that was the last one, silence means nothing.
    pub fn lose(&self, fd: RawFd) {
        self.inner().outputs.retain(|output| output.fd != fd);
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
        if inode(self.fd)? != self.inode {
            return None;
        }
        let mut bytes: libc::c_int = 0;
        // SAFETY: FIONREAD writes one integer.
        let result = unsafe { libc::ioctl(self.fd, libc::FIONREAD, &raw mut bytes) };
        if result == 0 { u64::try_from(bytes).ok() } else { None }
    }
}

/// `None` if nobody has that number open.
fn inode(fd: RawFd) -> Option<u64> {
    // SAFETY: borrowed for this one call, which fails if the number means nothing.
    fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok().map(|stat| stat.st_ino)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

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
