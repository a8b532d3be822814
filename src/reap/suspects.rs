//! Who may be an orphan although no entry names it. Pure: what was seen in, suspects out.
//!
//! A suspect is nobody's run, and works in the project's directory or descends from an owner. That alone is no reason to mention
//! it: its name has to be one that is looked for, too. Names are compared where the patterns are (`ts/patterns.ts`), because some of
//! these are JavaScript's regular expressions; [`names`] says what there is to compare.
//!
//! Nothing here is a proof. So a suspect is told to people, and ended only if somebody says so, by `look::end`.

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

/// A process by its number and start token, here and now.
pub type Id = (i32, u64);

/// One process of the system.
#[derive(Debug, Clone)]
pub struct Seen {
    pub stat: Stat,
    /// `None`: it is another user's, or of the kernel, or must not be looked at. It leads to others, and is no suspect.
    pub details: Option<Details>,
}

#[derive(Debug, Clone, Default)]
pub struct Details {
    /// Its command line. Never empty.
    pub words: Vec<String>,
    /// `None` where that cannot be found out.
    pub directory: Option<PathBuf>,
}

/// All that a suspicion rests on.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    pub seen: &'a HashMap<i32, Seen>,
    /// We, and those above us.
    pub off_limits: &'a HashSet<i32>,
    /// The bots that are alive: those that the registry names, and this one.
    pub owners: &'a HashSet<Id>,
    /// Whoever belongs to an entry. What becomes of it is decided by that.
    pub taken: &'a HashSet<Id>,
    /// `None`: nobody is suspected for where it is.
    pub project: Option<&'a Path>,
}

/// One that may be an orphan, if its name is one of those that are looked for.
#[derive(Debug, Clone, Copy)]
pub struct Suspect<'a> {
    pub stat: &'a Stat,
    pub details: &'a Details,
    /// It works in the project's directory.
    pub in_project: bool,
    /// The bot it descends from.
    pub owner: Option<i32>,
}

/// Everybody to whom this applies, in the order of their numbers:
///
/// - It is alive, this user's, neither the system's (below 100) nor we nor above us.
/// - It belongs to no entry, and to no keeper: whoever has one is somebody's run, in another registry perhaps.
/// - It answers for nobody itself: an owner, a keeper's bot, or somebody above one would take healthy runs along.
/// - It is in the project's directory, or descends from an owner that is alive. (Nobody descends from a dead one: the kernel has
///   given its children to somebody else.)
pub fn suspects<'a>(scene: &Scene<'a>) -> Vec<Suspect<'a>> {
    let answering = scene.answering();
    let mut suspects: Vec<_> =
        scene.seen.values().filter_map(|seen| scene.suspect(seen, &answering)).collect();
    suspects.sort_unstable_by_key(|suspect| suspect.stat.pid);
    suspects
}

impl<'a> Scene<'a> {
    fn suspect(&self, seen: &'a Seen, answering: &HashSet<i32>) -> Option<Suspect<'a>> {
        let Seen { stat, details: Some(details) } = seen else { return None };
        if stat.is_dead()
            || stat.pid < LOWEST_PID
            || self.off_limits.contains(&stat.pid)
            || answering.contains(&stat.pid)
        {
            return None;
        }
        // Who is nearest above decides: a run of an owner has a keeper in between.
        let nearest = self.line(seen).skip(1).find(|above| self.is_kept(above) || self.is_owner(above));
        if nearest.is_some_and(|above| self.is_kept(above)) {
            return None;
        }
        let owner = nearest.map(|owner| owner.stat.pid);
        let in_project = matches!((self.project, &details.directory), (Some(project), Some(directory))
            if directory.starts_with(project));
        (in_project || owner.is_some()).then_some(Suspect { stat, details, in_project, owner })
    }

    /// Owners, whoever belongs to an entry, keepers, and everybody above one of these.
    fn answering(&self) -> HashSet<i32> {
        let anchors = self.seen.values().filter(|seen| self.is_kept(seen) || self.is_owner(seen));
        anchors.flat_map(|seen| self.line(seen)).map(|seen| seen.stat.pid).collect()
    }

    /// The process and its ancestors, as they were seen. Links are stale sometimes: one that cannot be ends the line, and a circle
    /// of them ends as well.
    fn line(&self, seen: &'a Seen) -> impl Iterator<Item = &'a Seen> + use<'a> {
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

/// A keeper, or its zygote, of whatever bot. Anybody can call itself so, and is left alone then.
#[cfg(unix)]
fn is_helper(stat: &Stat) -> bool {
    crate::keeper::is_helper(&stat.comm)
}

/// There are none.
#[cfg(windows)]
fn is_helper(_stat: &Stat) -> bool {
    false
}
