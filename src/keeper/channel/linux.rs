//! Sockets on Linux: each call has flags for non-blocking mode, no SIGPIPE and close-on-exec.

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, socketpair};

/// `send` never raises SIGPIPE.
pub const NO_SIGPIPE: MsgFlags = MsgFlags::MSG_NOSIGNAL;
/// Received file descriptors are close-on-exec.
pub const CLOSE_ON_EXEC: MsgFlags = MsgFlags::MSG_CMSG_CLOEXEC;

/// A new pair of stream sockets for messages. Both are close-on-exec.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
}

/// A new pair of stream sockets. The command gets one of them as a standard stream.
pub fn stream_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    pair()
}

/// A new pair of sockets that preserve message boundaries. Both are close-on-exec.
pub fn message_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// No-op: on Linux, flags of each call select non-blocking mode and no SIGPIPE.
pub fn tame(_socket: &impl AsFd) {}

/// Sends one message with file descriptors.
pub fn send_message(socket: &impl AsFd, bytes: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
    super::send_all(socket, bytes, fds)
}

/// Like [`send_message`], but fails at once if the socket buffer is full (`ETIMEDOUT`).
pub fn send_message_now(socket: &impl AsFd, bytes: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
    super::send_within(socket, bytes, fds, Duration::ZERO)
}

/// Receives one message, and waits if there is none. Returns 0 at end of file.
pub fn receive_message(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    super::receive(socket, buffer, fds)
}

/// Like [`receive_message`], but waits at most `limit` (`ETIMEDOUT`).
pub fn receive_message_within(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    limit: Duration,
) -> Result<usize, Errno> {
    super::receive_within(socket, buffer, fds, limit)
}

/// No-op: [`CLOSE_ON_EXEC`] has already made them close-on-exec.
pub fn set_close_on_exec(_fds: &[OwnedFd]) {}

/// Returns `errno` unchanged. On macOS one errno has another meaning.
pub fn receive_error(errno: Errno) -> Errno {
    errno
}
