//! A run's life, decided without clock and without I/O.
//!
//! [`lifecycle::Lifecycle`] is the one path by which a tree is ended, whatever the cause: it is told what
//! happened and when, and answers what to do. [`silence::Silence`] decides when a command has been quiet for too long,
//! [`reason`] says in one word and in one sentence how it all ended.

pub mod lifecycle;
pub mod reason;
pub mod signal;
pub mod silence;

use serde::{Deserialize, Serialize};

/// What everybody sees of a run's life: `starting → running → exiting → exited`, and never back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is written down, and its command is being executed.
    Starting,
    Running,
    /// Its tree is being ended.
    Exiting,
    /// Nothing of it exists, but for survivors that were reported.
    Exited,
}

/// Why a tree is being ended. The first cause wins: a cancel that arrives after the root has exited by itself
/// does not make the run a cancelled one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// The root ended by itself, and the rest follows it.
    RootExit,
    /// Somebody asked for it.
    Cancel,
    /// The overall deadline passed.
    OverallTimeout,
    /// Nothing was heard of it for too long.
    NoOutputTimeout,
    /// The bot is gone.
    OwnerExit,
    /// Somebody has signalled the keeper: the machine, the session or the service is being shut down.
    Shutdown,
}

impl Cause {
    const ALL: [Self; 6] = [
        Self::RootExit,
        Self::Cancel,
        Self::OverallTimeout,
        Self::NoOutputTimeout,
        Self::OwnerExit,
        Self::Shutdown,
    ];

    /// As the registry and JavaScript name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RootExit => "root-exit",
            Self::Cancel => "cancel",
            Self::OverallTimeout => "overall-timeout",
            Self::NoOutputTimeout => "no-output-timeout",
            Self::OwnerExit => "owner-exit",
            Self::Shutdown => "shutdown",
        }
    }

    /// The cause of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }
}

/// A deadline of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deadline {
    Overall,
    NoOutput,
}

impl Deadline {
    /// As JavaScript names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overall => "overall",
            Self::NoOutput => "no-output",
        }
    }
}

/// What a deadline has used up when it is worth a warning: four fifths.
pub fn warn_after(limit_ms: u64) -> u64 {
    limit_ms - limit_ms / 5
}

/// The most that it took to end a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Force {
    /// Nothing was left to be ended.
    #[default]
    Nothing,
    /// The first signal.
    Signal,
    /// SIGKILL.
    Kill,
}

/// What becomes of the tree when its owner, or its root, is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    #[default]
    Kill,
    Keep,
}

/// How the root ended, as `wait` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// On Windows up to 32 bits, without a sign.
    Code(i64),
    Signal(i32),
}

impl ExitStatus {
    pub fn code(self) -> Option<i64> {
        if let Self::Code(code) = self { Some(code) } else { None }
    }

    pub fn signal(self) -> Option<i32> {
        if let Self::Signal(signal) = self { Some(signal) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_found_by_its_name() {
        for cause in Cause::ALL {
            assert_eq!(Cause::named(cause.name()), Some(cause));
        }
        assert_eq!(Cause::named("lost"), None);
    }

    #[test]
    fn a_warning_leaves_a_fifth() {
        for (limit, expected) in [(0, 0), (1, 1), (5, 4), (10, 8), (30_000, 24_000)] {
            assert_eq!(warn_after(limit), expected);
        }
        assert!(warn_after(u64::MAX) < u64::MAX);
    }

    /// Node has both as arguments of `exit`, and one of them is always null.
    #[test]
    fn an_end_is_a_code_or_a_signal_and_never_both() {
        for (status, code, signal) in [
            (ExitStatus::Code(0), Some(0), None),
            (ExitStatus::Code(0xc000_0005), Some(0xc000_0005), None),
            (ExitStatus::Signal(9), None, Some(9)),
        ] {
            assert_eq!((status.code(), status.signal()), (code, signal), "{status:?}");
        }
    }
}
