//! Sends requests to a keeper completely, in order, and without blocking.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{Shutdown, shutdown};

use crate::keeper::channel;
use crate::runtime;

/// Limit of the queue: some thousand requests. A caller reaches it only if the keeper is stopped.
const LIMIT: usize = 64 << 10;
/// Limit for requests that end the run: as much again, whatever other requests are queued. A caller
/// that reaches it has requested the end a thousand times, and the keeper will read those.
const FINAL_LIMIT: usize = 2 * LIMIT;

/// Delay before the first retry of a send, and the longest delay.
const FIRST_DELAY: Duration = Duration::from_millis(5);
const LONGEST_DELAY: Duration = Duration::from_millis(200);

/// The control socket, and what does not fit into it yet.
#[derive(Debug)]
pub struct SendQueue {
    pub control: OwnedFd,
    unsent: Mutex<Unsent>,
}

/// Bytes that the keeper has not got yet. Locked during a send, so that requests stay in order.
#[derive(Debug)]
struct Unsent {
    bytes: Vec<u8>,
    /// A task retries the send.
    is_retrying: bool,
    /// The connection is closed: no request is accepted.
    is_closed: bool,
}

impl SendQueue {
    /// The queue sends `first` before everything else: with the first request or with
    /// [`SendQueue::send_first`].
    pub fn new(control: OwnedFd, first: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            control,
            unsent: Mutex::new(Unsent { bytes: first, is_retrying: false, is_closed: false }),
        })
    }

    pub fn send_first(self: &Arc<Self>) -> Result<(), Errno> {
        self.send(&[])
    }

    /// Sends a request, or queues it. A socket holds a few hundred requests. A busy keeper may not
    /// have read them yet, and a stopped keeper does not read. A cancel must not be lost because of
    /// them.
    pub fn send(self: &Arc<Self>, frame: &[u8]) -> Result<(), Errno> {
        self.send_within(LIMIT, frame)
    }

    /// Sends a request that ends the run. It keeps the order, but other queued requests do not use
    /// up its limit.
    pub fn send_final(self: &Arc<Self>, frame: &[u8]) -> Result<(), Errno> {
        self.send_within(FINAL_LIMIT, frame)
    }

    fn send_within(self: &Arc<Self>, limit: usize, frame: &[u8]) -> Result<(), Errno> {
        let mut unsent = self.unsent();
        if unsent.is_closed {
            return Err(Errno::EPIPE);
        }
        if unsent.is_retrying && !frame.is_empty() && unsent.bytes.len() + frame.len() > limit {
            return Err(Errno::EAGAIN);
        }
        unsent.bytes.extend_from_slice(frame);
        match self.flush(&mut unsent) {
            Err(Errno::EAGAIN) if unsent.is_retrying => Ok(()),
            Err(Errno::EAGAIN) => {
                let runtime = runtime::get().map_err(|_| Errno::EAGAIN)?;
                unsent.is_retrying = true;
                runtime.loop_handle.spawn(self.clone().retry_until_sent());
                Ok(())
            }
            sent => {
                // The keeper is dead, or everything is sent.
                unsent.bytes.clear();
                sent
            }
        }
    }

    /// Closes the connection: reads nothing more, and sends only what is queued. The queue may
    /// contain a cancel, and closing the socket does not end a run with `onOwnerExit: 'keep'`.
    pub fn close(&self) {
        let mut unsent = self.unsent();
        unsent.is_closed = true;
        let how = if unsent.is_retrying { Shutdown::Read } else { Shutdown::Both };
        let _ = shutdown(self.control.as_raw_fd(), how);
    }

    /// Retries the send at intervals. It cannot wait for the socket to become writable: the report
    /// stream has registered the socket with the event loop already.
    async fn retry_until_sent(self: Arc<Self>) {
        let mut delay = FIRST_DELAY;
        while self.is_unsent_after_retry() {
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(LONGEST_DELAY);
        }
    }

    fn is_unsent_after_retry(&self) -> bool {
        let mut unsent = self.unsent();
        unsent.is_retrying = self.flush(&mut unsent) == Err(Errno::EAGAIN);
        if unsent.is_closed && !unsent.is_retrying {
            let _ = shutdown(self.control.as_raw_fd(), Shutdown::Both);
        }
        unsent.is_retrying
    }

    /// Sends as much as fits, also a part of a frame. The next call sends the rest first.
    fn flush(&self, unsent: &mut Unsent) -> Result<(), Errno> {
        while !unsent.bytes.is_empty() {
            let count = channel::send_now(&self.control, &unsent.bytes)?;
            unsent.bytes.drain(..count);
        }
        Ok(())
    }

    fn unsent(&self) -> MutexGuard<'_, Unsent> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
