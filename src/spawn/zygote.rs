//! Processes of the keeper's executable: the zygote that forks keepers, or a keeper of its own.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::LaunchError;
use super::inherited::Inherited;
use super::runtime;
use crate::contain::cookie;
use crate::keeper::{HELLO, KEEP, TITLE_ROOM, ZYGOTE, channel};

/// A loaded machine may take its time to run a small program, but not for ever.
const HELLO_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Zygote {
    socket: OwnedFd,
    process: Option<Child>,
    /// As it was when the zygote was started.
    pub inherited: Inherited,
}

impl Zygote {
    pub fn start(executable: &Path, inherited: Inherited) -> Result<Self, LaunchError> {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .map_err(LaunchError::Refused)?;
        let process = execute(executable, ZYGOTE, theirs)?;
        let zygote = Self { socket: ours, process: Some(process), inherited };
        zygote.hello().map_err(|why| LaunchError::KeeperBroken { path: executable.to_owned(), why })?;
        Ok(zygote)
    }

    /// Asks for a keeper that serves `control`.
    pub fn fork_keeper(&self, control: &OwnedFd) -> Result<(), Errno> {
        channel::send_all(&self.socket, b"k", &[control.as_raw_fd()])
    }

    fn hello(&self) -> Result<(), String> {
        if !channel::readable(&self.socket, HELLO_LIMIT).map_err(|errno| errno.to_string())? {
            return Err(format!("it said nothing for {} s", HELLO_LIMIT.as_secs()));
        }
        let mut hello = [0; HELLO.len()];
        match channel::receive(&self.socket, &mut hello, &mut Vec::new()) {
            Ok(0) => Err("it ended at once".into()),
            Ok(_) if hello == HELLO => Ok(()),
            Ok(_) => Err("it speaks another version of the protocol".into()),
            Err(errno) => Err(errno.to_string()),
        }
    }
}

impl Drop for Zygote {
    /// Its socket closes, so it ends; its keepers go on. Waiting for it is for somebody who has time.
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // SIGKILL is safe: our own child, not waited for. It has nothing to clean up, and it may be stopped.
            let _ = process.kill();
            reap(process);
        }
    }
}

/// Runs the keeper's executable with `socket` as its standard input. Posix_spawn underneath: the bot does not fork.
///
/// It gets none of the bot's environment but the cookie, so that a bot that is itself an owned run takes its keepers
/// along when it is ended from outside.
pub fn execute(executable: &Path, role: &str, socket: OwnedFd) -> Result<Child, LaunchError> {
    let mut command = Command::new(executable);
    command.arg(role).arg(" ".repeat(TITLE_ROOM)).env_clear();
    if let Some(outer) = std::env::var_os(cookie::VARIABLE) {
        command.env(cookie::VARIABLE, outer);
    }
    command.stdin(Stdio::from(socket)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        match errno {
            Errno::EAGAIN | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => LaunchError::Refused(errno),
            errno => LaunchError::KeeperUnavailable { path: executable.to_owned(), errno },
        }
    })
}

/// A keeper with a process of its own, not forked by a zygote. Kept for measuring one against the other.
pub fn start_cold(executable: &Path, control: OwnedFd) -> Result<Child, LaunchError> {
    execute(executable, KEEP, control)
}

/// Waits for a child of ours by its own number, on a thread that may block.
pub fn reap(mut process: Child) {
    if let Ok(runtime) = runtime::handle() {
        runtime.spawn_blocking(move || process.wait());
    }
}
