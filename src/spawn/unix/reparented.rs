//! Keepers that have become the bot's own children.
//!
//! When a zygote is killed, the kernel gives its keepers to the next process above that adopts
//! orphans: PID 1 of their PID namespace, or a child subreaper. If that is the bot, the bot must
//! reap them, or each stays a zombie.
//!
//! SIGCHLD and all other children belong to libuv. So this module waits only for processes that are
//! proven to be keepers, each by its own pidfd, never for "any child".

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::contain::snapshot;
use crate::identity::{ProcessHandle, ProcessRef};

/// Reaps each keeper of a dead, reaped zygote when that keeper dies, if the bot has adopted it.
///
/// The proof: a keeper is in the session of its zygote, and only the zygote's descendants can be in
/// it. The kernel does not reuse the zygote's PID while that session has a member. No keeper can
/// follow later: the kernel gives the keepers to the bot before a dead zygote can be reaped.
pub fn wait_for_keepers_of(zygote: i32) {
    if !adopts_orphans() {
        return;
    }
    let me = std::process::id().cast_signed();
    for child in snapshot::children_of_all_threads(me) {
        // Open a handle first and read through it: then the checked process is the reaped one.
        let Ok(handle) = ProcessHandle::open(child) else { continue };
        if handle.stat().is_ok_and(|stat| stat.session == zygote && stat.ppid == me)
            && let Some(pidfd) = handle.into_pollable()
        {
            tokio::spawn(wait_for(pidfd));
        }
    }
}

/// Reaps the root of a run that has lost both its keeper and its zygote, if the bot has adopted the
/// root and it is dead.
pub fn wait_for_root(root: &ProcessRef) {
    if adopts_orphans()
        && let Ok(handle) = ProcessHandle::open(root.pid)
        && handle.stat().is_ok_and(|stat| stat.start == root.start)
        && let Some(pidfd) = handle.into_pollable()
    {
        let _ = reap(&pidfd);
    }
}

async fn wait_for(pidfd: OwnedFd) {
    // SAFETY: the registered value owns the descriptor.
    if let Ok(exited) = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) } {
        let _ = exited.readable().await;
        let _ = reap(exited.get_ref());
    }
}

/// `ECHILD` if the process is not our child. Does not wait for a thread-group leader that has
/// exited before its other threads.
fn reap(pidfd: &OwnedFd) -> Result<(), Errno> {
    waitid(Id::PIDFd(pidfd.as_fd()), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG).map(drop)
}

fn adopts_orphans() -> bool {
    Pid::this().as_raw() == 1 || prctl::get_child_subreaper().unwrap_or(false)
}
