//! A process that was registered, not started: nobody but us keeps an eye on it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;

use super::{Extinct, OnEvent, RunEvent, runtime};
use crate::contain::ProcessInfo;
use crate::contain::outside::Scan;
use crate::identity::{Pin, ProcessRef, State, read_stat};
use crate::reap::target;
use crate::registry::{Containment, Entry, Record};
use crate::run::reason::{Ending, Reason};
use crate::run::{Cause, Force};

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
    let mut record = Arc::new(record);
    let mut pause = FIRST_LOOK;
    while tokio::time::timeout(pause, ended(&root)).await.is_err() {
        if record.containment == Containment::Group
            && let Some(members) = look(&record, FRESH).await
        {
            note(&entry, &mut record, members);
        }
        pause = (pause * 4).min(LATER_LOOKS);
    }
    let mut survivors = Vec::new();
    loop {
        if !entry.is_live() {
            // Unregistered, or another's: whatever is left goes on without us.
            survivors = look(&record, Duration::ZERO).await.unwrap_or_default();
            break;
        }
        match look(&record, Duration::ZERO).await {
            Some(members) if members.is_empty() => {
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

/// Who is, or was so long ago, alive of the tree; `None` if that cannot be seen.
async fn look(record: &Arc<Record>, age: Duration) -> Option<Vec<ProcessRef>> {
    static LAST: Mutex<Option<(Instant, Arc<Scan>)>> = Mutex::new(None);
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
        if members.is_empty() && scan.has_living(&target).ok()? { None } else { Some(members) }
    };
    runtime::get().ok()?.run(look).await.flatten()
}

/// Waits until a process is dead.
async fn ended(process: &ProcessRef) {
    if let Some(pidfd) = process.pinned().ok().and_then(Pin::into_pollable)
        // SAFETY: the descriptor is owned by what is registered.
        && let Ok(exited) = unsafe { AsyncFd::register(pidfd) }
        && exited.readable().await.is_ok()
    {
        return;
    }
    while process.state() == State::Alive {
        tokio::time::sleep(INTERVAL).await;
    }
}
