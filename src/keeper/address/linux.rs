//! A name in the abstract namespace of Unix sockets.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, getsockname, getsockopt, listen,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// A socket with a name that the kernel has made up: nobody can have taken it before, and no file is left behind. There are no permissions on
/// such a name.
#[derive(Debug)]
pub struct Door {
    socket: OwnedFd,
    name: String,
}

impl Door {
    pub fn open() -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        bind(socket.as_raw_fd(), &UnixAddr::new_unnamed())?;
        listen(&socket, Backlog::new(64)?)?;
        let address: UnixAddr = getsockname(socket.as_raw_fd())?;
        let name = address.as_abstract().ok_or(Errno::EADDRNOTAVAIL)?;
        Ok(Self { name: String::from_utf8_lossy(name).into_owned(), socket })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn accept(&self) -> Result<OwnedFd, Errno> {
        let fd = accept4(self.socket.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
        // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub fn connect(name: &str) -> Result<OwnedFd, Errno> {
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // A full backlog would hold us up for as long as it is full.
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(1, 0))?;
    nix::sys::socket::connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    Ok(socket)
}

/// Who has connected, or listens.
pub fn peer_pid(socket: &impl AsFd) -> Result<i32, Errno> {
    getsockopt(&socket.as_fd(), sockopt::PeerCredentials).map(|peer| peer.pid())
}

pub fn peer_uid(socket: &impl AsFd) -> Result<u32, Errno> {
    getsockopt(&socket.as_fd(), sockopt::PeerCredentials).map(|peer| peer.uid())
}

/// Such a name goes with its socket.
pub fn sweep() {}
