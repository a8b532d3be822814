//! The life of a run, decided without a clock and without I/O.
//!
//! [`lifecycle::Lifecycle`] is the only way to end a tree, whatever the cause. It gets events with
//! their times, and returns what to do. [`idle_timeout::IdleTimeout`] decides when a command has
//! written no output for too long. [`ended`] says how a run ended, and [`reason`] why, for people.

#[cfg(any(windows, test))]
pub mod ctrl_break;
pub mod ended;
pub mod forced;
pub mod idle_timeout;
pub mod lifecycle;
pub mod reason;
pub mod signal;

pub use ended::{Ended, MAX_LISTED, ProcessInfo, Unlisted};
pub use forced::Forced;

use serde::{Deserialize, Serialize};

/// The visible state of a run: `starting → running → exiting → exited`, never backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The registry entry is written, and the command is being started.
    Starting,
    Running,
    /// The tree is being ended.
    Exiting,
    /// No process of the tree is left, except reported survivors.
    Exited,
}

/// Why a tree is being ended.
///
/// The first cause counts: a cancel after the root process has exited by itself does not turn the
/// exit into a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// The root process exited by itself, and the rest of the tree is ended.
    RootExit,
    /// The caller cancelled the run.
    Cancel,
    /// The overall deadline has passed.
    OverallTimeout,
    /// The command wrote no output for too long.
    NoOutputTimeout,
    /// The bot is gone.
    OwnerExit,
    /// The keeper got a termination signal: the machine, the session or the service is shutting
    /// down.
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

    /// The name in the registry and in JavaScript.
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

    /// The cause with that name.
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
    /// The name in JavaScript.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overall => "overall",
            Self::NoOutput => "no-output",
        }
    }
}

/// When to warn about a deadline: after four fifths of it.
pub fn warn_after(limit_ms: u64) -> u64 {
    limit_ms - limit_ms / 5
}

/// The strongest means that was needed to end a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Force {
    /// No process was left to end.
    #[default]
    Nothing,
    /// The first signal.
    Signal,
    /// SIGKILL.
    Kill,
}

/// What to do with the tree when its owner, or its root process, is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    #[default]
    Kill,
    Keep,
}

/// The exit status of the root process, as `wait` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// On Windows an unsigned 32-bit value.
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
    fn named_finds_every_cause_by_its_name() {
        for cause in Cause::ALL {
            assert_eq!(Cause::named(cause.name()), Some(cause));
        }
        assert_eq!(Cause::named("lost"), None);
    }

    #[test]
    fn a_warning_comes_after_four_fifths_of_the_limit() {
        for (limit, expected) in [(0, 0), (1, 1), (5, 4), (10, 8), (30_000, 24_000)] {
            assert_eq!(warn_after(limit), expected);
        }
        assert!(warn_after(u64::MAX) < u64::MAX);
    }

    /// Node passes both to `exit` listeners, and one of them is always null.
    #[test]
    fn an_exit_status_is_a_code_or_a_signal_and_never_both() {
        for (status, code, signal) in [
            (ExitStatus::Code(0), Some(0), None),
            (ExitStatus::Code(0xc000_0005), Some(0xc000_0005), None),
            (ExitStatus::Signal(9), None, Some(9)),
        ] {
            assert_eq!((status.code(), status.signal()), (code, signal), "{status:?}");
        }
    }
}
