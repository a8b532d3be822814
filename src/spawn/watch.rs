//! A process that was registered, not started: nobody but us keeps an eye on it.

#[cfg(windows)]
use std::os::windows::io::AsHandle;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[cfg(unix)]
use tokio::io::{Interest, unix::AsyncFd};

use super::{Extinct, OnEvent, RunEvent};
use crate::contain::ProcessInfo;
#[cfg(windows)]
use crate::contain::job::Job;
use crate::contain::outside::Scan;
use crate::identity::{ProcessRef, State, read_stat};
use crate::reap::target;
use crate::registry::{Containment, Entry, Record};
use crate::run::reason::{Ending, Reason};
use crate::run::{Cause, Force};
use crate::runtime;

/// Where there are no pidfds, and when a look has failed.
const INTERVAL: Duration = Duration::from_millis(200);

/// How soon, and how often, the members of a registered process's group are looked at.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LATER_LOOKS: Duration = Duration::from_secs(10);

/// A look at all processes serves everybody who wants one at about the same time.
const FRESH: Duration = Duration::from_millis(50);

/// Follows a registered process to the end of its tree, and has its entry go with it.
///
/// Whoever is in its group is written down from time to time, and once more when it ends: those vouch for the group when its
/// leader is gone, and the entry stays until the last of them is.
pub async fn watch(entry: Entry, record: Record, on_event: Option<OnEvent>) {
    let Some(root) = record.start_token.clone() else { return };
    let tree = Arc::new(Tree::of(&record, &root));
    let mut record = Arc::new(record);
    let mut pause = FIRST_LOOK;
    while tokio::time::timeout(pause, ended(&root)).await.is_err() {
        // Unregistered, and nobody wants to hear of it: it may live for years, and a descriptor of ours with it.
        if on_event.is_none() && !entry.is_live() {
            return;
        }
        if matches!(record.containment, Containment::Group | Containment::Job)
            && let Some(members) = look(&tree, &record, FRESH).await
        {
            note(&entry, &mut record, members);
        }
        pause = (pause * 4).min(LATER_LOOKS);
    }
    let mut survivors = Vec::new();
    loop {
        if !entry.is_live() {
            // Unregistered, or another's: whatever is left goes on without us.
            survivors = look(&tree, &record, Duration::ZERO).await.unwrap_or_default();
            break;
        }
        match look(&tree, &record, Duration::ZERO).await {
            Some(members) if members.is_empty() => {
                #[cfg(unix)]
                if let Some(cgroup) = record.recorded_cgroup().and_then(|cgroup| cgroup.abandoned()) {
                    let _ = cgroup.remove();
                }
                entry.over();
                break;
            }
            Some(members) => {
                note(&entry, &mut record, members.clone());
                for member in &members {
                    ended(member).await;
                }
            }
            None => tokio::time::sleep(INTERVAL).await,
        }
    }
    if let Some(on_event) = on_event {
        let ending = if survivors.is_empty() { Ending::Kept(Cause::RootExit) } else { Ending::Lost };
        let survivors = survivors.iter().map(no_longer_ours).collect();
        on_event(RunEvent::Extinct(Extinct {
            ending,
            reason: Reason::of(ending, "", None, 0),
            limit_ms: 0,
            force: Force::Nothing,
            escaped: Vec::new(),
            survivors,
        }));
    }
}

fn no_longer_ours(process: &ProcessRef) -> ProcessInfo {
    let command = read_stat(process.pid).map(|stat| stat.comm).unwrap_or_default();
    let why = "it is no longer ours to end: its entry is gone, or another owner's".to_owned();
    ProcessInfo { pid: process.pid, start: process.start, command, why }
}

fn note(entry: &Entry, record: &mut Arc<Record>, mut members: Vec<ProcessRef>) {
    members.retain(|member| Some(member) != record.start_token.as_ref());
    if members != record.members {
        Arc::make_mut(record).members.clone_from(&members);
        entry.members(members);
    }
}

/// Each once.
fn with(mut members: Vec<ProcessRef>, others: Vec<ProcessRef>) -> Vec<ProcessRef> {
    for other in others {
        if !members.contains(&other) {
            members.push(other);
        }
    }
    members
}

/// What holds the tree together, if that can be asked.
#[cfg(unix)]
struct Tree;

#[cfg(unix)]
impl Tree {
    fn of(_record: &Record, _root: &ProcessRef) -> Self {
        Self
    }

    #[allow(clippy::unused_self, clippy::option_option)] // As elsewhere.
    fn members(&self) -> Option<Option<Vec<ProcessRef>>> {
        None
    }
}

/// What holds the tree together, if that can be asked: its job, in which the root was seen. We hold it, so it stays that one.
#[cfg(windows)]
struct Tree(Option<Job>);

#[cfg(windows)]
impl Tree {
    fn of(record: &Record, root: &ProcessRef) -> Self {
        let is_in = |job: &Job| root.pinned().is_ok_and(|pin| job.has(pin.as_handle()).unwrap_or(false));
        Self(record.job.as_deref().and_then(|name| Job::open(name).ok()).filter(is_in))
    }

    /// `None` if there is none; `Some(None)` if it cannot be seen who is in it.
    #[allow(clippy::option_option)]
    fn members(&self) -> Option<Option<Vec<ProcessRef>>> {
        let job = self.0.as_ref()?;
        // Somebody may be in it who is just going, or cannot be seen.
        Some(job.processes().ok().filter(|members| !members.is_empty() || job.active() == Ok(0)))
    }
}

/// Who is, or was so long ago, alive of the tree; `None` if that cannot be seen.
async fn look(tree: &Arc<Tree>, record: &Arc<Record>, age: Duration) -> Option<Vec<ProcessRef>> {
    static LAST: Mutex<Option<(Instant, Arc<Scan>)>> = Mutex::new(None);
    let in_job = match tree.members() {
        Some(members) => members?,
        None => Vec::new(),
    };
    let record = record.clone();
    let look = move || {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let scan = match &*last {
            Some((at, scan)) if at.elapsed() < age => scan.clone(),
            _ => {
                let now = Instant::now();
                let scan = Arc::new(Scan::take().ok()?);
                *last = Some((now, scan.clone()));
                scan
            }
        };
        drop(last);
        let target = target(&record, record.start_token.as_ref()?);
        let members = scan.living(&target).ok()?;
        // Somebody may be in its cgroup who cannot be seen.
        if members.is_empty() && scan.has_living(&target).ok()? { None } else { Some(with(members, in_job)) }
    };
    runtime::get().ok()?.run(look).await.flatten()
}

/// Waits until a process is dead, whoever's it is.
pub(crate) async fn ended(process: &ProcessRef) {
    if told_of_end(process).await.is_some() {
        return;
    }
    while process.state() == State::Alive {
        tokio::time::sleep(INTERVAL).await;
    }
}

/// `None` if nobody tells.
#[cfg(unix)]
async fn told_of_end(process: &ProcessRef) -> Option<()> {
    let pidfd = process.pinned().ok()?.into_pollable()?;
    // Nothing can be written to it, and not every system lets one ask.
    // SAFETY: the descriptor is owned by what is registered.
    let exited = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }.ok()?;
    exited.readable().await.ok().map(drop)
}

/// `None` if nobody tells.
#[cfg(windows)]
async fn told_of_end(process: &ProcessRef) -> Option<()> {
    let pin = process.pinned().ok()?;
    let (over, told) = tokio::sync::oneshot::channel();
    let over = Mutex::new(Some(over));
    let tell = move || {
        if let Some(over) = over.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = over.send(());
        }
    };
    // Dropped in the opposite order: nobody waits for what is closed.
    let _wait = pin.on_exit(tell).ok()?;
    told.await.ok()
}
