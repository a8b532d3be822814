//! Enforces the idle timeout: checks the output of a command at intervals. The rules of the timeout
//! are in [`crate::run::idle_timeout`].

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::run::Run;
#[cfg(unix)]
use super::stream_id as id_of;
use super::{OnEvent, RawStream, RunEvent, StreamId};
use crate::run::Deadline;
use crate::run::idle_timeout::{IdleTimeout, Verdict, Waiting};
use crate::trace::trace;
#[cfg(unix)]
use unix::unread_bytes;
#[cfg(windows)]
use windows::{id_of, unread_bytes};

/// A run's outputs and its idle timeout.
#[derive(Debug)]
pub struct OutputMonitor {
    started: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    idle_timeout: IdleTimeout,
    outputs: Vec<Output>,
}

/// Our end of one of the command's outputs.
///
/// JavaScript owns it and may close it at any time. Then the kernel can give the descriptor to
/// another file. So `id` says what the descriptor must refer to. If the descriptor changes between
/// that check and the count, the monitor counts bytes of another file. At worst a deadline is late
/// by one interval. A duplicate of the descriptor would be worse: if the bot closes its end, the
/// command would get no EPIPE.
#[derive(Debug)]
struct Output {
    fd: RawStream,
    id: StreamId,
    /// The bot reads this stream.
    is_read: bool,
}

impl OutputMonitor {
    /// Creates a monitor. The outputs must be open.
    pub fn new(limit_ms: u64, outputs: impl Iterator<Item = RawStream>) -> Self {
        let output = |fd| Some(Output { fd, id: id_of(fd)?, is_read: false });
        let inner =
            Inner { idle_timeout: IdleTimeout::new(limit_ms), outputs: outputs.filter_map(output).collect() };
        Self { started: Instant::now(), inner: Mutex::new(inner) }
    }

    /// Restarts the timeout: the bot has read output.
    pub fn output_read(&self) {
        let now = self.now();
        self.inner().idle_timeout.output_read(now);
    }

    /// Notes that the bot reads this stream from now on.
    pub fn reading(&self, fd: RawStream) {
        for output in self.inner().outputs.iter_mut().filter(|output| output.fd == fd) {
            output.is_read = true;
        }
    }

    /// Notes that another reader reads this stream from now on, and does not report what it reads.
    /// Without any stream left the timeout has no meaning.
    pub fn hand_over(&self, fd: RawStream) {
        self.inner().outputs.retain(|output| output.fd != fd);
    }

    /// Notes that the bot is about to close this stream. Its descriptor or handle can be reused at
    /// once.
    pub fn closing(&self, fd: RawStream) {
        for output in self.inner().outputs.iter_mut().filter(|output| output.fd == fd) {
            output.fd = -1;
        }
    }

    pub fn extend(&self, ms: u64) {
        self.inner().idle_timeout.extend(ms);
    }

    /// Sets another limit. The idle time starts again now.
    pub fn set_limit(&self, limit_ms: u64) {
        let now = self.now();
        self.inner().idle_timeout.set_limit(limit_ms, now);
    }

    /// Runs until the idle timeout expires, counted from now. The caller aborts it when the run
    /// ends.
    pub async fn listen(&self, run: &Run, on_event: &OnEvent) {
        let now = self.now();
        self.inner().idle_timeout.begin(now);
        while !self.inner().outputs.is_empty() {
            let now = self.now();
            let until = match self.check(now) {
                Verdict::Wait { until } => until,
                Verdict::Warn { until, limit_ms, remaining_ms } => {
                    trace!(key: run.entry().key(), "idle timeout of {limit_ms} ms: {remaining_ms} ms left");
                    on_event(RunEvent::Warning { deadline: Deadline::NoOutput, limit_ms, remaining_ms });
                    until
                }
                Verdict::Expired { limit_ms } => {
                    trace!(key: run.entry().key(), "idle timeout of {limit_ms} ms expired");
                    return run.idle_timed_out(limit_ms);
                }
            };
            tokio::time::sleep(Duration::from_millis(until.saturating_sub(now))).await;
        }
    }

    fn check(&self, now: u64) -> Verdict {
        let mut inner = self.inner();
        let mut waiting = Waiting::default();
        for output in &inner.outputs {
            let bytes = output.unread().unwrap_or(0);
            if output.is_read {
                waiting.with_reader += bytes;
            } else {
                waiting.without_reader += bytes;
            }
        }
        inner.idle_timeout.look(waiting, now)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Output {
    /// The number of unread bytes. `None` if the stream is closed.
    fn unread(&self) -> Option<u64> {
        if id_of(self.fd)? == self.id { unread_bytes(self.fd) } else { None }
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
    fn the_monitor_counts_unread_bytes_and_not_those_of_a_reused_descriptor() {
        let (mut theirs, mut ours) = UnixStream::pair().unwrap();
        let monitor = OutputMonitor::new(1_000, [ours.as_raw_fd()].into_iter());
        let unread = || monitor.inner().outputs[0].unread();
        assert_eq!(unread(), Some(0));
        theirs.write_all(b"abc").unwrap();
        assert_eq!(unread(), Some(3));
        ours.read_exact(&mut [0; 2]).unwrap();
        assert_eq!(unread(), Some(1));
        let fd = ours.as_raw_fd();
        let (mut other_end, other) = UnixStream::pair().unwrap();
        other_end.write_all(b"more").unwrap();
        // SAFETY: `ours` is replaced by a copy of `other`; both stay open.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), fd) }, fd);
        assert_eq!(unread(), None);
    }
}
