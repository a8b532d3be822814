//! Where a keeper can be found by others than its bot.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, getsockname, getsockopt, listen,
    socket, sockopt,
};
use nix::unistd::getuid;

/// Other users who knock are turned away; so many at a time, or they could keep us busy.
const STRANGERS: usize = 16;

/// A socket with a name that the kernel has made up: nobody can have taken it before, and no file is left behind.
#[derive(Debug)]
pub struct Address {
    socket: OwnedFd,
    name: String,
}

impl Address {
    pub fn open() -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        bind(socket.as_raw_fd(), &UnixAddr::new_unnamed())?;
        listen(&socket, Backlog::new(64)?)?;
        let address: UnixAddr = getsockname(socket.as_raw_fd())?;
        let name = address.as_abstract().ok_or(Errno::EADDRNOTAVAIL)?;
        Ok(Self { name: String::from_utf8_lossy(name).into_owned(), socket })
    }

    /// The name in the abstract namespace of Unix sockets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next who knocks and is our own user, or root. There are no permissions on such a name, so this is the check.
    pub fn accept(&self) -> Option<OwnedFd> {
        for _ in 0..STRANGERS {
            let fd = match accept4(self.socket.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
                // Whoever knocks is still there when that has passed; until then there is no hurry.
                Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS) => {
                    std::thread::sleep(Duration::from_millis(10));
                    return None;
                }
                result => result.ok()?,
            };
            // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
            let visitor = unsafe { OwnedFd::from_raw_fd(fd) };
            if let Ok(peer) = getsockopt(&visitor, sockopt::PeerCredentials)
                && (peer.uid() == 0 || peer.uid() == getuid().as_raw())
            {
                return Some(visitor);
            }
        }
        None
    }
}

impl AsFd for Address {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
