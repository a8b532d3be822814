//! Handles a keeper that does not end its run.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use super::{MAX_WAIT, REPORT_LIMIT, RETRY_LIMIT};
use crate::contain::tracer;
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, State, read_stat};

/// Time that a killed process usually takes to exit.
const EXIT_TIME: Duration = Duration::from_millis(50);

/// Wakes the keeper with SIGCONT, in case it is stopped.
pub fn wake(keeper: &ProcessRef, root: &ProcessRef) {
    if is_keeper_of(keeper, root) {
        let _ = keeper.signal(libc::SIGCONT);
    }
}

/// Makes the keeper end its run with SIGTERM, which every version understands, or kills it. After
/// that, its tree can be ended from outside. Returns false if the process is not the keeper of that
/// run.
pub fn force_stop(keeper: &ProcessRef, root: &ProcessRef, errno: Errno, grace: Duration) -> bool {
    if !is_keeper_of(keeper, root) {
        return false;
    }
    if errno == Errno::EPROTO {
        shut_down(keeper, grace);
        return true;
    }
    kill(keeper)
}

/// Kills the keeper and waits until it is dead, because only then its tree can be ended from
/// outside. A member that traces the keeper can block its exit, so this kills the tracer.
fn kill(keeper: &ProcessRef) -> bool {
    let Ok(handle) = keeper.open_handle() else { return false };
    if handle.signal(libc::SIGKILL).is_err() {
        return false;
    }
    let give_up_at = Instant::now() + RETRY_LIMIT;
    while handle.wait_exited(Some(EXIT_TIME)) == Ok(false) && Instant::now() < give_up_at {
        tracer::kill_own_tracer(keeper);
    }
    true
}

/// Sends SIGTERM to a keeper of another version, and waits. If it does not exit, kills it; then its
/// tree is ended from outside.
fn shut_down(keeper: &ProcessRef, grace: Duration) {
    if let Ok(handle) = keeper.open_handle()
        && handle.signal(libc::SIGTERM).is_ok()
        && handle.wait_exited(Some(grace.saturating_add(REPORT_LIMIT).min(MAX_WAIT))) != Ok(true)
    {
        kill(keeper);
    }
}

/// Whether this process is the keeper of that root. Only then may it be signalled as its keeper,
/// because a registry file can name any process. (A cancel message needs no such proof: the answer
/// of a process that does not know the root is ignored.)
///
/// The process must have the name of a keeper, and be the root's parent. That is proof while both
/// exist. A keeper does not reap its root until nothing of the tree is left.
fn is_keeper_of(keeper: &ProcessRef, root: &ProcessRef) -> bool {
    let is_keeper = |stat: &Stat| {
        stat.start == keeper.start && stat.comm == crate::identity::helpers::KEEPER_NAME && !stat.is_dead()
    };
    let is_its_root = |stat: &Stat| stat.start == root.start && stat.ppid == keeper.pid;
    keeper.state() == State::Alive
        && root.boot == keeper.boot
        && root.ns == keeper.ns
        && read_stat(root.pid).is_ok_and(|stat| is_its_root(&stat))
        && read_stat(keeper.pid).is_ok_and(|stat| is_keeper(&stat))
}
