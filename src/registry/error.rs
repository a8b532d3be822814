//! Errors of the registry, with messages that say what to do.

use std::fmt;
use std::path::PathBuf;

use crate::errno::Errno;
use crate::identity::ProcError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryError {
    /// The file cannot be written. Nothing may be started without a record.
    Unwritable {
        path: PathBuf,
        errno: Errno,
    },
    Unreadable {
        path: PathBuf,
        errno: Errno,
    },
    /// The path is a symbolic link. None is followed: the process that placed it could make us
    /// write to any file.
    Symlink {
        path: PathBuf,
    },
    /// Not a regular file.
    NotAFile {
        path: PathBuf,
    },
    /// The file has a second name (a hard link), so it may be any file of this user.
    Linked {
        path: PathBuf,
    },
    /// The file belongs to another user, who could name any process in it.
    Foreign {
        path: PathBuf,
        owner: String,
    },
    /// A newer version wrote the file, and this version would lose its entries.
    Newer {
        path: PathBuf,
        version: u64,
    },
    /// Not all of the file can be read, and the operation needs all of it.
    Corrupt {
        path: PathBuf,
        why: String,
    },
    /// A run with this id is alive.
    Duplicate {
        run_id: String,
    },
    /// `/proc` cannot identify processes here.
    NoProc(ProcError),
    /// This process cannot read its own identity, because file descriptors or memory are exhausted.
    Exhausted {
        errno: Errno,
    },
    /// The system has no readable boot id, so a start token could not be checked later.
    NoBootId,
}

impl RegistryError {
    /// The `code` of the JavaScript error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unwritable { .. } => "ERR_OWNED_REGISTRY_UNWRITABLE",
            Self::Unreadable { .. } => "ERR_OWNED_REGISTRY_UNREADABLE",
            Self::Symlink { .. } => "ERR_OWNED_REGISTRY_SYMLINK",
            Self::NotAFile { .. } => "ERR_OWNED_REGISTRY_NOT_A_FILE",
            Self::Linked { .. } => "ERR_OWNED_REGISTRY_LINKED",
            Self::Foreign { .. } => "ERR_OWNED_REGISTRY_FOREIGN",
            Self::Newer { .. } => "ERR_OWNED_REGISTRY_NEWER",
            Self::Corrupt { .. } => "ERR_OWNED_REGISTRY_CORRUPT",
            Self::Duplicate { .. } => "ERR_OWNED_DUPLICATE_RUN",
            // The same code as when a command cannot be started for this reason.
            Self::Exhausted { errno: Errno::EMFILE } => "EMFILE",
            Self::Exhausted { errno: Errno::ENFILE } => "ENFILE",
            Self::Exhausted { errno: Errno::ENOMEM } => "ENOMEM",
            Self::NoProc(_) | Self::Exhausted { .. } => "ERR_OWNED_NO_PROC",
            Self::NoBootId => "ERR_OWNED_NO_BOOT_ID",
        }
    }

    /// The message of the warning that the file cannot be updated.
    ///
    /// The `Display` text is for a start that was refused.
    pub fn behind(&self) -> String {
        match self {
            Self::Unwritable { path, errno } => format!(
                "the process registry {} cannot be updated ({errno}). The missing changes are in its journal, if that can be written. Free \
                 some space, or make its folder writable.",
                path.display()
            ),
            error => error.to_string(),
        }
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unwritable { path, errno } => write!(
                f,
                "the process registry {} cannot be written ({errno}), so nothing was started: after a crash an unrecorded process could \
                 not be found. Free some space, make its folder writable, or choose another path with options.registryPath or \
                 SPAWN_OWNED_REGISTRY.",
                path.display()
            ),
            Self::Unreadable { path, errno } => write!(
                f,
                "the process registry {} cannot be read ({errno}), so the running processes are unknown and nothing was changed. Make it \
                 and its folder readable for this user, or choose another path with options.registryPath or SPAWN_OWNED_REGISTRY.",
                path.display()
            ),
            Self::Symlink { path } => write!(
                f,
                "{} is a symbolic link, which the process registry does not follow. Remove it, or set options.registryPath (or \
                 SPAWN_OWNED_REGISTRY) to its target.",
                path.display()
            ),
            Self::NotAFile { path } => {
                write!(
                    f,
                    "{} is not a plain file, so it cannot be used as the process registry. Remove it, or choose another registryPath.",
                    path.display()
                )
            }
            Self::Linked { path } => write!(
                f,
                "{} has a second name (a hard link), so it may be any file, and nothing is written to it. Remove it; its content stays \
                 under the other name.",
                path.display()
            ),
            Self::Foreign { path, owner } => write!(
                f,
                "{} belongs to another user ({owner}), who could make spawn-owned signal any process. Remove it, or choose another \
                 registryPath.",
                path.display()
            ),
            Self::Newer { path, version } => write!(
                f,
                "the process registry {} was written by a newer spawn-owned (format {version}), and this version would lose data that it \
                 does not know. Nothing was changed. Upgrade spawn-owned, or choose another registryPath.",
                path.display()
            ),
            // The reason names the file.
            Self::Corrupt { why, .. } => f.write_str(why),
            Self::Duplicate { run_id } => write!(
                f,
                "options.runId \"{run_id}\" names a run that is alive. Cancel it first, or choose another id."
            ),
            Self::NoProc(problem) => write!(
                f,
                "{problem}, so no process can be identified. Nothing was started. Mount the /proc of this PID namespace: unshare \
                 --mount-proc, or mount -t proc proc /proc."
            ),
            Self::Exhausted { errno } => write!(
                f,
                "spawn-owned cannot read this process's identity from /proc ({errno}). Nothing was started. Close file descriptors, or \
                 raise the limits for file descriptors and memory."
            ),
            Self::NoBootId => f.write_str(
                "the boot id of the system cannot be read, so no process can be identified reliably. Nothing was started. Make \
                 /proc/sys/kernel/random/boot_id readable (systemd: remove ProcSubset=pid).",
            ),
        }
    }
}

impl std::error::Error for RegistryError {}
