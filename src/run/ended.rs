//! How a run ended: the one type for it. Pure.
//!
//! Other forms exist only where the data leaves this process: the registry's JSON
//! (`registry::Exit`) and the values for JavaScript (`node::convert::End`). Keepers send this type
//! itself, so its field order is a part of the protocol (`keeper::protocol::VERSION`).

use serde::{Deserialize, Serialize};

use super::reason::{Ending, Reason};
use super::{Cause, ExitStatus, Force};

/// The maximum length of each list of processes in a report.
pub const MAX_LISTED: usize = 1024;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// A keeper reports a [`Cause`], and cannot report any other ending.
    #[serde(with = "as_cause")]
    pub ending: Ending,
    /// The reason that the cancel requested, or that the registry recorded, by name. Empty if there
    /// is none. Another version may have written a name that this version does not know.
    pub named_reason: String,
    /// The limit of the deadline that ended the run; 0 if no deadline did.
    pub limit_ms: u64,
    pub force: Force,
    /// The members that outlived a root that exited by itself, and that were ended.
    pub leftovers: Vec<ProcessInfo>,
    /// The leftovers that had left the root's session.
    pub escaped: Vec<ProcessInfo>,
    /// The members that needed SIGKILL. On Windows: those that were terminated with the job.
    pub forced: Vec<ProcessInfo>,
    /// The processes that could not be ended.
    pub survivors: Vec<ProcessInfo>,
    pub unlisted: Unlisted,
    /// The exit status of the root process, if known. A keeper sends it earlier, in its own report.
    #[serde(skip)]
    pub status: Option<ExitStatus>,
}

/// A process in a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    pub pid: i32,
    /// The start token, see `crate::identity`.
    pub start: u64,
    /// The command name that the kernel reports.
    pub command: String,
    /// Why the process is in this report, as text for people.
    pub why: String,
}

/// How many processes each list of a report omits, because the size of a message is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Unlisted {
    pub leftovers: u32,
    pub escaped: u32,
    pub forced: u32,
    pub survivors: u32,
}

impl Ended {
    /// An end without a reason, an exit status or processes.
    pub fn new(ending: Ending) -> Self {
        Self {
            ending,
            named_reason: String::new(),
            limit_ms: 0,
            force: Force::Nothing,
            leftovers: Vec::new(),
            escaped: Vec::new(),
            forced: Vec::new(),
            survivors: Vec::new(),
            unlisted: Unlisted::default(),
            status: None,
        }
    }

    /// The reason for people: the named one if this version knows it, otherwise the usual one of the
    /// ending.
    pub fn reason(&self) -> Reason {
        let usual = Reason::of(self.ending, &self.named_reason, self.status, self.escaped.len());
        match self.ending {
            Ending::Cause(_) => Reason::named(&self.named_reason).unwrap_or(usual),
            // No process requested these endings, whatever the last request was.
            Ending::KeeperLost | Ending::AlreadyEnded => usual,
        }
    }

    /// Whether a bot or a keeper ended the run. False if it ended by itself.
    pub fn was_terminated(&self) -> bool {
        !matches!(self.ending, Ending::AlreadyEnded | Ending::Cause(Cause::RootExit))
    }

    /// The number of processes that could not be ended, listed or not.
    pub fn survivor_count(&self) -> usize {
        self.survivors.len() + self.unlisted.survivors as usize
    }

    /// Why the tree is not gone. `None` if it is gone.
    pub fn failure(&self) -> Option<String> {
        let first = self.survivors.first()?;
        let more = match self.survivors.len() {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        Some(format!("process {} ({}) could not be ended: {}{more}", first.pid, first.command, first.why))
    }
}

/// The ending in a keeper's report: its cause alone.
mod as_cause {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

    use super::{Cause, Ending};

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde requires this signature.
    pub fn serialize<S: Serializer>(ending: &Ending, serializer: S) -> Result<S::Ok, S::Error> {
        match ending {
            Ending::Cause(cause) => cause.serialize(serializer),
            Ending::KeeperLost | Ending::AlreadyEnded => {
                Err(ser::Error::custom("a keeper does not report this ending"))
            }
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Ending, D::Error> {
        Cause::deserialize(deserializer).map(Ending::Cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_reason_counts_only_if_it_is_known_and_the_ending_has_a_cause() {
        let escape =
            Ended { named_reason: "ownership-escape".into(), ..Ended::new(Ending::Cause(Cause::RootExit)) };
        for (ended, expected) in [
            (escape.clone(), Reason::OwnershipEscape),
            (Ended { named_reason: String::new(), ..escape.clone() }, Reason::Exit),
            (Ended { ending: Ending::KeeperLost, ..escape.clone() }, Reason::Lost),
            (Ended { ending: Ending::AlreadyEnded, ..escape.clone() }, Reason::Exit),
            (
                Ended {
                    named_reason: "of another version".into(),
                    status: Some(ExitStatus::Signal(9)),
                    ..Ended::new(Ending::Cause(Cause::RootExit))
                },
                Reason::Signal,
            ),
            (
                Ended { named_reason: "shutdown".into(), ..Ended::new(Ending::Cause(Cause::Cancel)) },
                Reason::Shutdown,
            ),
            (Ended::new(Ending::Cause(Cause::Cancel)), Reason::ManualCancel),
        ] {
            assert_eq!(ended.reason(), expected, "{ended:?}");
        }
    }

    #[test]
    fn a_run_that_ended_by_itself_was_not_terminated() {
        for (ending, expected) in [
            (Ending::Cause(Cause::RootExit), false),
            (Ending::AlreadyEnded, false),
            (Ending::Cause(Cause::Cancel), true),
            (Ending::Cause(Cause::OverallTimeout), true),
            (Ending::KeeperLost, true),
        ] {
            assert_eq!(Ended::new(ending).was_terminated(), expected, "{ending:?}");
        }
    }

    #[test]
    fn a_keeper_cannot_report_an_ending_without_a_cause() {
        for ending in [Ending::KeeperLost, Ending::AlreadyEnded] {
            assert!(serde_json::to_string(&Ended::new(ending)).is_err());
        }
    }

    #[test]
    fn a_failure_names_the_first_survivor_and_counts_the_others() {
        let survivor = ProcessInfo { pid: 7, start: 1, command: "sh".into(), why: "no permission".into() };
        let mut ended = Ended::new(Ending::KeeperLost);
        assert_eq!((ended.failure(), ended.survivor_count()), (None, 0));
        ended.survivors = vec![survivor.clone()];
        assert_eq!(ended.failure().unwrap(), "process 7 (sh) could not be ended: no permission");
        ended.survivors.push(survivor);
        assert!(ended.failure().unwrap().ends_with("no permission, and 1 more"));
        ended.unlisted.survivors = 3;
        assert_eq!(ended.survivor_count(), 5);
    }
}
