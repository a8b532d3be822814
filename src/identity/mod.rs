//! What it takes to name a process: [`ProcessRef`].
//!
//! A bare PID is a number the kernel hands out again. Nothing outside this room may turn one into a signal,
//! with one exception that needs no identity: a parent may signal its own unreaped child, because the kernel
//! cannot recycle that number before the parent has waited for it (see `contain::subreaper`).

mod linux;
pub mod stat;

pub use linux::{Pidfd, boot_id, pid_namespace, read_stat};

use nix::errno::Errno;

/// A process, named for ever: the PID together with the moment it started, the boot and the PID namespace in
/// which that is meaningful.
///
/// | state | meaning | [`ProcessRef::state`] | [`ProcessRef::signal`] |
/// |---|---|---|---|
/// | alive | the recorded process runs (also: is stopped) | `Alive` | delivered |
/// | exited | no such process, or a zombie, or another boot | `Exited` | `Err(ESRCH)` |
/// | recycled | the number belongs to another process now | `Recycled` | `Err(ESRCH)` |
/// | unknown | another PID namespace, or `/proc` cannot be read | `Unknown` | `Err(EACCES)`: hands off |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRef {
    pub pid: i32,
    pub start: u64,
    pub boot: String,
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
        Self { pid, start, boot: boot_id().to_owned(), ns: pid_namespace() }
    }

    pub fn state(&self) -> State {
        if self.boot != boot_id() {
            return State::Exited;
        }
        if self.ns != pid_namespace() || boot_id().is_empty() {
            return State::Unknown;
        }
        judge(self.start, &read_stat(self.pid))
    }

    /// Sends `signal` to this process and to no other.
    ///
    /// Open first, verify second: the descriptor pins whoever had the number when it was opened. If that was
    /// somebody else, the start token read afterwards differs and nothing is sent. If the process dies between
    /// the check and the signal, the descriptor still refers to the dead one, and the kernel says `ESRCH`.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.pinned()?.signal(signal)
    }

    /// Sends `signal` to the whole group this process leads, and to no other group.
    pub fn signal_group(&self, signal: i32) -> Result<(), Errno> {
        self.pinned()?.signal_group(signal)
    }

    /// A descriptor that is proven to be this very process.
    pub fn pinned(&self) -> Result<Pidfd, Errno> {
        let pidfd = Pidfd::open(self.pid)?;
        match self.state() {
            State::Alive => Ok(pidfd),
            State::Exited | State::Recycled => Err(Errno::ESRCH),
            State::Unknown => Err(Errno::EACCES),
        }
    }
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
    use std::process::{Child, Command, Stdio};

    fn seen(state: char, start: u64) -> stat::Stat {
        stat::Stat { pid: 7, comm: "x".into(), state, ppid: 1, pgrp: 7, session: 7, threads: 1, start }
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

    /// `cat` lives until its standard input ends; it needs no sleep to stay, and none to go.
    fn cat() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn pid(child: &Child) -> i32 {
        i32::try_from(child.id()).unwrap()
    }

    #[test]
    fn follows_a_process_from_alive_to_gone() {
        let mut child = cat();
        let process = ProcessRef::capture(pid(&child)).unwrap();
        assert_eq!(process.state(), State::Alive);
        process.signal(libc_kill()).unwrap();
        // Until it is waited for it is a zombie at most: dead already.
        let exited = Pidfd::open(process.pid).unwrap();
        exited.wait_exited(None).unwrap();
        assert_eq!(process.state(), State::Exited);
        assert_eq!(process.signal(0), Err(Errno::ESRCH));
        child.wait().unwrap();
        assert_eq!(process.state(), State::Exited);
    }

    #[test]
    fn never_signals_a_process_that_merely_has_the_number() {
        let mut child = cat();
        let mut other = ProcessRef::capture(pid(&child)).unwrap();
        other.start -= 1;
        assert_eq!(other.state(), State::Recycled);
        assert_eq!(other.signal(libc_kill()), Err(Errno::ESRCH));
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "ended by its own end of input, not by a signal");
    }

    #[test]
    fn another_boot_is_dead_and_another_namespace_is_unknown() {
        let me = ProcessRef::capture(i32::try_from(std::process::id()).unwrap()).unwrap();
        let rebooted = ProcessRef { boot: "another".into(), ..me.clone() };
        assert_eq!((rebooted.state(), rebooted.signal(0)), (State::Exited, Err(Errno::ESRCH)));
        let elsewhere = ProcessRef { ns: me.ns + 1, ..me };
        assert_eq!((elsewhere.state(), elsewhere.signal(0)), (State::Unknown, Err(Errno::EACCES)));
    }

    fn libc_kill() -> i32 {
        nix::sys::signal::Signal::SIGKILL as i32
    }
}
