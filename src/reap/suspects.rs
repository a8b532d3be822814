//! Finds suspects: processes that may be orphans although no registry entry names them. Pure: a
//! list of processes in, suspects out.
//!
//! A suspect belongs to no run, and works in the project directory or descends from an owner. In
//! addition its name must match a pattern. `ts/orphans/suspect-patterns.ts` compares the names,
//! because a pattern can be a JavaScript regular expression; [`names`] returns the names to compare.
//!
//! None of this is a proof. So suspects are only reported. `look::end` ends one only if the caller
//! requests it.

#[cfg(target_os = "linux")]
mod linux;
mod look;
#[cfg(target_os = "macos")]
mod macos;
pub mod names;
#[cfg(test)]
mod tests;
#[cfg(windows)]
mod windows;

pub use look::{Look, LookError, Settled, end};

use std::collections::{HashMap, HashSet};
use std::iter;
use std::path::{Path, PathBuf};

use super::observe::LOWEST_PID;
use crate::contain::tree;
use crate::identity::stat::Stat;

/// A process by PID and start token, in this boot and namespace.
pub type Id = (i32, u64);

/// One process of the system.
#[derive(Debug, Clone)]
pub struct Seen {
    pub stat: Stat,
    /// `None` if the process belongs to another user or the kernel, or is unreadable. Such a
    /// process is never a suspect, but its descendants can be.
    pub details: Option<Details>,
}

#[derive(Debug, Clone, Default)]
pub struct Details {
    /// The command line, one element per argument. Never empty.
    pub words: Vec<String>,
    /// `None` if it is unreadable.
    pub directory: Option<PathBuf>,
}

/// All facts for the search.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    pub seen: &'a HashMap<i32, Seen>,
    /// This process and its ancestors.
    pub off_limits: &'a HashSet<i32>,
    /// The live bots: those that the registry names, and this one.
    pub owners: &'a HashSet<Id>,
    /// The processes that belong to an entry. The reaper decides about them by that entry.
    pub taken: &'a HashSet<Id>,
    /// `None`: no process is a suspect because of its directory.
    pub project: Option<&'a Path>,
}

/// A process that may be an orphan, if its name matches a pattern.
#[derive(Debug, Clone, Copy)]
pub struct Suspect<'a> {
    pub stat: &'a Stat,
    pub details: &'a Details,
    /// It works in the project directory.
    pub in_project: bool,
    /// The PID of the bot from which it descends.
    pub owner: Option<i32>,
}

/// All processes for which the following holds, ordered by PID:
///
/// - It is alive, belongs to this user, has no system PID (see [`LOWEST_PID`]), and is neither this
///   process nor an ancestor.
/// - It belongs to no entry and has no keeper. A process with a keeper is a run, perhaps of another
///   registry.
/// - It is no owner, no bot with a keeper, and no ancestor of one. Ending it would end healthy
///   runs.
/// - It is in the project directory, or descends from a live owner. (No process descends from a
///   dead owner, because the kernel has reparented its children.)
pub fn suspects<'a>(scene: &Scene<'a>) -> Vec<Suspect<'a>> {
    let protected = scene.protected();
    let mut suspects: Vec<_> =
        scene.seen.values().filter_map(|seen| scene.suspect(seen, &protected)).collect();
    suspects.sort_unstable_by_key(|suspect| suspect.stat.pid);
    suspects
}

impl<'a> Scene<'a> {
    fn suspect(&self, seen: &'a Seen, protected: &HashSet<i32>) -> Option<Suspect<'a>> {
        let Seen { stat, details: Some(details) } = seen else { return None };
        if stat.is_dead()
            || stat.pid < LOWEST_PID
            || self.off_limits.contains(&stat.pid)
            || protected.contains(&stat.pid)
        {
            return None;
        }
        // The nearest of them decides: a run of an owner has a keeper in between.
        let nearest = self.lineage(seen).skip(1).find(|above| self.is_kept(above) || self.is_owner(above));
        if nearest.is_some_and(|above| self.is_kept(above)) {
            return None;
        }
        let owner = nearest.map(|owner| owner.stat.pid);
        let in_project = matches!((self.project, &details.directory), (Some(project), Some(directory))
            if directory.starts_with(project));
        (in_project || owner.is_some()).then_some(Suspect { stat, details, in_project, owner })
    }

    /// The PIDs of owners, of processes that belong to an entry, of keepers, and of all their
    /// ancestors.
    fn protected(&self) -> HashSet<i32> {
        let anchors = self.seen.values().filter(|seen| self.is_kept(seen) || self.is_owner(seen));
        anchors.flat_map(|seen| self.lineage(seen)).map(|seen| seen.stat.pid).collect()
    }

    /// The process and its ancestors, as they were listed. Links can be stale: an impossible link
    /// ends the walk, and so does a loop.
    fn lineage(&self, seen: &'a Seen) -> impl Iterator<Item = &'a Seen> + use<'a> {
        let all = self.seen;
        let parent = move |child: &&'a Seen| {
            all.get(&child.stat.ppid).filter(|parent| tree::is_child(&child.stat, &parent.stat))
        };
        iter::successors(Some(seen), parent).take(all.len())
    }

    fn is_owner(&self, seen: &Seen) -> bool {
        self.owners.contains(&(seen.stat.pid, seen.stat.start))
    }

    fn is_kept(&self, seen: &Seen) -> bool {
        self.taken.contains(&(seen.stat.pid, seen.stat.start)) || is_helper(&seen.stat)
    }
}

/// Whether it is a keeper or a zygote of any bot. Any process can take that name; then it is left
/// alone.
#[cfg(unix)]
fn is_helper(stat: &Stat) -> bool {
    crate::identity::helpers::is_helper(&stat.comm)
}

/// Always false: Windows has no such helpers.
#[cfg(windows)]
fn is_helper(_stat: &Stat) -> bool {
    false
}
