//! Bytes and descriptors over a Unix socket.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recv, recvmsg, send,
    sendmsg, socketpair,
};

use super::protocol::MAX_FDS;

/// A new stream socket, both ends close-on-exec.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
}

/// A new socket that keeps messages apart, both ends close-on-exec.
pub fn message_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// Sends everything, the descriptors with the first byte. Never raises SIGPIPE.
pub fn send_all(socket: &impl AsFd, bytes: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
    let socket = socket.as_fd().as_raw_fd();
    let mut sent = 0;
    while sent < bytes.len() {
        let rest = &bytes[sent..];
        let result = if sent == 0 && !fds.is_empty() {
            let rights = [ControlMessage::ScmRights(fds)];
            sendmsg::<()>(socket, &[IoSlice::new(rest)], &rights, MsgFlags::MSG_NOSIGNAL, None)
        } else {
            send(socket, rest, MsgFlags::MSG_NOSIGNAL)
        };
        match result {
            Ok(count) => sent += count,
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives what is there, or waits for it: at most `buffer`, and the descriptors that came along, close-on-exec. 0 bytes:
/// the end.
pub fn receive(socket: &impl AsFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize, Errno> {
    receive_message(socket, buffer, fds, MsgFlags::empty())
}

/// Like [`receive`], but waits no longer than `limit` (`ETIMEDOUT`). What is there already costs no wait at all.
pub fn receive_within(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    limit: Duration,
) -> Result<usize, Errno> {
    loop {
        match receive_message(socket, buffer, fds, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN) if readable(socket, limit)? => {}
            Err(Errno::EAGAIN) => return Err(Errno::ETIMEDOUT),
            result => return result,
        }
    }
}

fn receive_message(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    flags: MsgFlags,
) -> Result<usize, Errno> {
    let mut space = nix::cmsg_space!([RawFd; MAX_FDS]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = loop {
        match recvmsg::<()>(socket.as_fd().as_raw_fd(), &mut parts, Some(&mut space), flags) {
            Err(Errno::EINTR) => {}
            result => break result?,
        }
    };
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just installed these descriptors for us, and nobody else knows them.
            fds.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok(message.bytes)
}

/// Receives what is there without waiting (`EAGAIN`), dropping descriptors that may have come along.
pub fn receive_now(socket: &impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    recv(socket.as_fd().as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)
}

/// Waits until there is something to receive (the end counts), at most `limit`. `false` if there is not.
fn readable(socket: &impl AsFd, limit: Duration) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    loop {
        match poll(&mut fds, timeout) {
            // A signal for the bot; at worst the wait starts over.
            Err(Errno::EINTR) => {}
            result => return result.map(|ready| ready > 0),
        }
    }
}

/// Whether nobody holds the other end any more. There may still be something to receive.
pub fn has_hung_up(socket: &impl AsFd) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO)?;
    Ok(fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)))
}
