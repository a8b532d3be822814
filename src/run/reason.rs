//! What ended a run, and the reason that people read for it. Pure.

use serde::{Deserialize, Serialize};

use super::{Cause, ExitStatus};

/// What ended a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// A cause that the run's keeper, or the bot that ended it, knows.
    Cause(Cause),
    /// The keeper was killed, and another process ended the tree.
    KeeperLost,
    /// The tree had ended before a bot could ask for its status, so the cause is unknown.
    AlreadyEnded,
}

impl Ending {
    /// The name in the registry and in JavaScript.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cause(cause) => cause.name(),
            Self::KeeperLost => "lost",
            Self::AlreadyEnded => "gone",
        }
    }

    /// The ending with that name.
    pub fn named(name: &str) -> Option<Self> {
        let others = [Self::KeeperLost, Self::AlreadyEnded];
        Cause::named(name)
            .map(Self::Cause)
            .or_else(|| others.into_iter().find(|ending| ending.name() == name))
    }
}

/// The reported reason for the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    Exit,
    Signal,
    ManualCancel,
    OverallTimeout,
    NoOutputTimeout,
    SpawnError,
    OwnershipEscape,
    OwnerExit,
    Shutdown,
    Lost,
}

impl Reason {
    pub const ALL: [Self; 10] = [
        Self::Exit,
        Self::Signal,
        Self::ManualCancel,
        Self::OverallTimeout,
        Self::NoOutputTimeout,
        Self::SpawnError,
        Self::OwnershipEscape,
        Self::OwnerExit,
        Self::Shutdown,
        Self::Lost,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::ManualCancel => "manual-cancel",
            Self::OverallTimeout => "overall-timeout",
            Self::NoOutputTimeout => "no-output-timeout",
            Self::SpawnError => "spawn-error",
            Self::OwnershipEscape => "ownership-escape",
            Self::OwnerExit => "owner-exit",
            Self::Shutdown => "shutdown",
            Self::Lost => "lost",
        }
    }

    /// The reason with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// The reason for an ending.
    ///
    /// `requested` is the reason that the cancel request names. `escaped` is the number of
    /// processes that had left the session when the root process exited by itself.
    pub fn of(ending: Ending, requested: &str, status: Option<ExitStatus>, escaped: usize) -> Self {
        match ending {
            // Another version may send a reason that this version does not know.
            Ending::Cause(Cause::Cancel) => Self::named(requested).unwrap_or(Self::ManualCancel),
            Ending::Cause(Cause::RootExit) if escaped > 0 => Self::OwnershipEscape,
            Ending::Cause(Cause::RootExit) => match status {
                Some(ExitStatus::Signal(_)) => Self::Signal,
                _ => Self::Exit,
            },
            Ending::Cause(Cause::OverallTimeout) => Self::OverallTimeout,
            Ending::Cause(Cause::NoOutputTimeout) => Self::NoOutputTimeout,
            Ending::Cause(Cause::OwnerExit) => Self::OwnerExit,
            Ending::Cause(Cause::Shutdown) => Self::Shutdown,
            Ending::KeeperLost => Self::Lost,
            Ending::AlreadyEnded => Self::Exit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_has_one_reason() {
        let code = Some(ExitStatus::Code(0));
        let signal = Some(ExitStatus::Signal(9));
        for (ending, requested, status, escaped, expected) in [
            (Ending::Cause(Cause::RootExit), "", code, 0, Reason::Exit),
            (Ending::Cause(Cause::RootExit), "", None, 0, Reason::Exit),
            (Ending::Cause(Cause::RootExit), "", signal, 0, Reason::Signal),
            (Ending::Cause(Cause::RootExit), "", code, 1, Reason::OwnershipEscape),
            (Ending::Cause(Cause::RootExit), "", signal, 1, Reason::OwnershipEscape),
            // A cancel kills the whole group; the run must not look as if the command had exited by
            // itself.
            (Ending::Cause(Cause::Cancel), "manual-cancel", signal, 0, Reason::ManualCancel),
            (Ending::Cause(Cause::Cancel), "", code, 0, Reason::ManualCancel),
            (Ending::Cause(Cause::Cancel), "of another version", code, 0, Reason::ManualCancel),
            (Ending::Cause(Cause::Cancel), "shutdown", signal, 3, Reason::Shutdown),
            (Ending::Cause(Cause::OverallTimeout), "", signal, 0, Reason::OverallTimeout),
            (Ending::Cause(Cause::NoOutputTimeout), "", code, 0, Reason::NoOutputTimeout),
            (Ending::Cause(Cause::OwnerExit), "", signal, 0, Reason::OwnerExit),
            (Ending::Cause(Cause::Shutdown), "", signal, 0, Reason::Shutdown),
            (Ending::KeeperLost, "", None, 0, Reason::Lost),
            (Ending::AlreadyEnded, "", None, 0, Reason::Exit),
        ] {
            assert_eq!(
                Reason::of(ending, requested, status, escaped),
                expected,
                "{ending:?} {requested} {status:?}"
            );
        }
    }

    #[test]
    fn names_are_encoded_and_found_again() {
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
        for ending in [Ending::Cause(Cause::NoOutputTimeout), Ending::KeeperLost, Ending::AlreadyEnded] {
            assert_eq!(Ending::named(ending.name()), Some(ending));
        }
        assert_eq!(Ending::named("else"), None);
    }
}
