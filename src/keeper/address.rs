//! Where a keeper can be found by others than its bot.
//!
//! What every system's half does: `Door` is a socket at which others knock, and its name; [`connect`] goes there by that name; [`peer_pid`] says
//! who is at the other end.

#[cfg(target_os = "linux")]
#[path = "address/linux.rs"]
mod system;
#[cfg(target_os = "macos")]
#[path = "address/macos.rs"]
mod system;

pub use system::{connect, peer_pid, sweep};

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::getuid;

use system::{Door, peer_uid};

/// Other users who knock are turned away; so many at a time, or they could keep us busy.
const STRANGERS: usize = 16;

#[derive(Debug)]
pub struct Address(Door);

impl Address {
    pub fn open() -> Result<Self, Errno> {
        Door::open().map(Self)
    }

    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The next who knocks and is our own user, or root. Nobody else is let in, whatever the name allows.
    pub fn accept(&self) -> Option<OwnedFd> {
        for _ in 0..STRANGERS {
            let visitor = match self.0.accept() {
                // Whoever knocks is still there when that has passed; until then there is no hurry.
                Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS) => {
                    std::thread::sleep(Duration::from_millis(10));
                    return None;
                }
                result => result.ok()?,
            };
            if let Ok(uid) = peer_uid(&visitor)
                && (uid == 0 || uid == getuid().as_raw())
            {
                return Some(visitor);
            }
        }
        None
    }
}

impl AsFd for Address {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
