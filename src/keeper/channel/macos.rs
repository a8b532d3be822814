//! Sockets on macOS: non-blocking mode, no SIGPIPE and close-on-exec are properties of a socket.
//!
//! No Unix socket on macOS both preserves message boundaries and reports end of file. So each
//! message begins with its length.
//!
//! A file descriptor becomes close-on-exec only after its creation. Between the two calls, another
//! thread of the bot can start a process. That process does not inherit the descriptor: libuv
//! passes only chosen descriptors (`POSIX_SPAWN_CLOEXEC_DEFAULT`), and the zygote closes all
//! others. Zygote, keeper and exec stub have one thread, so they have no such race.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::libc;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, socketpair};

pub const NO_SIGPIPE: MsgFlags = MsgFlags::empty();
pub const CLOSE_ON_EXEC: MsgFlags = MsgFlags::empty();

/// Size of the length that precedes each message.
const LENGTH: usize = 4;

/// A new pair of stream sockets for messages. Both are close-on-exec.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (one, other) = stream_pair()?;
    tame(&one);
    tame(&other);
    Ok((one, other))
}

/// A new pair of stream sockets. The command gets one of them as a standard stream. So both keep
/// the default properties: they block and raise SIGPIPE, like a pipe.
pub fn stream_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (one, other) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::empty())?;
    close_on_exec(&one)?;
    close_on_exec(&other)?;
    Ok((one, other))
}

/// A new pair of sockets for messages. Both are close-on-exec.
pub fn message_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    pair()
}

/// Makes a socket non-blocking, and prevents SIGPIPE. On macOS `send` has no flags for that. Errors
/// are ignored: it fails only if the descriptor is not a socket.
pub fn tame(socket: &impl AsFd) {
    let socket = socket.as_fd();
    if let Ok(flags) = fcntl(socket, FcntlArg::F_GETFL) {
        let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
        let _ = fcntl(socket, FcntlArg::F_SETFL(flags));
    }
    let on: libc::c_int = 1;
    // SAFETY: the option is one integer, a local variable.
    unsafe {
        let size = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or(4);
        let value = (&raw const on).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NOSIGPIPE, value, size);
    }
}

pub fn close_on_exec(fd: &impl AsFd) -> Result<(), Errno> {
    fcntl(fd.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map(drop)
}

/// Sends one message with file descriptors.
pub fn send_message(socket: &impl AsFd, bytes: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
    let length = u32::try_from(bytes.len()).map_err(|_| Errno::EMSGSIZE)?;
    super::send_all(socket, &[&length.to_le_bytes(), bytes].concat(), fds)
}

/// Like [`send_message`], but fails at once if the socket buffer is full (`ETIMEDOUT`).
pub fn send_message_now(socket: &impl AsFd, bytes: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
    let length = u32::try_from(bytes.len()).map_err(|_| Errno::EMSGSIZE)?;
    super::send_within(socket, &[&length.to_le_bytes(), bytes].concat(), fds, Duration::ZERO)
}

/// Receives one message, and waits if there is none. Returns 0 at end of file.
pub fn receive_message(
    socket: &impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    receive_message_within(socket, buffer, fds, super::FOREVER)
}

/// Like [`receive_message`], but waits at most `limit` for each part (`ETIMEDOUT`).
///
/// It reads the length first, and never a byte of the next message: that byte would bring the next
/// message's file descriptors.
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

/// Fills the buffer. False at end of file.
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

/// Makes received file descriptors close-on-exec.
pub fn set_close_on_exec(fds: &[OwnedFd]) {
    for fd in fds {
        let _ = close_on_exec(fd);
    }
}

/// Translates an error of `recvmsg`: macOS returns EMSGSIZE if the process has too few free file
/// descriptors.
pub fn receive_error(errno: Errno) -> Errno {
    if errno == Errno::EMSGSIZE { Errno::EMFILE } else { errno }
}
