//! Copies bytes between a terminal's master and the two streams that the bot uses.
//!
//! ```text
//!   stdin  ═══ input  ──► master ══ slave   0, 1, 2 of the command
//!   stdout ═══ output ◄──
//! ```
//!
//! Both directions apply back-pressure: the relay does not read bytes that the other side cannot
//! take. It holds at most one buffer of output, and only while the bot does not read.
//!
//! The relay ends when [`Terminal::over`] was called *and* all output has been copied. It also ends
//! when the bot has closed the output stream. Then the terminal hangs up, like a closed window.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::{read, write};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::{Pair, Size};

/// Size of a batch. One read from a terminal returns at most 4 kB. The relay collects up to this
/// many available bytes before it sends them.
const BATCH: usize = 64 << 10;

/// A read of at least this many bytes is likely to be followed by more at once. The relay waits for
/// them up to [`SPIN_LIMIT`] without sleeping.
///
/// The kernel delivers a terminal's bytes in pieces of 4 kB, through a kernel worker. A reader that
/// asks for the next piece at once must wait for the worker, so it sleeps and wakes for each piece.
///
/// Measured against node-pty without this wait: 0.8 to 0.9 times as fast on an idle machine, 1.2
/// times on a busy one. With it: 1.0 to 1.25 times on a busy machine; not measured on an idle one.
/// Of several variants, this one was the fastest by a small margin.
const STREAMING: usize = 2 << 10;
const SPIN_LIMIT: Duration = Duration::from_micros(20);

/// After this many batches the relay lets other tasks run.
const BATCHES: usize = 4;

/// Do not block, and do not raise SIGPIPE. On macOS these are properties of the socket, see
/// [`Relay::output`].
#[cfg(target_os = "linux")]
const NO_WAIT_NO_SIGPIPE: MsgFlags = MsgFlags::MSG_NOSIGNAL.union(MsgFlags::MSG_DONTWAIT);
#[cfg(target_os = "macos")]
const NO_WAIT_NO_SIGPIPE: MsgFlags = MsgFlags::empty();

thread_local! {
    /// The buffer of all terminals. They share one thread, and keep unsent bytes in `Link::unsent`.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BATCH]);
}

/// A terminal and the bot's two streams, before [`Relay::start`].
#[derive(Debug)]
pub struct Relay {
    pub pair: Pair,
    /// A socket that only the relay holds.
    pub input: OwnedFd,
    /// A socket that only the relay holds. On macOS it must not block and must not raise SIGPIPE.
    pub output: OwnedFd,
}

/// An open terminal. A drop has the effect of [`Terminal::over`].
#[derive(Debug)]
pub struct Terminal {
    /// Only the task holds a strong reference. When the task ends, all descriptors close.
    link: Weak<Link>,
    over: Mutex<Option<oneshot::Sender<()>>>,
    task: AbortHandle,
}

impl Relay {
    /// Starts to copy bytes.
    pub fn start(self, handle: &Handle) -> Terminal {
        let link = Arc::new(Link { relay: self, unsent: Mutex::default() });
        let weak = Arc::downgrade(&link);
        let (over, over_receiver) = oneshot::channel();
        let task = handle.spawn(async move {
            // If the descriptors cannot be polled, they close, and the terminal hangs up.
            let _ = link.carry(over_receiver).await;
        });
        Terminal { link: weak, over: Mutex::new(Some(over)), task: task.abort_handle() }
    }
}

impl Terminal {
    /// Changes the size. `EIO` if the terminal is closed.
    pub fn resize(&self, size: Size) -> Result<(), Errno> {
        self.link.upgrade().ok_or(Errno::EIO)?.relay.pair.resize(size)
    }

    /// The name of the process in the foreground.
    pub fn foreground(&self) -> Option<String> {
        self.link.upgrade()?.relay.pair.foreground()
    }

    /// Copies all output that was written until now, as far as it fits.
    ///
    /// Call it before reporting an event of the command. Then the bot reads earlier output first.
    pub fn catch_up(&self) {
        if let Some(link) = self.link.upgrade() {
            link.pump(Reading::Everything);
        }
    }

    /// Ends the terminal after its remaining output, because no member of the run is left.
    ///
    /// The relay does not wait for other processes that have the terminal open.
    pub fn finish(&self) {
        if let Some(over) = self.over.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = over.send(());
        }
    }

    /// Closes the terminal at once, and discards its remaining output.
    pub fn hang_up(&self) {
        self.task.abort();
    }
}

#[derive(Debug)]
struct Link {
    relay: Relay,
    /// Bytes that were read from the terminal and do not fit into the output stream yet.
    unsent: Mutex<Vec<u8>>,
}

/// How much to read from a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// All bytes that were written before the call.
    Everything,
    /// Available bytes, and those that follow at once. The runtime reports later bytes.
    WhileStreaming,
}

/// The result of [`Link::pump`].
#[derive(Debug, PartialEq, Eq)]
enum Pumped {
    /// The terminal has no more output now.
    Dry,
    /// The output stream is full now.
    Full,
    /// There is more output, and space for it.
    Busy,
    /// The terminal has hung up, or the bot has closed the output stream.
    Ended,
}

impl Link {
    async fn carry(&self, over: oneshot::Receiver<()>) -> std::io::Result<()> {
        // SAFETY: `self` owns the descriptors and outlives the registrations.
        let (master, input, output) = unsafe {
            (
                AsyncFd::register(self.relay.pair.as_fd())?,
                AsyncFd::register(self.relay.input.as_fd())?,
                AsyncFd::register(self.relay.output.as_fd())?,
            )
        };
        let mut outward = Outward { link: self, from: &master, to: &output, over, is_over: false };
        let mut inward =
            Inward { link: self, from: &input, to: &master, pending: Vec::new(), last: None, ended: false };
        let mut is_input_done = false;
        let mut carry = pin!(std::future::poll_fn(|context| {
            if !is_input_done {
                is_input_done = inward.poll(context).is_ready();
            }
            outward.poll(context)
        }));
        carry.as_mut().await;
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Copies bytes from the terminal to the output, at most [`BATCHES`] batches.
    fn pump(&self, reading: Reading) -> Pumped {
        BUFFER.with_borrow_mut(|buffer| {
            let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..BATCHES {
                match self.send_output(&unsent) {
                    Ok(sent) => drop(unsent.drain(..sent)),
                    Err(_) => return Pumped::Ended,
                }
                if !unsent.is_empty() {
                    return Pumped::Full;
                }
                let (count, stopped_by) = self.collect(buffer, reading);
                match self.send_output(&buffer[..count]) {
                    Ok(sent) => unsent.extend_from_slice(&buffer[sent..count]),
                    Err(_) => return Pumped::Ended,
                }
                match stopped_by {
                    _ if !unsent.is_empty() => return Pumped::Full,
                    Some(Errno::EAGAIN) => return Pumped::Dry,
                    Some(_) => return Pumped::Ended,
                    None => {}
                }
            }
            Pumped::Busy
        })
    }

    /// Reads from the terminal until the buffer is full or there is no more. Returns the number of
    /// bytes, and the errno that stopped it, if the buffer is not full.
    ///
    /// When the kernel itself returns EAGAIN, no earlier byte is missing: the kernel first delivers
    /// bytes that are still on their way.
    fn collect(&self, buffer: &mut [u8], reading: Reading) -> (usize, Option<Errno>) {
        let mut count = 0;
        while count < buffer.len() {
            match read(&self.relay.pair, &mut buffer[count..]) {
                // The terminal has hung up. Linux returns EIO for that, so use it here, too.
                Ok(0) => return (count, Some(Errno::EIO)),
                Ok(more) => {
                    count += more;
                    // The buffer has space left, so no further bytes are available. The runtime
                    // reports later bytes, so no second read is necessary.
                    if reading == Reading::WhileStreaming && count < buffer.len() {
                        if more < STREAMING {
                            return (count, Some(Errno::EAGAIN));
                        }
                        self.spin_until_available();
                    }
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return (count, Some(errno)),
            }
        }
        (count, None)
    }

    /// Waits until the terminal has more bytes, for at most [`SPIN_LIMIT`].
    fn spin_until_available(&self) {
        let began = Instant::now();
        while self.relay.pair.available() == 0 && began.elapsed() < SPIN_LIMIT {
            std::hint::spin_loop();
        }
    }

    /// Sends as many bytes as fit, and returns their number. An error means that the bot has closed
    /// the stream.
    fn send_output(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut sent = 0;
        while sent < bytes.len() {
            match send(self.relay.output.as_raw_fd(), &bytes[sent..], NO_WAIT_NO_SIGPIPE) {
                Ok(count) => sent += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(sent)
    }
}

/// The direction from the terminal to the bot.
struct Outward<'a, Fd: AsRawFd> {
    link: &'a Link,
    from: &'a AsyncFd<Fd>,
    to: &'a AsyncFd<Fd>,
    over: oneshot::Receiver<()>,
    is_over: bool,
}

impl<Fd: AsRawFd> Outward<'_, Fd> {
    /// Ready when all output has been copied and the terminal is over.
    ///
    /// It polls readiness *before* it copies bytes, and clears readiness only if the copy found
    /// none. So bytes that arrive between the two make the descriptor ready again.
    fn poll(&mut self, context: &mut Context) -> Poll<()> {
        loop {
            self.is_over = self.is_over || Pin::new(&mut self.over).poll(context).is_ready();
            let readable = self.from.poll_read_ready(context);
            let writable = self.to.poll_write_ready(context);
            if readable.is_pending() && !self.is_over && self.link.is_empty() {
                return Poll::Pending;
            }
            let reading = if self.is_over { Reading::Everything } else { Reading::WhileStreaming };
            let blocked = match self.link.pump(reading) {
                Pumped::Ended => return Poll::Ready(()),
                Pumped::Dry if self.is_over => return Poll::Ready(()),
                Pumped::Dry => readable.map_ok(|mut ready| ready.clear_ready()),
                Pumped::Full => writable.map_ok(|mut ready| ready.clear_ready()),
                Pumped::Busy => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            };
            match blocked {
                // Poll again, so that the runtime registers the waker.
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// The direction from the bot to the terminal.
struct Inward<'a, Fd: AsRawFd> {
    link: &'a Link,
    from: &'a AsyncFd<Fd>,
    to: &'a AsyncFd<Fd>,
    /// Bytes from the bot that are not yet written to the terminal.
    pending: Vec<u8>,
    /// The last byte that the bot has sent.
    last: Option<u8>,
    /// The bot has closed the input stream.
    ended: bool,
}

impl<Fd: AsRawFd> Inward<'_, Fd> {
    /// Ready when all input and its end have been written, or the terminal has hung up.
    fn poll(&mut self, context: &mut Context) -> Poll<()> {
        for _ in 0..BATCHES * 32 {
            let ready = if self.pending.is_empty() {
                if self.ended {
                    return Poll::Ready(());
                }
                let readable = self.from.poll_read_ready(context);
                if readable.is_pending() {
                    return Poll::Pending;
                }
                match self.fetch() {
                    Err(Errno::EAGAIN) => readable.map_ok(|mut ready| ready.clear_ready()),
                    Ok(()) => continue,
                    Err(_) => return Poll::Ready(()),
                }
            } else {
                let writable = self.to.poll_write_ready(context);
                match write(&self.link.relay.pair, &self.pending) {
                    Ok(0) | Err(Errno::EAGAIN) => writable.map_ok(|mut ready| ready.clear_ready()),
                    Ok(count) => {
                        self.pending.drain(..count);
                        continue;
                    }
                    Err(Errno::EINTR) => continue,
                    Err(_) => return Poll::Ready(()),
                }
            };
            match ready {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        // There may be more input. Let other tasks run first.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn fetch(&mut self) -> Result<(), Errno> {
        let relay = &self.link.relay;
        BUFFER.with_borrow_mut(|buffer| {
            let count = recv(relay.input.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)?;
            if count == 0 {
                self.ended = true;
                self.pending = relay.pair.end_of_input(self.last);
            } else {
                self.pending.extend_from_slice(&buffer[..count]);
                self.last = self.pending.last().copied();
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
