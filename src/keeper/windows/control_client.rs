//! A client of a bot's control pipe, for processes other than the run's owner. The server is
//! `control_pipe`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::ERROR_PIPE_BUSY;
use windows_sys::Win32::Storage::FileSystem::SECURITY_IDENTIFICATION;
use windows_sys::Win32::System::Pipes::{GetNamedPipeServerProcessId, PeekNamedPipe};

use super::control_pipe;
use crate::errno::Errno;
use crate::identity::ProcessRef;
use crate::keeper::protocol::{self, Inbox, Report, Request};
use crate::run::Ended;

/// Timeout for an answer. A bot answers at once, unless it is suspended.
const LIMIT: Duration = Duration::from_secs(2);

/// Interval at which the client polls the pipe. A blocking read of a pipe has no timeout.
const POLL_EVERY: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub struct ControlClient {
    pipe: File,
    inbox: Inbox,
}

impl ControlClient {
    /// Connects to the bot that is the keeper of `root`, and verifies it.
    ///
    /// After a bot's death, another process can create a pipe of the same name. So the server must
    /// be the recorded process: Windows reports the server's PID, and the process with that PID
    /// must have the recorded start token. The bot's state is checked after that: if the bot is
    /// alive then, its PID has not been recycled before. The server must also name the recorded
    /// root.
    ///
    /// Errors: `ESRCH` if the bot is dead or does not have the run; `EPERM` if another process
    /// answers; another error if the bot's state is unknown, which does not prove its death.
    pub fn start(keeper: &ProcessRef, address: &str, root: &ProcessRef) -> Result<Self, Errno> {
        keeper.check_alive(Errno::ESRCH)?;
        // A registry file can contain any path. A connection to another server could reveal this
        // user's identity to it.
        if !address.starts_with(&control_pipe::prefix(keeper.pid, keeper.start))
            || address[4..].contains(['/', '.', ':'])
        {
            return Err(Errno::EPERM);
        }
        let pipe = connect(address, Instant::now() + LIMIT)?;
        let mut server = 0;
        // SAFETY: the pipe is open, and the pointer points to a local variable.
        let succeeded = unsafe { GetNamedPipeServerProcessId(pipe.as_raw_handle(), &raw mut server) };
        keeper.check_alive(Errno::EPERM)?;
        if succeeded == 0 || server.cast_signed() != keeper.pid {
            return Err(Errno::EPERM);
        }
        let mut client = Self { pipe, inbox: Inbox::default() };
        client.ask(&Request::ControlClient { key: &root.to_string() })?;
        match client.next(Instant::now() + LIMIT) {
            Ok(Report::Ready { root: theirs, .. })
                if (theirs.pid, theirs.start) == (root.pid, root.start) =>
            {
                Ok(client)
            }
            Ok(_) => Err(Errno::EPERM),
            // The bot does not have that run.
            Err(Errno::ECONNRESET) => Err(Errno::ESRCH),
            Err(Errno::ETIMEDOUT) => Err(Errno::EAGAIN),
            Err(errno) => Err(errno),
        }
    }

    pub fn ask(&mut self, request: &Request) -> Result<(), Errno> {
        let frame = protocol::encode(request).map_err(|_| Errno::EINVAL)?;
        // This does not block: a request of a few bytes always fits into the pipe's buffer.
        self.pipe.write_all(&frame).map_err(|error| pipe_error(&error))
    }

    /// Waits until the tree is extinct. Returns its end.
    /// `ECONNRESET` if the bot dies first.
    pub fn wait(mut self, give_up_at: Instant) -> Result<Ended, Errno> {
        protocol::read_until_extinct(|| self.next(give_up_at))
    }

    fn next(&mut self, give_up_at: Instant) -> Result<Report, Errno> {
        let mut buffer = [0; 1024];
        loop {
            if let Some(payload) = self.inbox.next_payload().map_err(|_| Errno::EPROTO)? {
                return protocol::decode(&payload).map_err(|_| Errno::EPROTO);
            }
            if self.available()? > 0 {
                match self.pipe.read(&mut buffer).map_err(|error| pipe_error(&error))? {
                    0 => return Err(Errno::ECONNRESET),
                    count => self.inbox.push(&buffer[..count]),
                }
            } else if Instant::now() >= give_up_at {
                return Err(Errno::ETIMEDOUT);
            } else {
                std::thread::sleep(POLL_EVERY);
            }
        }
    }

    /// How many bytes can be read without waiting.
    fn available(&self) -> Result<u32, Errno> {
        let (none, mut bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: the pipe is open. The call copies nothing, and the pointer points to a local
        // variable.
        let succeeded = unsafe {
            PeekNamedPipe(
                self.pipe.as_raw_handle(),
                none,
                0,
                std::ptr::null_mut(),
                &raw mut bytes,
                std::ptr::null_mut(),
            )
        };
        if succeeded == 0 { Err(pipe_error(&io::Error::last_os_error())) } else { Ok(bytes) }
    }
}

/// Opens the pipe. If another client has just taken its free instance, retries until the bot has
/// created the next one.
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
                std::thread::sleep(POLL_EVERY);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Errno::ECONNREFUSED),
            opened => return opened.map_err(|error| Errno::of(&error)),
        }
    }
}

/// The errno for a failed call on the pipe; `ECONNRESET` if the server has closed it.
fn pipe_error(error: &io::Error) -> Errno {
    match Errno::of(error) {
        Errno::EPIPE => Errno::ECONNRESET,
        errno => errno,
    }
}
