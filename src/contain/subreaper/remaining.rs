//! Which members are left: after the exit of the root, and after SIGKILL.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::{Tree, has_no_child};
use crate::contain::snapshot::{Snapshot, children};
use crate::contain::wait::wait_for;
use crate::contain::{Leftover, inside};
use crate::run::ProcessInfo;

/// Maximum number of snapshots in [`Tree::left_behind`], and their maximum total duration.
const LEFT_BEHIND_SNAPSHOTS: usize = 64;
const LEFT_BEHIND_LIMIT: Duration = Duration::from_millis(100);

impl Tree {
    /// Returns the members that are alive after the root has exited.
    ///
    /// One snapshot is not enough. A process that is seen dead, or that exited before its state was
    /// read, may have forked a child after the snapshot listed its children. So repeat until that
    /// is impossible, or an escaped process is found.
    pub fn left_behind(&self) -> Vec<Leftover> {
        let began = Instant::now();
        let mut found = Vec::new();
        for _ in 0..LEFT_BEHIND_SNAPSHOTS {
            let children = children(self.me).unwrap_or_default();
            let snapshot = Snapshot::take(self.me);
            let members = snapshot.members(|_| true);
            let living: HashSet<i32> = members.iter().map(|stat| stat.pid).collect();
            let is_settled = children.iter().all(|&pid| pid == self.root || living.contains(&pid));
            found = inside::leftovers(self.root, &members);
            if is_settled
                || found.iter().any(|leftover| leftover.has_escaped)
                || began.elapsed() > LEFT_BEHIND_LIMIT
            {
                break;
            }
            for child in children.into_iter().filter(|&child| child != self.root) {
                wait_for(child, 0);
            }
        }
        found
    }

    /// Returns the members that are left after SIGKILL, each with the reason. Includes children
    /// that cannot be inspected.
    pub fn survivors(&self) -> Vec<ProcessInfo> {
        let snapshot = Snapshot::take(self.me);
        let members = snapshot.members(|_| true);
        let listed = children(self.me);
        // Checks for a child only after the list failed: a child that exists then is in no list.
        let unlisted = uninspected(self.root, &listed, has_no_child);
        let hidden = listed.unwrap_or_default().into_iter().filter(|&pid| !snapshot.has_seen(pid));
        let hidden = hidden.map(|pid| ProcessInfo {
            pid,
            start: 0,
            command: String::new(),
            why: "it cannot be inspected: /proc does not show it".to_owned(),
        });
        members
            .iter()
            .map(|stat| match snapshot.signal(stat, 0) {
                Err(Errno::EPERM) => {
                    ProcessInfo::of(stat, "not permitted to signal it (EPERM): it runs as another user")
                }
                _ if stat.state == 'D' => ProcessInfo::of(stat, "in uninterruptible sleep (state D)"),
                _ => ProcessInfo::of(stat, "still alive after SIGKILL"),
            })
            .chain(hidden)
            .chain(unlisted)
            .chain(self.surviving_non_descendants(&snapshot))
            .collect()
    }

    fn surviving_non_descendants(&self, snapshot: &Snapshot) -> Vec<ProcessInfo> {
        let non_descendants = self.non_descendants(snapshot);
        let mut seen: Vec<_> = non_descendants
            .iter()
            .map(|stat| ProcessInfo::of(stat, "in the run's cgroup, and still alive after SIGKILL"))
            .collect();
        if seen.is_empty() && snapshot.members(|_| true).is_empty() && self.is_cgroup_populated() {
            let why = "the run's cgroup contains a process that is not visible in this PID namespace";
            let why = why.to_owned();
            seen.push(ProcessInfo { pid: self.root, start: 0, command: String::new(), why });
        }
        seen
    }
}

/// Returns a placeholder for the children of a keeper that cannot list them. A report without
/// survivors would claim that there are none.
fn uninspected(
    root: i32,
    listed: &io::Result<Vec<i32>>,
    has_no_child: impl FnOnce() -> bool,
) -> Option<ProcessInfo> {
    let error = listed.as_ref().err()?;
    let why = || format!("the keeper has children that it cannot inspect: {error}");
    (!has_no_child()).then(|| ProcessInfo { pid: root, start: 0, command: String::new(), why: why() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlistable_children_are_survivors_unless_the_kernel_reports_no_child() {
        let unreadable = || Err(io::Error::from(io::ErrorKind::PermissionDenied));
        for (listed, has_no_child, expected) in [
            (Ok(vec![]), true, None),
            (Ok(vec![]), false, None),
            (Ok(vec![7]), false, None),
            (unreadable(), true, None),
            (unreadable(), false, Some((7, 0))),
        ] {
            let found = uninspected(7, &listed, || has_no_child);
            let found = found.map(|process| (process.pid, process.start));
            assert_eq!(found, expected, "{listed:?}, no child: {has_no_child}");
        }
    }
}
