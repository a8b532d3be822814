//! A run's own cgroup (version 2): whoever is born in it stays in it, wherever it goes, and the kernel ends all of it at once.
//!
//! What the keeper sees anyway is seen again here, by other means: a process that was put below us without being our descendant,
//! and, when keeper and zygote are dead, everybody who has left group, environment and parents behind.
//!
//! - [`place`] decides where, if anywhere, a cgroup may be made (pure), [`observe`] reads what it needs.
//! - [`name`] says whose a cgroup is (pure). Nothing without such a name is ever killed or removed.
//! - [`clone`](fork_into) has a process born in one, [`limits`] limits it, [`sweep()`] removes what was left.
//!
//! Measured (Linux 6.18, 2 cores, p50): to make one 0.03 ms, to fork into it 0.08 ms (a plain fork: 0.06), to kill all of it 0.015, to
//! see it empty 0.002 after the last was waited for, to remove it 0.025. To move a process into it: 7 to 15 ms.

mod clone;
mod files;
pub mod limits;
pub mod name;
mod observe;
pub mod place;
mod sweep;
#[cfg(test)]
mod tests;

pub use clone::fork_into;
pub use observe::find;
pub use place::{Base, WhyNot};
pub use sweep::sweep;

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::{Deserialize, Serialize};

use self::limits::Controller;
use super::{Limits, SIGKILL};
use crate::identity::{Pin, ProcessRef, State};

/// A command may nest cgroups of its own, this deep at most (`cgroup.max.depth`); should it have raised that, what is deeper stays.
const DEPTH: usize = 128;

/// While it is not empty, kill again this often.
const PASS: Duration = Duration::from_millis(2);

/// Why there is no cgroup, or not as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    Unavailable(WhyNot),
    /// The kernel does not divide this resource below that cgroup.
    NoController {
        controller: Controller,
        dir: PathBuf,
    },
    /// It would, if there were no processes in it.
    NoRoom {
        controller: Controller,
        dir: PathBuf,
    },
    /// The system says no.
    Failed {
        path: PathBuf,
        step: String,
        errno: i32,
    },
    /// A path that is not that of the recorded keeper's cgroup.
    NotTheRuns {
        path: PathBuf,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => why.fmt(f),
            Self::NoController { controller, dir } => write!(
                f,
                "the {controller} controller is not available in {}: it is bound to cgroup v1 (boot with v2 only), or was not \
                 delegated (systemd: Delegate=memory pids)",
                dir.display()
            ),
            Self::NoRoom { controller, dir } => write!(
                f,
                "the {controller} controller cannot be enabled in {}, because processes are in it, the bot among them: start the \
                 bot in a cgroup of its own below it (systemd: DelegateSubgroup=bot)",
                dir.display()
            ),
            Self::Failed { path, step, errno } => {
                write!(f, "{}: {step} failed: {}", path.display(), Errno::from_raw(*errno))
            }
            Self::NotTheRuns { path } => {
                write!(f, "{} is not the cgroup of the recorded keeper: hands off", path.display())
            }
        }
    }
}

impl std::error::Error for Trouble {}

fn trouble(path: &Path, step: &str, errno: Errno) -> Trouble {
    Trouble::Failed { path: path.to_owned(), step: step.to_owned(), errno: errno as i32 }
}

/// A run's cgroup as somebody has written it down: the directory, and the keeper whose name it must bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded<'a> {
    pub path: &'a str,
    pub keeper: &'a ProcessRef,
}

impl Recorded<'_> {
    /// The cgroup, if it is there, is that keeper's, and the keeper is dead. As long as it lives, nobody else has any business there.
    pub fn abandoned(&self) -> Option<Cgroup> {
        let is_dead = matches!(self.keeper.state(), State::Exited | State::Recycled);
        if is_dead { Cgroup::recorded(Path::new(self.path), self.keeper).ok() } else { None }
    }
}

/// One run's cgroup. Dropping it changes nothing.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    name: String,
    parent: OwnedFd,
    dir: OwnedFd,
    /// `cgroup.events`; something happens to it when the last process goes.
    events: File,
}

impl Cgroup {
    /// Makes the cgroup of this keeper, with its limits, and nobody in it.
    pub fn create(base: &Base, keeper: &ProcessRef, limits: &Limits) -> Result<Self, Trouble> {
        let place = if limits.is_none() { Some(&base.dir) } else { base.roomy.as_ref() };
        let place = place.ok_or_else(|| limits.no_room(&base.dir))?;
        let failed = |step| move |errno| trouble(place, step, errno);
        let parent = files::directory(place).map_err(failed("open"))?;
        if !is_cgroup2(&parent) {
            return Err(trouble(place, "open", Errno::ENODEV));
        }
        limits.enable(&parent, place)?;
        let (name, path) = (name::of(keeper), place.join(name::of(keeper)));
        mkdirat(&parent, name.as_str(), Mode::from_bits_truncate(0o755)).map_err(failed("mkdir"))?;
        let made = Self::opened(path.clone(), name, parent);
        let made = made.and_then(|cgroup| limits.apply(&cgroup.dir, &path).map(|()| cgroup));
        if let Ok(cgroup) = &made {
            // Where that cannot be set, nothing is lost but the certainty that all of it can be removed.
            let _ = files::write(&cgroup.dir, "cgroup.max.depth", &(DEPTH - 1).to_string());
        }
        if made.is_err() {
            let _ = std::fs::remove_dir(&path);
        }
        made
    }

    /// The cgroup of a recorded run. A file can name anything: this opens nothing but what bears this keeper's name and is a
    /// cgroup.
    pub fn recorded(path: &Path, keeper: &ProcessRef) -> Result<Self, Trouble> {
        let not_the_runs = || Trouble::NotTheRuns { path: path.to_owned() };
        let parent = path.parent().filter(|_| name::is_path_of(path, keeper)).ok_or_else(not_the_runs)?;
        let parent = files::directory(parent).map_err(|errno| trouble(path, "open", errno))?;
        let cgroup = Self::opened(path.to_owned(), name::of(keeper), parent)?;
        if is_cgroup2(&cgroup.dir) { Ok(cgroup) } else { Err(not_the_runs()) }
    }

    fn opened(path: PathBuf, name: String, parent: OwnedFd) -> Result<Self, Trouble> {
        let failed = |step| {
            let path = path.clone();
            move |errno| trouble(&path, step, errno)
        };
        let dir = files::directory_in(&parent, &name).map_err(failed("open"))?;
        let events =
            files::open_in(&dir, "cgroup.events", OFlag::O_RDONLY).map_err(failed("cgroup.events"))?;
        Ok(Self { path, name, parent, dir, events })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the calling process into it, which takes long: for kernels on which [`fork_into`] does not work.
    pub fn enter(&self) -> Result<(), Errno> {
        files::write(&self.dir, "cgroup.procs", "0")
    }

    /// Whether a process lives in it or below it. A zombie does not. What cannot be read is not empty, unless it is gone.
    pub fn is_populated(&self) -> bool {
        populated(&self.events) != Ok(false)
    }

    /// Whether somebody has removed it. Then nobody is in it, and nothing about it will ever change.
    pub fn is_removed(&self) -> bool {
        self.events.read_at(&mut [0; 1], 0).is_err_and(|error| files::errno(&error) == Errno::ENODEV)
    }

    /// Every process in it and below it that can be seen from our PID namespace.
    pub fn members(&self) -> Result<Vec<i32>, Errno> {
        let mut members = Vec::new();
        collect(&self.dir, &mut members, DEPTH)?;
        Ok(members)
    }

    /// Whether the process with this number is in it or below it right now, by what the kernel says of that process.
    pub fn has(&self, pid: i32) -> bool {
        let Ok(text) = std::fs::read(format!("/proc/{pid}/cgroup")) else { return false };
        let text = String::from_utf8_lossy(&text);
        let own = text.lines().find_map(|line| line.strip_prefix("0::"));
        own.is_some_and(|path| path.split('/').any(|part| part == self.name))
    }

    /// One signal to every member but those that are wanted to be left out. How many have got it.
    ///
    /// Whoever is listed is pinned, and then the list is read again. Who is still on it, and lives, has had its number all along: so
    /// the pinned process *is* the one that is in this cgroup. A number alone could be a stranger's by now.
    pub fn signal(&self, signal: i32, wanted: impl Fn(i32) -> bool) -> Result<usize, Errno> {
        let listed = self.members()?.into_iter().filter(|&pid| wanted(pid));
        let pins: Vec<_> = listed.filter_map(|pid| Some((pid, Pin::open(pid).ok()?))).collect();
        let again = self.members()?;
        let still = pins.iter().filter(|(pid, _)| again.contains(pid));
        Ok(still.filter(|(_, pin)| pin.signal(signal).is_ok()).count())
    }

    /// SIGKILL to everybody in it and below it, at once: the kernel lets nobody fork past that. Before Linux 5.14 it is done one by one,
    /// and has to be repeated until it is empty.
    pub fn kill(&self) -> Result<(), Errno> {
        match files::write(&self.dir, "cgroup.kill", "1") {
            Err(Errno::ENOENT) => self.signal(SIGKILL, |_| true).map(drop),
            written => written,
        }
    }

    /// Kills until nobody is left, at most so long. True if nobody is.
    pub fn kill_all(&self, limit: Duration) -> bool {
        let give_up_at = Instant::now() + limit;
        loop {
            let _ = self.kill();
            if self.wait_until_empty(PASS) {
                return true;
            }
            if Instant::now() >= give_up_at {
                return false;
            }
        }
    }

    /// True as soon as nobody is in it; false when time is up.
    pub fn wait_until_empty(&self, limit: Duration) -> bool {
        let give_up_at = Instant::now() + limit;
        loop {
            // Read first, wait second: what happens in between ends the wait.
            if !self.is_populated() {
                return true;
            }
            let left = give_up_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // Rounded up, or the last millisecond would be spent turning around.
            let left = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [self.changes()], left);
        }
    }

    /// To be polled among others: ready when it may have become empty, or populated, since [`Cgroup::is_populated`] was asked.
    pub fn changes(&self) -> PollFd<'_> {
        PollFd::new(self.events.as_fd(), PollFlags::POLLPRI)
    }

    /// Removes it, and whatever cgroups the run has made below it. `EBUSY` if somebody is in one of them.
    pub fn remove(&self) -> Result<(), Errno> {
        match unlinkat(&self.parent, self.name.as_str(), UnlinkatFlags::RemoveDir) {
            Err(Errno::EBUSY) => {}
            Err(Errno::ENOENT) => return Ok(()),
            done => return done,
        }
        clear(&self.dir)?;
        unlinkat(&self.parent, self.name.as_str(), UnlinkatFlags::RemoveDir)
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// A file system of another kind may have files of the same names.
fn is_cgroup2(dir: &OwnedFd) -> bool {
    fstatfs(dir).is_ok_and(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

fn is_empty(dir: &OwnedFd) -> Result<bool, Errno> {
    populated(&files::open_in(dir, "cgroup.events", OFlag::O_RDONLY)?).map(|populated| !populated)
}

/// `ENODEV` from a cgroup that was removed means that nobody is in it.
fn populated(events: &File) -> Result<bool, Errno> {
    let mut buffer = [0; 256];
    match events.read_at(&mut buffer, 0).map_err(|error| files::errno(&error)) {
        Err(Errno::ENODEV) => Ok(false),
        read => {
            let text = String::from_utf8_lossy(&buffer[..read?]).into_owned();
            place::populated(&text).ok_or(Errno::EIO)
        }
    }
}

fn collect(dir: &impl AsFd, members: &mut Vec<i32>, depth: usize) -> Result<(), Errno> {
    match files::read(dir, "cgroup.procs") {
        // 0 is a process of another PID namespace. It has no number here, and can be ended only with the cgroup.
        Ok(list) => {
            members.extend(list.lines().filter_map(|pid| pid.parse().ok()).filter(|&pid: &i32| pid > 0));
        }
        // Threaded: its processes are listed further up. Removed: it had none.
        Err(Errno::EOPNOTSUPP | Errno::ENODEV | Errno::ENOENT) => {}
        Err(errno) => return Err(errno),
    }
    for child in if depth > 0 { files::children(dir)? } else { Vec::new() } {
        match files::directory_in(dir, &child) {
            Ok(child) => collect(&child, members, depth - 1)?,
            Err(Errno::ENOENT | Errno::ENODEV) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Removes everything below a cgroup, the deepest first.
fn clear(dir: &OwnedFd) -> Result<(), Errno> {
    clear_to(dir, DEPTH)
}

fn clear_to(dir: &impl AsFd, depth: usize) -> Result<(), Errno> {
    for child in files::children(dir)? {
        if depth > 0
            && let Ok(below) = files::directory_in(dir, &child)
        {
            let _ = clear_to(&below, depth - 1);
        }
        match unlinkat(dir, child.as_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
