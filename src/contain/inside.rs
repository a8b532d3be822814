//! The tree of a keeper process, which is the parent of the tree's root.

use super::contained_tree::{ContainedTree, Population, Unreachable};
#[cfg(target_os = "macos")]
pub use super::kqueue_tree::{Tree, become_subreaper};
#[cfg(target_os = "linux")]
pub use super::subreaper::{Tree, become_subreaper};
use super::termination::ms_until;
use super::{Leftover, ProcessInfo, Usage};
use crate::errno::Errno;
use crate::identity::helpers::is_helper;
use crate::identity::stat::Stat;
use crate::run::ExitStatus;

/// Interval of SIGKILL passes. They do not wait for a signal, for two reasons: a member can fork
/// between a scan and its kill, and an orphan of a process that cannot die yet causes no SIGCHLD.
pub const KILL_PASS_MS: u64 = 2;

const ESCAPED: &str = "left the run's session and outlived its root";
const OUTLIVED: &str = "outlived the run's root";

impl ContainedTree for Tree {
    const KILL_PASS_MS: u64 = KILL_PASS_MS;

    fn scan(&mut self) -> Population {
        // `release_root` asks the kernel. If a child exists after all, the tree is not gone.
        if self.reap() && self.release_root() { Population::Gone(Vec::new()) } else { Population::Living }
    }

    fn is_unfinished(&self) -> bool {
        Self::is_unfinished(self)
    }

    fn has_shrunk(&mut self) -> bool {
        Self::has_shrunk(self)
    }

    fn root_status(&self) -> Option<ExitStatus> {
        Self::root_status(self)
    }

    fn signal_root(&self, signal: i32) -> Result<(), Errno> {
        Self::signal_root(self, signal)
    }

    fn terminate(&mut self, signal: i32) -> Result<Vec<Leftover>, Unreachable> {
        Ok(Self::terminate(self, signal))
    }

    fn next_check_in(&self) -> Option<u64> {
        self.next_pass().map(ms_until)
    }

    fn pass(&mut self) -> Vec<Leftover> {
        Self::pass(self)
    }

    fn kill(&mut self) -> Vec<ProcessInfo> {
        Self::kill(self)
    }

    fn left_behind(&mut self) -> Vec<Leftover> {
        Self::left_behind(self)
    }

    fn survivors(&mut self) -> Vec<ProcessInfo> {
        Self::survivors(self)
    }

    fn usage(&mut self) -> Usage {
        Self::usage(self)
    }

    /// With survivors in the cgroup the kernel refuses to remove it. The run is over in both cases.
    fn close(&mut self) {
        self.remove_cgroup();
    }
}

/// Converts members to leftovers, without our own helpers.
pub(super) fn leftovers(root: i32, members: &[&Stat]) -> Vec<Leftover> {
    let leftover = |stat: &Stat| {
        let has_escaped = stat.session != root;
        let why = if has_escaped { ESCAPED } else { OUTLIVED };
        Leftover { process: ProcessInfo::of(stat, why), is_root: stat.pid == root, has_escaped }
    };
    listed(members).map(leftover).collect()
}

/// Converts members that get SIGKILL, without our own helpers.
pub(super) fn killed<'a>(members: impl IntoIterator<Item = &'a &'a Stat>) -> Vec<ProcessInfo> {
    listed(members).map(|stat| ProcessInfo::of(stat, "")).collect()
}

/// The members that a report lists. When a bot inside the run exits, its own keepers are about to
/// exit and are not listed. A process that uses a helper's name is only missing from the report.
fn listed<'a>(members: impl IntoIterator<Item = &'a &'a Stat>) -> impl Iterator<Item = &'a Stat> {
    members.into_iter().copied().filter(|stat| !is_helper(&stat.comm))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::helpers::{KEEPER_NAME, STUB_NAME, ZYGOTE_NAME};

    #[test]
    fn our_helpers_are_not_listed() {
        let named =
            |pid, comm: &str, session| Stat { pid, comm: comm.to_owned(), session, ..Stat::default() };
        let members = [
            named(7, "root", 7),
            named(8, KEEPER_NAME, 8),
            named(9, ZYGOTE_NAME, 9),
            named(10, STUB_NAME, 10),
            named(11, "sh", 7),
            named(12, "daemon", 12),
        ];
        let members: Vec<_> = members.iter().collect();
        let found: Vec<_> = leftovers(7, &members)
            .iter()
            .map(|leftover| (leftover.process.pid, leftover.is_root, leftover.has_escaped))
            .collect();
        assert_eq!(found, [(7, true, false), (11, false, false), (12, false, true)]);
        let pids: Vec<_> = killed(&members).iter().map(|process| process.pid).collect();
        assert_eq!(pids, [7, 11, 12]);
    }
}
