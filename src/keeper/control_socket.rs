//! The socket at which a keeper accepts control clients.
//!
//! Each system's file provides: `Listener`, a listening socket with a name; [`connect`], which
//! connects to that name; [`peer_pid`], the PID of the process at the other end.

#[cfg(target_os = "linux")]
#[path = "control_socket/linux.rs"]
mod system;
#[cfg(target_os = "macos")]
#[path = "control_socket/macos.rs"]
mod system;

pub use system::{connect, peer_pid, sweep};

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::getuid;

use crate::trace::trace;
use system::{Listener, is_ambiguous, peer_uid};

/// Connections of other users that one `accept` rejects. Without a limit they could keep the keeper
/// busy.
const MAX_REJECTED: usize = 16;

#[derive(Debug)]
pub struct ControlSocket(Listener);

impl ControlSocket {
    pub fn open() -> Result<Self, Errno> {
        Listener::open().map(Self)
    }

    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Accepts the next connection from the keeper's own user or from root.
    ///
    /// It rejects all other users, even if the socket's permissions would admit them. It also
    /// rejects a user id that can stand for several users, see [`is_ambiguous`].
    pub fn accept(&self) -> Option<OwnedFd> {
        for _ in 0..MAX_REJECTED {
            let client = match self.0.accept() {
                // The client stays in the backlog, so the next turn retries. The pause prevents a
                // busy loop while the resource is exhausted.
                Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS) => {
                    std::thread::sleep(Duration::from_millis(10));
                    return None;
                }
                result => result.ok()?,
            };
            if let Ok(uid) = peer_uid(&client)
                && (uid == 0 || uid == getuid().as_raw())
                && !is_ambiguous(uid)
            {
                trace!("control client connected: PID {}", peer_pid(&client).unwrap_or_default());
                return Some(client);
            }
            trace!(
                "control client refused: PID {}, uid {:?}",
                peer_pid(&client).unwrap_or_default(),
                peer_uid(&client)
            );
        }
        None
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
