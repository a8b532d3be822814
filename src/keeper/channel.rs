//! Sends and receives bytes and file descriptors over a Unix socket.
//!
//! `linux.rs` and `macos.rs` contain the differences. On Linux, flags of each call select
//! non-blocking mode, no SIGPIPE and close-on-exec; on macOS these are properties of a socket.
//! Only Linux has suitable sockets that preserve message boundaries.

#[cfg(target_os = "linux")]
#[path = "channel/linux.rs"]
mod system;
#[cfg(target_os = "macos")]
#[path = "channel/macos.rs"]
mod system;

#[cfg(target_os = "macos")]
pub use system::close_on_exec;
pub use system::{
    message_pair, pair, receive_message, receive_message_within, send_message, send_message_now, stream_pair,
    tame,
};

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, recv, send, sendmsg};

use super::protocol::MAX_FDS;

/// Space for one control message with the maximum number of file descriptors, in 64-bit words.
const CONTROL_SPACE: usize = (size_of::<libc::cmsghdr>() + MAX_FDS * size_of::<RawFd>()) / 8 + 2;

/// No timeout.
const FOREVER: Duration = Duration::MAX;

/// Sends all bytes, and the file descriptors with the first byte. Never raises SIGPIPE.
pub fn send_all(socket: &impl AsFd, bytes: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
    send_parts(socket, bytes, fds, MsgFlags::empty(), || ready(socket, PollFlags::POLLOUT, FOREVER).map(drop))
}

/// Like [`send_all`], but waits at most `limit` for space in the socket buffer (`ETIMEDOUT`).
pub fn send_within(socket: &impl AsFd, bytes: &[u8], fds: &[RawFd], limit: Duration) -> Result<(), Errno> {
    send_when_writable(socket, bytes, fds, || wait_for_room(socket, limit))
}

/// Like [`send_all`], but calls `wait_for_room` when the socket buffer is full. Returns its error
/// if it fails.
pub fn send_when_writable(
    socket: &impl AsFd,
    bytes: &[u8],
    fds: &[RawFd],
    wait_for_room: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    send_parts(socket, bytes, fds, MsgFlags::MSG_DONTWAIT, wait_for_room)
}

/// Waits at most `limit` until the socket is writable (`ETIMEDOUT`).
pub fn wait_for_room(socket: &impl AsFd, limit: Duration) -> Result<(), Errno> {
    if ready(socket, PollFlags::POLLOUT, limit)? { Ok(()) } else { Err(Errno::ETIMEDOUT) }
}

fn send_parts(
    socket: &impl AsFd,
    bytes: &[u8],
    fds: &[RawFd],
    flags: MsgFlags,
    wait_for_room: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let socket = socket.as_fd().as_raw_fd();
    let flags = flags | system::NO_SIGPIPE;
    let mut sent = 0;
    while sent < bytes.len() {
        let rest = &bytes[sent..];
        let result = if sent == 0 && !fds.is_empty() {
            let rights = [ControlMessage::ScmRights(fds)];
            sendmsg::<()>(socket, &[IoSlice::new(rest)], &rights, flags, None)
        } else {
            send(socket, rest, flags)
        };
        match result {
            Ok(count) => sent += count,
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => wait_for_room()?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives available bytes, and waits if there are none. Returns 0 at end of file.
///
/// It also receives the file descriptors that came with the bytes, and makes them close-on-exec.
///
/// It waits in `poll`, not in `recvmsg`. Linux wakes a process in `recvmsg` also when the peer has
/// only read what this process sent. The peer, a bot during a spawn, would pay for that wakeup.
pub fn receive(socket: &impl AsFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize, Errno> {
    loop {
        match receive_once(socket, buffer, fds, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN) => drop(ready(socket, PollFlags::POLLIN, FOREVER)?),
            result => return result,
        }
    }
}

/// Like [`receive`], but waits at most `limit` (`ETIMEDOUT`). It does not wait if bytes are
/// available.
pub fn receive_within(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    limit: Duration,
) -> Result<usize, Errno> {
    loop {
        match receive_once(socket, buffer, fds, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN) if ready(socket, PollFlags::POLLIN, limit)? => {}
            Err(Errno::EAGAIN) => return Err(Errno::ETIMEDOUT),
            result => return result,
        }
    }
}

/// Calls `recvmsg` once.
///
/// It does not use nix's `recvmsg`. If the process has too few free file descriptors, nix drops the
/// message and leaks the descriptors that did arrive. Here they are closed, and the error is
/// `EMFILE`.
fn receive_once(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    flags: MsgFlags,
) -> Result<usize, Errno> {
    let mut space = [0u64; CONTROL_SPACE];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a msghdr of all zeroes is valid.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = space.as_mut_ptr().cast();
    #[allow(clippy::cast_possible_truncation)] // The type differs between C libraries; 1 KiB fits all.
    {
        header.msg_controllen = size_of_val(&space) as _;
    }
    let flags = (flags | system::CLOSE_ON_EXEC).bits();
    let count = loop {
        // SAFETY: the header points to a buffer and a control space of the given lengths. Both
        // outlive the call.
        match Errno::result(unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) }) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(system::receive_error(errno)),
            Ok(count) => break count,
        }
    };
    let received = descriptors(&header);
    system::set_close_on_exec(&received);
    if header.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(Errno::EMFILE);
    }
    fds.extend(received);
    Ok(count.cast_unsigned())
}

/// The file descriptors that came with a message.
fn descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel has filled the control space with well-formed messages. It has just
    // installed the descriptors in this process, and no other code knows them.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(&libc::cmsghdr { cmsg_len, cmsg_level, cmsg_type, .. }) = message.as_ref() {
            if (cmsg_level, cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                #[allow(clippy::unnecessary_cast)] // The type differs between C libraries.
                let length = cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                #[allow(clippy::cast_ptr_alignment)] // Read unaligned.
                let first = libc::CMSG_DATA(message).cast::<RawFd>();
                fds.extend(
                    (0..length / size_of::<RawFd>())
                        .map(|i| OwnedFd::from_raw_fd(first.add(i).read_unaligned())),
                );
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    fds
}

/// Receives available bytes without waiting (`EAGAIN`). Drops file descriptors that came with them.
pub fn receive_now(socket: &impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    recv(socket.as_fd().as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)
}

/// Sends as many bytes as fit without waiting (`EAGAIN`). The caller has called [`tame`] on the
/// socket.
pub fn send_now(socket: &impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    send(socket.as_fd().as_raw_fd(), bytes, system::NO_SIGPIPE | MsgFlags::MSG_DONTWAIT)
}

/// Waits at most `limit` until the socket is ready for `what`, or is at end of file. False after a
/// timeout.
fn ready(socket: &impl AsFd, what: PollFlags, limit: Duration) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(socket.as_fd(), what)];
    let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    loop {
        match poll(&mut fds, timeout) {
            // The bot got a signal. The wait starts again with the full timeout.
            Err(Errno::EINTR) => {}
            result => return result.map(|ready| ready > 0),
        }
    }
}

/// True if no process holds the other end. There may still be bytes to receive.
pub fn has_hung_up(socket: &impl AsFd) -> Result<bool, Errno> {
    // Linux reports POLLHUP even if it is not requested.
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLHUP)];
    poll(&mut fds, PollTimeout::ZERO)?;
    Ok(fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)))
}
