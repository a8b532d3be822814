//! The command's descriptors, both ends, and its working directory.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, OFlag, fcntl, open};
use nix::sys::socket::{Shutdown, shutdown};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, faccessat};

use super::{Launch, LaunchError, Stdio, Streams, TerminalSettings};
use crate::keeper::channel;
use crate::keeper::protocol::{MAX_FDS, Slot};
use crate::pty::{Pair, Relay};

/// To enter a directory one need not be allowed to read it.
#[cfg(target_os = "linux")]
const TO_ENTER: OFlag = OFlag::O_PATH;
#[cfg(target_os = "macos")]
const TO_ENTER: OFlag = OFlag::from_bits_retain(nix::libc::O_SEARCH);

/// What most commands have: a socket for each of stdin, stdout and stderr.
const STREAMS_AHEAD: usize = 3;

/// Streams that nobody has yet. A socket is made in microseconds, but those are the caller's; the native thread has time.
///
/// They are close-on-exec like all of ours. Who forks without executing anything gets copies, as of everything else the bot has open; what
/// that keeps from ending is ended with its run ([`end_stream`]).
#[derive(Debug, Default)]
pub struct StreamsAhead(Mutex<Vec<(OwnedFd, OwnedFd)>>);

impl StreamsAhead {
    /// One that waits, or a new one.
    fn take(&self) -> Result<(OwnedFd, OwnedFd), Errno> {
        let waiting = self.waiting().pop();
        waiting.map_or_else(channel::stream_pair, Ok)
    }

    /// As many as the next command is going to want. Without descriptors to spare there are none.
    pub fn restock(&self) {
        while self.waiting().len() < STREAMS_AHEAD {
            // Not while they are locked: the caller's thread may want one.
            let Ok(pair) = channel::stream_pair() else { return };
            self.waiting().push(pair);
        }
    }

    pub fn clear(&self) {
        self.waiting().clear();
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(OwnedFd, OwnedFd)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The command's descriptors, both ends.
pub struct Plumbing {
    /// The command's working directory; `None` to leave it where its blank is.
    pub directory: Option<OwnedFd>,
    pub slots: Vec<Slot>,
    pub sent: Vec<RawFd>,
    pub streams: Streams,
    /// Our copies of the command's ends of the streams.
    pub theirs: Vec<OwnedFd>,
    /// Between its terminal and the streams, if it has one.
    pub relay: Option<Relay>,
}

impl Plumbing {
    pub fn lay(launch: &Launch, ahead: &StreamsAhead) -> Result<Self, LaunchError> {
        let mut plumbing = match &launch.terminal {
            Some(terminal) => Self::with_terminal(terminal, &launch.stdio, ahead)?,
            None => Self::with_pipes(&launch.stdio, ahead)?,
        };
        if plumbing.sent.len() >= MAX_FDS {
            return Err(LaunchError::TooManyDescriptors);
        }
        // Last, because Node's callers get streams also for a directory that is not there.
        match open_directory(launch.cwd.as_deref()) {
            Ok(directory) => plumbing.directory = directory,
            Err(errno) => return Err(LaunchError::Refused { errno, streams: plumbing.streams }),
        }
        plumbing.sent.splice(0..0, plumbing.directory.as_ref().map(AsRawFd::as_raw_fd));
        Ok(plumbing)
    }

    /// The terminal is the command's 0, 1 and 2; our streams lead to its relay.
    fn with_terminal(
        terminal: &TerminalSettings,
        stdio: &[Stdio],
        ahead: &StreamsAhead,
    ) -> Result<Self, LaunchError> {
        let (mut streams, mut ends) = (Streams::new(), Vec::new());
        for source in stdio.iter().take(2) {
            let (stream, end) = if let Stdio::Fd(fd) = source {
                // Made when the run was postponed, and closed by whoever has made it.
                (None, duplicate(*fd).map_err(LaunchError::refused)?)
            } else {
                let (ours, theirs) = ahead.take().map_err(LaunchError::refused)?;
                (Some(ours), theirs)
            };
            streams.push(stream);
            ends.push(end);
        }
        // There is no third one: to a terminal, output and errors are the same.
        streams.push(None);
        let (Some(output), Some(input)) = (ends.pop(), ends.pop()) else {
            return Err(LaunchError::refused(Errno::EINVAL));
        };
        let pair = Pair::open(terminal.size).map_err(|errno| match errno {
            Errno::EMFILE | Errno::ENFILE => LaunchError::refused(errno),
            errno => LaunchError::NoTerminal(errno),
        })?;
        channel::tame(&output);
        let sent = vec![pair.slave().as_raw_fd(); 3];
        let relay = Some(Relay { pair, input, output });
        Ok(Self { directory: None, slots: vec![Slot::Sent; 3], sent, streams, theirs: Vec::new(), relay })
    }

    fn with_pipes(stdio: &[Stdio], ahead: &StreamsAhead) -> Result<Self, LaunchError> {
        let mut sent = Vec::with_capacity(stdio.len() + 1);
        let mut theirs = Vec::with_capacity(stdio.len());
        let mut streams = Vec::with_capacity(stdio.len());
        let mut slots = Vec::with_capacity(stdio.len());
        for source in stdio {
            let (slot, stream) = match source {
                Stdio::Closed => (Slot::Closed, None),
                Stdio::Null => (Slot::Null, None),
                Stdio::Fd(fd) => {
                    sent.push(*fd);
                    (Slot::Sent, None)
                }
                Stdio::Pipe => {
                    let (our_end, their_end) = ahead.take().map_err(LaunchError::refused)?;
                    sent.push(their_end.as_raw_fd());
                    theirs.push(their_end);
                    (Slot::Sent, Some(our_end))
                }
            };
            slots.push(slot);
            streams.push(stream);
        }
        Ok(Self { directory: None, slots, sent, streams, theirs, relay: None })
    }
}

/// The command's working directory, checked as its own `chdir` would: a wrong one is known before anything is started.
///
/// A bot that has dropped its privileges may be in a directory that it could not enter now. Then its zygote, which was
/// started after that, is in the same one, and so is the blank: it need not go anywhere.
fn open_directory(cwd: Option<&str>) -> Result<Option<OwnedFd>, Errno> {
    let flags = TO_ENTER | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let Some(path) = cwd else {
        return match open(".", flags, Mode::empty()) {
            Err(Errno::EACCES) => Ok(None),
            directory => directory.map(Some),
        };
    };
    let directory = open(path, flags, Mode::empty())?;
    faccessat(&directory, ".", AccessFlags::X_OK, AtFlags::AT_EACCESS)?;
    Ok(Some(directory))
}

/// Ends a stream of a run whose tree is extinct: what was written is still read, then comes the end, whoever else
/// may hold the other side (a process that is none of ours can have got a copy).
///
/// `fd` must be a stream of the caller's that is still open.
pub fn end_stream(fd: RawFd) -> Result<(), Errno> {
    shutdown(fd, Shutdown::Read)
}

/// Two ends of a new stream: ours, and the command's. It goes both ways, whichever descriptor of the command it is for.
pub fn stream_pair(_index: usize) -> Result<(OwnedFd, OwnedFd), Errno> {
    channel::stream_pair()
}

/// What names a stream.
pub fn number(stream: &OwnedFd) -> i32 {
    stream.as_raw_fd()
}

/// A descriptor that is the caller's from here on.
#[allow(clippy::unnecessary_wraps)] // Elsewhere there may be no more to be had.
pub fn hand_out(stream: OwnedFd) -> Result<i32, Errno> {
    Ok(stream.into_raw_fd())
}

/// Another descriptor for what the caller has open under this number, close-on-exec.
pub fn duplicate(fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: borrowed for this one call, which fails if the number means nothing.
    let copy = fcntl(unsafe { BorrowedFd::borrow_raw(fd) }, FcntlArg::F_DUPFD_CLOEXEC(3))?;
    // SAFETY: fcntl just returned this descriptor to us.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_made_ahead_each_is_given_once_and_there_is_always_another() {
        let ahead = StreamsAhead::default();
        ahead.restock();
        ahead.restock();
        assert_eq!(ahead.waiting().len(), STREAMS_AHEAD);
        let taken: Vec<_> = (0..=STREAMS_AHEAD).map(|_| ahead.take().unwrap()).collect();
        let mut numbers: Vec<_> =
            taken.iter().flat_map(|(ours, theirs)| [ours.as_raw_fd(), theirs.as_raw_fd()]).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 2 * taken.len());
        assert!(ahead.waiting().is_empty());
    }
}
