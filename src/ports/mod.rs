//! Who answers at a port of this machine: a run's tree, or somebody else.
//!
//! That a port answers proves nothing: a stranger may have been faster than the service that was to listen there. So the kernel is asked
//! whose socket it is.
//!
//! | | finds out by | says [`Whose::Unknown`] |
//! |---|---|---|
//! | Linux | the table of sockets, the descriptors of processes, and descent from the run's keeper | if nobody here listens there (a port of another machine or namespace), or the tree does not let us look |
//! | elsewhere | – | always |

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
    /// Every socket that may answer is held by a process below the keeper.
    Tree,
    /// One of them is not.
    Stranger(Stranger),
    Unknown,
}

/// Both are unknown if it is another user's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stranger {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its name as the kernel knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Who answers whoever connects to that address. Without a keeper there is no tree, and everybody is a stranger.
#[cfg(target_os = "linux")]
pub fn whose(address: IpAddr, port: u16, keeper: Option<&ProcessRef>) -> Whose {
    linux::whose(address, port, keeper)
}

#[cfg(not(target_os = "linux"))]
pub fn whose(_address: IpAddr, _port: u16, _keeper: Option<&ProcessRef>) -> Whose {
    Whose::Unknown
}
