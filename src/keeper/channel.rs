//! Bytes and descriptors over a Unix socket.
//!
//! Systems differ in what can be asked for with each call and what is a property of a socket, and in whether a socket can keep messages
//! apart; that is in `linux.rs` and `macos.rs`.

#[cfg(target_os = "linux")]
#[path = "channel/linux.rs"]
mod system;
#[cfg(target_os = "macos")]
#[path = "channel/macos.rs"]
mod system;

#[cfg(target_os = "macos")]
pub use system::close_on_exec;
pub use system::{
    message_pair, pair, receive_message, receive_message_within, send_message, stream_pair, tame,
};

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, recv, send, sendmsg};

use super::protocol::MAX_FDS;

/// Room for one control message with all the descriptors it can carry, in words.
const CONTROL_SPACE: usize = (size_of::<libc::cmsghdr>() + MAX_FDS * size_of::<RawFd>()) / 8 + 2;

/// Longer than anybody waits.
const FOR_EVER: Duration = Duration::MAX;

/// Sends everything, the descriptors with the first byte. Never raises SIGPIPE.
pub fn send_all(socket: &impl AsFd, bytes: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
    send_parts(socket, bytes, fds, MsgFlags::empty(), || {
        ready(socket, PollFlags::POLLOUT, FOR_EVER).map(drop)
    })
}

/// Like [`send_all`], but waits no longer than `limit` for room (`ETIMEDOUT`).
pub fn send_within(socket: &impl AsFd, bytes: &[u8], fds: &[RawFd], limit: Duration) -> Result<(), Errno> {
    send_parts(socket, bytes, fds, MsgFlags::MSG_DONTWAIT, || {
        if ready(socket, PollFlags::POLLOUT, limit)? { Ok(()) } else { Err(Errno::ETIMEDOUT) }
    })
}

fn send_parts(
    socket: &impl AsFd,
    bytes: &[u8],
    fds: &[RawFd],
    flags: MsgFlags,
    wait_for_room: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let socket = socket.as_fd().as_raw_fd();
    let flags = flags | system::QUIETLY;
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

/// Receives what is there, or waits for it: at most `buffer`, and the descriptors that came along, close-on-exec. 0 bytes:
/// the end.
///
/// It sleeps in `poll`, not in `recvmsg`: there Linux wakes it also when the other side has merely read what we had sent, and it is
/// the other side, a bot in the middle of a spawn, that pays for waking somebody.
pub fn receive(socket: &impl AsFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize, Errno> {
    loop {
        match receive_once(socket, buffer, fds, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN) => drop(ready(socket, PollFlags::POLLIN, FOR_EVER)?),
            result => return result,
        }
    }
}

/// Like [`receive`], but waits no longer than `limit` (`ETIMEDOUT`). What is there already costs no wait at all.
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

/// Not nix's `recvmsg`: if a process has no room for all the descriptors, that drops the message and leaks those which did
/// arrive. Here they are closed, and the error says what it is (`EMFILE`).
fn receive_once(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    flags: MsgFlags,
) -> Result<usize, Errno> {
    let mut space = [0u64; CONTROL_SPACE];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeroes is a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = space.as_mut_ptr().cast();
    #[allow(clippy::cast_possible_truncation)] // Its type differs between C libraries; 1 KiB fits all.
    {
        header.msg_controllen = size_of_val(&space) as _;
    }
    let flags = (flags | system::CLOSE_ON_EXEC).bits();
    let count = loop {
        // SAFETY: the header points to a buffer and a control space of the lengths given, which live here.
        match Errno::result(unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) }) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(system::told(errno)),
            Ok(count) => break count,
        }
    };
    let received = descriptors(&header);
    system::received(&received);
    if header.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(Errno::EMFILE);
    }
    fds.extend(received);
    Ok(count.cast_unsigned())
}

/// The descriptors that came with a message.
fn descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel has filled the control space with well-formed messages, and has just installed the descriptors in
    // them for us; nobody else knows them.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(&libc::cmsghdr { cmsg_len, cmsg_level, cmsg_type, .. }) = message.as_ref() {
            if (cmsg_level, cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                #[allow(clippy::unnecessary_cast)] // As above.
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

/// Receives what is there without waiting (`EAGAIN`), dropping descriptors that may have come along.
pub fn receive_now(socket: &impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    recv(socket.as_fd().as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)
}

/// Sends what there is room for without waiting (`EAGAIN`). The socket is tame.
pub fn send_now(socket: &impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    send(socket.as_fd().as_raw_fd(), bytes, system::QUIETLY | MsgFlags::MSG_DONTWAIT)
}

/// Waits until something can be done (the end counts), at most `limit`. `false` if it cannot.
fn ready(socket: &impl AsFd, what: PollFlags, limit: Duration) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(socket.as_fd(), what)];
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
    // Linux tells of it unasked.
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLHUP)];
    poll(&mut fds, PollTimeout::ZERO)?;
    Ok(fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)))
}
