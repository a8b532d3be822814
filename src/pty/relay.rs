//! Carrying bytes between a terminal and the two streams that stand for it.
//!
//! ```text
//!   stdin  ═══ input  ──► master ══ slave   0, 1, 2 of the command
//!   stdout ═══ output ◄──
//! ```
//!
//! Both directions push back: what the one side does not take is not read from the other. Between them at most one buffer
//! is held, and only while the reader does not keep up.
//!
//! The terminal is over when it is told so ([`Terminal::over`]) *and* everything that was written to it has been passed on; or
//! when nobody can read what it says any more: then it is hung up, as when a window is closed.

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

/// A read from a terminal gives 4 kB at most. So many bytes are collected before they are passed on, if they are there.
const BATCH: usize = 64 << 10;

/// Whoever gives so much at once is likely to give more in a moment, which is waited for without going to sleep.
///
/// The kernel passes a terminal's bytes on in pieces of 4 kB, each by a worker of its own. A reader that asks for the next piece
/// right after the last one has to wait for that worker, and is put to sleep and woken for each piece. Without that moment a
/// stream was 0.8 to 0.9 times as fast as node-pty's on a quiet machine, and 1.2 times on a busy one. With it, it was 1.0 to 1.25
/// times as fast on a busy one; a quiet one was not to be had. Of several ways tried there, this one was the best by little.
const STREAMING: usize = 2 << 10;
const MOMENT: Duration = Duration::from_micros(20);

/// After so many batches in a row others have their turn.
const BATCHES: usize = 4;

/// On macOS these are properties of the socket, see [`Relay::output`].
#[cfg(target_os = "linux")]
const NEITHER_WAIT_NOR_SIGNAL: MsgFlags = MsgFlags::MSG_NOSIGNAL.union(MsgFlags::MSG_DONTWAIT);
#[cfg(target_os = "macos")]
const NEITHER_WAIT_NOR_SIGNAL: MsgFlags = MsgFlags::empty();

thread_local! {
    /// One for all terminals: they take turns on one thread, and what is left over is kept elsewhere.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BATCH]);
}

/// A terminal and the streams that it is to be connected with. Nothing moves yet.
#[derive(Debug)]
pub struct Relay {
    pub pair: Pair,
    /// Sockets, ours alone.
    pub input: OwnedFd,
    /// Where the system cannot be asked with each call: one that neither blocks nor raises SIGPIPE.
    pub output: OwnedFd,
}

/// A terminal in use. Dropping it is as good as [`Terminal::over`].
#[derive(Debug)]
pub struct Terminal {
    /// The task alone holds it: when that ends, everything is closed.
    link: Weak<Link>,
    over: Mutex<Option<oneshot::Sender<()>>>,
    task: AbortHandle,
}

impl Relay {
    /// Carries bytes from here on.
    pub fn start(self, handle: &Handle) -> Terminal {
        let link = Arc::new(Link { relay: self, held: Mutex::default() });
        let weak = Arc::downgrade(&link);
        let (over, told) = oneshot::channel();
        let task = handle.spawn(async move {
            // What cannot even be watched is closed, which hangs up.
            let _ = link.carry(told).await;
        });
        Terminal { link: weak, over: Mutex::new(Some(over)), task: task.abort_handle() }
    }
}

impl Terminal {
    /// `EIO` if it is gone.
    pub fn resize(&self, size: Size) -> Result<(), Errno> {
        self.link.upgrade().ok_or(Errno::EIO)?.relay.pair.resize(size)
    }

    /// Who is in its foreground.
    pub fn foreground(&self) -> Option<String> {
        self.link.upgrade()?.relay.pair.foreground()
    }

    /// Passes on what has been written until now, as far as there is room. Whoever is told something afterwards that the
    /// command has done later finds its output first.
    pub fn catch_up(&self) {
        if let Some(link) = self.link.upgrade() {
            link.pump(Reading::ToTheLast);
        }
    }

    /// Nobody of ours writes to it any more. Whoever else may have it open is not waited for.
    pub fn over(&self) {
        if let Some(over) = self.over.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = over.send(());
        }
    }

    /// Closes it at once, with whatever it has to say.
    pub fn hang_up(&self) {
        self.task.abort();
    }
}

#[derive(Debug)]
struct Link {
    relay: Relay,
    /// Read from the terminal, and not yet passed on.
    held: Mutex<Vec<u8>>,
}

/// How much is read from a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Everything that was written before.
    ToTheLast,
    /// What is there, and what follows at once. Whatever comes later is told by the system.
    WhileItFlows,
}

/// How far [`Link::pump`] has come.
#[derive(Debug, PartialEq, Eq)]
enum Pumped {
    /// The terminal has nothing more to say for now.
    Dry,
    /// There is no room for more for now.
    Full,
    /// There is more, and room for it.
    Busy,
    /// There will never be more, or nobody to read it.
    Ended,
}

impl Link {
    async fn carry(&self, over: oneshot::Receiver<()>) -> std::io::Result<()> {
        // SAFETY: the descriptors are borrowed from ourselves, and we outlive the registrations.
        let (master, input, output) = unsafe {
            (
                AsyncFd::register(self.relay.pair.as_fd())?,
                AsyncFd::register(self.relay.input.as_fd())?,
                AsyncFd::register(self.relay.output.as_fd())?,
            )
        };
        let mut outward = Outward { link: self, from: &master, to: &output, over, is_over: false };
        let mut inward =
            Inward { link: self, from: &input, to: &master, typed: Vec::new(), last: None, ended: false };
        let mut all_typed = false;
        let mut carry = pin!(std::future::poll_fn(|context| {
            if !all_typed {
                all_typed = inward.poll(context).is_ready();
            }
            outward.poll(context)
        }));
        carry.as_mut().await;
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// From the terminal to the output, as much as there is and as fits, within reason.
    fn pump(&self, reading: Reading) -> Pumped {
        BUFFER.with_borrow_mut(|buffer| {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..BATCHES {
                match self.pass_on(&held) {
                    Ok(passed) => drop(held.drain(..passed)),
                    Err(_) => return Pumped::Ended,
                }
                if !held.is_empty() {
                    return Pumped::Full;
                }
                let (count, why) = self.collect(buffer, reading);
                match self.pass_on(&buffer[..count]) {
                    Ok(passed) => held.extend_from_slice(&buffer[passed..count]),
                    Err(_) => return Pumped::Ended,
                }
                match why {
                    _ if !held.is_empty() => return Pumped::Full,
                    Some(Errno::EAGAIN) => return Pumped::Dry,
                    Some(_) => return Pumped::Ended,
                    None => {}
                }
            }
            Pumped::Busy
        })
    }

    /// What the terminal says, until the buffer is full or for what reason there is no more. If it is the kernel that says EAGAIN,
    /// that is true of everything that was written before: it looks for bytes on their way first.
    fn collect(&self, buffer: &mut [u8], reading: Reading) -> (usize, Option<Errno>) {
        let mut count = 0;
        while count < buffer.len() {
            match read(&self.relay.pair, &mut buffer[count..]) {
                // Hung up; Linux says EIO.
                Ok(0) => return (count, Some(Errno::EIO)),
                Ok(more) => {
                    count += more;
                    // Less than there was room for: that was all. What comes later is told, so nobody need ask.
                    if reading == Reading::WhileItFlows && count < buffer.len() {
                        if more < STREAMING {
                            return (count, Some(Errno::EAGAIN));
                        }
                        self.wait_a_moment();
                    }
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return (count, Some(errno)),
            }
        }
        (count, None)
    }

    /// Until there is more, or the moment has passed.
    fn wait_a_moment(&self) {
        let began = Instant::now();
        while self.relay.pair.waiting() == 0 && began.elapsed() < MOMENT {
            std::hint::spin_loop();
        }
    }

    /// How much of it there was room for. An error means that nobody reads it any more.
    fn pass_on(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut passed = 0;
        while passed < bytes.len() {
            match send(self.relay.output.as_raw_fd(), &bytes[passed..], NEITHER_WAIT_NOR_SIGNAL) {
                Ok(count) => passed += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(passed)
    }
}

/// From the terminal to the bot.
struct Outward<'a, Fd: AsRawFd> {
    link: &'a Link,
    from: &'a AsyncFd<Fd>,
    to: &'a AsyncFd<Fd>,
    over: oneshot::Receiver<()>,
    is_over: bool,
}

impl<Fd: AsRawFd> Outward<'_, Fd> {
    /// Ready when there is nothing left to be done.
    ///
    /// Readiness is asked for *before* bytes are moved, and taken back only if there turned out to be none: what comes in
    /// between is told again.
    fn poll(&mut self, context: &mut Context) -> Poll<()> {
        loop {
            self.is_over = self.is_over || Pin::new(&mut self.over).poll(context).is_ready();
            let readable = self.from.poll_read_ready(context);
            let writable = self.to.poll_write_ready(context);
            if readable.is_pending() && !self.is_over && self.link.is_empty() {
                return Poll::Pending;
            }
            let reading = if self.is_over { Reading::ToTheLast } else { Reading::WhileItFlows };
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
                // Asked again, so that we are woken.
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// From the bot to the terminal.
struct Inward<'a, Fd: AsRawFd> {
    link: &'a Link,
    from: &'a AsyncFd<Fd>,
    to: &'a AsyncFd<Fd>,
    /// Still to be typed.
    typed: Vec<u8>,
    last: Option<u8>,
    ended: bool,
}

impl<Fd: AsRawFd> Inward<'_, Fd> {
    /// Ready when everything has been typed, the end included, or nobody can read it.
    fn poll(&mut self, context: &mut Context) -> Poll<()> {
        for _ in 0..BATCHES * 32 {
            let ready = if self.typed.is_empty() {
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
                match write(&self.link.relay.pair, &self.typed) {
                    Ok(0) | Err(Errno::EAGAIN) => writable.map_ok(|mut ready| ready.clear_ready()),
                    Ok(count) => {
                        self.typed.drain(..count);
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
        // There is more, and somebody who reads it as fast. Others have their turn.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn fetch(&mut self) -> Result<(), Errno> {
        let relay = &self.link.relay;
        BUFFER.with_borrow_mut(|buffer| {
            let count = recv(relay.input.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)?;
            if count == 0 {
                self.ended = true;
                self.typed = relay.pair.end_of_input(self.last);
            } else {
                self.typed.extend_from_slice(&buffer[..count]);
                self.last = self.typed.last().copied();
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
