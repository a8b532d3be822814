//! Looks for suspects, and ends those that somebody wants ended.

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
use crate::reap::observe::target;
use crate::reap::{at_once, end::failure_of};
use crate::registry::{Instance, RegistryError};
use crate::run::lifecycle::KILL_LIMIT_MS;
use crate::run::signal::SIGTERM;

/// Why nobody could be looked for.
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
                write!(
                    f,
                    "the processes of this system cannot be looked at: {error}. Nobody was touched. Is /proc mounted?"
                )
            }
        }
    }
}

/// One look at all processes, and at who answers for them.
#[derive(Debug)]
pub struct Look {
    seen: HashMap<i32, Seen>,
    off_limits: HashSet<i32>,
    owners: HashSet<Id>,
    taken: HashSet<Id>,
}

impl Look {
    /// First the processes, then the registry: whoever is entered in between is nobody's suspect. (The other way round it would be.
    /// And who has left the registry in between has ended, or is nobody's from now on.)
    pub fn take(instance: &Instance) -> Result<Self, LookError> {
        let scan = Scan::take().map_err(LookError::Processes)?;
        let table = instance.registry.load().map_err(LookError::Registry)?;
        let mut owners = HashSet::from([id(instance.registry.me())]);
        let mut taken = HashSet::new();
        for record in table.sorted() {
            let is_alive = |owner: &&ProcessRef| scan.state(owner) == State::Alive;
            owners.extend(record.bot_start_token.as_ref().filter(is_alive).map(id));
            let Some(root) = &record.start_token else {
                // An old entry names its process by number: whoever has that now is not to be suspected for it.
                taken.extend(ProcessRef::capture(record.pid).ok().as_ref().map(id));
                continue;
            };
            taken.insert(id(root));
            let target = target(record, root);
            if scan.may_have(&target) {
                taken.extend(scan.living(&target).map_err(LookError::Processes)?.iter().map(id));
            }
        }
        let seen = scan.everybody().into_iter().map(|stat| {
            let details = details(&stat);
            (stat.pid, Seen { stat, details })
        });
        Ok(Self { seen: seen.collect(), off_limits: scan.off_limits().clone(), owners, taken })
    }

    pub fn suspects<'a>(&'a self, project: Option<&'a Path>) -> Vec<Suspect<'a>> {
        let Self { seen, off_limits, owners, taken } = self;
        suspects(&Scene { seen, off_limits, owners, taken, project })
    }
}

/// What has become of a suspect that was to be ended.
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

/// Ends suspects, and what descends from them: SIGTERM, `grace`, SIGKILL. One outcome for each. Blocks for as long as the grace.
///
/// They were seen a while ago, and a bot may have entered one of them since, or become one itself. So there is another look, and only who
/// is still to be suspected is touched; each by its identity, which has the last word at every signal.
pub fn end(
    instance: &Instance,
    wanted: Vec<ProcessRef>,
    project: Option<&Path>,
    grace: Duration,
) -> Result<Vec<Settled>, LookError> {
    let look = Look::take(instance)?;
    let suspected: HashSet<Id> =
        look.suspects(project).iter().map(|suspect| (suspect.stat.pid, suspect.stat.start)).collect();
    Ok(at_once(wanted, |process| {
        // A token of another boot or namespace has numbers that mean somebody else here.
        let is_suspect = process.without_a_look().is_none() && suspected.contains(&id(&process));
        if is_suspect { end_one(&process, grace) } else { untouched(&process) }
    }))
}

fn end_one(root: &ProcessRef, grace: Duration) -> Settled {
    let target = Target {
        root,
        // Whoever leads a group need not have started who is in it: in a pipeline at a terminal that may be a bot.
        leads_group: false,
        run_id: None,
        members: &[],
        #[cfg(unix)]
        cgroup: None,
        #[cfg(windows)]
        job: None,
    };
    let ended = end_tree(&target, SIGTERM, grace, Duration::from_millis(KILL_LIMIT_MS));
    let error = failure_of(&ended.survivors);
    // It was alive a moment ago. If it is not found any more, that is because another suspect, above it, was ended.
    let outcome = if error.is_some() { Outcome::Failed } else { Outcome::Ended };
    Settled { outcome, error }
}

fn untouched(process: &ProcessRef) -> Settled {
    let why = match process.state() {
        State::Exited | State::Recycled => "it had ended by the time it was to be ended",
        State::Alive | State::Unknown => {
            "it is no suspect any more: somebody answers for it, or it has moved on"
        }
    };
    Settled { outcome: Outcome::Skipped, error: Some(why.to_owned()) }
}

fn id(process: &ProcessRef) -> Id {
    (process.pid, process.start)
}
