//! Visiting the bot that holds a run: the other end of [`super::door`].

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::ERROR_PIPE_BUSY;
use windows_sys::Win32::Storage::FileSystem::SECURITY_IDENTIFICATION;
use windows_sys::Win32::System::Pipes::{GetNamedPipeServerProcessId, PeekNamedPipe};

use super::door;
use crate::errno::Errno;
use crate::identity::{ProcessRef, State};
use crate::keeper::protocol::{self, End, Inbox, Report, Request};
use crate::run::ExitStatus;

/// A bot answers at once, unless somebody has stopped it.
const LIMIT: Duration = Duration::from_secs(2);

/// How often we look whether it has said something. A pipe that is read by waiting cannot be waited for with a limit.
const LOOK_EVERY: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub struct Visit {
    pipe: File,
    inbox: Inbox,
}

impl Visit {
    /// Goes to the bot that holds this root. `ESRCH` if it is dead or does not, `EPERM` if somebody else answers. That it cannot be seen
    /// which is no proof of its death, and another error.
    ///
    /// Anybody may make a pipe of a name whose bot is gone. So whoever answers must be the recorded process: the system tells its
    /// PID, and as long as it has the pipe open and lives, its start token is that of the record or it is not.
    pub fn start(keeper: &ProcessRef, address: &str, root: &ProcessRef) -> Result<Self, Errno> {
        let or = |dead| match keeper.state() {
            State::Alive => Ok(()),
            State::Exited | State::Recycled => Err(dead),
            // Should it be seen by now, the next visit is going to find out.
            State::Unknown => Err(keeper.pinned().err().unwrap_or(Errno::EAGAIN)),
        };
        or(Errno::ESRCH)?;
        // A file can name any place, and to go there may tell whoever sits there who we are.
        if !address.starts_with(&door::prefix(keeper.pid, keeper.start))
            || address[4..].contains(['/', '.', ':'])
        {
            return Err(Errno::EPERM);
        }
        let pipe = connect(address, Instant::now() + LIMIT)?;
        let mut server = 0;
        // SAFETY: the pipe is open, and the pointer is to a local.
        let known = unsafe { GetNamedPipeServerProcessId(pipe.as_raw_handle(), &raw mut server) };
        or(Errno::EPERM)?;
        if known == 0 || server.cast_signed() != keeper.pid {
            return Err(Errno::EPERM);
        }
        let mut visit = Self { pipe, inbox: Inbox::default() };
        visit.ask(&Request::Visit { key: &root.to_string() })?;
        match visit.next(Instant::now() + LIMIT) {
            Ok(Report::Ready { root: theirs, .. })
                if (theirs.pid, theirs.start) == (root.pid, root.start) =>
            {
                Ok(visit)
            }
            Ok(_) => Err(Errno::EPERM),
            // It does not know that run.
            Err(Errno::ECONNRESET) => Err(Errno::ESRCH),
            Err(Errno::ETIMEDOUT) => Err(Errno::EAGAIN),
            Err(errno) => Err(errno),
        }
    }

    pub fn ask(&mut self, request: &Request) -> Result<(), Errno> {
        let frame = protocol::encode(request).map_err(|_| Errno::EINVAL)?;
        // A few bytes, which always fit.
        self.pipe.write_all(&frame).map_err(|error| gone(&error))
    }

    /// Waits for the end of the tree, and of its root. `ECONNRESET` if the bot dies first.
    pub fn wait(mut self, give_up_at: Instant) -> Result<(Option<ExitStatus>, End), Errno> {
        protocol::last_word(|| self.next(give_up_at))
    }

    fn next(&mut self, give_up_at: Instant) -> Result<Report, Errno> {
        let mut buffer = [0; 1024];
        loop {
            if let Some(payload) = self.inbox.next_payload().map_err(|_| Errno::EPROTO)? {
                return protocol::decode(&payload).map_err(|_| Errno::EPROTO);
            }
            if self.waiting()? > 0 {
                match self.pipe.read(&mut buffer).map_err(|error| gone(&error))? {
                    0 => return Err(Errno::ECONNRESET),
                    count => self.inbox.push(&buffer[..count]),
                }
            } else if Instant::now() >= give_up_at {
                return Err(Errno::ETIMEDOUT);
            } else {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    /// How many bytes can be read without waiting.
    fn waiting(&self) -> Result<u32, Errno> {
        let (none, mut bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: the pipe is open, nothing is copied, and the pointer is to a local.
        let known = unsafe {
            PeekNamedPipe(
                self.pipe.as_raw_handle(),
                none,
                0,
                std::ptr::null_mut(),
                &raw mut bytes,
                std::ptr::null_mut(),
            )
        };
        if known == 0 { Err(gone(&io::Error::last_os_error())) } else { Ok(bytes) }
    }
}

/// Somebody else may be at the door; then there is another one in a moment.
fn connect(address: &str, give_up_at: Instant) -> Result<File, Errno> {
    loop {
        match OpenOptions::new()
            .read(true)
            .write(true)
            .security_qos_flags(SECURITY_IDENTIFICATION)
            .open(address)
        {
            Err(error)
                if error.raw_os_error() == Some(ERROR_PIPE_BUSY.cast_signed())
                    && Instant::now() < give_up_at =>
            {
                std::thread::sleep(LOOK_EVERY);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Errno::ECONNREFUSED),
            opened => return opened.map_err(|error| Errno::of(&error)),
        }
    }
}

fn gone(error: &io::Error) -> Errno {
    match Errno::of(error) {
        Errno::EPIPE => Errno::ECONNRESET,
        errno => errno,
    }
}
