//! Watches a registered process. It has no keeper, so the bot watches it.
//!
//! The exit of a process is an event (a pidfd). A change of its group is not, so the bot scans the
//! group at intervals, which get longer while nothing changes. A scan starts at the root and
//! follows descendants, so its cost does not grow with the number of processes on the host.

use std::future::{Future, poll_fn};
#[cfg(windows)]
use std::os::windows::io::AsHandle;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::{OnEvent, RunEvent};
#[cfg(windows)]
use crate::contain::job::Job;
use crate::contain::outside::Scan;
use crate::identity::{ExitWatch, ProcessRef, exited, read_stat};
use crate::reap::target;
use crate::registry::{Containment, Entry, Record};
use crate::run::reason::Ending;
use crate::run::{Cause, Ended, ProcessInfo};
use crate::runtime;

/// Delay before the retry of a failed scan. A tenth of it: interval of checks for a zombie.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Delay before the first scan of a group, the longest delay after a change, and the longest delay.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const DELAY_AFTER_CHANGE: Duration = Duration::from_secs(10);
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// Delay between two scans of a tree whose root has exited, and the longest one. A tree that always
/// has a new member needs more than one scan.
const SCAN_DELAY: Duration = Duration::from_millis(50);
const LONGEST_SCAN_DELAY: Duration = Duration::from_secs(2);

/// How long a parent may take to reap its child. Until then the zombie is in the child's group.
const REAP_LIMIT: Duration = Duration::from_secs(1);

/// Watches a registered process until its tree is extinct, then drops its entry.
///
/// Records the members of its group at intervals, and once more when the root exits. They prove
/// which group it is when its leader is gone. The entry stays until the last member exits.
///
/// Returns at once when the process is unregistered, unless `on_event` needs its end.
pub async fn watch(entry: Entry, record: Record, on_event: Option<OnEvent>) {
    let Some(root) = record.start_token.clone() else { return };
    let mut watch = WatchedTree {
        tree: Tree::of(&record, &root),
        watched: ExitWatch::new(root),
        record: Arc::new(record),
    };
    if !watch.wait_for_root(&entry, on_event.is_some()).await {
        return;
    }
    let survivors = watch.wait_for_extinction(&entry).await;
    if let Some(on_event) = on_event {
        let ending = if survivors.is_empty() { Ending::Cause(Cause::RootExit) } else { Ending::KeeperLost };
        let survivors = survivors.iter().map(no_longer_ours).collect();
        on_event(RunEvent::Extinct(Ended { survivors, ..Ended::new(ending) }));
    }
}

/// The state of one watch.
struct WatchedTree {
    record: Arc<Record>,
    watched: ExitWatch,
    tree: Arc<Tree>,
}

impl WatchedTree {
    /// Waits for the exit of the root. False if the process was unregistered and no caller needs
    /// its end.
    async fn wait_for_root(&mut self, entry: &Entry, needs_end: bool) -> bool {
        let mut gone = pin!(entry.gone());
        let mut is_gone = false;
        let mut delay = FIRST_DELAY;
        let has_members = matches!(self.record.containment, Containment::Group | Containment::Job);
        loop {
            let due = (has_members && !is_gone).then_some(delay);
            let gone = (!is_gone).then_some(gone.as_mut());
            let next = next(pin!(self.watched.exited()), gone, due).await;
            match next {
                Next::Ended => return true,
                // Stop: otherwise a descriptor and the scans could outlive the registration by
                // years.
                Next::Gone if !needs_end => return false,
                Next::Gone => is_gone = true,
                Next::Due => {
                    let members = self.scan(Scope::Descent).await;
                    let has_changed = members.is_some_and(|members| self.record_members(entry, members));
                    delay = if has_changed {
                        delay.min(DELAY_AFTER_CHANGE)
                    } else {
                        (delay * 4).min(LONGEST_DELAY)
                    };
                }
            }
        }
    }

    /// Waits until the tree is extinct. Returns the processes that are left when the entry is no
    /// longer ours.
    async fn wait_for_extinction(&mut self, entry: &Entry) -> Vec<ProcessRef> {
        let mut delay = SCAN_DELAY;
        loop {
            let left = self.living_members().await;
            if !entry.is_live() {
                // Unregistered, or another bot has claimed it: the rest goes on without us.
                return left.unwrap_or_default();
            }
            match left {
                Some(members) if members.is_empty() => {
                    #[cfg(unix)]
                    if let Some(cgroup) = self.record.recorded_cgroup().and_then(|cgroup| cgroup.abandoned())
                    {
                        let _ = cgroup.remove();
                    }
                    entry.remove();
                    return Vec::new();
                }
                Some(members) => {
                    self.record_members(entry, members.clone());
                    // Stop waiting when the entry is gone: otherwise our descriptors, of the root
                    // and of a member, stay open until that member exits. Each `gone` future is
                    // new: it completes at once if the entry is no longer ours, so no change is
                    // missed.
                    for member in &members {
                        let next = next(pin!(exited(member)), Some(pin!(entry.gone())), None).await;
                        if matches!(next, Next::Gone) {
                            break;
                        }
                    }
                    next(pin!(tokio::time::sleep(delay)), Some(pin!(entry.gone())), None).await;
                    delay = (delay * 2).min(LONGEST_SCAN_DELAY);
                }
                None => tokio::time::sleep(RETRY_DELAY).await,
            }
        }
    }

    /// The living processes of a tree whose root has exited. `None` if they cannot be determined.
    ///
    /// Scans the known members of a group and their descendants first. If none is left but the
    /// kernel says that the group is not empty, scans the group of every process.
    async fn living_members(&self) -> Option<Vec<ProcessRef>> {
        if self.record.containment.has_keeper() {
            return self.scan(Scope::Everything).await;
        }
        let known = self.scan(Scope::Descent).await?;
        if !known.is_empty() || self.record.containment != Containment::Group {
            return Some(known);
        }
        let root = self.watched.process.clone();
        for _ in 0..REAP_LIMIT.as_millis() / RETRY_DELAY.as_millis() * 10 {
            let is_zombie = |stat: crate::identity::stat::Stat| stat.start == root.start && stat.is_dead();
            if self.watched.has_group() != Some(true) || !read_stat(root.pid).is_ok_and(is_zombie) {
                break;
            }
            tokio::time::sleep(RETRY_DELAY / 10).await;
        }
        // No process can join a group after it became empty. So if this group is not empty after
        // the scan, it was the same group during the scan, and not a later one with the same ID.
        if self.watched.has_group() != Some(true) {
            return Some(known);
        }
        let found = self.scan(Scope::Group).await?;
        Some(if self.watched.has_group() == Some(true) { found } else { Vec::new() })
    }

    /// Records the members if they have changed. Returns whether they have.
    fn record_members(&mut self, entry: &Entry, mut members: Vec<ProcessRef>) -> bool {
        members.retain(|member| *member != self.watched.process);
        members.sort_by_key(|member| (member.start, member.pid));
        let has_changed = members != self.record.members;
        if has_changed {
            Arc::make_mut(&mut self.record).members.clone_from(&members);
            entry.members(members);
        }
        has_changed
    }

    /// The living processes of the tree. `None` if they cannot be determined.
    async fn scan(&self, scope: Scope) -> Option<Vec<ProcessRef>> {
        let in_job = match self.tree.members() {
            Some(members) => members?,
            None => Vec::new(),
        };
        let record = self.record.clone();
        let scan = move || {
            let root = record.start_token.as_ref()?;
            let target = target(&record, root);
            let scan = match scope {
                Scope::Descent => Scan::below_each(record.members.iter().chain([root]), []),
                Scope::Group => Scan::below_each(record.members.iter().chain([root]), [root.pid]),
                Scope::Everything => Scan::take_since(root.start),
            };
            let scan = scan.ok()?;
            #[cfg(unix)]
            if scope == Scope::Group {
                return Some(scan.grouped(&target));
            }
            let members = scan.living(&target).ok()?;
            // The cgroup may have a member that is not visible in this PID namespace.
            if members.is_empty() && scan.has_living(&target).ok()? {
                None
            } else {
                Some(union(members, in_job))
            }
        };
        runtime::get().ok()?.run(scan).await.flatten()
    }
}

/// Which processes a scan includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The root, its known members, and their descendants.
    Descent,
    /// The processes in the group that the root has led. The caller must prove that it is this
    /// group.
    Group,
    /// All processes: each may carry the run's cookie.
    Everything,
}

enum Next {
    Ended,
    Gone,
    Due,
}

/// Waits for the first of three events. `due`: a timeout.
async fn next(
    mut ended: Pin<&mut impl Future<Output = ()>>,
    mut gone: Option<Pin<&mut impl Future<Output = ()>>>,
    due: Option<Duration>,
) -> Next {
    let mut due = due.map(|delay| Box::pin(tokio::time::sleep(delay)));
    poll_fn(|context| {
        if ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Next::Ended);
        }
        if gone.as_mut().is_some_and(|gone| gone.as_mut().poll(context).is_ready()) {
            return Poll::Ready(Next::Gone);
        }
        match due.as_mut().map(|due| due.as_mut().poll(context)) {
            Some(Poll::Ready(())) => Poll::Ready(Next::Due),
            _ => Poll::Pending,
        }
    })
    .await
}

fn no_longer_ours(process: &ProcessRef) -> ProcessInfo {
    let command = read_stat(process.pid).map(|stat| stat.comm).unwrap_or_default();
    let why = "this bot may not end it: its entry was dropped, or belongs to another owner".to_owned();
    ProcessInfo { pid: process.pid, start: process.start, command, why }
}

/// Both lists, each process once.
fn union(mut members: Vec<ProcessRef>, others: Vec<ProcessRef>) -> Vec<ProcessRef> {
    for other in others {
        if !members.contains(&other) {
            members.push(other);
        }
    }
    members
}

/// What contains the tree, if the system can list its members.
#[cfg(unix)]
struct Tree;

#[cfg(unix)]
impl Tree {
    fn of(_record: &Record, _root: &ProcessRef) -> Arc<Self> {
        Arc::new(Self)
    }

    #[allow(clippy::unused_self, clippy::option_option)] // The signature is the same as on Windows.
    fn members(&self) -> Option<Option<Vec<ProcessRef>>> {
        None
    }
}

/// The job of the tree, if it contains the root. The handle stays open, so the name cannot be
/// reused.
#[cfg(windows)]
struct Tree(Option<Job>);

#[cfg(windows)]
impl Tree {
    fn of(record: &Record, root: &ProcessRef) -> Arc<Self> {
        let is_in =
            |job: &Job| root.open_handle().is_ok_and(|handle| job.has(handle.as_handle()).unwrap_or(false));
        Arc::new(Self(record.job.as_deref().and_then(|name| Job::open(name).ok()).filter(is_in)))
    }

    /// The members. `None` if there is no job, `Some(None)` if its members cannot be determined.
    #[allow(clippy::option_option)]
    fn members(&self) -> Option<Option<Vec<ProcessRef>>> {
        let job = self.0.as_ref()?;
        // An empty list is true only if the job has no active process: one may be exiting, or may
        // not be visible.
        Some(job.processes().ok().filter(|members| !members.is_empty() || job.active() == Ok(0)))
    }
}
