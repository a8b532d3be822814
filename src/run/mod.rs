//! A run's life, decided without clock and without I/O.
//!
//! [`lifecycle::Lifecycle`] is the one path by which a tree is ended, whatever the cause: it is told what
//! happened and when, and answers what to do.

pub mod lifecycle;

use serde::{Deserialize, Serialize};

/// Why a tree is being ended. The first cause wins: a cancel that arrives after the root has exited by itself
/// does not make the run a cancelled one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The root ended by itself, and the rest follows it.
    RootExit,
    /// Somebody asked for it.
    Cancel,
    /// The overall deadline passed.
    OverallTimeout,
    /// The bot is gone.
    OwnerExit,
    /// Somebody has signalled the keeper: the machine, the session or the service is being shut down.
    Shutdown,
}

impl Cause {
    /// As the registry and JavaScript name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RootExit => "root-exit",
            Self::Cancel => "cancel",
            Self::OverallTimeout => "overall-timeout",
            Self::OwnerExit => "owner-exit",
            Self::Shutdown => "shutdown",
        }
    }

    /// The cause of that name.
    pub fn named(name: &str) -> Option<Self> {
        use Cause::{Cancel, OverallTimeout, OwnerExit, RootExit, Shutdown};
        [RootExit, Cancel, OverallTimeout, OwnerExit, Shutdown].into_iter().find(|cause| cause.name() == name)
    }
}

/// What becomes of the tree when its owner, or its root, is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    #[default]
    Kill,
    Keep,
}

/// How the root ended, as `wait` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
}

impl ExitStatus {
    pub fn code(self) -> Option<i32> {
        if let Self::Code(code) = self { Some(code) } else { None }
    }

    pub fn signal(self) -> Option<i32> {
        if let Self::Signal(signal) = self { Some(signal) } else { None }
    }
}
