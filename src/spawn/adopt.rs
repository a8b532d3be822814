//! Taking over a run that outlived its bot.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::errno::Errno;
use crate::identity::ProcessRef;

use super::ears::Ears;
use super::run::Run;
use super::{Extinct, OnEvent, RunEvent, line, watch};
use crate::reap::{self, Verb};
use crate::registry::{Claim, Entry, Instance, Record, RegistryError, State};
use crate::run::reason::{Ending, Reason};
use crate::run::{Cause, ExitStatus, Force};
use crate::runtime::{self, Runtime};

/// A keeper that has closed its door has nothing left to do but to exit.
const LEAVING: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub enum AdoptError {
    NotFound,
    /// Somebody answers for it, and that may be us.
    Owned {
        reason: String,
        by_us: bool,
    },
    /// It is not proven to be what was recorded, or its keeper does not take us.
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
            Self::NotFound => write!(
                f,
                "nothing of the run is alive any more, and how it ended was not recorded. Start it anew."
            ),
            Self::Owned { reason, .. } => {
                write!(f, "the run has an owner: {reason}. Cancel it, or wait until its owner is gone.")
            }
            Self::Refused { reason } => write!(
                f,
                "the run was not taken over: {reason}. It is as it was; cancel it, or reapOrphans() ends it if it is proven to be ours."
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

/// Becomes the owner of a run, and listens to it. `None` if it has no keeper to talk to. Blocks.
///
/// The claim is recorded first: of two bots that want the same run, the one whose claim comes first in the journal gets it.
pub fn adopt(owner: &Instance, key: &str, on_event: OnEvent) -> Result<Option<Run>, AdoptError> {
    let runtime = runtime::get().map_err(|error| AdoptError::Refused { reason: error.to_string() })?;
    let (entry, record, former) = take(owner, key)?;
    if record.state == State::Exited {
        return conclude(owner, &entry, &record, &former, &counted(owner, on_event));
    }
    let run = listen(owner, runtime, entry, record, &former, on_event)?;
    owner.counters.reconciled(1);
    Ok(run)
}

/// Asks its keeper to take us for its owner, if it has one, and follows it to its end.
fn listen(
    owner: &Instance,
    runtime: &'static Runtime,
    entry: Entry,
    record: Record,
    former: &Record,
    on_event: OnEvent,
) -> Result<Option<Run>, AdoptError> {
    let (Some(keeper), Some(root)) = (record.keeper.clone(), record.start_token.clone()) else {
        runtime.loop_handle.spawn(watch::watch(entry, record, Some(counted(owner, on_event))));
        return Ok(None);
    };
    match line::take_over(&keeper, &root, &record, &entry) {
        Ok((line, ear)) => {
            line::note_keeper(owner, &record);
            // Its bot may not have lived to say so.
            entry.started();
            let held_by = record.cgroup.or(record.job);
            let run = Run::new(line, runtime, entry, record.grace_ms, None, None);
            let ears = Ears {
                run: run.clone(),
                exec: None,
                ear: Some(ear),
                root,
                held_by,
                origin: None,
                run_id: record.run_id,
                silence: None,
                timeout: None,
                counters: owner.counters.clone(),
                on_event,
            };
            runtime.loop_handle.spawn(ears.listen());
            Ok(Some(run))
        }
        // Without its keeper it is a process like any other.
        Err(Errno::ESRCH) => follow(owner, runtime, entry, record, former, on_event),
        // It went while we were at its door.
        Err(errno) if errno != Errno::EBUSY && is_gone(&keeper.start_token) => {
            follow(owner, runtime, entry, record, former, on_event)
        }
        Err(errno) => {
            // Somebody may answer for it after all, and must not lose it to us.
            owner.registry.give_back(former, &owner.id)?;
            Err(AdoptError::Refused { reason: format!("its keeper does not take a new owner ({errno})") })
        }
    }
}

/// A run whose keeper is gone. A keeper goes when its tree is extinct, and writes down how that came before it does: then there is only
/// that to be told. One that was killed has written nothing, and what it has left is watched.
fn follow(
    owner: &Instance,
    runtime: &'static Runtime,
    entry: Entry,
    record: Record,
    former: &Record,
    on_event: OnEvent,
) -> Result<Option<Run>, AdoptError> {
    let on_event = counted(owner, on_event);
    // If it cannot be read, the entry is ours all the same, and somebody has to watch its process.
    let now = owner.registry.load().ok().and_then(|table| table.get(&record.key()).cloned());
    let Some(ended) = now.filter(|now| now.state == State::Exited) else {
        runtime.loop_handle.spawn(watch::watch(entry, record, Some(on_event)));
        return Ok(None);
    };
    conclude(owner, &entry, &ended, former, &on_event)
}

/// A run whose end was written down: that is all there is to be told of it.
fn conclude(
    owner: &Instance,
    entry: &Entry,
    ended: &Record,
    former: &Record,
    on_event: &OnEvent,
) -> Result<Option<Run>, AdoptError> {
    if ended.exit.as_ref().is_some_and(|exit| exit.survivors > 0) {
        // The entry still leads to them, and stays.
        owner.registry.give_back(former, &owner.id)?;
        return Err(AdoptError::Refused { reason: "it has ended, but not all of it".to_owned() });
    }
    entry.over();
    tell_end(ended, on_event);
    Ok(None)
}

/// Whether it has ended, or does so soon. Blocks.
fn is_gone(keeper: &ProcessRef) -> bool {
    match keeper.pinned() {
        Ok(pin) => pin.wait_exited(Some(LEAVING)).unwrap_or(false),
        Err(errno) => errno == Errno::ESRCH,
    }
}

/// Its end is counted, whoever tells it.
fn counted(owner: &Instance, on_event: OnEvent) -> OnEvent {
    let counters = owner.counters.clone();
    Arc::new(move |event| {
        if let RunEvent::Extinct(extinct) = &event {
            extinct.count(&counters);
        }
        on_event(event);
    })
}

/// Makes the entry ours, unless it is already because a reaper has claimed it. With it, the entry as it was before.
fn take(owner: &Instance, key: &str) -> Result<(Entry, Record, Record), AdoptError> {
    if let Some(ours) = owner.registry.take_adopted(key) {
        return Ok(ours);
    }
    let table = owner.registry.load()?;
    let record = table.get(key).ok_or(AdoptError::NotFound)?;
    let planned = reap::judge(owner, record);
    match planned.decided.action {
        Verb::Leave => {
            let by_us = record.bot_start_token.as_ref() == Some(owner.registry.me());
            return Err(AdoptError::Owned { reason: planned.decided.reason.to_string(), by_us });
        }
        Verb::Drop if record.state != State::Exited => return Err(AdoptError::NotFound),
        Verb::DropReused => return Err(AdoptError::NotFound),
        Verb::Skip => return Err(AdoptError::Refused { reason: planned.decided.reason.to_string() }),
        Verb::Drop | Verb::End | Verb::Adopt => {}
    }
    let claimed = owner.claim(vec![Claim { key: key.to_owned(), from: record.owner_instance_id.clone() }])?;
    let faster = || AdoptError::Owned { reason: "another bot was faster".to_owned(), by_us: false };
    owner.adopt(claimed.into_iter().next().ok_or_else(faster)?, record.clone());
    owner.counters.stole(u64::from(planned.is_owned()));
    owner.registry.take_adopted(key).ok_or_else(faster)
}

fn tell_end(record: &Record, on_event: &OnEvent) {
    let exit = record.exit.as_ref();
    let status =
        exit.and_then(|exit| exit.exit_code.map(ExitStatus::Code).or(exit.signal.map(ExitStatus::Signal)));
    if let Some(status) = status {
        on_event(RunEvent::RootExited(status));
    }
    let ending = exit.and_then(|exit| Ending::named(&exit.ending)).unwrap_or(Ending::Kept(Cause::RootExit));
    on_event(RunEvent::Extinct(Extinct {
        ending,
        reason: exit
            .and_then(|exit| Reason::named(&exit.reason))
            .unwrap_or_else(|| Reason::of(ending, "", status, 0)),
        limit_ms: exit.map_or(0, |exit| exit.limit_ms),
        force: Force::Nothing,
        escaped: Vec::new(),
        survivors: Vec::new(),
    }));
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;

    use super::*;
    use crate::registry::import::tests::{file, ours};
    use crate::registry::{self, Exit, Keeper, Line, Somewhere};

    fn cat() -> (Child, ProcessRef) {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = ProcessRef::capture(child.id().cast_signed()).unwrap();
        (child, process)
    }

    fn ended(mut child: Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    /// When the keeper has written down how its run has ended.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Written {
        Before,
        /// It went while somebody was about to take the run over.
        SinceClaimed,
    }

    /// A run that has outlived its bot, and of which somebody may have outlived its keeper.
    #[test]
    fn the_entry_of_a_run_that_has_left_survivors_still_leads_to_them() {
        for (written, survivors) in [
            (Written::Before, 0),
            (Written::SinceClaimed, 0),
            (Written::Before, 1),
            (Written::SinceClaimed, 1),
        ] {
            let case = format!("{written:?}-{survivors}");
            let Somewhere(owner) = &Somewhere::new(&case);
            let ((survivor, root), (keeper, keeper_process)) = (cat(), cat());
            ended(keeper);
            let running = Record {
                pid: root.pid,
                start_token: Some(root.clone()),
                keeper: Some(Keeper { start_token: keeper_process, address: "00000".into() }),
                state: State::Running,
                ..ours(root.pid)
            };
            let key = running.key();
            std::fs::write(owner.registry.path(), file(&[running])).unwrap();
            let write = || {
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
            if written == Written::Before {
                write();
            }
            // As a reaper does it that was told to adopt.
            let former = owner.registry.load().unwrap().get(&key).unwrap().clone();
            let claim = Claim { key: key.clone(), from: former.owner_instance_id.clone() };
            let claimed = owner.claim(vec![claim]).unwrap().remove(0);
            owner.adopt(claimed, former.clone());
            if written == Written::SinceClaimed {
                write();
            }

            let (tell, told) = mpsc::channel();
            let adopted = adopt(owner, &key, Arc::new(move |event| drop(tell.send(event))));
            let left = owner.registry.load().unwrap().get(&key).cloned();
            let exits: Vec<_> =
                told.try_iter().filter(|event| matches!(event, RunEvent::Extinct(_))).collect();
            if survivors == 0 {
                assert!(matches!(adopted, Ok(None)), "{case}: {adopted:?}");
                assert_eq!((left, exits.len()), (None, 1), "{case}");
            } else {
                assert_eq!(adopted.unwrap_err().code(), "ERR_OWNED_NOT_ADOPTED", "{case}");
                let left = left.unwrap();
                assert_eq!((left.state, left.owner_instance_id), (State::Exited, former.owner_instance_id));
                assert_eq!(exits.len(), 0, "{case}: what has survivors was not told to be over");
            }
            ended(survivor);
        }
    }
}
