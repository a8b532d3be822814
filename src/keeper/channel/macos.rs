//! Here SIGPIPE, waiting and close-on-exec are properties of a socket, and no socket of this family keeps messages apart and tells of its
//! end at once: so a message has its length in front.
//!
//! A descriptor is close-on-exec a moment after it was made. In the bot somebody else may start a process in that moment. What Node (libuv)
//! starts gets no descriptors but those meant for it (`POSIX_SPAWN_CLOEXEC_DEFAULT`), and our zygote closes what it was not meant to get.
//! Zygote, keeper and blank have one thread.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::libc;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, socketpair};

pub const QUIETLY: MsgFlags = MsgFlags::empty();
pub const CLOSE_ON_EXEC: MsgFlags = MsgFlags::empty();

/// The length of a message is sent in so many bytes.
const LENGTH: usize = 4;

/// A new stream socket for a conversation, both ends close-on-exec.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (one, other) = stream_pair()?;
    tame(&one);
    tame(&other);
    Ok((one, other))
}

/// A new stream socket, of which one end is a command's: to a command it is what any pipe would be.
pub fn stream_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (one, other) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::empty())?;
    close_on_exec(&one)?;
    close_on_exec(&other)?;
    Ok((one, other))
}

/// A new socket for messages, both ends close-on-exec.
pub fn message_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    pair()
}

/// Makes a socket of ours never block and never raise SIGPIPE: `send` takes no flags for either. If that fails, it is no socket.
pub fn tame(socket: &impl AsFd) {
    let socket = socket.as_fd();
    if let Ok(flags) = fcntl(socket, FcntlArg::F_GETFL) {
        let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
        let _ = fcntl(socket, FcntlArg::F_SETFL(flags));
    }
    let on: libc::c_int = 1;
    // SAFETY: the option is one integer, which lives here.
    unsafe {
        let size = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or(4);
        let value = (&raw const on).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NOSIGPIPE, value, size);
    }
}

pub fn close_on_exec(fd: &impl AsFd) -> Result<(), Errno> {
    fcntl(fd.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map(drop)
}

/// Sends one message, the descriptors with it.
pub fn send_message(socket: &impl AsFd, bytes: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
    let length = u32::try_from(bytes.len()).map_err(|_| Errno::EMSGSIZE)?;
    super::send_all(socket, &[&length.to_le_bytes(), bytes].concat(), fds)
}

/// Receives one message, or waits for it. 0 bytes: the end.
pub fn receive_message(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    receive_message_within(socket, buffer, fds, super::FOR_EVER)
}

/// Like [`receive_message`], but waits no longer than `limit` for each part (`ETIMEDOUT`).
///
/// Its length first, and no byte more: descriptors come with the first byte of a message, and the next one's are not ours to take.
pub fn receive_message_within(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    limit: Duration,
) -> Result<usize, Errno> {
    let mut length = [0; LENGTH];
    if !fill(socket, &mut length, fds, limit)? {
        return Ok(0);
    }
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    let message = buffer.get_mut(..length).ok_or(Errno::EMSGSIZE)?;
    if fill(socket, message, fds, limit)? { Ok(length) } else { Ok(0) }
}

/// False at the end.
fn fill(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    limit: Duration,
) -> Result<bool, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match super::receive_within(socket, &mut buffer[filled..], fds, limit)? {
            0 => return Ok(false),
            count => filled += count,
        }
    }
    Ok(true)
}

pub fn received(fds: &[OwnedFd]) {
    for fd in fds {
        let _ = close_on_exec(fd);
    }
}

/// That there is no room for the descriptors of a message is told in other words.
pub fn told(errno: Errno) -> Errno {
    if errno == Errno::EMSGSIZE { Errno::EMFILE } else { errno }
}
