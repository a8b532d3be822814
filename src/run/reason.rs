//! How a run ended, in one word. Pure.

use serde::{Deserialize, Serialize};

use super::{Cause, ExitStatus};

/// How a tree came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// As its keeper reported.
    Kept(Cause),
    /// The keeper was killed; the tree was ended from outside.
    Lost,
    /// It had ended before anybody could ask, and nobody knows how.
    Gone,
}

impl Ending {
    /// As the registry and JavaScript name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kept(cause) => cause.name(),
            Self::Lost => "lost",
            Self::Gone => "gone",
        }
    }

    /// The ending of that name.
    pub fn named(name: &str) -> Option<Self> {
        let others = [Self::Lost, Self::Gone];
        Cause::named(name).map(Self::Kept).or_else(|| others.into_iter().find(|ending| ending.name() == name))
    }
}

/// What a run reports as the reason of its end.
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

    /// The reason of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// The truth about an end: `asked` is what the cancel that did it wants the reason to be, `escaped` how many had left the
    /// session when the root ended by itself.
    pub fn of(ending: Ending, asked: &str, status: Option<ExitStatus>, escaped: usize) -> Self {
        match ending {
            // Another version of us may have words of its own.
            Ending::Kept(Cause::Cancel) => Self::named(asked).unwrap_or(Self::ManualCancel),
            Ending::Kept(Cause::RootExit) if escaped > 0 => Self::OwnershipEscape,
            Ending::Kept(Cause::RootExit) => match status {
                Some(ExitStatus::Signal(_)) => Self::Signal,
                _ => Self::Exit,
            },
            Ending::Kept(Cause::OverallTimeout) => Self::OverallTimeout,
            Ending::Kept(Cause::NoOutputTimeout) => Self::NoOutputTimeout,
            Ending::Kept(Cause::OwnerExit) => Self::OwnerExit,
            Ending::Kept(Cause::Shutdown) => Self::Shutdown,
            Ending::Lost => Self::Lost,
            Ending::Gone => Self::Exit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_one_truthful_reason() {
        let code = Some(ExitStatus::Code(0));
        let signal = Some(ExitStatus::Signal(9));
        for (ending, asked, status, escaped, expected) in [
            (Ending::Kept(Cause::RootExit), "", code, 0, Reason::Exit),
            (Ending::Kept(Cause::RootExit), "", None, 0, Reason::Exit),
            (Ending::Kept(Cause::RootExit), "", signal, 0, Reason::Signal),
            (Ending::Kept(Cause::RootExit), "", code, 1, Reason::OwnershipEscape),
            (Ending::Kept(Cause::RootExit), "", signal, 1, Reason::OwnershipEscape),
            // A group kill must not make the run look as if it had exited.
            (Ending::Kept(Cause::Cancel), "manual-cancel", signal, 0, Reason::ManualCancel),
            (Ending::Kept(Cause::Cancel), "", code, 0, Reason::ManualCancel),
            (Ending::Kept(Cause::Cancel), "of another version", code, 0, Reason::ManualCancel),
            (Ending::Kept(Cause::Cancel), "shutdown", signal, 3, Reason::Shutdown),
            (Ending::Kept(Cause::OverallTimeout), "", signal, 0, Reason::OverallTimeout),
            (Ending::Kept(Cause::NoOutputTimeout), "", code, 0, Reason::NoOutputTimeout),
            (Ending::Kept(Cause::OwnerExit), "", signal, 0, Reason::OwnerExit),
            (Ending::Kept(Cause::Shutdown), "", signal, 0, Reason::Shutdown),
            (Ending::Lost, "", None, 0, Reason::Lost),
            (Ending::Gone, "", None, 0, Reason::Exit),
        ] {
            assert_eq!(Reason::of(ending, asked, status, escaped), expected, "{ending:?} {asked} {status:?}");
        }
    }

    #[test]
    fn names_are_those_that_are_written_and_read() {
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
        for ending in [Ending::Kept(Cause::NoOutputTimeout), Ending::Lost, Ending::Gone] {
            assert_eq!(Ending::named(ending.name()), Some(ending));
        }
        assert_eq!(Ending::named("else"), None);
    }
}
