//! What it takes to name a process: [`ProcessRef`].
//!
//! A bare PID is a number the kernel hands out again. Nothing outside this room may turn one into a signal,
//! with one exception that needs no identity: a parent may signal its own unreaped child, because the kernel
//! cannot recycle that number before the parent has waited for it (see `contain::subreaper`).

mod ancestors;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(target_os = "macos", test, feature = "fuzzing"))]
#[cfg_attr(not(target_os = "macos"), allow(dead_code))]
pub mod macos;
#[cfg(target_os = "linux")]
mod pinned;
pub mod stat;
mod token;
#[cfg(windows)]
mod windows;

pub use ancestors::ancestors;
#[cfg(target_os = "linux")]
pub use linux::{
    boot_id, ignored_signals, pid_namespace, pids, read_stat, resident_bytes, started_at_ms, ticks_to_ms,
    tracer_of,
};
#[cfg(target_os = "macos")]
pub use macos::{
    Pin, boot_id, ignored_signals, pid_namespace, pids, read_stat, resident_bytes, started_at_ms, ticks_to_ms,
};
#[cfg(target_os = "linux")]
pub use pinned::{Pin, pins_groups, pins_processes};
#[cfg(windows)]
pub use windows::{Pin, Wait, boot_id, pid_namespace, read_stat, resident_bytes, started_at_ms, ticks_to_ms};

use std::sync::Arc;

use crate::errno::Errno;

#[cfg(target_os = "linux")]
use linux::boot;
#[cfg(target_os = "macos")]
use macos::boot;
#[cfg(target_os = "linux")]
use pinned::Means;
#[cfg(windows)]
use windows::boot;

/// Makes us do without what newer kernels have, to test what is done on older ones: a list of `pidfd`, `group` and `clone` (into a
/// cgroup). Read once.
#[cfg(unix)]
pub const FORCE_FALLBACK: &str = "SPAWN_OWNED_FORCE_FALLBACK";

/// A process, named for ever: the PID together with the moment it started, the boot and the PID namespace in
/// which that is meaningful.
///
/// | state | meaning | [`ProcessRef::state`] | [`ProcessRef::signal`] |
/// |---|---|---|---|
/// | alive | the recorded process runs (also: is stopped) | `Alive` | delivered |
/// | exited | no such process, or a zombie, or another boot | `Exited` | `Err(ESRCH)` |
/// | recycled | the number belongs to another process now | `Recycled` | `Err(ESRCH)` |
/// | unknown | another PID namespace, or the system does not let us look | `Unknown` | `Err(EACCES)`: hands off |
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProcessRef {
    pub pid: i32,
    pub start: u64,
    /// Shared: all processes of this boot have the same.
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
    /// The process that has this PID now. `ESRCH` if there is none, or only its zombie.
    pub fn capture(pid: i32) -> Result<Self, Errno> {
        let stat = read_stat(pid)?;
        if stat.is_dead() {
            return Err(Errno::ESRCH);
        }
        Ok(Self::known(pid, stat.start))
    }

    /// A process of this boot and namespace whose start token somebody trustworthy has read: its parent, which
    /// had not yet reaped it.
    pub fn known(pid: i32, start: u64) -> Self {
        Self { pid, start, boot: boot().clone(), ns: pid_namespace() }
    }

    pub fn state(&self) -> State {
        self.without_a_look().unwrap_or_else(|| judge(self.start, &read_stat(self.pid)))
    }

    /// What follows from the boot and the namespace alone. `None` if the number means something here and now.
    pub(crate) fn without_a_look(&self) -> Option<State> {
        if *self.boot != *boot_id() {
            return Some(State::Exited);
        }
        (self.ns != pid_namespace() || boot_id().is_empty()).then_some(State::Unknown)
    }

    /// Sends `signal` to this process and to no other.
    ///
    /// Open first, verify second: the descriptor pins whoever had the number when it was opened. If that was
    /// somebody else, the start token read afterwards differs and nothing is sent. If the process dies between
    /// the check and the signal, the descriptor still refers to the dead one, and the kernel says `ESRCH`. On a kernel
    /// without pidfds, and on macOS, the last step has a window, see [`Pin`].
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.pinned()?.signal(signal)
    }

    /// Sends `signal` to the whole group this process leads, and to no other group. `ESRCH` if it leads none.
    #[cfg(unix)]
    pub fn signal_group(&self, signal: i32) -> Result<(), Errno> {
        self.pinned()?.signal_group(signal)
    }

    /// Something to hold on to that is proven to be this very process.
    #[cfg(target_os = "linux")]
    pub fn pinned(&self) -> Result<Pin, Errno> {
        self.pinned_by(Means::ours())
    }

    /// Something to hold on to that is proven to be this very process.
    #[cfg(not(target_os = "linux"))]
    pub fn pinned(&self) -> Result<Pin, Errno> {
        self.without_a_look().map_or(Ok(()), must_be_alive)?;
        let pin = Pin::open(self.pid)?;
        must_be_alive(judge(self.start, &pin.stat()))?;
        Ok(pin)
    }

    #[cfg(target_os = "linux")]
    fn pinned_by(&self, means: Means) -> Result<Pin, Errno> {
        self.without_a_look().map_or(Ok(()), must_be_alive)?;
        let pin = Pin::open_by(self.pid, means)?;
        must_be_alive(judge(self.start, &pin.stat()))?;
        Ok(pin)
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

/// This process. Read once: it does not change.
pub fn me() -> Result<ProcessRef, Errno> {
    static ME: std::sync::OnceLock<ProcessRef> = std::sync::OnceLock::new();
    if let Some(me) = ME.get() {
        return Ok(me.clone());
    }
    let me = ProcessRef::capture(std::process::id().cast_signed())?;
    Ok(ME.get_or_init(|| me).clone())
}

/// The decision in [`ProcessRef::state`], apart from the reading.
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
    fn judges_every_combination_of_what_was_read() {
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
    fn another_boot_is_dead_and_another_namespace_is_unknown() {
        let me = ProcessRef::capture(i32::try_from(std::process::id()).unwrap()).unwrap();
        let rebooted = ProcessRef { boot: "another".into(), ..me.clone() };
        assert_eq!((rebooted.state(), rebooted.signal(0)), (State::Exited, Err(Errno::ESRCH)));
        let elsewhere = ProcessRef { ns: me.ns + 1, ..me };
        assert_eq!((elsewhere.state(), elsewhere.signal(0)), (State::Unknown, Err(Errno::EACCES)));
        // Nobody can have this number here, which says nothing about there.
        let nobody = ProcessRef { pid: i32::MAX, ..elsewhere };
        assert_eq!((nobody.state(), nobody.signal(0)), (State::Unknown, Err(Errno::EACCES)));
    }
}
