//! Where the system has no cgroups: the same contract, and nobody ever gets one. A [`Cgroup`] cannot exist, so that nothing has to be
//! said about what it would do.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::ForkResult;
use serde::{Deserialize, Serialize};

use super::Limits;
use crate::identity::ProcessRef;

/// Where runs get their cgroups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    pub dir: PathBuf,
    pub roomy: Option<PathBuf>,
}

/// Why runs get no cgroups here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyNot;

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only Linux has them. Leave options.limits out, and containment as it is")
    }
}

/// Why there is no cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    Unavailable(WhyNot),
    /// The system says no.
    Failed {
        path: PathBuf,
        step: String,
        errno: i32,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => why.fmt(f),
            Self::Failed { path, step, errno } => {
                write!(f, "{}: {step} failed: {}", path.display(), Errno::from_raw(*errno))
            }
        }
    }
}

impl std::error::Error for Trouble {}

pub fn find() -> Result<Base, WhyNot> {
    Err(WhyNot)
}

/// There is nothing to be swept up.
pub fn sweep(_base: &Path) -> usize {
    0
}

/// # Safety
///
/// Nothing is forked; elsewhere there is more to it.
pub unsafe fn fork_into(_cgroup: BorrowedFd) -> Result<Option<ForkResult>, Errno> {
    Ok(None)
}

/// A run's cgroup as somebody has written it down: on another system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded<'a> {
    pub path: &'a str,
    pub keeper: &'a ProcessRef,
}

impl Recorded<'_> {
    pub fn abandoned(&self) -> Option<Cgroup> {
        None
    }
}

#[derive(Debug)]
pub enum Cgroup {}

impl Cgroup {
    pub fn create(_base: &Base, _keeper: &ProcessRef, _limits: &Limits) -> Result<Self, Trouble> {
        Err(Trouble::Unavailable(WhyNot))
    }

    pub fn path(&self) -> &Path {
        match *self {}
    }

    pub fn enter(&self) -> Result<(), Errno> {
        match *self {}
    }

    pub fn is_populated(&self) -> bool {
        match *self {}
    }

    pub fn members(&self) -> Result<Vec<i32>, Errno> {
        match *self {}
    }

    pub fn has(&self, _pid: i32) -> bool {
        match *self {}
    }

    pub fn kill(&self) -> Result<(), Errno> {
        match *self {}
    }

    pub fn wait_until_empty(&self, _limit: Duration) -> bool {
        match *self {}
    }

    pub fn remove(&self) -> Result<(), Errno> {
        match *self {}
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
}
