//! Bytes and descriptors over a Unix socket.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recv, recvmsg, send, sendmsg};

use super::protocol::MAX_FDS;

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

/// Receives what is there, at most `buffer`, and the descriptors that came along, close-on-exec. 0 bytes: the end.
pub fn receive(socket: &impl AsFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize, Errno> {
    let mut space = nix::cmsg_space!([RawFd; MAX_FDS]);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = loop {
        match recvmsg::<()>(
            socket.as_fd().as_raw_fd(),
            &mut parts,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        ) {
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
pub fn readable(socket: &impl AsFd, limit: Duration) -> Result<bool, Errno> {
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
