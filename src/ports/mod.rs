//! Finds which process answers at a port of this machine: one of a run's tree, or another one.
//!
//! A port that answers proves nothing: another process may have bound it before the service did. So
//! this checks in the kernel's tables which process holds the socket.
//!
//! Only Linux supports this: with the table of sockets, the descriptors of processes, and descent
//! from the run's keeper. The result is [`Whose::Unknown`] if no process here listens there (the
//! port belongs to another machine or namespace), or if a member of the tree is unreadable. On
//! other systems it is always unknown.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub mod table;

use std::net::IpAddr;

use serde::Serialize;

use crate::identity::ProcessRef;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "whose", rename_all = "kebab-case")]
pub enum Whose {
    /// A process below the keeper holds every socket that may answer.
    Tree,
    /// A process outside the tree holds one of these sockets.
    Stranger(Stranger),
    Unknown,
}

/// The other process. Both fields are unknown if it belongs to another user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stranger {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The name that the kernel reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Returns which process answers a connection to that address. Without a keeper there is no tree,
/// and every process is a stranger.
#[cfg(target_os = "linux")]
pub fn whose(address: IpAddr, port: u16, keeper: Option<&ProcessRef>) -> Whose {
    linux::whose(address, port, keeper)
}

#[cfg(not(target_os = "linux"))]
pub fn whose(_address: IpAddr, _port: u16, _keeper: Option<&ProcessRef>) -> Whose {
    Whose::Unknown
}
