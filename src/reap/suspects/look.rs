//! Searches for suspects, and ends those that the caller selects.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;
use std::{fmt, io};

use serde::Serialize;

#[cfg(target_os = "linux")]
use super::linux::details;
#[cfg(target_os = "macos")]
use super::macos::details;
#[cfg(windows)]
use super::windows::details;
use super::{Id, Scene, Seen, Suspect, suspects};
use crate::contain::outside::{Scan, Target, end_tree};
use crate::identity::{ProcessRef, State};
use crate::reap::in_parallel;
use crate::reap::observe::target;
use crate::registry::{Contents, Instance, RegistryError, UnreadableContent};
use crate::run::lifecycle::KILL_LIMIT_MS;
use crate::run::signal::SIGTERM;

/// Why the search failed.
#[derive(Debug)]
pub enum LookError {
    Registry(RegistryError),
    Processes(io::Error),
}

impl LookError {
    /// The `code` of the JS error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Registry(error) => error.code(),
            Self::Processes(_) => "ERR_OWNED_UNKNOWN_PROCESS",
        }
    }
}

impl fmt::Display for LookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(error) => error.fmt(f),
            Self::Processes(error) => {
                let hint = if cfg!(target_os = "linux") {
                    "Check that /proc is mounted."
                } else {
                    "Check that this user may list processes."
                };
                write!(
                    f,
                    "the processes of this system cannot be listed: {error}. No process was signalled. {hint}"
                )
            }
        }
    }
}

/// All processes at one moment, and the owners and runs among them.
#[derive(Debug)]
pub struct Look {
    seen: HashMap<i32, Seen>,
    off_limits: HashSet<i32>,
    owners: HashSet<Id>,
    taken: HashSet<Id>,
    flaw: Option<UnreadableContent>,
}

impl Look {
    /// Fails if the registry could not be read completely. Then a process may belong to an unknown
    /// entry, so none counts as a suspect.
    pub fn whole(self) -> Result<Self, LookError> {
        match self.flaw {
            Some(UnreadableContent { path, message, .. }) => {
                let why = format!(
                    "no suspect was ended, because each may be an owned process that the registry names: {message}"
                );
                Err(LookError::Registry(RegistryError::Corrupt { path, why }))
            }
            None => Ok(self),
        }
    }

    /// Lists the processes first and reads the registry second: a process that is registered in
    /// between is then no suspect. In the other order it would be one. (A process whose entry is
    /// removed in between has ended, or belongs to no run from now on.)
    pub fn take(instance: &Instance) -> Result<Self, LookError> {
        let scan = Scan::take().map_err(LookError::Processes)?;
        let Contents { table, flaw } = instance.registry.contents().map_err(LookError::Registry)?;
        let mut owners = HashSet::from([id(instance.registry.me())]);
        let mut taken = HashSet::new();
        for record in table.sorted() {
            let is_alive = |owner: &&ProcessRef| scan.state(owner) == State::Alive;
            owners.extend(record.bot_start_token.as_ref().filter(is_alive).map(id));
            let Some(root) = &record.start_token else {
                // An entry of an old format has only a PID: the process that has it now is no
                // suspect.
                taken.extend(ProcessRef::capture(record.pid).ok().as_ref().map(id));
                continue;
            };
            taken.insert(id(root));
            let target = target(record, root);
            if scan.may_have(&target) {
                taken.extend(scan.living(&target).map_err(LookError::Processes)?.iter().map(id));
            }
        }
        let seen = scan.all_processes().into_iter().map(|stat| {
            let details = details(&stat);
            (stat.pid, Seen { stat, details })
        });
        Ok(Self { seen: seen.collect(), off_limits: scan.off_limits().clone(), owners, taken, flaw })
    }

    pub fn suspects<'a>(&'a self, project: Option<&'a Path>) -> Vec<Suspect<'a>> {
        let Self { seen, off_limits, owners, taken, .. } = self;
        suspects(&Scene { seen, off_limits, owners, taken, project })
    }
}

/// The outcome for a suspect that the caller wanted to end.
#[derive(Debug, Serialize)]
pub struct Settled {
    pub outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Ended,
    Skipped,
    Failed,
}

/// Ends suspects and their descendants: SIGTERM, `grace`, SIGKILL. Returns one outcome per process.
/// Blocks up to the grace period.
///
/// The caller saw the suspects some time ago. Since then, a bot may have registered one, or one may
/// have become a bot. So this searches again and ends only processes that are still suspects. Each
/// signal verifies the identity once more.
pub fn end(
    instance: &Instance,
    wanted: Vec<ProcessRef>,
    project: Option<&Path>,
    grace: Duration,
) -> Result<Vec<Settled>, LookError> {
    let look = Look::take(instance)?.whole()?;
    let suspected: HashSet<Id> =
        look.suspects(project).iter().map(|suspect| (suspect.stat.pid, suspect.stat.start)).collect();
    Ok(in_parallel(wanted, |process| {
        // The PID of a token from another boot or namespace belongs to another process here.
        let is_suspect = process.state_without_lookup().is_none() && suspected.contains(&id(&process));
        if is_suspect { end_one(&process, grace) } else { untouched(&process) }
    }))
}

fn end_one(root: &ProcessRef, grace: Duration) -> Settled {
    // A group leader has not necessarily started the members of its group: in a pipeline at a
    // terminal, a member may be a bot.
    let target = Target { leads_group: false, spawned: false, ..Target::spawned(root, None) };
    let ended = end_tree(&target, SIGTERM, grace, Duration::from_millis(KILL_LIMIT_MS));
    let error = ended.failure();
    // It was alive a moment ago. If it is gone now, another suspect that is its ancestor was ended.
    let outcome = if error.is_some() { Outcome::Failed } else { Outcome::Ended };
    Settled { outcome, error }
}

fn untouched(process: &ProcessRef) -> Settled {
    let why = match process.state() {
        State::Exited | State::Recycled => "it had already ended by itself",
        State::Alive | State::Unknown => {
            "it is no suspect any more: it has an owner now, or has left the project directory"
        }
    };
    Settled { outcome: Outcome::Skipped, error: Some(why.to_owned()) }
}

fn id(process: &ProcessRef) -> Id {
    (process.pid, process.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// macOS and Windows have no /proc.
    #[test]
    fn an_error_names_proc_only_on_linux() {
        let message = LookError::Processes(io::Error::other("no permission")).to_string();
        assert!(message.contains("no permission. No process was signalled."), "{message}");
        assert_eq!(message.contains("/proc"), cfg!(target_os = "linux"), "{message}");
    }
}
