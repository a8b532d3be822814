//! Identity on Linux: `/proc` for the facts, pidfds for the signals.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::stat::{self, Stat};

/// Sends the signal to the group the process leads (Linux 6.9); older headers do not name it.
const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;

/// The facts about a PID right now. `ESRCH` if nobody has it.
pub fn read_stat(pid: i32) -> Result<Stat, Errno> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).map_err(|error| errno_of(&error))?;
    stat::parse(&String::from_utf8_lossy(&bytes)).ok_or(Errno::EIO)
}

/// This boot, as the kernel names it. Empty if `/proc` does not say: then nothing can be verified.
pub fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    })
}

/// The PID namespace we live in, as an inode number; 0 if `/proc` does not say.
pub fn pid_namespace() -> u64 {
    static NAMESPACE: OnceLock<u64> = OnceLock::new();
    *NAMESPACE.get_or_init(|| fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino()))
}

fn errno_of(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::NotFound => Errno::ESRCH,
        _ => Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// A descriptor that refers to one process and never to the next one with the same number.
#[derive(Debug)]
pub struct Pidfd {
    fd: OwnedFd,
    pid: i32,
}

impl Pidfd {
    pub fn open(pid: i32) -> Result<Self, Errno> {
        // SAFETY: pidfd_open takes two integers; the descriptor it returns is ours alone.
        let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        // SAFETY: the kernel just gave us this descriptor, close-on-exec, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).map_err(|_| Errno::EOVERFLOW)?) };
        Ok(Self { fd, pid })
    }

    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.send(signal, 0)
    }

    /// Signals the group this process leads. Before Linux 6.9 the flag is unknown (`EINVAL`); then `killpg` is
    /// safe if the process leads the group and is still there, checked through the descriptor: as long as the
    /// leader exists, even as a zombie, the kernel gives its number to no other group.
    pub fn signal_group(&self, signal: i32) -> Result<(), Errno> {
        match self.send(signal, PIDFD_SIGNAL_PROCESS_GROUP) {
            Err(Errno::EINVAL) => {
                self.send(0, 0)?;
                if read_stat(self.pid)?.pgrp != self.pid {
                    return Err(Errno::ESRCH);
                }
                // SAFETY: kill takes two integers.
                Errno::result(unsafe { libc::kill(-self.pid, signal) }).map(drop)
            }
            result => result,
        }
    }

    /// Waits until the process is dead (a zombie counts), at most `timeout`. `false` if it still runs.
    pub fn wait_exited(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let timeout = timeout
            .map_or(PollTimeout::NONE, |limit| PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX));
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => {}
                result => return result.map(|ready| ready > 0),
            }
        }
    }

    fn send(&self, signal: i32, flags: libc::c_uint) -> Result<(), Errno> {
        // SAFETY: the descriptor is open; no siginfo is passed, which means "as kill(2) would fill it in".
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                flags,
            )
        };
        Errno::result(result).map(drop)
    }
}

impl AsRawFd for Pidfd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
