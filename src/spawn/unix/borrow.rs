//! Receives a file descriptor from a helper process. This creates the bot's side of an IPC channel,
//! see `ts/run/ipc.ts`.

use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;

use super::bounded_wait;
use crate::keeper::channel;

/// How long a helper that is not stopped may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Both ends of a socket: ours, and the helper's standard input.
pub fn open() -> Result<(OwnedFd, OwnedFd), Errno> {
    channel::message_pair()
}

/// Waits until the helper with this PID sends its descriptor. The helper is our child. Its PID
/// stays valid meanwhile, because libuv reaps it on this thread.
#[allow(clippy::needless_pass_by_value)] // Dropping it closes our end.
pub fn receive(ours: OwnedFd, helper: u32) -> Result<OwnedFd, Errno> {
    let (mut fds, me) = (Vec::new(), std::process::id().cast_signed());
    let wake = || bounded_wait::wake_child(helper.cast_signed(), me);
    let receive = |slice| channel::receive_within(&ours, &mut [0], &mut fds, slice);
    bounded_wait::wait_for(LIMIT, wake, receive).map_err(|no_answer| match no_answer {
        bounded_wait::NoAnswer::Stopped => Errno::ETIMEDOUT,
        bounded_wait::NoAnswer::Errno(errno) => errno,
    })?;
    fds.pop().ok_or(Errno::ECONNRESET)
}
