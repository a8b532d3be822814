//! A tree seen from outside, when whoever holds it is not there to ask.
//!
//! What every system's half does: [`Scan`] looks at all processes once, and can be asked about any number of runs; [`end_tree`]
//! ends whatever can be proven to belong to one, and nobody else.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::{Scan, end_tree};
#[cfg(windows)]
pub use windows::{Scan, end_tree};

use super::ProcessInfo;
#[cfg(unix)]
use super::cgroup::Recorded;
use crate::identity::ProcessRef;

/// What is known about a tree whose keeper is not there to ask.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    pub root: &'a ProcessRef,
    /// The root has led its group: the group's number is the root's. Otherwise it was in somebody else's, which is not touched.
    pub leads_group: bool,
    /// The run whose cookie its members carry. `None` for a process that was not spawned but only registered.
    pub run_id: Option<&'a str>,
    /// Members of the group that were seen while the root lived. They vouch for the group when the root is gone.
    pub members: &'a [ProcessRef],
    /// Whoever is in it is the run's, if its keeper is dead.
    #[cfg(unix)]
    pub cgroup: Option<Recorded<'a>>,
    /// The name of its Job Object, if it has one. Anybody may make one of that name: it is the run's if somebody who is proven to be
    /// is in it.
    #[cfg(windows)]
    pub job: Option<&'a str>,
}

/// How [`end_tree`] went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Something of it was alive.
    pub found: bool,
    /// What is left, each with the reason.
    pub survivors: Vec<ProcessInfo>,
    /// How many processes have got a signal.
    pub signalled: usize,
}

/// What there is of a run's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupState {
    /// No living member. If the root's number belongs to another process now, this is certain: until then it was free.
    Empty,
    /// Living members, and one that is proven to be the run's among them.
    Ours,
    /// Living members of a group with that number, and nobody vouches for them. Hands off.
    Unproven,
}

impl<'a> Target<'a> {
    /// A run that was spawned: on Unix its root leads a session and a group, and its members carry its id.
    pub fn spawned(root: &'a ProcessRef, run_id: &'a str) -> Self {
        Self {
            root,
            leads_group: true,
            run_id: Some(run_id),
            members: &[],
            #[cfg(unix)]
            cgroup: None,
            #[cfg(windows)]
            job: None,
        }
    }
}
