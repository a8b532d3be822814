//! The command's file descriptors, both ends, and its working directory.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, OFlag, fcntl, open};
use nix::sys::socket::{Shutdown, shutdown};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{AccessFlags, faccessat};

use crate::keeper::channel;
use crate::keeper::protocol::{MAX_FDS, Slot};
use crate::pty::{Pair, Relay};
use crate::spawn::{Launch, LaunchError, Stdio, StreamId, Streams, TerminalSettings};

/// Flag to open a directory only to enter it, which needs no read permission.
#[cfg(target_os = "linux")]
const ENTER_ONLY: OFlag = OFlag::O_PATH;
#[cfg(target_os = "macos")]
const ENTER_ONLY: OFlag = OFlag::from_bits_retain(nix::libc::O_SEARCH);

/// Most commands have a socket for each of stdin, stdout and stderr.
const SPARE_STREAMS: usize = 3;

/// Socket pairs created before a run needs them. Creating one takes microseconds, but on the
/// caller's thread; the native thread has time.
///
/// They are close-on-exec. A process that forks from the bot without `exec` gets copies, as of all
/// other descriptors of the bot. Such a copy can hold a stream open after its run; [`end_stream`]
/// ends that stream.
#[derive(Debug, Default)]
pub struct SpareStreams(Mutex<Vec<(OwnedFd, OwnedFd)>>);

impl SpareStreams {
    /// A spare pair, or a new one.
    fn take(&self) -> Result<(OwnedFd, OwnedFd), Errno> {
        let spare = self.spares().pop();
        spare.map_or_else(channel::stream_pair, Ok)
    }

    /// Creates the pairs for the next command. Without free file descriptors it creates none.
    pub fn restock(&self) {
        while self.spares().len() < SPARE_STREAMS {
            // Create the pair without the lock: the caller's thread may need it.
            let Ok(pair) = channel::stream_pair() else { return };
            self.spares().push(pair);
        }
    }

    pub fn clear(&self) {
        self.spares().clear();
    }

    fn spares(&self) -> MutexGuard<'_, Vec<(OwnedFd, OwnedFd)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The command's file descriptors, both ends.
pub struct StdioSetup {
    /// The command's working directory. `None`: the directory of the exec stub.
    pub directory: Option<OwnedFd>,
    pub slots: Vec<Slot>,
    pub sent: Vec<RawFd>,
    pub streams: Streams,
    /// Our copies of the command's ends of the streams.
    pub theirs: Vec<OwnedFd>,
    /// Copies bytes between the terminal and the streams, if the run has a terminal.
    pub relay: Option<Relay>,
}

impl StdioSetup {
    pub fn new(launch: &Launch, spares: &SpareStreams) -> Result<Self, LaunchError> {
        let mut setup = match &launch.options.terminal {
            Some(terminal) => Self::with_terminal(terminal, &launch.stdio, spares)?,
            None => Self::with_pipes(&launch.stdio, spares)?,
        };
        if setup.sent.len() >= MAX_FDS {
            return Err(LaunchError::TooManyDescriptors);
        }
        // Last, because Node returns streams even if the directory does not exist.
        match open_directory(launch.options.cwd.as_deref()) {
            Ok(directory) => setup.directory = directory,
            // Without free file descriptors Node returns no streams either.
            Err(errno @ (Errno::EMFILE | Errno::ENFILE)) => return Err(LaunchError::refused(errno)),
            Err(errno) => return Err(LaunchError::Refused { errno, streams: setup.streams }),
        }
        setup.sent.splice(0..0, setup.directory.as_ref().map(AsRawFd::as_raw_fd));
        Ok(setup)
    }

    /// The terminal is the command's stdin, stdout and stderr. Our streams lead to the relay.
    fn with_terminal(
        terminal: &TerminalSettings,
        stdio: &[Stdio],
        spares: &SpareStreams,
    ) -> Result<Self, LaunchError> {
        let (mut streams, mut ends) = (Streams::new(), Vec::new());
        for source in stdio.iter().take(2) {
            let (stream, end) = if let Stdio::Fd(fd) = source {
                // A postponed run: its supervisor created this end, and closes it.
                (None, duplicate(*fd).map_err(LaunchError::refused)?)
            } else {
                let (ours, theirs) = spares.take().map_err(LaunchError::refused)?;
                (Some(ours), theirs)
            };
            streams.push(stream);
            ends.push(end);
        }
        // No stderr: a terminal does not separate output and errors.
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

    fn with_pipes(stdio: &[Stdio], spares: &SpareStreams) -> Result<Self, LaunchError> {
        let mut sent = Vec::with_capacity(stdio.len() + 1);
        let mut theirs = Vec::with_capacity(stdio.len());
        let mut streams = Vec::with_capacity(stdio.len());
        let mut slots = Vec::with_capacity(stdio.len());
        for source in stdio {
            let (slot, stream) = match source {
                Stdio::Closed => (Slot::Closed, None),
                Stdio::Null => (Slot::Null, None),
                // Only Windows has handles.
                Stdio::Handle(_) => return Err(LaunchError::refused(Errno::EBADF)),
                Stdio::Fd(fd) => {
                    sent.push(*fd);
                    (Slot::Sent, None)
                }
                Stdio::Pipe => {
                    let (our_end, their_end) = spares.take().map_err(LaunchError::refused)?;
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

/// Opens the command's working directory. The checks are those of the command's own `chdir`, so a
/// wrong directory fails before anything is started.
///
/// A bot that has dropped its privileges may be in a directory that it cannot enter now. Its zygote
/// was started after that, so zygote and exec stub are in the same directory: `None`.
fn open_directory(cwd: Option<&str>) -> Result<Option<OwnedFd>, Errno> {
    let flags = ENTER_ONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
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

/// The socket that a descriptor refers to. `None` if the descriptor is not open.
///
/// JavaScript holds our streams, and can close one or pass it to another process at any time. Then
/// the kernel gives the same descriptor to the bot's next socket. So a descriptor identifies a
/// stream only together with this value.
pub fn stream_id(fd: RawFd) -> Option<StreamId> {
    // SAFETY: borrowed for this one call, which fails if the descriptor is not open.
    let stat = fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    Some(StreamId { device: i128::from(stat.st_dev), inode: stat.st_ino })
}

/// Ends the readable side of a stream whose tree is extinct. The bot still reads what was written,
/// and then end of file, even if a process outside the tree has a copy of the other side.
///
/// Does nothing and returns false if `fd` refers to another socket than `expected`. The check and
/// the shutdown use a duplicate, because between them another thread can close `fd` and open
/// another file. The duplicate still refers to what was checked.
pub fn end_stream(fd: RawFd, expected: StreamId) -> Result<bool, Errno> {
    if stream_id(fd) != Some(expected) {
        return Ok(false);
    }
    let copy = match duplicate(fd) {
        Ok(copy) => copy,
        // No free file descriptor for a duplicate. Only this thread closes Node's streams, so `fd`
        // cannot change between check and shutdown.
        Err(Errno::EMFILE | Errno::ENFILE) => return shutdown(fd, Shutdown::Read).map(|()| true),
        Err(errno) => return Err(errno),
    };
    if stream_id(copy.as_raw_fd()) != Some(expected) {
        return Ok(false);
    }
    shutdown(copy.as_raw_fd(), Shutdown::Read).map(|()| true)
}

/// Both ends of a new stream: ours and the command's. It is bidirectional, whatever its index.
pub fn stream_pair(_index: usize) -> Result<(OwnedFd, OwnedFd), Errno> {
    channel::stream_pair()
}

/// The descriptor of a stream.
pub fn raw_stream(stream: &OwnedFd) -> i32 {
    stream.as_raw_fd()
}

/// Gives the descriptor to the caller, who owns it from now on.
#[allow(clippy::unnecessary_wraps)] // On Windows it can fail.
pub fn hand_out(stream: OwnedFd) -> Result<i32, Errno> {
    Ok(stream.into_raw_fd())
}

/// A close-on-exec duplicate of the caller's descriptor.
pub fn duplicate(fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: borrowed for this one call, which fails if the descriptor is not open.
    let copy = fcntl(unsafe { BorrowedFd::borrow_raw(fd) }, FcntlArg::F_DUPFD_CLOEXEC(3))?;
    // SAFETY: fcntl just returned this descriptor to us.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_stream_ends_the_stream_and_not_another_one_with_the_same_descriptor() {
        use std::io::{ErrorKind, Read, Write};
        use std::os::unix::net::UnixStream;

        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let fd = ours.as_raw_fd();
        let id = stream_id(fd).unwrap();
        let (mut other_end, other) = UnixStream::pair().unwrap();
        other.set_nonblocking(true).unwrap();
        // Another stream gets the descriptor, as after the bot has closed ours.
        // SAFETY: `ours` is replaced by a copy of `other`; both stay open.
        assert_eq!(unsafe { nix::libc::dup2(other.as_raw_fd(), fd) }, fd);
        assert_eq!(end_stream(fd, id), Ok(false));
        assert_eq!((&other).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        other_end.write_all(b"x").unwrap();
        assert_eq!((&other).read(&mut [0]).unwrap(), 1);
        // Our stream is closed, so a write to its other side fails.
        assert_eq!(theirs.write_all(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        let id = stream_id(fd).unwrap();
        assert_eq!(end_stream(fd, id), Ok(true));
        assert_eq!((&other).read(&mut [0]).unwrap(), 0, "the end of the stream");
        drop(ours);
        assert_eq!(end_stream(fd, id), Ok(false), "a closed descriptor");
    }

    #[test]
    fn each_spare_stream_is_taken_once_and_a_new_one_replaces_a_missing_one() {
        let spares = SpareStreams::default();
        spares.restock();
        spares.restock();
        assert_eq!(spares.spares().len(), SPARE_STREAMS);
        let taken: Vec<_> = (0..=SPARE_STREAMS).map(|_| spares.take().unwrap()).collect();
        let mut fds: Vec<_> =
            taken.iter().flat_map(|(ours, theirs)| [ours.as_raw_fd(), theirs.as_raw_fd()]).collect();
        fds.sort_unstable();
        fds.dedup();
        assert_eq!(fds.len(), 2 * taken.len());
        assert!(spares.spares().is_empty());
    }
}
