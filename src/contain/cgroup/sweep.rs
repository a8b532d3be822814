//! What keepers that were killed have left: empty directories.

use std::path::Path;

use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{clear, files, is_cgroup2, is_empty, name};
use crate::identity::{ProcessRef, State};

/// Removes the cgroups of dead keepers from a base, for as far as nobody is in them. How many that were.
///
/// No race with anybody: a keeper makes its own cgroup, under its own name, so the name of a dead one is not used again; and the
/// kernel does not remove a cgroup that has a process in it, however it came there after we looked.
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

/// One of another PID namespace cannot be judged, and stays.
fn is_abandoned(keeper: &ProcessRef) -> bool {
    matches!(keeper.state(), State::Exited | State::Recycled)
}
