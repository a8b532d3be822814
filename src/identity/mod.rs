//! The identity of a process: [`ProcessRef`].
//!
//! The kernel reuses PIDs. So no code outside this folder may turn a bare PID into a signal. One
//! exception needs no identity: a parent may signal its own unreaped child, because the kernel
//! cannot reuse that PID before the parent has waited for the child (see `contain::subreaper`).

mod ancestors;
mod clock;
mod exit_watch;
#[cfg(unix)]
pub mod helpers;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(target_os = "macos", test, feature = "fuzzing"))]
#[cfg_attr(not(target_os = "macos"), allow(dead_code))]
pub mod macos;
#[cfg(target_os = "linux")]
mod process_handle;
#[cfg(unix)]
mod signal_trace;
pub mod stat;
mod token;
#[cfg(windows)]
mod windows;

pub use ancestors::ancestors;
pub use exit_watch::{ExitWatch, exited};
#[cfg(target_os = "linux")]
pub use linux::{
    boot_id, check_proc, ignored_signals, pid_namespace, pids, read_stat, resident_bytes, started_at_ms,
    ticks_to_ms, tracer_of,
};
#[cfg(target_os = "macos")]
pub use macos::{
    ProcessHandle, boot_id, group_has_members, ignored_signals, pid_namespace, pids, read_stat,
    resident_bytes, started_at_ms, ticks_to_ms,
};
#[cfg(target_os = "linux")]
pub use process_handle::{ProcessHandle, group_has_members, has_group_handles, has_process_handles};
#[cfg(unix)]
pub(crate) use signal_trace::trace_signal;
#[cfg(windows)]
pub use windows::{
    ProcessHandle, Wait, boot_id, pid_namespace, read_stat, resident_bytes, started_at_ms, ticks_to_ms,
};

use std::sync::Arc;

use crate::errno::Errno;

#[cfg(target_os = "linux")]
use linux::boot;
#[cfg(target_os = "macos")]
use macos::boot;
#[cfg(target_os = "linux")]
use process_handle::Means;
#[cfg(windows)]
use windows::boot;

/// Disables kernel features, to test the fallbacks for older kernels. A list of `pidfd`, `group`
/// and `clone` (clone into a cgroup). Read once.
#[cfg(unix)]
pub const FORCE_FALLBACK: &str = "SPAWN_OWNED_FORCE_FALLBACK";

/// The permanent identity of a process: its PID, its start time, and the boot and PID namespace in
/// which these two are valid.
///
/// | state | meaning | [`ProcessRef::state`] | [`ProcessRef::signal`] |
/// |---|---|---|---|
/// | alive | the recorded process runs (also: is stopped) | `Alive` | delivered |
/// | exited | no such process, or a zombie, or from another boot | `Exited` | `Err(ESRCH)` |
/// | recycled | another process has the PID now | `Recycled` | `Err(ESRCH)` |
/// | unknown | another PID or time namespace, or unreadable | `Unknown` | `Err(EACCES)`, not sent |
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProcessRef {
    pub pid: i32,
    pub start: u64,
    /// The boot, and the clock by which `start` is measured (see [`clock`]). Shared, because all
    /// processes of this boot have the same value.
    pub boot: Arc<str>,
    pub ns: u64,
}

/// See the table at [`ProcessRef`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Alive,
    Exited,
    Recycled,
    Unknown,
}

impl ProcessRef {
    /// The process that has this PID now. `ESRCH` if there is none, or only a zombie.
    pub fn capture(pid: i32) -> Result<Self, Errno> {
        let stat = read_stat(pid)?;
        if stat.is_dead() {
            return Err(Errno::ESRCH);
        }
        Ok(Self::known(pid, stat.start))
    }

    /// A process of this boot and namespace whose start token is already verified: its parent read
    /// it before it reaped the process.
    pub fn known(pid: i32, start: u64) -> Self {
        Self { pid, start, boot: boot().clone(), ns: pid_namespace() }
    }

    pub fn state(&self) -> State {
        self.state_without_lookup().unwrap_or_else(|| judge(self.start, &read_stat(self.pid)))
    }

    /// Fails with `if_dead` if the process has ended, and with another error if its state is
    /// unknown. If its handle opens by then, that error is `EAGAIN`: the next attempt can decide.
    pub fn check_alive(&self, if_dead: Errno) -> Result<(), Errno> {
        match self.state() {
            State::Alive => Ok(()),
            State::Exited | State::Recycled => Err(if_dead),
            State::Unknown => Err(self.open_handle().err().unwrap_or(Errno::EAGAIN)),
        }
    }

    /// Whether the process has certainly ended: gone, a zombie, or its PID belongs to another
    /// process. False if that cannot be determined.
    ///
    /// Usually no process has the PID. `kill(pid, 0)` shows that ten times faster than a read of
    /// `/proc`.
    pub fn is_gone(&self) -> bool {
        #[cfg(unix)]
        if self.pid > 0
            && self.state_without_lookup().is_none()
            && nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid), None) == Err(Errno::ESRCH)
        {
            return true;
        }
        matches!(self.state(), State::Exited | State::Recycled)
    }

    /// The state that follows from the boot and the namespace alone, without a look at the process.
    /// `None` if the PID is valid in this boot and namespace.
    pub(crate) fn state_without_lookup(&self) -> Option<State> {
        if !self.is_of_this_boot() && !boot_id().is_empty() {
            return Some(State::Exited);
        }
        (!self.is_of_this_namespace() || boot_id().is_empty()).then_some(State::Unknown)
    }

    /// Whether the process started in this boot.
    pub fn is_of_this_boot(&self) -> bool {
        clock::is_same_boot(&self.boot, boot_id())
    }

    /// Whether the PID and the start token are valid here: same PID namespace, same clock.
    pub fn is_of_this_namespace(&self) -> bool {
        self.ns == pid_namespace() && *self.boot == *boot_id()
    }

    /// Sends `signal` to this process and to no other.
    ///
    /// Opens a handle first and verifies second: the handle refers to the process that had the PID
    /// when it was opened. If that is another process, the start token differs and nothing is sent.
    /// If the process ends between the check and the signal, the handle still refers to the ended
    /// process, and the kernel returns `ESRCH`. On a kernel without pidfds, and on macOS, the last
    /// step has a window, see [`ProcessHandle`].
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.open_handle()?.signal(signal)
    }

    /// Sends `signal` to the process group that this process leads, and to no other group. `ESRCH`
    /// if it leads none.
    #[cfg(unix)]
    pub fn signal_group(&self, signal: i32) -> Result<(), Errno> {
        self.open_handle()?.signal_group(signal)
    }

    /// Opens a handle that is verified to refer to this process.
    #[cfg(target_os = "linux")]
    pub fn open_handle(&self) -> Result<ProcessHandle, Errno> {
        self.open_handle_with(Means::ours())
    }

    /// Opens a handle that is verified to refer to this process.
    #[cfg(not(target_os = "linux"))]
    pub fn open_handle(&self) -> Result<ProcessHandle, Errno> {
        self.state_without_lookup().map_or(Ok(()), must_be_alive)?;
        let handle = ProcessHandle::open(self.pid)?;
        must_be_alive(judge(self.start, &handle.stat()))?;
        Ok(handle)
    }

    #[cfg(target_os = "linux")]
    fn open_handle_with(&self, means: Means) -> Result<ProcessHandle, Errno> {
        self.state_without_lookup().map_or(Ok(()), must_be_alive)?;
        let handle = ProcessHandle::open_by(self.pid, means)?;
        must_be_alive(judge(self.start, &handle.stat()))?;
        Ok(handle)
    }
}

/// The last column of the table at [`ProcessRef`].
fn must_be_alive(state: State) -> Result<(), Errno> {
    match state {
        State::Alive => Ok(()),
        State::Exited | State::Recycled => Err(Errno::ESRCH),
        State::Unknown => Err(Errno::EACCES),
    }
}

/// Whether the kernel reports that the process group has no member, not even a zombie. Sends
/// nothing.
#[cfg(unix)]
pub fn is_group_empty(pgrp: i32) -> bool {
    // Not 0, which means our own group, and not 1: -1 means every process.
    pgrp > 1 && nix::sys::signal::kill(nix::unistd::Pid::from_raw(-pgrp), None) == Err(Errno::ESRCH)
}

/// This process. Read once, because it does not change.
pub fn me() -> Result<ProcessRef, Errno> {
    static ME: std::sync::OnceLock<ProcessRef> = std::sync::OnceLock::new();
    if let Some(me) = ME.get() {
        return Ok(me.clone());
    }
    let me = ProcessRef::capture(std::process::id().cast_signed())?;
    Ok(ME.get_or_init(|| me).clone())
}

/// Why `/proc` cannot be used. Occurs on Linux only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcError {
    Missing(Errno),
    /// It belongs to another PID namespace, in which this process has another PID or none.
    Foreign {
        pid: u32,
        shown: String,
    },
}

impl std::fmt::Display for ProcError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(errno) => write!(f, "/proc/self cannot be read ({errno})"),
            Self::Foreign { pid, shown } => write!(
                f,
                "/proc belongs to another PID namespace: /proc/self shows \"{shown}\", but this process has PID {pid}"
            ),
        }
    }
}

/// No-op: only Linux reads processes from `/proc`.
#[cfg(not(target_os = "linux"))]
#[allow(clippy::unnecessary_wraps)]
pub fn check_proc() -> Result<(), ProcError> {
    Ok(())
}

/// The decision of [`ProcessRef::state`], without the system calls.
fn judge(start: u64, seen: &Result<stat::Stat, Errno>) -> State {
    match seen {
        Ok(stat) if stat.start != start => State::Recycled,
        Ok(stat) if stat.is_dead() => State::Exited,
        Ok(_) => State::Alive,
        Err(Errno::ESRCH | Errno::ENOENT) => State::Exited,
        Err(_) => State::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(state: char, start: u64) -> stat::Stat {
        stat::Stat {
            pid: 7,
            comm: "x".into(),
            state,
            ppid: 1,
            pgrp: 7,
            session: 7,
            threads: 1,
            start,
            ..stat::Stat::default()
        }
    }

    #[test]
    fn judges_every_result_of_a_read() {
        for (what, expected) in [
            (Ok(seen('S', 5)), State::Alive),
            (Ok(seen('T', 5)), State::Alive),
            (Ok(seen('Z', 5)), State::Exited),
            (Ok(seen('S', 6)), State::Recycled),
            (Ok(seen('Z', 6)), State::Recycled),
            (Err(Errno::ESRCH), State::Exited),
            (Err(Errno::ENOENT), State::Exited),
            (Err(Errno::EACCES), State::Unknown),
            (Err(Errno::EMFILE), State::Unknown),
        ] {
            assert_eq!(judge(5, &what), expected, "{what:?}");
        }
    }

    #[test]
    fn a_process_of_another_boot_is_exited_and_of_another_namespace_unknown() {
        let me = ProcessRef::capture(i32::try_from(std::process::id()).unwrap()).unwrap();
        let rebooted = ProcessRef { boot: "another".into(), ..me.clone() };
        assert_eq!((rebooted.state(), rebooted.signal(0)), (State::Exited, Err(Errno::ESRCH)));
        let ahead = ProcessRef { boot: format!("{}+86400.000000000", me.boot).into(), ..me.clone() };
        assert_eq!((ahead.state(), ahead.signal(0)), (State::Unknown, Err(Errno::EACCES)), "another clock");
        let other_namespace = ProcessRef { ns: me.ns + 1, ..me };
        assert_eq!(
            (other_namespace.state(), other_namespace.signal(0)),
            (State::Unknown, Err(Errno::EACCES))
        );
        // No process here can have this PID. That says nothing about the other namespace.
        let impossible_pid = ProcessRef { pid: i32::MAX, ..other_namespace };
        assert_eq!((impossible_pid.state(), impossible_pid.signal(0)), (State::Unknown, Err(Errno::EACCES)));
    }
}
