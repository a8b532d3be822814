//! The same interface on systems without cgroups. No value of [`Cgroup`] can exist, so its methods
//! need no code.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::ForkResult;
use serde::{Deserialize, Serialize};

use super::Limits;
use crate::identity::ProcessRef;

/// The cgroups in which run cgroups are created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    pub dir: PathBuf,
    pub roomy: Option<PathBuf>,
}

/// Why runs cannot have cgroups here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyNot;

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only Linux has cgroups. Omit options.limits and containment: 'cgroup'")
    }
}

/// Why a run cannot have the requested cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupError {
    Unavailable(WhyNot),
    /// A system call failed.
    Failed {
        path: PathBuf,
        step: String,
        errno: i32,
    },
}

impl fmt::Display for CgroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => why.fmt(f),
            Self::Failed { path, step, errno } => {
                write!(f, "{}: {step} failed: {}", path.display(), Errno::from_raw(*errno))
            }
        }
    }
}

impl std::error::Error for CgroupError {}

pub fn find() -> Result<Base, WhyNot> {
    Err(WhyNot)
}

/// No-op: there are no cgroups to remove.
pub fn sweep(_base: &Path) -> usize {
    0
}

/// Never forks and returns `None`.
///
/// # Safety
///
/// No requirements here. On Linux there are some.
pub unsafe fn fork_into(_cgroup: BorrowedFd) -> Result<Option<ForkResult>, Errno> {
    Ok(None)
}

/// A run's cgroup in an entry that was written on Linux.
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
    pub fn create(_base: &Base, _keeper: &ProcessRef, _limits: &Limits) -> Result<Self, CgroupError> {
        Err(CgroupError::Unavailable(WhyNot))
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
