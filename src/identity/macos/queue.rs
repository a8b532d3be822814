//! A queue of process events: `kqueue`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};

/// Events read per `kevent` call.
const BATCH: usize = 64;

/// A kqueue, readable when an event is pending. A forked child does not inherit it.
#[derive(Debug)]
pub struct Queue(Kqueue);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// The process has no running thread and no children. It is a zombie, or about to become one.
    Exited(i32),
    Forked(i32),
    /// This process received a signal.
    Signal(i32),
}

impl Queue {
    pub fn new() -> Result<Self, Errno> {
        let queue = Kqueue::new()?;
        fcntl(queue.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        Ok(Self(queue))
    }

    /// Reports when the process that has this PID now exits or forks. `ESRCH` if there is none, or
    /// only a zombie.
    ///
    /// Earlier events are not reported. To miss nothing, watch first and check the process second.
    pub fn watch(&self, pid: i32) -> Result<(), Errno> {
        self.add(pid, EventFilter::EVFILT_PROC, FilterFlag::NOTE_EXIT | FilterFlag::NOTE_FORK)
    }

    /// Reports when the process that has this PID now exits.
    pub fn watch_exit(&self, pid: i32) -> Result<(), Errno> {
        self.add(pid, EventFilter::EVFILT_PROC, FilterFlag::NOTE_EXIT)
    }

    /// Reports a signal to this process, even if the process ignores that signal.
    pub fn listen(&self, signal: i32) -> Result<(), Errno> {
        self.add(signal, EventFilter::EVFILT_SIGNAL, FilterFlag::empty())
    }

    fn add(&self, what: i32, filter: EventFilter, notes: FilterFlag) -> Result<(), Errno> {
        let what = usize::try_from(what).map_err(|_| Errno::ESRCH)?;
        let event = KEvent::new(what, filter, EvFlags::EV_ADD | EvFlags::EV_CLEAR, notes, 0, 0);
        self.0.kevent(&[event], &mut [], None).map(drop)
    }

    /// Returns the pending events. If there are none, waits for one until the limit; `None` waits
    /// forever.
    pub fn take(&self, limit: Option<Duration>) -> Result<Vec<Happened>, Errno> {
        let empty = KEvent::new(0, EventFilter::EVFILT_USER, EvFlags::empty(), FilterFlag::empty(), 0, 0);
        let mut events = [empty; BATCH];
        let limit = limit.map(|limit| libc::timespec {
            tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let count = match self.0.kevent(&[], &mut events, limit) {
            Err(Errno::EINTR) => 0,
            result => result?,
        };
        Ok(events[..count].iter().flat_map(happened).collect())
    }
}

fn happened(event: &KEvent) -> impl Iterator<Item = Happened> + use<> {
    let what = i32::try_from(event.ident()).unwrap_or(0);
    let (filter, notes) = (event.filter().ok(), event.fflags());
    let is_process = filter == Some(EventFilter::EVFILT_PROC);
    let forked = is_process && notes.contains(FilterFlag::NOTE_FORK);
    let exited = is_process && notes.contains(FilterFlag::NOTE_EXIT);
    let signal = filter == Some(EventFilter::EVFILT_SIGNAL);
    [
        forked.then_some(Happened::Forked(what)),
        exited.then_some(Happened::Exited(what)),
        signal.then_some(Happened::Signal(what)),
    ]
    .into_iter()
    .flatten()
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Queue> for OwnedFd {
    fn from(queue: Queue) -> Self {
        queue.0.into()
    }
}
