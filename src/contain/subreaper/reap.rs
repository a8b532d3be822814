//! Reaps the dead members of the tree, and finds out when none is left.

use std::time::{Duration, Instant};

use super::Tree;
use crate::contain::snapshot::children;
use crate::contain::wait::{peek_at_any, wait_for};

/// Maximum duration of one [`Tree::reap`] call. A tree that only forks and exits must not block the
/// keeper.
const REAP_LIMIT: Duration = Duration::from_millis(5);

/// How often, and with which pause, the keeper re-reads a cgroup that should be empty. The kernel
/// may update the cgroup a moment after it reports the last process's death.
const EMPTY_CHECKS: usize = 20;
const EMPTY_PAUSE: Duration = Duration::from_micros(50);

/// With at most this many children, the keeper checks all of them on each death. With more, it
/// pauses after each check for twice the time the check took.
const FEW_CHILDREN: usize = 256;
const IDLE_PER_CHECK: u32 = 2;
/// Maximum pause between two checks. The duration of a check is elapsed time, which also passes
/// while the keeper's container is frozen.
const LONGEST_IDLE: Duration = Duration::from_millis(100);

/// One check of [`Tree::reap_beside_dead_root`] over all children. It may need several `reap`
/// calls.
#[derive(Debug)]
pub(super) struct Check {
    /// Children that are not checked yet, and how many there were at the start.
    left: Vec<i32>,
    count: usize,
    has_reaped: bool,
    began: Instant,
    /// Earliest start of the next check.
    not_before: Instant,
}

impl Check {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { left: Vec::new(), count: 0, has_reaped: false, began: now, not_before: now }
    }
}

impl Tree {
    /// Reaps every dead child except the root, whose zombie stays. Returns true if nothing else is
    /// left of the tree.
    ///
    /// One SIGCHLD can stand for several deaths. So if time runs out first,
    /// [`Tree::is_unfinished`] returns true and the caller must call again.
    pub fn reap(&mut self) -> bool {
        let until = Instant::now() + REAP_LIMIT;
        self.unfinished = false;
        let is_root_dead = self.reap_beside_living_root(until);
        if self.status.is_some() {
            self.acknowledge_cgroup_change();
        }
        let is_empty = is_root_dead && self.reap_beside_dead_root(until);
        if self.shrunk
            && let Some(termination) = &mut self.termination
        {
            termination.member_died();
        }
        is_empty
    }

    /// Reaps while the root lives: asks the kernel for any dead child, which costs about the same
    /// for few and many living children. Returns true when the root is dead. From then on the
    /// kernel would return the root's zombie every time.
    fn reap_beside_living_root(&mut self, until: Instant) -> bool {
        while self.status.is_none() && !self.root_reaped {
            match peek_at_any() {
                Some((child, status)) if child == self.root => self.status = Some(status),
                Some((child, _)) => self.shrunk |= wait_for(child, 0).is_some(),
                None => return false,
            }
            if Instant::now() > until {
                self.unfinished = true;
                return false;
            }
        }
        true
    }

    /// Reaps beside the root's zombie: waits for each child by its PID.
    ///
    /// A check that reaps a child is repeated, because the children of the reaped process are
    /// children of the keeper now. Only a list with no child except the root proves that the tree
    /// is empty. The list misses no child (see [`children`]), and no new process can appear: its
    /// parent would have to be in the tree.
    fn reap_beside_dead_root(&mut self, until: Instant) -> bool {
        loop {
            if self.check.left.is_empty() {
                let now = Instant::now();
                let listed = if now < self.check.not_before { None } else { children(self.me).ok() };
                let Some(mut listed) = listed else {
                    self.unfinished = true;
                    return false;
                };
                listed.retain(|&child| child != self.root || self.root_reaped);
                if listed.is_empty() {
                    return self.is_cgroup_empty();
                }
                (self.check.count, self.check.began) = (listed.len(), now);
                (self.check.left, self.check.has_reaped) = (listed, false);
            }
            while let Some(child) = self.check.left.pop() {
                self.check.has_reaped |= wait_for(child, 0).is_some();
                if Instant::now() > until {
                    self.shrunk |= self.check.has_reaped;
                    self.unfinished = true;
                    return false;
                }
            }
            self.shrunk |= self.check.has_reaped;
            if self.check.count > FEW_CHILDREN {
                let idle = self.check.began.elapsed().saturating_mul(IDLE_PER_CHECK);
                self.check.not_before = Instant::now() + idle.min(LONGEST_IDLE);
            }
            if !self.check.has_reaped {
                return false;
            }
        }
    }

    /// Reads `cgroup.events`, so that [`Tree::changes`] is no longer ready. Each `reap` must do
    /// this, whether children live or not. A change after this read makes the descriptor ready
    /// again.
    fn acknowledge_cgroup_change(&mut self) {
        // If the command has removed the cgroup, its descriptor stays ready for ever.
        self.cgroup = self.cgroup.take().filter(|cgroup| !cgroup.is_removed());
        self.is_cgroup_populated();
    }

    fn is_cgroup_empty(&self) -> bool {
        !(self.is_cgroup_populated() && self.stays_populated())
    }

    fn stays_populated(&self) -> bool {
        (0..EMPTY_CHECKS).all(|_| {
            std::thread::sleep(EMPTY_PAUSE);
            self.is_cgroup_populated()
        })
    }
}
