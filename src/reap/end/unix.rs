//! A keeper that does not do its part.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use super::{LONGEST, PATIENCE, PERSISTENCE};
use crate::contain::tracer;
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, State, read_stat};

/// How long a process that was killed usually takes to die.
const DYING: Duration = Duration::from_millis(50);

/// One that was stopped is woken.
pub fn wake(keeper: &ProcessRef, root: &ProcessRef) {
    if keeps(keeper, root) {
        let _ = keeper.signal(libc::SIGCONT);
    }
}

/// Has it end its run in the one way that every version of it understands, or kills it: then its tree is anybody's to end. False if
/// it is not that run's keeper at all.
pub fn overcome(keeper: &ProcessRef, root: &ProcessRef, errno: Errno, grace: Duration) -> bool {
    if !keeps(keeper, root) {
        return false;
    }
    if errno == Errno::EPROTO {
        shut_down(keeper, grace);
        return true;
    }
    kill(keeper)
}

/// Waits until it is dead, too: what it kept is anybody's only then. One of its tree may hold it at its exit.
fn kill(keeper: &ProcessRef) -> bool {
    let Ok(pin) = keeper.pinned() else { return false };
    if pin.signal(libc::SIGKILL).is_err() {
        return false;
    }
    let give_up_at = Instant::now() + PERSISTENCE;
    while pin.wait_exited(Some(DYING)) == Ok(false) && Instant::now() < give_up_at {
        tracer::kill_own_tracer(keeper);
    }
    true
}

/// Asks a keeper of another version, and waits for it. Should it not, its tree falls to whoever looks from outside.
fn shut_down(keeper: &ProcessRef, grace: Duration) {
    if let Ok(pin) = keeper.pinned()
        && pin.signal(libc::SIGTERM).is_ok()
        && pin.wait_exited(Some(grace.saturating_add(PATIENCE).min(LONGEST))) != Ok(true)
    {
        kill(keeper);
    }
}

/// Whether this process keeps that root: then, and only then, it may be signalled as its keeper. A file can name anybody. (To talk
/// to it needs no such proof: whoever does not know the root is not listened to.)
///
/// It must call itself a keeper, and be the root's parent. That is proof as long as both exist, and a keeper holds its root,
/// dead or alive, until nothing is left of the tree.
fn keeps(keeper: &ProcessRef, root: &ProcessRef) -> bool {
    let is_keeper =
        |stat: &Stat| stat.start == keeper.start && stat.comm == crate::keeper::NAME && !stat.is_dead();
    let is_its_root = |stat: &Stat| stat.start == root.start && stat.ppid == keeper.pid;
    keeper.state() == State::Alive
        && root.boot == keeper.boot
        && root.ns == keeper.ns
        && read_stat(root.pid).is_ok_and(|stat| is_its_root(&stat))
        && read_stat(keeper.pid).is_ok_and(|stat| is_keeper(&stat))
}
