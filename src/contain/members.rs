//! Who belongs to a tree that nobody's descendants come back to. Pure: looks at all processes in, members out.
//!
//! On macOS an orphan goes to launchd, and with it goes the link to its parents. So membership is not read off the system but
//! remembered, by identity: who was once seen to be a member is one until it is gone. How somebody comes to be one:
//!
//! - It is the child of a member.
//! - It is in a member's session. Sessions cannot be joined, only begun: whoever is in one descends from whoever began it, and a
//!   member's was begun by the root or by somebody who descends from it.
//! - It is in the session of a member that has just gone, or in one with that member's number: a daemon whose parent did not wait.
//! - It carries the run's cookie.
//!
//! Numbers lie when they have been given out again in between, so a member vouches for others only if it was itself seen in that look.
//! A look takes about a millisecond. For a number to change hands within it, the kernel, which hands numbers out in a circle, would have
//! to go all the way round (99,999 of them).

use std::collections::{HashMap, HashSet};

use super::tree;
use crate::identity::stat::Stat;

/// All processes as one look has found them, by number.
pub type Seen = HashMap<i32, Stat>;

/// What makes a process a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It carries the run's id.
    Cookie,
    /// It is in the session that the root has begun, whose number the root keeps.
    RootsSession,
    /// It is in the session of this member.
    Session { witness: i32 },
    /// It is in the session of a member that was there a moment ago.
    FadingSession,
    /// It is a child of this member.
    ChildOf(i32),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    pub stat: &'a Stat,
    pub proof: Proof,
}

/// The members of one tree, by number and start token.
#[derive(Debug)]
pub struct Members {
    keeper: i32,
    root: i32,
    known: HashMap<i32, Known>,
    /// Sessions of members that were gone by the last look: those they were in, and those they may have begun since.
    fading: HashSet<i32>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    start: u64,
    /// As it was when it was last seen.
    session: i32,
}

impl Members {
    /// So far there is only the root.
    pub fn new(keeper: i32, root: &Stat) -> Self {
        let mut members = Self { keeper, root: root.pid, known: HashMap::new(), fading: HashSet::new() };
        members.admit(root);
        members
    }

    /// Whether this very process is a member.
    pub fn has(&self, stat: &Stat) -> bool {
        self.known.get(&stat.pid).is_some_and(|known| known.start == stat.start)
    }

    /// Whether the number is that of a member that was there when we last looked.
    pub fn has_number(&self, pid: i32) -> bool {
        self.known.contains_key(&pid)
    }

    pub fn admit(&mut self, stat: &Stat) {
        self.known.insert(stat.pid, Known { start: stat.start, session: stat.session });
    }

    /// Forgets the members that are dead or gone, or whose numbers are somebody else's by now. Returns their numbers.
    ///
    /// `is_recent`: the last look was so short a time ago that no number can have been given out again since. Then the sessions of those
    /// that are gone still mean what they meant.
    pub fn forget_the_gone(&mut self, seen: &Seen, is_recent: bool) -> Vec<i32> {
        self.fading.clear();
        let mut gone = Vec::new();
        self.known.retain(|&pid, known| {
            let living = seen.get(&pid).filter(|stat| stat.start == known.start && !stat.is_dead());
            match living {
                Some(stat) => known.session = stat.session,
                None if is_recent => self.fading.extend([pid, known.session]),
                None => {}
            }
            if living.is_none() {
                gone.push(pid);
            }
            living.is_some()
        });
        self.fading.remove(&0);
        gone
    }

    /// The living members.
    pub fn living<'a>(&self, seen: &'a Seen) -> Vec<&'a Stat> {
        seen.values().filter(|stat| !stat.is_dead() && self.has(stat)).collect()
    }

    /// Whoever is to be a member by this look, and is none yet. Whoever a proof refers to is one, or comes before it.
    ///
    /// `is_root_held`: the root was not waited for, so its number, and that of its session, are nobody else's.
    pub fn claims<'a>(
        &self,
        seen: &'a Seen,
        is_root_held: bool,
        carries: impl Fn(&Stat) -> bool,
    ) -> Vec<Claim<'a>> {
        let mut found = Found { list: Vec::new(), pids: HashSet::new() };
        let may_join =
            |stat: &&Stat| stat.pid > 1 && stat.pid != self.keeper && !stat.is_dead() && !self.has(stat);
        let strangers: Vec<&Stat> = seen.values().filter(may_join).collect();
        let in_roots_session = |stat: &Stat| stat.session == self.root || stat.pgrp == self.root;
        for &stat in &strangers {
            if is_root_held && in_roots_session(stat) {
                found.add(stat, Proof::RootsSession);
            } else if self.fading.contains(&stat.session) {
                found.add(stat, Proof::FadingSession);
            } else if carries(stat) {
                found.add(stat, Proof::Cookie);
            }
        }
        // A zombie has no children any more, but those that were looked at before it became one still name it.
        let members: Vec<&Stat> = seen.values().filter(|stat| self.has(stat)).collect();
        let mut next = 0;
        while let Some(member) = members.get(next).copied().or_else(|| found.at(next - members.len())) {
            for &stat in &strangers {
                if tree::is_child(stat, member) {
                    found.add(stat, Proof::ChildOf(member.pid));
                } else if stat.session == member.session && member.session > 0 && !member.is_dead() {
                    found.add(stat, Proof::Session { witness: member.pid });
                }
            }
            next += 1;
        }
        found.list
    }
}

struct Found<'a> {
    list: Vec<Claim<'a>>,
    pids: HashSet<i32>,
}

impl<'a> Found<'a> {
    fn at(&self, index: usize) -> Option<&'a Stat> {
        self.list.get(index).map(|claim| claim.stat)
    }

    fn add(&mut self, stat: &'a Stat, proof: Proof) {
        if self.pids.insert(stat.pid) {
            self.list.push(Claim { stat, proof });
        }
    }
}

#[cfg(test)]
mod tests;
