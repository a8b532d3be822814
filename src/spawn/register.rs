//! Registers a process that another program has started.

use std::collections::BTreeMap;
use std::fmt;

use crate::errno::Errno;

use super::watch;
use crate::identity::stat::Stat;
use crate::identity::{self, ProcessRef, State, read_stat};
use crate::registry::{Containment, Entry, Instance, Record, RegistryError, now_ms};
use crate::run::Policy;
use crate::runtime;

/// What a caller passes to register a process.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registration {
    pub pid: i32,
    /// The identity that the process must have, if the caller knows it.
    #[serde(default)]
    pub start_token: Option<String>,
    pub run_id: String,
    /// True if the caller chose the run id.
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
                "entry.pid {pid} is not a running process. Register a process right after its start, in the same tick."
            ),
            Self::Protected { pid, what } => {
                write!(
                    f,
                    "entry.pid {pid} is {what}, which spawn-owned never ends. Register a process that you have started."
                )
            }
            Self::Unknown { pid, errno } => write!(
                f,
                "entry.pid {pid} cannot be identified ({errno}), and spawn-owned signals only identified processes. It was not registered. \
                 Check that /proc is mounted and that this user may see the process."
            ),
            Self::Known { pid, run_id } => {
                write!(
                    f,
                    "entry.pid {pid} is registered already, as run {run_id}. Use that run id, or unregister it first."
                )
            }
            Self::Registry(error) => write!(f, "{error}"),
            Self::Threads => {
                write!(
                    f,
                    "no thread can be started to watch the process. It was not registered. Raise the process limit (ulimit -u, pids.max)."
                )
            }
        }
    }
}

/// Records a running process, and watches it.
pub fn register(owner: &Instance, registration: Registration) -> Result<Record, RegisterError> {
    let pid = registration.pid;
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
    // Group and start token come from one read, so they belong to the same process.
    let root = ProcessRef::known(pid, stat.start);
    // Another process has reused the PID.
    if registration.start_token.is_some_and(|token| token != root.to_string()) {
        return Err(RegisterError::Gone { pid });
    }
    if let Some((_, record)) = owner.registry.entry(&root.to_string()) {
        return Err(RegisterError::Known { pid, run_id: record.run_id });
    }
    let tree = if pid == me() { TreeContainment::ITSELF } else { TreeContainment::of(&root, &stat)? };
    let now = now_ms();
    let record = Record {
        pid,
        started_at: identity::started_at_ms(stat.start).unwrap_or(now),
        session_id: registration.session_id,
        command_preview: registration.command_preview.unwrap_or(stat.comm),
        run_id: registration.run_id,
        start_token: Some(root),
        pgid: tree.pgid,
        containment: tree.containment,
        job: tree.job,
        backend_id: registration.backend_id,
        scope_key: registration.scope_key,
        labels: registration.labels,
        grace_ms: registration.grace_ms,
        // There is no keeper that would end it.
        on_owner_exit: Policy::Keep,
        created_at_ms: now,
        updated_at_ms: now,
        ..Record::empty()
    };
    let entry = begin(owner, record, registration.given_id)?;
    let Some((_, record)) = owner.registry.entry(entry.key()) else {
        return Err(RegisterError::Gone { pid });
    };
    runtime.loop_handle.spawn(watch::watch(entry, record.clone(), None));
    Ok(record)
}

/// What contains a registered process and its descendants.
struct TreeContainment {
    pgid: Option<i32>,
    containment: Containment,
    job: Option<String>,
}

impl TreeContainment {
    /// This process. Not its group or job, because they outlive it: a reaper would then end its
    /// other children.
    const ITSELF: Self = Self { pgid: None, containment: Containment::Process, job: None };
}

#[cfg(unix)]
impl TreeContainment {
    /// Its group, if the process leads one. The kernel returns 0 for a group of an outer PID
    /// namespace: no group has this ID.
    #[allow(clippy::unnecessary_wraps)] // On Windows the process can exit in between.
    fn of(_root: &ProcessRef, stat: &Stat) -> Result<Self, RegisterError> {
        let leads = stat.pgrp == stat.pid;
        let containment = if leads { Containment::Group } else { Containment::Process };
        Ok(Self { pgid: Some(stat.pgrp).filter(|&pgrp| pgrp > 0), containment, job: None })
    }
}

#[cfg(windows)]
impl TreeContainment {
    /// A new job, which the process joins now. It will contain everything the process starts from
    /// now on. Earlier descendants are found by their parent, while the parent is alive. A process
    /// that cannot join the job is found by descent only.
    fn of(root: &ProcessRef, stat: &Stat) -> Result<Self, RegisterError> {
        let pid = stat.pid;
        let gone = |errno| match errno {
            Errno::ESRCH => RegisterError::Gone { pid },
            errno => RegisterError::Unknown { pid, errno },
        };
        let handle = root.open_handle().map_err(gone)?;
        let job = super::windows::job_for_registered(&handle);
        let containment = if job.is_some() { Containment::Job } else { Containment::Process };
        Ok(Self { pgid: None, containment, job })
    }
}

/// Creates the entry. A restarted bot may register a process again that an earlier instance has
/// registered: then it claims that entry.
fn begin(owner: &Instance, record: Record, is_given: bool) -> Result<Entry, RegisterError> {
    let known = |other: &Record| RegisterError::Known { pid: other.pid, run_id: other.run_id.clone() };
    let Some(other) =
        owner.registry.entry_of_other_owner(record.start_token.as_ref()).map_err(RegisterError::Registry)?
    else {
        return owner
            .begin(record, is_given)
            .inspect(Entry::wake_checkpoint_thread)
            .map_err(RegisterError::Registry);
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

fn me() -> i32 {
    std::process::id().cast_signed()
}

/// What the process is, if it must not be registered.
///
/// A bot may register itself: other bots then find it. It never signals itself, see
/// [`crate::reap::end`].
fn protected(pid: i32) -> Option<&'static str> {
    let me = me();
    match pid {
        #[cfg(unix)]
        1 => Some("the system's first process"),
        #[cfg(windows)]
        0 | 4 => Some("the system itself"),
        _ if pid == me => None,
        _ if identity::ancestors(me).contains(&pid) => Some("an ancestor of this process"),
        _ => None,
    }
}
