//! What a keeper needs from the tree that it contains: a scan, signals, and lists of members.
//!
//! `inside` implements it for `subreaper` (Linux) and `kqueue_tree` (macOS), and the keeper's
//! `job_tree` for `job` (Windows). The keeper decides when to call what.

use super::{Leftover, Usage};
use crate::errno::Errno;
use crate::run::{ExitStatus, ProcessInfo};

/// The process tree of a run.
pub trait ContainedTree {
    /// Interval of SIGKILL passes.
    const KILL_PASS_MS: u64;

    /// Updates what is known of the tree: reaps exited children, reads the root's exit status.
    ///
    /// [`Population::Gone`] is final. If [`ContainedTree::is_unfinished`] returns true afterwards,
    /// the caller must scan again soon.
    fn scan(&mut self) -> Population;

    /// Returns whether the last scan ran out of time or was not conclusive.
    fn is_unfinished(&self) -> bool {
        false
    }

    /// Returns whether a member has died since the last call.
    fn has_shrunk(&mut self) -> bool;

    /// The root's exit status, after a scan has seen it.
    fn root_status(&self) -> Option<ExitStatus>;

    /// Signals only the root, as `ChildProcess.kill` does.
    fn signal_root(&self, signal: i32) -> Result<(), Errno>;

    /// Starts to terminate the tree: requests every member to exit, with `signal`.
    ///
    /// Returns the members that received it, if they are known. On Windows none is.
    fn terminate(&mut self, signal: i32) -> Result<Vec<Leftover>, Unreachable>;

    /// Milliseconds until the tree must be checked again even without an event. 0 if a
    /// [`ContainedTree::pass`] is due now.
    fn next_check_in(&self) -> Option<u64>;

    /// Signals the members that appeared since the last pass. Returns them.
    fn pass(&mut self) -> Vec<Leftover> {
        Vec::new()
    }

    /// Kills every member once. The caller repeats it, because a member can fork during a pass.
    ///
    /// Returns the members that it kills, as they were before. A later call may return them again.
    fn kill(&mut self) -> Vec<ProcessInfo>;

    /// The members that are alive after the root has exited.
    fn left_behind(&mut self) -> Vec<Leftover>;

    /// The members that are left after [`ContainedTree::kill`], each with the reason.
    fn survivors(&mut self) -> Vec<ProcessInfo>;

    /// Resource usage of the tree.
    fn usage(&mut self) -> Usage;

    /// Releases what belongs to the tree in the system, such as its cgroup. Call it when the run is
    /// over.
    fn close(&mut self) {}
}

/// What a scan has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Population {
    /// Members are left, or the scan is not finished.
    Living,
    /// Members are left, and no request to exit can reach them. The keeper must kill them. Only on
    /// Windows.
    Unreachable,
    /// No member runs, but the kernel has not completed all exits. Only on Windows.
    Exiting,
    /// Nothing is left of the tree, except the listed processes whose exit the kernel does not
    /// complete.
    Gone(Vec<ProcessInfo>),
}

/// No request to exit can reach the tree. Only on Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreachable;
