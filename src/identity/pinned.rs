//! Holding on to one process, and signalling it: by a pidfd, or by what comes closest where the kernel has none.

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

use super::FORCE_FALLBACK;
use super::linux::{errno_of, parsed, read_stat};
use super::stat::Stat;

/// Sends the signal to the group the process leads (Linux 6.9); older headers do not name it.
const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;

/// How often a process that cannot be polled is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A descriptor that refers to one process and never to the next one with the same number.
///
/// | kernel | descriptor | signal | group |
/// |---|---|---|---|
/// | 6.9 | pidfd | through it: exact | through it: exact |
/// | 5.3 | pidfd | through it: exact | `killpg` after a look at the leader: a window |
/// | older, or a seccomp filter forbids pidfds | its directory in `/proc` | `kill` after a look: a window | as above |
///
/// The window, where there is one, is the time between two system calls of ours in a row. To be hit by a signal that is not
/// meant for it, a stranger must get the number in that time: the process seen alive must end, its parent must wait for it, and
/// the kernel, which hands numbers out in a circle, must have gone all the way round. For a group, all of its members must be
/// gone as well, as a number is not given out while a group has it.
#[derive(Debug)]
pub struct Pin {
    pid: i32,
    hold: Hold,
    means: Means,
}

#[derive(Debug)]
enum Hold {
    Pidfd(OwnedFd),
    /// An `O_PATH` descriptor of `/proc/PID`. The kernel ties it to the process and not to the number: what is opened below it is
    /// that process's, or is not there.
    Directory(OwnedFd),
}

impl Pin {
    pub fn open(pid: i32) -> Result<Self, Errno> {
        Self::open_by(pid, Means::ours())
    }

    pub(super) fn open_by(pid: i32, means: Means) -> Result<Self, Errno> {
        if means.pidfd {
            match open_pidfd(pid) {
                Err(errno) if is_denied(errno) => {}
                opened => return Ok(Self { pid, hold: Hold::Pidfd(opened?), means }),
            }
        }
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(format!("/proc/{pid}"))
            .map_err(|error| errno_of(&error))?;
        Ok(Self { pid, hold: Hold::Directory(directory.into()), means })
    }

    /// The facts about this process right now. `ESRCH` once it is gone; a zombie is still there.
    pub fn stat(&self) -> Result<Stat, Errno> {
        match &self.hold {
            Hold::Pidfd(fd) => {
                let stat = read_stat(self.pid)?;
                // Still there, hence it was there, and the number was its own. Not being allowed to signal it proves that too.
                match send(fd, 0, 0) {
                    Ok(()) | Err(Errno::EPERM) => Ok(stat),
                    Err(errno) => Err(errno),
                }
            }
            Hold::Directory(directory) => parsed(read_below(directory, "stat")),
        }
    }

    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        match &self.hold {
            Hold::Pidfd(fd) => send(fd, signal, 0),
            // A zombie hears nothing, and is all it takes to lose the number: its parent may be waiting for it right now.
            Hold::Directory(_) if self.stat()?.is_dead() => Err(Errno::ESRCH),
            Hold::Directory(_) => kill(self.pid, signal),
        }
    }

    /// Signals the group this process leads, or nobody (`ESRCH`) if it is in another one.
    ///
    /// Where the kernel cannot do that by descriptor (`EINVAL`), it is done by number, right after the leader was seen: as long as
    /// the leader exists, even as a zombie, or anybody else in its group, the kernel gives the number to no other group.
    pub fn signal_group(&self, signal: i32) -> Result<(), Errno> {
        if self.stat()?.pgrp != self.pid {
            return Err(Errno::ESRCH);
        }
        if let Hold::Pidfd(fd) = &self.hold
            && self.means.group
        {
            match send(fd, signal, PIDFD_SIGNAL_PROCESS_GROUP) {
                Err(Errno::EINVAL) => {}
                result => return result,
            }
        }
        kill(-self.pid, signal)
    }

    /// Waits until the process is dead (a zombie counts), at most `timeout`. `false` if it still runs.
    pub fn wait_exited(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        match &self.hold {
            Hold::Pidfd(fd) => poll_exited(fd, timeout),
            Hold::Directory(_) => self.look_until_exited(timeout),
        }
    }

    fn look_until_exited(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let began = Instant::now();
        loop {
            match self.stat() {
                Ok(stat) if !stat.is_dead() => {}
                Ok(_) | Err(Errno::ESRCH) => return Ok(true),
                Err(errno) => return Err(errno),
            }
            let left = timeout.map_or(LOOK_EVERY, |timeout| timeout.saturating_sub(began.elapsed()));
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }

    /// The descriptor, to be waited for among others: readable when the process is dead. `None` if this kernel has none that
    /// can be; whoever asks has to look from time to time then.
    pub fn into_pollable(self) -> Option<OwnedFd> {
        match self.hold {
            Hold::Pidfd(fd) => Some(fd),
            Hold::Directory(_) => None,
        }
    }
}

/// What of the kernel's is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Means {
    pidfd: bool,
    group: bool,
}

impl Means {
    /// Everything there is, unless [`FORCE_FALLBACK`] says otherwise.
    pub(super) fn ours() -> Self {
        static ALLOWED: OnceLock<Means> = OnceLock::new();
        let allowed =
            *ALLOWED.get_or_init(|| Self::without(&std::env::var(FORCE_FALLBACK).unwrap_or_default()));
        Self { pidfd: allowed.pidfd && can_signal_by_pidfd(), ..allowed }
    }

    fn without(list: &str) -> Self {
        Self { pidfd: !list.contains("pidfd"), group: !list.contains("group") }
    }
}

/// Whether a pidfd is of any use here, asked of the one process for which the answer does not depend on permissions: us. A
/// filter may allow the opening and forbid the signalling, and later, with somebody else's pidfd, `EPERM` could mean either.
fn can_signal_by_pidfd() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    if let Some(&known) = KNOWN.get() {
        return known;
    }
    match signal_ourselves() {
        Ok(()) => *KNOWN.get_or_init(|| true),
        Err(errno) if is_denied(errno) => *KNOWN.get_or_init(|| false),
        // Out of descriptors, or the like. That says nothing about next time.
        Err(_) => true,
    }
}

/// Whether processes are signalled by descriptor here, or why not.
pub fn pins_processes() -> Result<(), Errno> {
    if Means::ours().pidfd { signal_ourselves() } else { Err(Errno::ENOSYS) }
}

/// The same for groups.
pub fn pins_groups() -> Result<(), Errno> {
    pins_processes()?;
    if !Means::ours().group {
        return Err(Errno::EINVAL);
    }
    match send(&open_pidfd(std::process::id().cast_signed())?, 0, PIDFD_SIGNAL_PROCESS_GROUP) {
        // We need not lead a group.
        Err(Errno::ESRCH) => Ok(()),
        answer => answer,
    }
}

fn signal_ourselves() -> Result<(), Errno> {
    send(&open_pidfd(std::process::id().cast_signed())?, 0, 0)
}

/// The kernel does not know the call, or a seccomp filter forbids it. Neither call says so of its own accord, where it is asked.
fn is_denied(errno: Errno) -> bool {
    matches!(errno, Errno::ENOSYS | Errno::EPERM)
}

fn open_pidfd(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: pidfd_open takes two integers; the descriptor it returns is ours alone.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the kernel just gave us this descriptor, close-on-exec, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).map_err(|_| Errno::EOVERFLOW)?) })
}

fn send(pidfd: &OwnedFd, signal: i32, flags: libc::c_uint) -> Result<(), Errno> {
    let siginfo = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open; no siginfo is passed, which means "as kill(2) would fill it in".
    let result =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, siginfo, flags) };
    Errno::result(result).map(drop)
}

/// Only right after the number was seen to mean the process, or its group: see the window at [`Pin`].
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
