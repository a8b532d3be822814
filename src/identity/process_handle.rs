//! A handle to one process, and signals through it. It is a pidfd, or the best substitute that the
//! kernel offers.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

use super::linux::{errno_of, parsed, read_stat};
use super::stat::Stat;
use super::{FORCE_FALLBACK, trace_signal};
use crate::start_environment::variable;

/// Sends the signal to the group that the process leads (Linux 6.9). Older headers do not define
/// it.
const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;

/// Interval between checks of a process that cannot be polled.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A file descriptor that refers to one process, and never to a later one with the same PID.
///
/// | kernel | descriptor | signal | group |
/// |---|---|---|---|
/// | 6.9 | pidfd | through the pidfd: exact | through the pidfd: exact |
/// | 5.3 | pidfd | through the pidfd: exact | `killpg` after a check of the leader: a window |
/// | older, or seccomp forbids pidfds | `/proc/PID` | `kill` after a check: a window | as above |
///
/// The window is the time between two consecutive system calls of this process. A signal hits a
/// wrong process only if that process gets the PID within the window. For that, three things must
/// happen in this time: the process just seen alive ends, its parent waits for it, and the kernel,
/// which assigns PIDs in a circle, goes through the whole circle. For a group, all members must end
/// as well, because the kernel does not reuse a PID while a group has it.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: i32,
    descriptor: Descriptor,
    means: Means,
}

#[derive(Debug)]
enum Descriptor {
    Pidfd(OwnedFd),
    /// An `O_PATH` descriptor of `/proc/PID`. The kernel ties it to the process, not to the PID: a
    /// file opened below it belongs to that process, or does not exist.
    Directory(OwnedFd),
}

impl ProcessHandle {
    pub fn open(pid: i32) -> Result<Self, Errno> {
        Self::open_by(pid, Means::ours())
    }

    pub(super) fn open_by(pid: i32, means: Means) -> Result<Self, Errno> {
        if means.pidfd {
            match open_pidfd(pid) {
                Err(errno) if is_denied(errno) => {}
                opened => return Ok(Self { pid, descriptor: Descriptor::Pidfd(opened?), means }),
            }
        }
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(format!("/proc/{pid}"))
            .map_err(|error| errno_of(&error))?;
        Ok(Self { pid, descriptor: Descriptor::Directory(directory.into()), means })
    }

    /// The current facts about this process. `ESRCH` once it is gone; a zombie still exists.
    pub fn stat(&self) -> Result<Stat, Errno> {
        match &self.descriptor {
            Descriptor::Pidfd(fd) => {
                let stat = read_stat(self.pid)?;
                // Read first, check second: the process still exists, so it had the PID during the
                // read. EPERM proves that too.
                match send(fd, 0, 0) {
                    Ok(()) | Err(Errno::EPERM) => Ok(stat),
                    Err(errno) => Err(errno),
                }
            }
            Descriptor::Directory(directory) => parsed(read_below(directory, "stat")),
        }
    }

    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        let sent = match &self.descriptor {
            Descriptor::Pidfd(fd) => send(fd, signal, 0),
            // A zombie ignores signals, and its PID is not safe: its parent may wait for it at any
            // moment, and then the kernel can reuse the PID.
            Descriptor::Directory(_) if self.stat()?.is_dead() => Err(Errno::ESRCH),
            Descriptor::Directory(_) => kill(self.pid, signal),
        };
        trace_signal(self.pid, signal, sent);
        sent
    }

    /// Signals the group that this process leads. `ESRCH`, and no signal, if it leads none.
    ///
    /// If the kernel cannot signal a group by descriptor (`EINVAL`), this signals it by PID, right
    /// after a check of the leader. While the leader (even as a zombie) or any member of its group
    /// exists, the kernel gives the PID to no other group.
    pub fn signal_group(&self, signal: i32) -> Result<(), Errno> {
        let sent = self.try_to_signal_group(signal);
        trace_signal(-self.pid, signal, sent);
        sent
    }

    fn try_to_signal_group(&self, signal: i32) -> Result<(), Errno> {
        if self.stat()?.pgrp != self.pid {
            return Err(Errno::ESRCH);
        }
        if let Descriptor::Pidfd(fd) = &self.descriptor
            && self.means.group
        {
            match send(fd, signal, PIDFD_SIGNAL_PROCESS_GROUP) {
                Err(Errno::EINVAL) => {}
                result => return result,
            }
        }
        kill(-self.pid, signal)
    }

    /// Waits until the process is dead (a zombie counts), at most `timeout`. Returns `false` on
    /// timeout.
    pub fn wait_exited(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        match &self.descriptor {
            Descriptor::Pidfd(fd) => poll_exited(fd, timeout),
            Descriptor::Directory(_) => self.check_until_exited(timeout),
        }
    }

    fn check_until_exited(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let began = Instant::now();
        loop {
            match self.stat() {
                Ok(stat) if !stat.is_dead() => {}
                Ok(_) | Err(Errno::ESRCH) => return Ok(true),
                Err(errno) => return Err(errno),
            }
            let left = timeout.map_or(CHECK_INTERVAL, |timeout| timeout.saturating_sub(began.elapsed()));
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(left.min(CHECK_INTERVAL));
        }
    }

    /// Returns a descriptor for `poll`, readable when the process is dead. `None` if this kernel
    /// has no pidfds; then the caller must check the process at intervals.
    pub fn into_pollable(self) -> Option<OwnedFd> {
        match self.descriptor {
            Descriptor::Pidfd(fd) => Some(fd),
            Descriptor::Directory(_) => None,
        }
    }
}

/// Which kernel features to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Means {
    pidfd: bool,
    group: bool,
}

impl Means {
    /// All features of this kernel, except those that [`FORCE_FALLBACK`] disables.
    pub(super) fn ours() -> Self {
        static ALLOWED: OnceLock<Means> = OnceLock::new();
        let allowed = *ALLOWED.get_or_init(|| Self::without(variable(FORCE_FALLBACK).unwrap_or_default()));
        Self { pidfd: allowed.pidfd && can_signal_by_pidfd(), ..allowed }
    }

    fn without(list: &str) -> Self {
        Self { pidfd: !list.contains("pidfd"), group: !list.contains("group") }
    }
}

/// Whether pidfds work here, tested on this process itself. A filter may allow opening a pidfd and
/// forbid signalling through it. For another process, `EPERM` could also mean a missing permission.
fn can_signal_by_pidfd() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    if let Some(&known) = KNOWN.get() {
        return known;
    }
    match signal_ourselves() {
        Ok(()) => *KNOWN.get_or_init(|| true),
        Err(errno) if is_denied(errno) => *KNOWN.get_or_init(|| false),
        // For example no free file descriptor. Not cached, because a retry can succeed.
        Err(_) => true,
    }
}

/// Whether processes are signalled through a pidfd here; if not, the reason.
pub fn has_process_handles() -> Result<(), Errno> {
    if Means::ours().pidfd { signal_ourselves() } else { Err(Errno::ENOSYS) }
}

/// Whether groups are signalled through a pidfd here; if not, the reason.
pub fn has_group_handles() -> Result<(), Errno> {
    has_process_handles()?;
    if !Means::ours().group {
        return Err(Errno::EINVAL);
    }
    match send(&open_pidfd(std::process::id().cast_signed())?, 0, PIDFD_SIGNAL_PROCESS_GROUP) {
        // This process leads no group. The kernel knows the flag all the same.
        Err(Errno::ESRCH) => Ok(()),
        answer => answer,
    }
}

/// Whether the group that a process leads or led has members. This works after the leader's end
/// too: its pidfd refers to the group, and never to a later group with the same ID. `None` if the
/// kernel cannot tell (before Linux 6.9).
pub fn group_has_members(pidfd: &OwnedFd) -> Option<bool> {
    if !Means::ours().group {
        return None;
    }
    match send(pidfd, 0, PIDFD_SIGNAL_PROCESS_GROUP) {
        Ok(()) | Err(Errno::EPERM) => Some(true),
        Err(Errno::ESRCH) => Some(false),
        Err(_) => None,
    }
}

fn signal_ourselves() -> Result<(), Errno> {
    send(&open_pidfd(std::process::id().cast_signed())?, 0, 0)
}

/// Whether the kernel lacks the call, or a seccomp filter forbids it. At the call sites these
/// errors have no other cause: `pidfd_open` checks no permission, and signalling ourselves needs
/// none.
fn is_denied(errno: Errno) -> bool {
    matches!(errno, Errno::ENOSYS | Errno::EPERM)
}

fn open_pidfd(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: pidfd_open takes two integers. This function alone owns the descriptor it returns.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the kernel just returned this descriptor (close-on-exec), and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).map_err(|_| Errno::EOVERFLOW)?) })
}

fn send(pidfd: &OwnedFd, signal: i32, flags: libc::c_uint) -> Result<(), Errno> {
    let siginfo = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open. A null siginfo means "as kill(2) would fill it in".
    let result =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, siginfo, flags) };
    Errno::result(result).map(drop)
}

/// Call this only right after a check that the PID is the process or its group: see the window at
/// [`ProcessHandle`].
fn kill(pid: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes two integers.
    Errno::result(unsafe { libc::kill(pid, signal) }).map(drop)
}

fn poll_exited(pidfd: &OwnedFd, timeout: Option<Duration>) -> Result<bool, Errno> {
    let timeout =
        timeout.map_or(PollTimeout::NONE, |limit| PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX));
    let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    loop {
        match poll(&mut fds, timeout) {
            Err(Errno::EINTR) => {}
            result => return result.map(|ready| ready > 0),
        }
    }
}

fn read_below(directory: &OwnedFd, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = openat(directory, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    File::from(file).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
