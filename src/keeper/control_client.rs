//! A client of a keeper's control socket, for processes other than the run's owner. The server is
//! `control_server`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::protocol::{self, Inbox, Report, Request};
use super::{channel, control_socket};
use crate::identity::ProcessRef;
use crate::run::Ended;

/// Timeout for an answer. A keeper answers at once, unless it is stopped.
const LIMIT: Duration = Duration::from_secs(2);

/// A connection to the keeper that the registry entry names.
#[derive(Debug)]
pub struct ControlClient {
    pub socket: OwnedFd,
    pub inbox: Inbox,
}

impl ControlClient {
    /// Connects to the keeper of `root` and verifies it.
    ///
    /// After a keeper's death, another process can listen at its address. So the peer must be the
    /// recorded keeper: the kernel reports the peer's PID, and the process with that PID must have
    /// the recorded start token. The keeper's state is checked after `peer_pid`: if the keeper is
    /// alive then, its PID has not been recycled before. The peer must also name the recorded root.
    ///
    /// Errors: `ESRCH` if the keeper is dead; `EPERM` if another process answers; another error if
    /// the keeper's state is unknown, which does not prove its death.
    pub fn start(keeper: &ProcessRef, address: &str, root: &ProcessRef) -> Result<Self, Errno> {
        keeper.check_alive(Errno::ESRCH)?;
        let socket = control_socket::connect(address)?;
        let peer = control_socket::peer_pid(&socket)?;
        keeper.check_alive(Errno::EPERM)?;
        if peer != keeper.pid {
            return Err(Errno::EPERM);
        }
        let mut client = Self { socket, inbox: Inbox::default() };
        // A timeout means that the server is full, or that the keeper is stopped.
        let first = client.next(Instant::now() + LIMIT);
        match first.map_err(|errno| if errno == Errno::ETIMEDOUT { Errno::EAGAIN } else { errno })? {
            Report::Ready { root: theirs, .. } if (theirs.pid, theirs.start) == (root.pid, root.start) => {
                Ok(client)
            }
            _ => Err(Errno::EPERM),
        }
    }

    /// Becomes the run's owner. Returns the reports that arrived before the answer. `EBUSY` if the
    /// run has an owner.
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

    /// Waits until the tree is extinct. Returns its end.
    /// `ECONNRESET` if the keeper dies first.
    pub fn wait(mut self, give_up_at: Instant) -> Result<Ended, Errno> {
        protocol::read_until_extinct(|| self.next(give_up_at))
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

impl AsFd for ControlClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;
    use crate::identity;

    #[test]
    fn a_keeper_that_is_not_visible_is_not_reported_dead() {
        let me = identity::me().unwrap();
        let connect = |keeper: &ProcessRef| ControlClient::start(keeper, "no-such-socket", &me).map(drop);
        let in_other_namespace = ProcessRef { ns: me.ns + 1, ..me.clone() };
        assert_eq!(connect(&in_other_namespace), Err(Errno::EACCES));
        let recycled = ProcessRef { start: me.start + 1, ..me.clone() };
        assert_eq!(connect(&recycled), Err(Errno::ESRCH));
    }
    #[test]
    fn a_keeper_of_another_version_is_reported_at_once() {
        let me = identity::me().unwrap();
        let listener = control_socket::ControlSocket::open().unwrap();
        let address = listener.name().to_owned();
        let client = std::thread::spawn(move || ControlClient::start(&me, &address, &me).map(drop));
        poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE).unwrap();
        let socket = listener.accept().unwrap();
        let mut ready = protocol::encode(&Report::NoRoot { errno: 0 }).unwrap();
        ready[2] = protocol::VERSION - 1;
        channel::send_all(&socket, &ready, &[]).unwrap();
        // The connection stays open. So only the frame shows the other version.
        assert_eq!(client.join().unwrap(), Err(Errno::EPROTO));
    }
}
