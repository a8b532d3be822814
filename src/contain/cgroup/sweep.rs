//! Removes the empty cgroups that killed keepers left behind.

use std::path::Path;

use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{clear, files, is_cgroup2, is_empty, name};
use crate::identity::{ProcessRef, State};

/// Removes the empty cgroups of dead keepers from a base directory. Returns how many.
///
/// It cannot race with a keeper: each keeper creates a cgroup with its own name, and the name of a
/// dead keeper is not used again. The kernel refuses to remove a cgroup that contains a process,
/// even if that process entered after the check.
pub fn sweep(base: &Path) -> usize {
    let Some(dir) = files::directory(base).ok().filter(is_cgroup2) else { return 0 };
    let mut removed = 0;
    for entry in files::children(&dir).unwrap_or_default() {
        let left = name::keeper(&entry).filter(is_abandoned);
        if left.is_some()
            && let Ok(cgroup) = files::directory_in(&dir, &entry)
            && is_empty(&cgroup) == Ok(true)
        {
            let _ = clear(&cgroup);
            removed += usize::from(unlinkat(&dir, entry.as_str(), UnlinkatFlags::RemoveDir).is_ok());
        }
    }
    removed
}

/// Returns whether the keeper is dead. A keeper in another PID namespace cannot be checked, so it
/// counts as alive.
fn is_abandoned(keeper: &ProcessRef) -> bool {
    matches!(keeper.state(), State::Exited | State::Recycled)
}
