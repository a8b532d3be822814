//! A fork whose child starts inside a cgroup.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{ForkResult, Pid};

/// The kernel's `struct clone_args`, up to the field that Linux 5.7 added.
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

/// Like `fork`, but the child is in the cgroup from its first instruction. `None` if the kernel
/// (before 5.7) or a system call filter does not support the call.
///
/// To move a process later, the kernel waits for every processor. That takes many milliseconds (15
/// in a measurement, compared with 0.02 for this call).
///
/// # Safety
///
/// The process must have one thread. The C library does not know about this fork: in the child it
/// still has the parent's thread ID. It uses that ID for locks that processes or threads share, and
/// to signal its own thread, as `abort` does. So the child must do neither, and should `exec` or
/// exit. If it aborts, the parent receives that signal; a keeper blocks it.
pub unsafe fn fork_into(cgroup: BorrowedFd) -> Result<Option<ForkResult>, Errno> {
    let args = CloneArgs {
        flags: CLONE_INTO_CGROUP,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        cgroup: u64::from(cgroup.as_raw_fd().unsigned_abs()),
        ..CloneArgs::default()
    };
    // SAFETY: the size argument is the size of the structure. Without CLONE_VM and without a stack,
    // the child continues here with a copy of the parent's memory, as after `fork`.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    match Errno::result(pid) {
        Ok(0) => Ok(Some(ForkResult::Child)),
        Ok(pid) => {
            let child = Pid::from_raw(i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)?);
            Ok(Some(ForkResult::Parent { child }))
        }
        // The call is unknown or forbidden, or the kernel does not know the size or a field of the
        // structure.
        Err(Errno::ENOSYS | Errno::EPERM | Errno::E2BIG | Errno::EINVAL) => Ok(None),
        Err(errno) => Err(errno),
    }
}
