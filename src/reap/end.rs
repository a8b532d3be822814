//! Ends the tree of a run by its record, whichever bot started it: through its keeper or from
//! outside, as [`Via`] says.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::time::{Duration, Instant};

#[cfg(unix)]
use self::unix as unresponsive;
#[cfg(windows)]
use self::windows as unresponsive;
use super::classify::Via;
use super::observe::{identify_old, target};
use crate::contain::{cookie, outside};
use crate::errno::Errno;
use crate::identity::{self, ProcessRef, State, read_stat};
use crate::keeper::control_client::ControlClient;
use crate::keeper::protocol::{Request, is_contradicted};
use crate::registry::{Containment, Keeper, Record};
use crate::run::lifecycle::{KILL_LIMIT_MS, REPORT_LIMIT_MS};
use crate::run::reason::Ending;
use crate::run::{Cause, Ended, ProcessInfo};

const REPORT_LIMIT: Duration = Duration::from_millis(REPORT_LIMIT_MS);
/// How long to retry while no keeper answers at its control socket.
const RETRY_LIMIT: Duration = Duration::from_secs(3);
const KILL_LIMIT: Duration = Duration::from_millis(KILL_LIMIT_MS);
const MAX_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Ends the run's tree, as decided: `signal`, `grace`, SIGKILL. Blocks until the tree is gone, or the
/// rest cannot be ended. [`Via`] says why a decision with old facts cannot hit a wrong process.
pub fn end(record: &Record, via: Via, signal: i32, grace: Duration, reason: &str) -> Ended {
    match (via, &record.keeper, &record.start_token) {
        (Via::Keeper, Some(keeper), Some(root)) => {
            through_keeper(record, keeper, root, signal, grace, reason)
        }
        _ => from_outside(record, signal, grace, reason),
    }
}

/// Sends a cancel to the keeper: the keeper knows the whole tree, and no signal is sent by PID.
///
/// The keeper may be stopped (SIGSTOP), so it gets SIGCONT first. If it still does not end its run,
/// it is force-stopped, by identity. Without it, or if it has died meanwhile, the tree is ended from
/// outside.
fn through_keeper(
    record: &Record,
    keeper: &Keeper,
    root: &ProcessRef,
    signal: i32,
    grace: Duration,
    reason: &str,
) -> Ended {
    let began = Instant::now();
    while keeper.start_token.state() == State::Alive {
        unresponsive::wake(&keeper.start_token, root);
        match cancel_by_keeper(keeper, root, signal, grace, reason) {
            Ok(ended) => return ended,
            // The keeper does not have that run any more.
            Err(Errno::ESRCH) => break,
            // The keeper has ended or has too many control clients, or this process lacks a
            // resource. Retry: that passes, or the next turn shows it.
            Err(errno)
                if !matches!(errno, Errno::ETIMEDOUT | Errno::EPROTO)
                    && began.elapsed() < retry_limit(errno, grace) =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            // A lack of resources in this process is no reason to kill the keeper.
            Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => break,
            Err(errno) => {
                let force_stopped = unresponsive::force_stop(&keeper.start_token, root, errno, grace);
                let mut ended = from_outside(record, signal, grace, reason);
                // The keeper's zygote may have ended the tree before our scan. Then the run did not
                // end by itself, but because of the force-stop.
                if force_stopped && ended.ending == Ending::AlreadyEnded {
                    ended.ending = Ending::KeeperLost;
                }
                return ended;
            }
        }
    }
    from_outside(record, signal, grace, reason)
}

/// How long to retry after this error. A keeper that exists but is busy gets as long as a normal
/// cancel takes.
fn retry_limit(errno: Errno, grace: Duration) -> Duration {
    match errno {
        // No keeper listens at that address, or another process does.
        Errno::ECONNREFUSED | Errno::EPERM | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => RETRY_LIMIT,
        _ => grace.saturating_add(REPORT_LIMIT),
    }
}

fn cancel_by_keeper(
    keeper: &Keeper,
    root: &ProcessRef,
    signal: i32,
    grace: Duration,
    reason: &str,
) -> Result<Ended, Errno> {
    #[allow(unused_mut)] // Windows needs it.
    let mut client = ControlClient::start(&keeper.start_token, &keeper.address, root)?;
    let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    client.ask(&Request::Cancel { signal, grace_ms, reason })?;
    let ended = client.wait(Instant::now() + grace.saturating_add(REPORT_LIMIT).min(MAX_WAIT))?;
    // A process other than the keeper reported this end. Treat it like a keeper that does not
    // answer.
    if is_contradicted(&ended, root) { Err(Errno::ETIMEDOUT) } else { Ok(ended) }
}

/// The root as a survivor, if it is this process or one of its ancestors: a bot can register itself.
///
/// A search from outside never finds these, and would report that they have ended.
fn around_us(root: &ProcessRef) -> Option<ProcessInfo> {
    let me = std::process::id().cast_signed();
    let is_around_us = root.pid == me || identity::ancestors(me).contains(&root.pid);
    let process = read_stat(root.pid).ok().filter(|_| is_around_us && root.state() == State::Alive)?;
    Some(ProcessInfo::of(&process, "it is the process that ends the run, or one of its ancestors"))
}

fn from_outside(record: &Record, signal: i32, grace: Duration, reason: &str) -> Ended {
    let is_our_run =
        record.keeper.is_some() && cookie::is_around_us(&record.run_id, record.cookie_key.as_deref());
    let protected =
        if is_our_run { Some(ourselves()) } else { record.start_token.as_ref().and_then(around_us) };
    if let Some(process) = protected {
        return Ended { survivors: vec![process], ..Ended::new(ending_from_outside(record)) };
    }
    let old = if record.start_token.is_none() { identify_old(record) } else { None };
    let Some(root) = record.start_token.as_ref().or(old.as_ref()) else {
        return match unverified(record) {
            Some(process) => Ended { survivors: vec![process], ..Ended::new(ending_from_outside(record)) },
            None => Ended::new(Ending::AlreadyEnded),
        };
    };
    let mut target = target(record, root);
    // An entry of an old format does not tell whether the process leads a group, so check: a group
    // is ended only if this process leads it.
    target.leads_group |= old.as_ref().is_some_and(leads_its_group);
    let mut ended = outside::end_tree(&target, signal, grace, KILL_LIMIT);
    if ended.ending == Ending::KeeperLost {
        ended.ending = ending_from_outside(record);
        reason.clone_into(&mut ended.named_reason);
    }
    ended
}

/// What ends a run that has no live keeper. A process that never had a keeper has not lost one: the
/// request ends it.
fn ending_from_outside(record: &Record) -> Ending {
    match record.containment {
        Containment::Keeper | Containment::Cgroup => Ending::KeeperLost,
        Containment::Job | Containment::Group | Containment::Process => Ending::Cause(Cause::Cancel),
    }
}

/// This process as a survivor: the processes that carry the run's cookie may be our own helpers and
/// runs.
fn ourselves() -> ProcessInfo {
    let why =
        "this process is a part of the run, and the run has no live keeper that could end it".to_owned();
    let (pid, start) = identity::me().map_or((0, 0), |me| (me.pid, me.start));
    ProcessInfo { pid, start, command: String::new(), why }
}

/// The process that has the PID of an entry of an old format, but whose identity cannot be
/// verified.
fn unverified(record: &Record) -> Option<ProcessInfo> {
    let process = read_stat(record.pid).ok().filter(|stat| !stat.is_dead())?;
    let why = "its identity cannot be verified: its start time does not match the registry entry".to_owned();
    Some(ProcessInfo { pid: process.pid, start: process.start, command: process.comm, why })
}

fn leads_its_group(process: &ProcessRef) -> bool {
    read_stat(process.pid).is_ok_and(|stat| stat.start == process.start && stat.pgrp == process.pid)
}
