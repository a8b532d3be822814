//! Everything is asked for with the call that wants it.

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, socketpair};

/// Never raises SIGPIPE.
pub const QUIETLY: MsgFlags = MsgFlags::MSG_NOSIGNAL;
/// Of descriptors that are received.
pub const CLOSE_ON_EXEC: MsgFlags = MsgFlags::MSG_CMSG_CLOEXEC;

/// A new stream socket for a conversation, both ends close-on-exec.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
}

/// A new stream socket, of which one end is a command's.
pub fn stream_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    pair()
}

/// A new socket that keeps messages apart, both ends close-on-exec.
pub fn message_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// Makes a socket of ours never block and never raise SIGPIPE. Here that is asked for with each call.
pub fn tame(_socket: &impl AsFd) {}

/// Sends one message, the descriptors with it.
pub fn send_message(socket: &impl AsFd, bytes: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
    super::send_all(socket, bytes, fds)
}

/// Receives one message, or waits for it. 0 bytes: the end.
pub fn receive_message(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    super::receive(socket, buffer, fds)
}

/// Like [`receive_message`], but waits no longer than `limit` (`ETIMEDOUT`).
pub fn receive_message_within(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    limit: Duration,
) -> Result<usize, Errno> {
    super::receive_within(socket, buffer, fds, limit)
}

/// They are close-on-exec already.
pub fn received(_fds: &[OwnedFd]) {}

pub fn told(errno: Errno) -> Errno {
    errno
}
