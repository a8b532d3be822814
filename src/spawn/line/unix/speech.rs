//! What is said to a keeper: all of it, in order, and without ever waiting.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{Shutdown, shutdown};

use crate::keeper::channel;
use crate::runtime;

/// Some thousand requests. Whoever has more of them has stopped the keeper, and asks for what nobody can do.
const MOST: usize = 64 << 10;
/// And as many for what ends the run, whatever else was asked for. Who fills that, too, has asked for the end a thousand times, and the keeper
/// is going to hear it.
const MOST_AT_LAST: usize = 2 * MOST;

/// How soon it is tried again, at first and later.
const SOON: Duration = Duration::from_millis(5);
const LATER: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct Speech {
    pub control: OwnedFd,
    unsaid: Mutex<Unsaid>,
}

/// What the keeper is still to hear. Held while something is said: nobody gets ahead of it.
#[derive(Debug)]
struct Unsaid {
    bytes: Vec<u8>,
    /// Somebody sees to it that it is said.
    is_followed: bool,
    /// Nothing is to be said after it.
    is_last: bool,
}

impl Speech {
    /// `first` is said before all else, with the first word or with [`Speech::begin`].
    pub fn new(control: OwnedFd, first: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            control,
            unsaid: Mutex::new(Unsaid { bytes: first, is_followed: false, is_last: false }),
        })
    }

    pub fn begin(self: &Arc<Self>) -> Result<(), Errno> {
        self.say(&[])
    }

    /// A socket holds a few hundred requests, which a busy keeper may not have read yet and a stopped one does not read. What does not
    /// fit is said later: a cancel must not be lost because of what was asked for before.
    pub fn say(self: &Arc<Self>, frame: &[u8]) -> Result<(), Errno> {
        self.say_within(MOST, frame)
    }

    /// The same for what ends the run. It is said when its turn comes, but not refused because of what others have asked for.
    pub fn say_at_last(self: &Arc<Self>, frame: &[u8]) -> Result<(), Errno> {
        self.say_within(MOST_AT_LAST, frame)
    }

    fn say_within(self: &Arc<Self>, most: usize, frame: &[u8]) -> Result<(), Errno> {
        let mut unsaid = self.unsaid();
        if unsaid.is_last {
            return Err(Errno::EPIPE);
        }
        if unsaid.is_followed && !frame.is_empty() && unsaid.bytes.len() + frame.len() > most {
            return Err(Errno::EAGAIN);
        }
        unsaid.bytes.extend_from_slice(frame);
        match self.flush(&mut unsaid) {
            Err(Errno::EAGAIN) if unsaid.is_followed => Ok(()),
            Err(Errno::EAGAIN) => {
                let runtime = runtime::get().map_err(|_| Errno::EAGAIN)?;
                unsaid.is_followed = true;
                runtime.loop_handle.spawn(self.clone().say_the_rest());
                Ok(())
            }
            said => {
                // There is nobody who could hear the rest.
                unsaid.bytes.clear();
                said
            }
        }
    }

    /// The conversation is over: nothing is heard from here on, and nothing is said but what was promised to be. A run that is kept would
    /// not be ended by our silence, and it may have been cancelled.
    pub fn end(&self) {
        let mut unsaid = self.unsaid();
        unsaid.is_last = true;
        let how = if unsaid.is_followed { Shutdown::Read } else { Shutdown::Both };
        let _ = shutdown(self.control.as_raw_fd(), how);
    }

    /// It has room again only when the keeper reads, which nothing tells that could be waited for here: the socket is registered
    /// with the event loop already, by who listens to it.
    async fn say_the_rest(self: Arc<Self>) {
        let mut pause = SOON;
        while self.is_behind() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LATER);
        }
    }

    fn is_behind(&self) -> bool {
        let mut unsaid = self.unsaid();
        unsaid.is_followed = self.flush(&mut unsaid) == Err(Errno::EAGAIN);
        if unsaid.is_last && !unsaid.is_followed {
            let _ = shutdown(self.control.as_raw_fd(), Shutdown::Both);
        }
        unsaid.is_followed
    }

    /// Also half a frame: the other half comes before anything else does.
    fn flush(&self, unsaid: &mut Unsaid) -> Result<(), Errno> {
        while !unsaid.bytes.is_empty() {
            let count = channel::send_now(&self.control, &unsaid.bytes)?;
            unsaid.bytes.drain(..count);
        }
        Ok(())
    }

    fn unsaid(&self) -> MutexGuard<'_, Unsaid> {
        self.unsaid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
