//! Ending the tree of a run by its record, whoever started it: by asking its keeper, or from outside if there is none.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::time::{Duration, Instant};

#[cfg(unix)]
use self::unix as stubborn;
#[cfg(windows)]
use self::windows as stubborn;
use super::observe::{identify_old, target};
use crate::contain::{ProcessInfo, cookie, outside};
use crate::errno::Errno;
use crate::identity::{self, ProcessRef, State, read_stat};
use crate::keeper::protocol::{End, Request};
use crate::keeper::visit::Visit;
use crate::registry::{Containment, Keeper, Record};
use crate::run::lifecycle::{KILL_LIMIT_MS, REPORT_LIMIT_MS};
use crate::run::reason::{Ending, Reason};
use crate::run::{Cause, ExitStatus};

const PATIENCE: Duration = Duration::from_millis(REPORT_LIMIT_MS);
/// How long a keeper is looked for that is not where it should be.
const PERSISTENCE: Duration = Duration::from_secs(3);
const KILL_LIMIT: Duration = Duration::from_millis(KILL_LIMIT_MS);
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    /// Something of it was alive.
    pub found: bool,
    pub ending: Ending,
    /// What the cancel that did it wants the reason to be.
    asked: String,
    pub status: Option<ExitStatus>,
    /// The limit of the deadline that did it; 0 if none did.
    pub limit_ms: u64,
    pub escaped: Vec<ProcessInfo>,
    pub survivors: Vec<ProcessInfo>,
}

impl Ended {
    /// By us, or by somebody who was faster; not by itself.
    pub fn was_ended(&self) -> bool {
        self.found && self.ending != Ending::Kept(Cause::RootExit)
    }

    pub fn reason(&self) -> Reason {
        Reason::of(self.ending, &self.asked, self.status, self.escaped.len())
    }

    /// Why the tree is not gone, if it is not.
    pub fn failure(&self) -> Option<String> {
        failure_of(&self.survivors)
    }
}

/// Why a tree is not gone of which these are left. `None`: it is.
pub fn failure_of(survivors: &[ProcessInfo]) -> Option<String> {
    let first = survivors.first()?;
    let more = match survivors.len() {
        1 => String::new(),
        count => format!(", and {} more", count - 1),
    };
    Some(format!("process {} ({}) could not be ended: {}{more}", first.pid, first.command, first.why))
}

/// Ends the run's tree: `signal`, `grace`, SIGKILL. Blocks until it is gone, or what is left cannot be ended.
///
/// A living keeper is asked: it knows the whole tree, and no number is signalled. One that does not answer was stopped, so it is
/// woken first. If it still does not do its part it is overcome, by identity, and its tree is ended from outside.
pub fn end(record: &Record, signal: i32, grace: Duration, reason: &str) -> Ended {
    let (Some(keeper), Some(root)) = (&record.keeper, &record.start_token) else {
        return from_outside(record, signal, grace, reason);
    };
    let began = Instant::now();
    while keeper.start_token.state() == State::Alive {
        stubborn::wake(&keeper.start_token, root);
        match ask(keeper, root, signal, grace, reason) {
            Ok((status, end)) => return told(status, end),
            // It does not know that run any more.
            Err(Errno::ESRCH) => break,
            // It has ended, or has too many visitors, or we are out of something: that passes, or shows in the next turn.
            Err(errno)
                if !matches!(errno, Errno::ETIMEDOUT | Errno::EPROTO)
                    && began.elapsed() < persistence(errno, grace) =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            // What we lack is no reason to do anything to anybody.
            Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => break,
            Err(errno) => {
                let overcome = stubborn::overcome(&keeper.start_token, root, errno, grace);
                let mut ended = from_outside(record, signal, grace, reason);
                // Its zygote may have been faster than our look: then it did not end by itself, but for what we did to its keeper.
                if overcome && !ended.found {
                    ended.found = true;
                    ended.ending = Ending::Lost;
                }
                return ended;
            }
        }
    }
    from_outside(record, signal, grace, reason)
}

/// How long a keeper is visited again that could not be talked to. One that is at home but busy gets as long as it would have
/// taken anyway.
fn persistence(errno: Errno, grace: Duration) -> Duration {
    match errno {
        // Nobody at that address, or somebody else.
        Errno::ECONNREFUSED | Errno::EPERM | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => PERSISTENCE,
        _ => grace.saturating_add(PATIENCE),
    }
}

fn ask(
    keeper: &Keeper,
    root: &ProcessRef,
    signal: i32,
    grace: Duration,
    reason: &str,
) -> Result<(Option<ExitStatus>, End), Errno> {
    #[allow(unused_mut)] // Windows needs it.
    let mut visit = Visit::start(&keeper.start_token, &keeper.address, root)?;
    let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    visit.ask(&Request::Cancel { signal, grace_ms, reason })?;
    visit.wait(Instant::now() + grace.saturating_add(PATIENCE).min(LONGEST))
}

fn told(status: Option<ExitStatus>, end: End) -> Ended {
    Ended {
        found: true,
        ending: Ending::Kept(end.cause),
        asked: end.reason,
        status,
        limit_ms: end.limit_ms,
        escaped: end.escaped,
        survivors: end.survivors,
    }
}

fn from_outside(record: &Record, signal: i32, grace: Duration, reason: &str) -> Ended {
    let mut ended = Ended {
        found: false,
        ending: match record.containment {
            Containment::Keeper | Containment::Cgroup => Ending::Lost,
            Containment::Job | Containment::Group | Containment::Process => Ending::Kept(Cause::Cancel),
        },
        asked: reason.to_owned(),
        status: None,
        limit_ms: 0,
        escaped: Vec::new(),
        survivors: Vec::new(),
    };
    if record.keeper.is_some() && cookie::is_around_us(&record.run_id) {
        ended.survivors.push(ourselves());
        return ended;
    }
    let old = if record.start_token.is_none() { identify_old(record) } else { None };
    let Some(root) = record.start_token.as_ref().or(old.as_ref()) else {
        ended.survivors.extend(cannot_be_told(record));
        return ended;
    };
    let mut target = target(record, root);
    // What the entry does not say is asked of the kernel: a group is ended only if this very process leads it.
    target.leads_group |= old.as_ref().is_some_and(leads_its_group);
    let outcome = outside::end_tree(&target, signal, grace, KILL_LIMIT);
    (ended.found, ended.survivors) = (outcome.found, outcome.survivors);
    if !ended.found {
        // It had ended, and nobody here knows how.
        ended.ending = Ending::Gone;
    }
    ended
}

/// Whatever carries that run's cookie may be our own helpers and runs.
fn ourselves() -> ProcessInfo {
    let why = "we are a part of this run ourselves, and it has no keeper that could be asked".to_owned();
    let (pid, start) = identity::me().map_or((0, 0), |me| (me.pid, me.start));
    ProcessInfo { pid, start, command: String::new(), why }
}

/// A process with the number of an old entry, of which nobody can say whether it is the one.
fn cannot_be_told(record: &Record) -> Option<ProcessInfo> {
    let process = read_stat(record.pid).ok().filter(|stat| !stat.is_dead())?;
    let why = "whether it is the recorded process cannot be told: its age does not agree".to_owned();
    Some(ProcessInfo { pid: process.pid, start: process.start, command: process.comm, why })
}

fn leads_its_group(process: &ProcessRef) -> bool {
    read_stat(process.pid).is_ok_and(|stat| stat.start == process.start && stat.pgrp == process.pid)
}
