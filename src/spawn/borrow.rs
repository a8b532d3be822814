//! Getting a descriptor from a helper process: how the bot's side of an IPC channel is made (see `ts/ipc.ts`).

use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;

use crate::keeper::channel;

const LIMIT: Duration = Duration::from_secs(10);

/// Two ends of a socket: ours, and the helper's standard input.
pub fn open() -> Result<(OwnedFd, OwnedFd), Errno> {
    channel::message_pair()
}

/// Waits for the helper, whoever it is, to send its descriptor over.
#[allow(clippy::needless_pass_by_value)] // That ends it.
pub fn receive(ours: OwnedFd, _helper: u32) -> Result<OwnedFd, Errno> {
    let mut fds = Vec::new();
    channel::receive_within(&ours, &mut [0], &mut fds, LIMIT)?;
    fds.pop().ok_or(Errno::ECONNRESET)
}
