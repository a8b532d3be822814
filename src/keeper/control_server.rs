//! The keeper's server for control clients: the next bot, a process that cancels the run, a reaper.
//!
//! The keeper never waits for a client. It disconnects a client that does not read its reports or
//! that violates the protocol.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::channel;
use super::control_request::ControlRequest;
use super::control_socket::ControlSocket;
use super::protocol::Inbox;
use crate::trace::trace;

/// Maximum number of connected clients. Each one costs a file descriptor and is polled in every
/// turn. Further clients wait in the socket's backlog.
const MAX_CLIENTS: usize = 256;

#[derive(Debug, Default)]
pub struct ControlServer {
    socket: Option<ControlSocket>,
    clients: Vec<Client>,
    last_id: u32,
}

#[derive(Debug)]
pub struct Client {
    id: u32,
    pub socket: OwnedFd,
    pub inbox: Inbox,
    has_sent_request: bool,
}

impl ControlServer {
    /// Opens the control socket. If that fails, no client can connect, but the run works.
    pub fn open() -> Self {
        Self { socket: ControlSocket::open().ok(), ..Self::default() }
    }

    /// The name of the control socket; empty if there is none.
    pub fn address(&self) -> &str {
        self.socket.as_ref().map_or("", ControlSocket::name)
    }

    /// The file descriptors to poll: all clients, and the control socket unless the server is full.
    pub fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let socket = self.socket.iter().filter(|_| self.has_room());
        socket.map(AsFd::as_fd).chain(self.clients.iter().map(|client| client.socket.as_fd()))
    }

    /// Accepts waiting clients, and sends them `state`, the reports that describe the run.
    ///
    /// A full server disconnects a client that has sent no request, to make room for a new one.
    pub fn accept_clients(&mut self, state: &[u8]) {
        while self.has_room()
            && let Some(socket) = self.socket.as_ref().and_then(ControlSocket::accept)
        {
            if self.clients.len() == MAX_CLIENTS
                && let Some(idle) = self.clients.iter().position(|client| !client.has_sent_request)
            {
                self.clients.remove(idle);
            }
            if send_now(&socket, state) {
                self.last_id = self.last_id.wrapping_add(1);
                let (id, inbox) = (self.last_id, Inbox::default());
                self.clients.push(Client { id, socket, inbox, has_sent_request: false });
            }
        }
    }

    fn has_room(&self) -> bool {
        self.clients.iter().filter(|client| client.has_sent_request).count() < MAX_CLIENTS
    }

    /// Returns the requests that have arrived, each with the id of its client. Removes clients that
    /// have disconnected or have violated the protocol.
    pub fn take_requests(&mut self) -> Vec<(u32, ControlRequest)> {
        let mut requests = Vec::new();
        self.clients.retain_mut(|client| client.read_requests(&mut requests));
        requests
    }

    pub fn has_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Sends to all clients. Removes clients that cannot receive now.
    pub fn send_to_all(&mut self, frames: &[u8]) {
        self.clients.retain(|client| send_now(&client.socket, frames));
    }

    /// Sends to one client. Removes it if it cannot receive now.
    pub fn answer(&mut self, id: u32, frames: &[u8]) {
        self.clients.retain(|client| client.id != id || send_now(&client.socket, frames));
    }

    /// Removes and returns a client, which becomes the owner.
    pub fn take(&mut self, id: u32) -> Option<Client> {
        let index = self.clients.iter().position(|client| client.id == id)?;
        Some(self.clients.swap_remove(index))
    }
}

impl Client {
    /// Reads what has arrived. False at end of file, and after a violation of the protocol.
    fn read_requests(&mut self, requests: &mut Vec<(u32, ControlRequest)>) -> bool {
        let mut buffer = [0; 512];
        match channel::receive_now(&self.socket, &mut buffer) {
            Ok(0) => return false,
            Ok(count) => self.inbox.push(&buffer[..count]),
            Err(nix::errno::Errno::EAGAIN) => return true,
            Err(_) => return false,
        }
        loop {
            let request = match self.inbox.next_payload() {
                Ok(None) => return true,
                Ok(Some(payload)) => {
                    let Some(request) = ControlRequest::decode(&payload) else {
                        trace!("disconnect a control client: invalid request");
                        return false;
                    };
                    request
                }
                Err(_) => return false,
            };
            self.has_sent_request = true;
            requests.push((self.id, request));
        }
    }
}

/// Sends without waiting. False if the client does not make room or has disconnected.
fn send_now(socket: &OwnedFd, frames: &[u8]) -> bool {
    channel::send_within(socket, frames, &[], Duration::ZERO).is_ok()
}
