//! Getting a descriptor from a helper process: how the bot's side of an IPC channel is made (see `ts/ipc.ts`).

use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use crate::keeper::channel;

const LIMIT: Duration = Duration::from_secs(10);

/// Two ends of a socket: ours, and the helper's standard input.
pub fn open() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// Waits for the helper to send its descriptor over.
pub fn receive(ours: &OwnedFd) -> Result<OwnedFd, Errno> {
    if !channel::readable(ours, LIMIT)? {
        return Err(Errno::ETIMEDOUT);
    }
    let mut fds = Vec::new();
    channel::receive(ours, &mut [0], &mut fds)?;
    fds.pop().ok_or(Errno::ECONNRESET)
}
