//! Recording a process that somebody else has started.

use std::collections::BTreeMap;
use std::fmt;

use crate::errno::Errno;

use super::watch;
use crate::identity::stat::Stat;
use crate::identity::{self, ProcessRef, State, read_stat};
use crate::registry::{Containment, Entry, Instance, Record, RegistryError, now_ms};
use crate::run::Policy;
use crate::runtime;

/// What a caller says about a process of its own.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registration {
    pub pid: i32,
    pub run_id: String,
    /// The caller has chosen the id.
    #[serde(default)]
    pub given_id: bool,
    pub session_id: Option<String>,
    pub backend_id: Option<String>,
    pub scope_key: Option<String>,
    pub command_preview: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    pub grace_ms: u64,
}

/// Why a process was not registered.
#[derive(Debug)]
pub enum RegisterError {
    Gone { pid: i32 },
    Protected { pid: i32, what: &'static str },
    Unknown { pid: i32, errno: Errno },
    Known { pid: i32, run_id: String },
    Registry(RegistryError),
    Threads,
}

impl RegisterError {
    /// The `code` of the JS error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Gone { .. } => "ERR_OWNED_NO_SUCH_PROCESS",
            Self::Protected { .. } => "ERR_OWNED_PROTECTED_PROCESS",
            Self::Unknown { .. } => "ERR_OWNED_UNKNOWN_PROCESS",
            Self::Known { .. } => "ERR_OWNED_ALREADY_REGISTERED",
            Self::Registry(error) => error.code(),
            Self::Threads => "ERR_OWNED_NO_THREADS",
        }
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { pid } => write!(
                f,
                "entry.pid {pid} is no running process. Register a process right after it was started, in the same tick."
            ),
            Self::Protected { pid, what } => {
                write!(
                    f,
                    "entry.pid {pid} is {what}, which is never ended. Register the process you have started."
                )
            }
            Self::Unknown { pid, errno } => write!(
                f,
                "entry.pid {pid} cannot be identified ({errno}), and what is not identified is never signalled. It was not registered. \
                 Is /proc mounted, and may this user see the process?"
            ),
            Self::Known { pid, run_id } => {
                write!(
                    f,
                    "entry.pid {pid} is recorded already, as run {run_id}. Use that run id, or unregister it first."
                )
            }
            Self::Registry(error) => write!(f, "{error}"),
            Self::Threads => {
                write!(
                    f,
                    "no thread can be started to watch the process. It was not registered. Raise the limit of processes (ulimit -u, pids.max)."
                )
            }
        }
    }
}

/// Records a process that somebody else has started, as it is now, and keeps an eye on it.
pub fn register(owner: &Instance, wish: Registration) -> Result<Record, RegisterError> {
    let pid = wish.pid;
    if let Some(what) = protected(pid) {
        return Err(RegisterError::Protected { pid, what });
    }
    let runtime = runtime::get().map_err(|_| RegisterError::Threads)?;
    let stat = read_stat(pid).map_err(|errno| match errno {
        Errno::ESRCH | Errno::ENOENT => RegisterError::Gone { pid },
        errno => RegisterError::Unknown { pid, errno },
    })?;
    if stat.is_dead() {
        return Err(RegisterError::Gone { pid });
    }
    // Group and start token come from one read: they are the same process's.
    let root = ProcessRef::known(pid, stat.start);
    if let Some((_, record)) = owner.registry.entry(&root.to_string()) {
        return Err(RegisterError::Known { pid, run_id: record.run_id });
    }
    let hold = Hold::on(&root, &stat)?;
    let now = now_ms();
    let record = Record {
        pid,
        started_at: identity::started_at_ms(stat.start).unwrap_or(now),
        session_id: wish.session_id,
        command_preview: wish.command_preview.unwrap_or(stat.comm),
        run_id: wish.run_id,
        start_token: Some(root),
        pgid: hold.pgid,
        containment: hold.containment,
        job: hold.job,
        backend_id: wish.backend_id,
        scope_key: wish.scope_key,
        labels: wish.labels,
        grace_ms: wish.grace_ms,
        // There is no keeper that would end it.
        on_owner_exit: Policy::Keep,
        created_at_ms: now,
        updated_at_ms: now,
        ..Record::blank()
    };
    let entry = begin(owner, record, wish.given_id)?;
    let Some((_, record)) = owner.registry.entry(entry.key()) else {
        return Err(RegisterError::Gone { pid });
    };
    runtime.loop_handle.spawn(watch::watch(entry, record.clone(), None));
    Ok(record)
}

/// What holds a registered process and its descendants together.
struct Hold {
    pgid: Option<i32>,
    containment: Containment,
    job: Option<String>,
}

#[cfg(unix)]
impl Hold {
    /// Its group, if it leads one. A group of another PID namespace (that of whoever has made this one) has no number here: the kernel
    /// says 0, which is nobody's.
    #[allow(clippy::unnecessary_wraps)] // Elsewhere it may end in between.
    fn on(_root: &ProcessRef, stat: &Stat) -> Result<Self, RegisterError> {
        let leads = stat.pgrp == stat.pid;
        let containment = if leads { Containment::Group } else { Containment::Process };
        Ok(Self { pgid: Some(stat.pgrp).filter(|&pgrp| pgrp > 0), containment, job: None })
    }
}

#[cfg(windows)]
impl Hold {
    /// A job of its own, into which it is put now: whatever it starts from here on is in it. What it has started before is found by
    /// its parent, as long as that lives. One that must not be put there is found that way only.
    fn on(root: &ProcessRef, stat: &Stat) -> Result<Self, RegisterError> {
        let pid = stat.pid;
        let gone = |errno| match errno {
            Errno::ESRCH => RegisterError::Gone { pid },
            errno => RegisterError::Unknown { pid, errno },
        };
        let pin = root.pinned().map_err(gone)?;
        let job = super::windows::job_for_registered(&pin);
        let containment = if job.is_some() { Containment::Job } else { Containment::Process };
        Ok(Self { pgid: None, containment, job })
    }
}

/// A bot that was restarted may register what its former self has registered: then it takes that over.
fn begin(owner: &Instance, record: Record, is_given: bool) -> Result<Entry, RegisterError> {
    let known = |other: &Record| RegisterError::Known { pid: other.pid, run_id: other.run_id.clone() };
    let Some(other) = owner.registry.foreign(record.start_token.as_ref()).map_err(RegisterError::Registry)?
    else {
        return owner.begin(record, is_given).inspect(Entry::follow).map_err(RegisterError::Registry);
    };
    if other
        .bot_start_token
        .as_ref()
        .is_none_or(|bot| bot.state() != State::Exited && bot.state() != State::Recycled)
    {
        return Err(known(&other));
    }
    let taken = owner.take_over(record, other.owner_instance_id.clone()).map_err(RegisterError::Registry)?;
    taken.ok_or_else(|| known(&other))
}

fn protected(pid: i32) -> Option<&'static str> {
    let me = std::process::id().cast_signed();
    match pid {
        #[cfg(unix)]
        1 => Some("the system's first process"),
        #[cfg(windows)]
        0 | 4 => Some("the system itself"),
        _ if pid == me => Some("this very process"),
        _ if identity::ancestors(me).contains(&pid) => Some("an ancestor of this process"),
        _ => None,
    }
}
