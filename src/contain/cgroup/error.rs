//! Why a run cannot have the requested cgroup.

use std::fmt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::limits::Controller;
use super::place::WhyNot;

/// Why a run cannot have the requested cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupError {
    Unavailable(WhyNot),
    /// The kernel does not offer this controller below that cgroup.
    NoController {
        controller: Controller,
        dir: PathBuf,
    },
    /// The controller cannot be enabled because the cgroup contains processes.
    NoRoom {
        controller: Controller,
        dir: PathBuf,
    },
    /// A system call failed.
    Failed {
        path: PathBuf,
        step: String,
        errno: i32,
    },
    /// The path is not that of the recorded keeper's cgroup.
    NotTheRuns {
        path: PathBuf,
    },
}

impl fmt::Display for CgroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => why.fmt(f),
            Self::NoController { controller, dir } => write!(
                f,
                "the {controller} controller is not available in {}. Either cgroup v1 uses it (boot with cgroup v2 only), \
                 or it was not delegated (systemd: set Delegate=memory pids)",
                dir.display()
            ),
            Self::NoRoom { controller, dir } => write!(
                f,
                "the {controller} controller cannot be enabled in {}, because that cgroup contains processes, for example \
                 the bot. Start the bot in its own cgroup below it (systemd: set DelegateSubgroup=bot)",
                dir.display()
            ),
            Self::Failed { path, step, errno } => {
                write!(f, "{}: {step} failed: {}", path.display(), Errno::from_raw(*errno))
            }
            Self::NotTheRuns { path } => {
                write!(f, "{} is not the cgroup of the recorded keeper, so it is not used", path.display())
            }
        }
    }
}

impl std::error::Error for CgroupError {}

pub(super) fn cgroup_error(path: &Path, step: &str, errno: Errno) -> CgroupError {
    CgroupError::Failed { path: path.to_owned(), step: step.to_owned(), errno: errno as i32 }
}
