//! Forks the exec stub, into the run's own cgroup if the run has one.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getpid};

use super::protocol::InCgroup;
use crate::contain::cgroup::{Cgroup, CgroupError, fork_into};
use crate::identity::{FORCE_FALLBACK, ProcessRef, read_stat};
use crate::start_environment::variable;

/// Creates the cgroup for the run of the calling keeper, if the bot ordered one.
pub fn build(order: Option<&InCgroup>) -> Result<Option<Cgroup>, CgroupError> {
    let Some(InCgroup { base, limits }) = order else { return Ok(None) };
    let pid = getpid().as_raw();
    let failed = |errno: Errno| CgroupError::Failed {
        path: base.dir.clone(),
        step: "to read the keeper's start token".into(),
        errno: errno as i32,
    };
    let me = ProcessRef::known(pid, read_stat(pid).map_err(failed)?.start);
    Cgroup::create(base, &me, limits).map(Some)
}

/// Forks a child, directly into the cgroup if there is one.
///
/// If the kernel cannot fork into a cgroup, the child moves itself, which is slower. If that fails,
/// the child writes the errno to `ready` and exits.
///
/// # Safety
///
/// As for [`fork_into`]: the process has one thread, and the child is about to call `exec`.
pub unsafe fn fork_child(cgroup: Option<&Cgroup>, ready: &PipeWriter) -> Result<ForkResult, Errno> {
    if let Some(cgroup) = cgroup
        && may_fork_into_cgroup()
        // SAFETY: the caller guarantees it.
        && let Some(forked) = unsafe { fork_into(cgroup.as_fd()) }?
    {
        return Ok(forked);
    }
    // SAFETY: the caller guarantees it.
    let forked = unsafe { fork() }?;
    if let (ForkResult::Child, Some(cgroup)) = (forked, cgroup)
        && let Err(errno) = cgroup.enter()
    {
        let _ = (&*ready).write_all(&(errno as i32).to_le_bytes());
        // SAFETY: `_exit` takes an integer and does not return.
        unsafe { libc::_exit(1) }
    }
    Ok(forked)
}

/// Waits until the child leads its own session, or is dead. If it could not enter the cgroup, this
/// function reaps it and returns the error.
pub fn wait_until_ready(
    mut ready: PipeReader,
    child: i32,
    cgroup: Option<&Cgroup>,
) -> Result<(), CgroupError> {
    let mut errno = [0; 4];
    match (ready.read_exact(&mut errno), cgroup) {
        (Ok(()), Some(cgroup)) => {
            // The child exits after it has written its errno, so this wait is short.
            let _ = waitpid(Pid::from_raw(child), None);
            Err(remove_after_failure(cgroup, Errno::from_raw(i32::from_le_bytes(errno))))
        }
        _ => Ok(()),
    }
}

/// Removes the cgroup, and returns the error that no process could start in it.
pub fn remove_after_failure(cgroup: &Cgroup, errno: Errno) -> CgroupError {
    let _ = cgroup.remove();
    let step = "to start a process in it".into();
    CgroupError::Failed { path: cgroup.path().to_owned(), step, errno: errno as i32 }
}

/// False if a test simulates an old kernel.
fn may_fork_into_cgroup() -> bool {
    !variable(FORCE_FALLBACK).is_some_and(|list| list.contains("clone"))
}
