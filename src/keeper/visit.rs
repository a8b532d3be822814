//! Visiting the keeper of a run that is not ours, or not yet: the other end of [`super::visitors`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::protocol::{self, End, Inbox, Report, Request};
use super::{address, channel};
use crate::identity::{ProcessRef, State};
use crate::run::ExitStatus;

/// A keeper answers at once, unless somebody has stopped it.
const LIMIT: Duration = Duration::from_secs(2);

/// A conversation with a keeper, which is the one that was recorded.
#[derive(Debug)]
pub struct Visit {
    pub socket: OwnedFd,
    pub inbox: Inbox,
}

impl Visit {
    /// Goes to the keeper of this root.
    ///
    /// Anybody may sit at an address whose keeper is gone. So whoever answers must be the recorded process: the kernel tells
    /// its PID, and as long as it holds that socket open and lives, its start token is that of the record or it is not. It
    /// must also name the recorded root. `ESRCH` if the keeper is dead, `EPERM` if somebody else answers. That it cannot be seen which is no
    /// proof of its death, and another error.
    pub fn start(keeper: &ProcessRef, address: &str, root: &ProcessRef) -> Result<Self, Errno> {
        let or = |dead| match keeper.state() {
            State::Alive => Ok(()),
            State::Exited | State::Recycled => Err(dead),
            // Should it be seen by now, the next visit is going to find out.
            State::Unknown => Err(keeper.pinned().err().unwrap_or(Errno::EAGAIN)),
        };
        or(Errno::ESRCH)?;
        let socket = address::connect(address)?;
        let peer = address::peer_pid(&socket)?;
        or(Errno::EPERM)?;
        if peer != keeper.pid {
            return Err(Errno::EPERM);
        }
        let mut visit = Self { socket, inbox: Inbox::default() };
        // At the door for so long: it has no room for us yet, or was stopped.
        let first = visit.next(Instant::now() + LIMIT);
        match first.map_err(|errno| if errno == Errno::ETIMEDOUT { Errno::EAGAIN } else { errno })? {
            Report::Ready { root: theirs, .. } if (theirs.pid, theirs.start) == (root.pid, root.start) => {
                Ok(visit)
            }
            _ => Err(Errno::EPERM),
        }
    }

    /// Becomes the run's owner. `EBUSY` if it has one.
    pub fn adopt(&mut self) -> Result<Vec<Report>, Errno> {
        self.ask(&Request::Adopt)?;
        let give_up_at = Instant::now() + LIMIT;
        let mut missed = Vec::new();
        loop {
            match self.next(give_up_at)? {
                Report::Adopted { granted: true } => return Ok(missed),
                Report::Adopted { granted: false } => return Err(Errno::EBUSY),
                report => missed.push(report),
            }
        }
    }

    pub fn ask(&self, request: &Request) -> Result<(), Errno> {
        let frame = protocol::encode(request).map_err(|_| Errno::EINVAL)?;
        channel::send_within(&self.socket, &frame, &[], LIMIT)
    }

    /// Waits for the end of the tree, and of its root. `ECONNRESET` if the keeper dies first.
    pub fn wait(mut self, give_up_at: Instant) -> Result<(Option<ExitStatus>, End), Errno> {
        protocol::last_word(|| self.next(give_up_at))
    }

    fn next(&mut self, give_up_at: Instant) -> Result<Report, Errno> {
        let mut buffer = [0; 1024];
        loop {
            if let Some(payload) = self.inbox.next_payload().map_err(|_| Errno::EPROTO)? {
                return protocol::decode(&payload).map_err(|_| Errno::EPROTO);
            }
            let limit = give_up_at.saturating_duration_since(Instant::now());
            match channel::receive_within(&self.socket, &mut buffer, &mut Vec::new(), limit)? {
                0 => return Err(Errno::ECONNRESET),
                count => self.inbox.push(&buffer[..count]),
            }
        }
    }
}

impl AsFd for Visit {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity;

    #[test]
    fn a_keeper_that_cannot_be_seen_is_not_dead() {
        let me = identity::me().unwrap();
        let visit = |keeper: &ProcessRef| Visit::start(keeper, "nowhere", &me).map(drop);
        let elsewhere = ProcessRef { ns: me.ns + 1, ..me.clone() };
        assert_eq!(visit(&elsewhere), Err(Errno::EACCES));
        let recycled = ProcessRef { start: me.start + 1, ..me.clone() };
        assert_eq!(visit(&recycled), Err(Errno::ESRCH));
    }
}
