//! Where a run's root is born: in a cgroup of its own, if the run is to have one.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getpid};

use super::protocol::InCgroup;
use crate::contain::cgroup::{Cgroup, Trouble, fork_into};
use crate::identity::{FORCE_FALLBACK, ProcessRef, read_stat};

/// The cgroup of the calling process, which is a keeper, as it was ordered.
pub fn build(order: Option<&InCgroup>) -> Result<Option<Cgroup>, Trouble> {
    let Some(InCgroup { base, limits }) = order else { return Ok(None) };
    let pid = getpid().as_raw();
    let failed = |errno: Errno| Trouble::Failed {
        path: base.dir.clone(),
        step: "to read our own start token".into(),
        errno: errno as i32,
    };
    let me = ProcessRef::known(pid, read_stat(pid).map_err(failed)?.start);
    Cgroup::create(base, &me, limits).map(Some)
}

/// Forks a child into the cgroup, if there is one. Where the kernel can only move processes, which takes long, the child moves itself;
/// if it cannot, it says so over `standing` and ends.
///
/// # Safety
///
/// As for [`fork_into`]: one thread, and a child that is about to `exec`.
pub unsafe fn fork_child(cgroup: Option<&Cgroup>, standing: &PipeWriter) -> Result<ForkResult, Errno> {
    if let Some(nest) = cgroup
        && can_be_born_inside()
        // SAFETY: the caller's promise.
        && let Some(forked) = unsafe { fork_into(nest.as_fd()) }?
    {
        return Ok(forked);
    }
    // SAFETY: the caller's promise.
    let forked = unsafe { fork() }?;
    if let (ForkResult::Child, Some(nest)) = (forked, cgroup)
        && let Err(errno) = nest.enter()
    {
        let _ = (&*standing).write_all(&(errno as i32).to_le_bytes());
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(1) }
    }
    Ok(forked)
}

/// Waits until the child stands: it leads its session, or is dead already. If it could not be moved, it has been waited for.
pub fn await_standing(mut stands: PipeReader, child: i32, cgroup: Option<&Cgroup>) -> Result<(), Trouble> {
    let mut errno = [0; 4];
    match (stands.read_exact(&mut errno), cgroup) {
        (Ok(()), Some(cgroup)) => {
            // Our own child, and about to end.
            let _ = waitpid(Pid::from_raw(child), None);
            Err(given_up(cgroup, Errno::from_raw(i32::from_le_bytes(errno))))
        }
        _ => Ok(()),
    }
}

/// That nobody could be put into the cgroup, which is gone.
pub fn given_up(cgroup: &Cgroup, errno: Errno) -> Trouble {
    let _ = cgroup.remove();
    let step = "to start a process in it".into();
    Trouble::Failed { path: cgroup.path().to_owned(), step, errno: errno as i32 }
}

/// Unless a test wants to know what happens on an old kernel.
fn can_be_born_inside() -> bool {
    !std::env::var(FORCE_FALLBACK).is_ok_and(|list| list.contains("clone"))
}
