//! A fork whose child is born in a cgroup.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{ForkResult, Pid};

/// The kernel's `struct clone_args` up to the field it got with Linux 5.7.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Like `fork`, but the child is in the cgroup from its first instruction on.
///
/// To move a process later, the kernel waits until every processor has taken note, which takes many milliseconds (15 where
/// this was written, against 0.02 for this). `None` if this kernel (before 5.7), or a filter, does not know the call.
///
/// # Safety
///
/// The process must have one thread. The C library does not learn of this fork: in the child its idea of the thread's id is the
/// parent's. It uses that for locks shared between processes or threads and to signal its own thread, as `abort` does. So the child
/// must do neither, and should `exec` or end. If it aborts all the same, the parent gets that signal; a keeper has it blocked.
pub unsafe fn fork_into(cgroup: BorrowedFd) -> Result<Option<ForkResult>, Errno> {
    let args = CloneArgs {
        flags: CLONE_INTO_CGROUP,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        cgroup: u64::from(cgroup.as_raw_fd().unsigned_abs()),
        ..CloneArgs::default()
    };
    // SAFETY: the structure is as long as we say. Without CLONE_VM and without a stack the child goes on here, with a copy of
    // all our memory, as after `fork`.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    match Errno::result(pid) {
        Ok(0) => Ok(Some(ForkResult::Child)),
        Ok(pid) => {
            let child = Pid::from_raw(i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)?);
            Ok(Some(ForkResult::Parent { child }))
        }
        // Unknown call; forbidden; a structure longer, or with more in it, than the kernel knows.
        Err(Errno::ENOSYS | Errno::EPERM | Errno::E2BIG | Errno::EINVAL) => Ok(None),
        Err(errno) => Err(errno),
    }
}
