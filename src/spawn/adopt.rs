//! Adopts a run that outlived its bot.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::errno::Errno;
use crate::identity::ProcessRef;

use super::deadlines::Deadlines;
use super::run::Run;
use super::run_monitor::RunMonitor;
use super::{OnEvent, RunEvent, count_end, keeper_connection, watch};
use crate::reap;
use crate::reap::classify::Action;
use crate::registry::{Claim, Entry, Exit, Instance, Record, RegistryError, State};
use crate::run::reason::Ending;
use crate::run::{Cause, Ended};
use crate::runtime::{self, Runtime};

/// How long a keeper that has closed its control socket may take to exit.
const EXIT_LIMIT: Duration = Duration::from_millis(500);

/// Why a run was not adopted.
#[derive(Debug)]
pub enum AdoptError {
    NotFound,
    /// The run has a live owner, which may be this process.
    Owned {
        reason: String,
        by_us: bool,
    },
    /// The process is not proven to be the recorded one, or its keeper refuses this owner.
    Refused {
        reason: String,
    },
    Registry(RegistryError),
}

impl AdoptError {
    /// The `code` of the JS error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound => "ERR_OWNED_NOT_FOUND",
            Self::Owned { by_us: true, .. } => "ERR_OWNED_ALREADY_OWNED",
            Self::Owned { by_us: false, .. } => "ERR_OWNED_OWNER_ALIVE",
            Self::Refused { .. } => "ERR_OWNED_NOT_ADOPTED",
            Self::Registry(error) => error.code(),
        }
    }
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => {
                write!(f, "the run has no live process, and its end was not recorded. Start a new run.")
            }
            Self::Owned { reason, .. } => {
                write!(f, "the run has an owner: {reason}. Cancel it, or wait until its owner exits.")
            }
            Self::Refused { reason } => write!(
                f,
                "the run was not adopted: {reason}. It was not changed. Cancel it, or call reapOrphans(), which ends it if it is proven to be ours."
            ),
            Self::Registry(error) => write!(f, "{error}"),
        }
    }
}

impl From<RegistryError> for AdoptError {
    fn from(error: RegistryError) -> Self {
        Self::Registry(error)
    }
}

/// Becomes the owner of a run and monitors it. `None` if the run has no keeper. Blocks.
///
/// Records the claim first: of two bots that claim the same run, the first claim in the journal
/// wins.
pub fn adopt(owner: &Instance, key: &str, on_event: OnEvent) -> Result<Option<Run>, AdoptError> {
    let runtime = runtime::get().map_err(|error| AdoptError::Refused { reason: error.to_string() })?;
    let (entry, record, former) = claim_entry(owner, key)?;
    if record.state == State::Exited {
        return report_recorded_end(owner, &entry, &record, &former, &with_counting(owner, on_event));
    }
    let run = listen(owner, runtime, entry, record, &former, on_event)?;
    owner.counters.reconciled(1);
    Ok(run)
}

/// Connects to the run's keeper as its new owner, if it has one, and monitors the run until its
/// end.
fn listen(
    owner: &Instance,
    runtime: &'static Runtime,
    entry: Entry,
    record: Record,
    former: &Record,
    on_event: OnEvent,
) -> Result<Option<Run>, AdoptError> {
    let (Some(keeper), Some(root)) = (record.keeper.clone(), record.start_token.clone()) else {
        runtime.loop_handle.spawn(watch::watch(entry, record, Some(with_counting(owner, on_event))));
        return Ok(None);
    };
    match keeper_connection::take_over(&keeper, &root, &record, &entry) {
        Ok((connection, reports)) => {
            keeper_connection::record_keeper(owner, &record);
            // The former bot may have died before it recorded this.
            entry.started();
            let held_by = record.cgroup.or(record.job);
            let run = Run::new(connection, runtime, entry, record.grace_ms, Deadlines::new(None, None), None);
            let monitor = RunMonitor {
                run: run.clone(),
                exec: None,
                reports: Some(reports),
                root,
                held_by,
                origin: None,
                cookie_key: record.cookie_key,
                counters: owner.counters.clone(),
                on_event,
            };
            runtime.loop_handle.spawn(monitor.listen());
            Ok(Some(run))
        }
        // Without its keeper, the run is watched like a registered process.
        Err(Errno::ESRCH) => watch_without_keeper(owner, runtime, entry, record, former, on_event),
        // The keeper exited during the connection attempt.
        Err(errno) if errno != Errno::EBUSY && is_gone(&keeper.start_token) => {
            watch_without_keeper(owner, runtime, entry, record, former, on_event)
        }
        Err(errno) => {
            // The run may have an owner after all, and must not lose it.
            owner.registry.give_back(former, &owner.id)?;
            Err(AdoptError::Refused { reason: format!("its keeper refused a new owner ({errno})") })
        }
    }
}

/// Reports or watches a run whose keeper is gone. A keeper exits when its tree is extinct, and
/// records the end first. Then this reports the recorded end. A killed keeper has recorded
/// nothing. Then this watches the rest of its tree.
fn watch_without_keeper(
    owner: &Instance,
    runtime: &'static Runtime,
    entry: Entry,
    record: Record,
    former: &Record,
    on_event: OnEvent,
) -> Result<Option<Run>, AdoptError> {
    let on_event = with_counting(owner, on_event);
    // If the registry cannot be read, the entry is still ours, and its process must be watched.
    let now = owner.registry.load().ok().and_then(|table| table.get(&record.key()).cloned());
    let Some(ended) = now.filter(|now| now.state == State::Exited) else {
        runtime.loop_handle.spawn(watch::watch(entry, record, Some(on_event)));
        return Ok(None);
    };
    report_recorded_end(owner, &entry, &ended, former, &on_event)
}

/// Reports the recorded end of a run.
fn report_recorded_end(
    owner: &Instance,
    entry: &Entry,
    ended: &Record,
    former: &Record,
    on_event: &OnEvent,
) -> Result<Option<Run>, AdoptError> {
    if ended.exit.as_ref().is_some_and(|exit| exit.survivors > 0) {
        // The entry leads to the survivors, so it must stay.
        owner.registry.give_back(former, &owner.id)?;
        return Err(AdoptError::Refused {
            reason: "its root has exited, but some of its processes are alive".to_owned(),
        });
    }
    entry.remove();
    emit_end(ended, on_event);
    Ok(None)
}

/// Whether a keeper has exited, or exits soon. Blocks.
fn is_gone(keeper: &ProcessRef) -> bool {
    match keeper.open_handle() {
        Ok(handle) => handle.wait_exited(Some(EXIT_LIMIT)).unwrap_or(false),
        Err(errno) => errno == Errno::ESRCH,
    }
}

/// Wraps `on_event` so that the end of the run is counted.
fn with_counting(owner: &Instance, on_event: OnEvent) -> OnEvent {
    let counters = owner.counters.clone();
    Arc::new(move |event| {
        if let RunEvent::Extinct(ended) = &event {
            count_end(ended, &counters);
        }
        on_event(event);
    })
}

/// Claims the entry, unless a reaper of this bot has claimed it. Also returns the entry as it was
/// before.
fn claim_entry(owner: &Instance, key: &str) -> Result<(Entry, Record, Record), AdoptError> {
    if let Some(ours) = owner.registry.take_adopted(key) {
        return Ok(ours);
    }
    let table = owner.registry.load()?;
    let record = table.get(key).ok_or(AdoptError::NotFound)?;
    let planned = reap::judge(owner, record);
    match planned.action() {
        Action::Leave => {
            let by_us = record.bot_start_token.as_ref() == Some(owner.registry.me());
            return Err(AdoptError::Owned { reason: planned.reason().to_string(), by_us });
        }
        Action::Drop if record.state != State::Exited => return Err(AdoptError::NotFound),
        Action::DropReused => return Err(AdoptError::NotFound),
        Action::Skip => return Err(AdoptError::Refused { reason: planned.reason().to_string() }),
        Action::Drop | Action::End(_) | Action::Adopt(_) => {}
    }
    let claimed = owner.claim(vec![Claim { key: key.to_owned(), from: record.owner_instance_id.clone() }])?;
    let already_claimed =
        || AdoptError::Owned { reason: "another bot claimed it first".to_owned(), by_us: false };
    owner.adopt(claimed.into_iter().next().ok_or_else(already_claimed)?, record.clone());
    owner.counters.stole(u64::from(planned.is_owned()));
    owner.registry.take_adopted(key).ok_or_else(already_claimed)
}

fn emit_end(record: &Record, on_event: &OnEvent) {
    let by_itself = || Ended::new(Ending::Cause(Cause::RootExit));
    let ended = record.exit.as_ref().map_or_else(by_itself, Exit::ended);
    if let Some(status) = ended.status {
        on_event(RunEvent::RootExited(status));
    }
    on_event(RunEvent::Extinct(ended));
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;

    use super::*;
    use crate::registry::import::tests::{file, ours};
    use crate::registry::{self, Keeper, Line, TestRegistry};

    fn cat() -> (Child, ProcessRef) {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = ProcessRef::capture(child.id().cast_signed()).unwrap();
        (child, process)
    }

    fn exit(mut child: Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    /// When the keeper records the end of its run.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Recorded {
        BeforeClaim,
        /// Between the claim and the adoption.
        AfterClaim,
    }

    /// The run has outlived its bot, and a process of it may have outlived its keeper.
    #[test]
    fn adopt_keeps_the_entry_of_a_run_that_has_survivors() {
        for (recorded, survivors) in [
            (Recorded::BeforeClaim, 0),
            (Recorded::AfterClaim, 0),
            (Recorded::BeforeClaim, 1),
            (Recorded::AfterClaim, 1),
        ] {
            let case = format!("{recorded:?}-{survivors}");
            let TestRegistry(owner) = &TestRegistry::new(&case);
            let ((survivor, root), (keeper, keeper_process)) = (cat(), cat());
            exit(keeper);
            let running = Record {
                pid: root.pid,
                start_token: Some(root.clone()),
                keeper: Some(Keeper { start_token: keeper_process, address: "00000".into() }),
                state: State::Running,
                ..ours(root.pid)
            };
            let key = running.key();
            std::fs::write(owner.registry.path(), file(&[running])).unwrap();
            let record_end = || {
                let exit = Exit {
                    at_ms: registry::now_ms(),
                    reason: "owner-exit".into(),
                    ending: "owner-exit".into(),
                    limit_ms: 0,
                    exit_code: Some(7),
                    signal: None,
                    survivors,
                };
                registry::record_end(owner.registry.path(), &Line::Ended { key: key.clone(), exit }).unwrap();
            };
            if recorded == Recorded::BeforeClaim {
                record_end();
            }
            // Claims the entry like a reaper with the decision to adopt.
            let former = owner.registry.load().unwrap().get(&key).unwrap().clone();
            let claim = Claim { key: key.clone(), from: former.owner_instance_id.clone() };
            let claimed = owner.claim(vec![claim]).unwrap().remove(0);
            owner.adopt(claimed, former.clone());
            if recorded == Recorded::AfterClaim {
                record_end();
            }

            let (sender, events) = mpsc::channel();
            let adopted = adopt(owner, &key, Arc::new(move |event| drop(sender.send(event))));
            let left = owner.registry.load().unwrap().get(&key).cloned();
            let exits: Vec<_> =
                events.try_iter().filter(|event| matches!(event, RunEvent::Extinct(_))).collect();
            if survivors == 0 {
                assert!(matches!(adopted, Ok(None)), "{case}: {adopted:?}");
                assert_eq!((left, exits.len()), (None, 1), "{case}");
            } else {
                assert_eq!(adopted.unwrap_err().code(), "ERR_OWNED_NOT_ADOPTED", "{case}");
                let left = left.unwrap();
                assert_eq!((left.state, left.owner_instance_id), (State::Exited, former.owner_instance_id));
                assert_eq!(exits.len(), 0, "{case}: a run with survivors emits no end");
            }
            exit(survivor);
        }
    }
}
