//! The connections of a keeper process: to its owner, to control clients, to the registry.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use nix::errno::Errno;
use nix::unistd::getpid;

use super::channel;
use super::control_server::ControlServer;
use super::core::Platform;
use super::protocol::{self, Inbox, Process, Report};
use crate::contain::cgroup::Cgroup;
use crate::identity::read_stat;
use crate::registry::{self, Exit, Line};
use crate::run::Ended;

#[derive(Debug)]
pub struct Connections {
    /// The connection to the owner; `None` after the owner has exited.
    pub control: Option<OwnedFd>,
    pub inbox: Inbox,
    pub server: ControlServer,
    /// The path of the registry, where the keeper records the end if the run has no owner.
    registry: String,
    /// The key of the run's registry entry; empty before the bot assigns a run.
    key: String,
    me: Process,
    root: Process,
    cgroup: Option<String>,
    started_at: Instant,
}

impl Connections {
    /// Opens the control socket. `root` must be an unreaped child of the calling process.
    pub fn new(control: OwnedFd, root: i32, cgroup: Option<&Cgroup>) -> Result<Self, Errno> {
        Ok(Self {
            cgroup: cgroup.map(|cgroup| cgroup.path().to_string_lossy().into_owned()),
            // No race: this process is alive, and its child is not reaped. So no other process can
            // have these PIDs.
            me: process(getpid().as_raw())?,
            root: process(root)?,
            control: Some(control),
            inbox: Inbox::default(),
            server: ControlServer::open(),
            registry: String::new(),
            key: String::new(),
            started_at: Instant::now(),
        })
    }

    /// Sets where to record the end.
    pub fn set_entry(&mut self, registry: &str, key: &str) {
        (self.registry, self.key) = (registry.to_owned(), key.to_owned());
    }

    /// Whether the bot has assigned a run.
    pub fn is_assigned(&self) -> bool {
        !self.key.is_empty()
    }

    /// Whether the owner has closed its connection. There may still be unread bytes.
    pub fn has_owner_hung_up(&self) -> bool {
        self.control.as_ref().is_some_and(|control| channel::has_hung_up(control) == Ok(true))
    }

    /// Receives bytes from the owner, and never waits for them.
    ///
    /// `poll` may have reported the last owner, and a client may have adopted the run since. The new
    /// owner may send nothing for hours, and the keeper has other work.
    pub fn receive(&mut self) -> Received {
        let mut buffer = [0; 1024];
        let Some(control) = &self.control else { return Received::EndOfFile };
        match channel::receive_now(control, &mut buffer) {
            Ok(0) => Received::EndOfFile,
            Ok(count) => {
                self.inbox.push(&buffer[..count]);
                Received::Bytes
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Received::Nothing,
            Err(_) => Received::EndOfFile,
        }
    }
}

/// What a read from the owner's connection returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    Bytes,
    Nothing,
    /// Also after an error of the connection.
    EndOfFile,
}

impl Platform for Connections {
    type Client = u32;

    /// Milliseconds since this keeper started.
    fn now(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn ready(&self) -> Report {
        let (address, cgroup) = (self.server.address().to_owned(), self.cgroup.clone());
        Report::Ready { keeper: self.me, root: self.root, address, cgroup }
    }

    fn key(&self) -> String {
        self.key.clone()
    }

    fn has_owner(&self) -> bool {
        self.control.is_some()
    }

    fn drop_owner(&mut self) {
        self.control = None;
    }

    fn send_to_owner(&mut self, reports: &[Report]) -> bool {
        let control = self.control.as_ref();
        control.is_some_and(|control| channel::send_all(control, &encode(reports), &[]).is_ok())
    }

    fn send_to_clients(&mut self, reports: &[Report]) {
        if self.server.has_clients() {
            self.server.send_to_all(&encode(reports));
        }
    }

    fn answer(&mut self, client: &u32, report: Report) {
        self.server.answer(*client, &encode(&[report]));
    }

    fn make_owner(&mut self, client: &u32) -> bool {
        let Some(client) = self.server.take(*client) else { return false };
        (self.control, self.inbox) = (Some(client.socket), client.inbox);
        true
    }

    fn record_end(&self, end: &Ended) -> bool {
        // Without an assigned run there is no entry to update.
        if !self.is_assigned() {
            return true;
        }
        let line = Line::Ended { key: self.key.clone(), exit: Exit::of(end, registry::now_ms()) };
        registry::record_end(Path::new(&self.registry), &line).is_ok()
    }
}

pub fn encode(reports: &[Report]) -> Vec<u8> {
    reports.iter().filter_map(|report| protocol::encode(report).ok()).flatten().collect()
}

fn process(pid: i32) -> Result<Process, Errno> {
    Ok(Process { pid, start: read_stat(pid)?.start })
}
