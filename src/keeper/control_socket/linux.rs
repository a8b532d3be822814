//! The control socket on Linux: a name in the abstract namespace of Unix sockets.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, getsockname, getsockopt, listen,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// A listening socket with a name that the kernel chooses.
///
/// So no other process can have taken the name before, and no file is left behind. An abstract name
/// has no permissions.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    name: String,
}

impl Listener {
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
        // SAFETY: the kernel has just returned this file descriptor. No other code knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub fn connect(name: &str) -> Result<OwnedFd, Errno> {
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // Without a timeout, `connect` blocks while the backlog is full.
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(1, 0))?;
    nix::sys::socket::connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    Ok(socket)
}

/// The PID of the process that connected, or that listens.
pub fn peer_pid(socket: &impl AsFd) -> Result<i32, Errno> {
    getsockopt(&socket.as_fd(), sockopt::PeerCredentials).map(|peer| peer.pid())
}

pub fn peer_uid(socket: &impl AsFd) -> Result<u32, Errno> {
    getsockopt(&socket.as_fd(), sockopt::PeerCredentials).map(|peer| peer.uid())
}

/// True if this user id can stand for several users.
///
/// In a user namespace, the kernel shows all users without an id there as one id, the overflow id.
/// If the keeper itself has that id, a peer with the same id can be any of these users.
pub fn is_ambiguous(uid: u32) -> bool {
    static OVERFLOW: OnceLock<Option<u32>> = OnceLock::new();
    let overflow = OVERFLOW.get_or_init(|| {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let id = read("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(DEFAULT_OVERFLOW);
        (!maps_every_user(&read("/proc/self/uid_map"))).then_some(id)
    });
    *overflow == Some(uid)
}

/// The overflow id, if `/proc` does not provide it.
const DEFAULT_OVERFLOW: u32 = 65534;

/// True if every user of the system has its own id in this namespace, by `/proc/PID/uid_map`.
///
/// The third number of each line is the count of ids that the line maps.
fn maps_every_user(map: &str) -> bool {
    let counts = map.lines().filter_map(|line| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<u64>() >= u64::from(u32::MAX)
}

/// No-op: an abstract name disappears with its socket.
pub fn sweep() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_map_that_covers_all_ids_maps_every_user() {
        assert!(maps_every_user("         0          0 4294967295\n"));
        assert!(maps_every_user("0 0 1000\n1000 1000 4294966295\n"));
        for map in ["", "nonsense", "0 100000 65536\n", "0 1000 1\n1 100000 65536\n"] {
            assert!(!maps_every_user(map), "{map:?}");
        }
    }
}
