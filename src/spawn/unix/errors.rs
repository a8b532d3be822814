//! Errors of Linux and macOS, for [`LaunchError`].

use nix::errno::Errno;

use crate::contain::cgroup::CgroupError;
use crate::spawn::LaunchError;

pub fn no_cgroup(error: &CgroupError) -> LaunchError {
    LaunchError::Cgroup { why: error.to_string() }
}

/// Why the keeper's executable cannot be executed, and what to do.
pub fn not_executed(errno: Errno) -> String {
    let text = match errno {
        Errno::ENOENT => {
            "the file, or the loader it needs, is missing. Nothing was started. Reinstall spawn-owned for this \
             platform and libc."
        }
        Errno::EACCES | Errno::EPERM => {
            "permission denied. Nothing was started. Make it executable (chmod +x) and keep it off a file system \
             mounted noexec."
        }
        Errno::ENOEXEC => {
            "it is not a program for this machine. Nothing was started. Reinstall spawn-owned for this platform."
        }
        errno => {
            return format!(
                "{errno}. Nothing was started. Try again. If the error stays, check the limits on processes, file \
                 descriptors and memory."
            );
        }
    };
    text.to_owned()
}
