//! Decides which processes are members of a tree on macOS. Pure: scans of all processes in, members
//! out.
//!
//! On macOS launchd adopts orphans, so the link to their parents is lost. So the keeper remembers
//! members by identity. A process that was once seen as a member stays one until it is gone. A
//! process becomes a member if:
//!
//! - It is a child of a member.
//! - It is in a member's session. A process cannot join a session, only start one. So all processes
//!   in a session descend from its leader, and a member's session was started by the root or a
//!   descendant.
//! - It is in the session of a member that was gone in the last scan, or its session ID is that
//!   member's PID: a daemon whose parent exited early.
//! - It carries the run's cookie.
//!
//! PIDs can be reused between scans. So a member proves others only if the same scan contains it. A
//! scan takes about a millisecond. The kernel assigns PIDs in a circle, so it would have to assign
//! all 99,999 PIDs within one scan to reuse one.

use std::collections::{HashMap, HashSet};

use super::tree;
use crate::identity::stat::Stat;

/// All processes of one scan, by PID.
pub type Seen = HashMap<i32, Stat>;

/// Why a process is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It carries the run's key.
    Cookie,
    /// It is in the session or group that the root started. The root's zombie keeps that ID.
    RootsSession,
    /// It is in the session of this member.
    Session { witness: i32 },
    /// It is in the session of a member that was alive a moment ago.
    EndedMemberSession,
    /// It is a child of this member.
    ChildOf(i32),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    pub stat: &'a Stat,
    pub proof: Proof,
}

/// The members of one tree, by PID and start token.
#[derive(Debug)]
pub struct Members {
    keeper: i32,
    root: i32,
    known: HashMap<i32, Known>,
    /// Sessions of members that were gone in the last scan: the last known one, and one that they
    /// may have started since.
    ended_sessions: HashSet<i32>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    start: u64,
    /// The session when the member was last seen.
    session: i32,
}

impl Members {
    /// Starts with the root as the only member.
    pub fn new(keeper: i32, root: &Stat) -> Self {
        let mut members =
            Self { keeper, root: root.pid, known: HashMap::new(), ended_sessions: HashSet::new() };
        members.admit(root);
        members
    }

    /// Returns whether this process, with this start token, is a member.
    pub fn has(&self, stat: &Stat) -> bool {
        self.known.get(&stat.pid).is_some_and(|known| known.start == stat.start)
    }

    /// Returns whether the PID was a member's in the last scan.
    pub fn has_pid(&self, pid: i32) -> bool {
        self.known.contains_key(&pid)
    }

    pub fn admit(&mut self, stat: &Stat) {
        self.known.insert(stat.pid, Known { start: stat.start, session: stat.session });
    }

    /// Removes members that are dead or gone, or whose PID belongs to another process now. Returns
    /// their PIDs.
    ///
    /// `is_recent`: the last scan is so recent that no PID was reused since. Then the sessions of
    /// the removed members are still valid as proof.
    pub fn remove_gone(&mut self, seen: &Seen, is_recent: bool) -> Vec<i32> {
        self.ended_sessions.clear();
        let mut gone = Vec::new();
        self.known.retain(|&pid, known| {
            let living = seen.get(&pid).filter(|stat| stat.start == known.start && !stat.is_dead());
            match living {
                Some(stat) => known.session = stat.session,
                None if is_recent => self.ended_sessions.extend([pid, known.session]),
                None => {}
            }
            if living.is_none() {
                gone.push(pid);
            }
            living.is_some()
        });
        self.ended_sessions.remove(&0);
        gone
    }

    /// Returns the living members.
    pub fn living<'a>(&self, seen: &'a Seen) -> Vec<&'a Stat> {
        seen.values().filter(|stat| !stat.is_dead() && self.has(stat)).collect()
    }

    /// Returns the new members in this scan. A process that a proof refers to is a member, or comes
    /// before it in the list.
    ///
    /// `is_root_held`: the root was not reaped, so no other process can have its PID as PID or
    /// session ID.
    pub fn claims<'a>(
        &self,
        seen: &'a Seen,
        is_root_held: bool,
        carries: impl Fn(&Stat) -> bool,
    ) -> Vec<Claim<'a>> {
        let mut found = Found { list: Vec::new(), pids: HashSet::new() };
        let may_join =
            |stat: &&Stat| stat.pid > 1 && stat.pid != self.keeper && !stat.is_dead() && !self.has(stat);
        let candidates: Vec<&Stat> = seen.values().filter(may_join).collect();
        let in_roots_session = |stat: &Stat| stat.session == self.root || stat.pgrp == self.root;
        for &stat in &candidates {
            if is_root_held && in_roots_session(stat) {
                found.add(stat, Proof::RootsSession);
            } else if self.ended_sessions.contains(&stat.session) {
                found.add(stat, Proof::EndedMemberSession);
            } else if carries(stat) {
                found.add(stat, Proof::Cookie);
            }
        }
        // A zombie has no children, but processes that were read before it died still name it as
        // parent.
        let members: Vec<&Stat> = seen.values().filter(|stat| self.has(stat)).collect();
        let mut next = 0;
        while let Some(member) = members.get(next).copied().or_else(|| found.at(next - members.len())) {
            for &stat in &candidates {
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
