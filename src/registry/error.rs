//! What can be wrong with a registry, and what to do about it.

use std::fmt;
use std::path::PathBuf;

use crate::errno::Errno;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryError {
    /// It cannot be written: nothing may be started without a record.
    Unwritable {
        path: PathBuf,
        errno: Errno,
    },
    Unreadable {
        path: PathBuf,
        errno: Errno,
    },
    /// We follow none: whoever can place one could make us write elsewhere.
    Symlink {
        path: PathBuf,
    },
    /// Not a plain file.
    NotAFile {
        path: PathBuf,
    },
    /// It has another name, and may be any file of ours.
    Linked {
        path: PathBuf,
    },
    /// Another user's. What it says about processes is that user's word.
    Foreign {
        path: PathBuf,
        owner: String,
    },
    /// Written by a later version, whose entries we would lose.
    Newer {
        path: PathBuf,
        version: u64,
    },
    /// The run id is in use.
    Duplicate {
        run_id: String,
    },
    /// The system does not tell its boot: no token that is written here could be understood later.
    Nameless,
}

impl RegistryError {
    /// The `code` of the JS error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unwritable { .. } => "ERR_OWNED_REGISTRY_UNWRITABLE",
            Self::Unreadable { .. } => "ERR_OWNED_REGISTRY_UNREADABLE",
            Self::Symlink { .. } => "ERR_OWNED_REGISTRY_SYMLINK",
            Self::NotAFile { .. } => "ERR_OWNED_REGISTRY_NOT_A_FILE",
            Self::Linked { .. } => "ERR_OWNED_REGISTRY_LINKED",
            Self::Foreign { .. } => "ERR_OWNED_REGISTRY_FOREIGN",
            Self::Newer { .. } => "ERR_OWNED_REGISTRY_NEWER",
            Self::Duplicate { .. } => "ERR_OWNED_DUPLICATE_RUN",
            Self::Nameless => "ERR_OWNED_NO_BOOT_ID",
        }
    }

    /// What is wrong with a registry that cannot be brought up to date. The error's own words are those for a start that was refused.
    pub fn behind(&self) -> String {
        match self {
            Self::Unwritable { path, errno } => format!(
                "the process registry {} cannot be brought up to date ({errno}). Its journal, if that can be written, has what is missing.",
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
                "the process registry {} cannot be written ({errno}), so nothing was started: what is not recorded could \
                 not be found again. Free some space, make its folder writable, or choose another place with \
                 options.registryPath or SPAWN_OWNED_REGISTRY.",
                path.display()
            ),
            Self::Unreadable { path, errno } => write!(
                f,
                "the process registry {} cannot be read ({errno}), so what runs is not known, and nothing was touched. Make it and its \
                 folder readable for this user, or choose another place with options.registryPath or SPAWN_OWNED_REGISTRY.",
                path.display()
            ),
            Self::Symlink { path } => write!(
                f,
                "{} is a symbolic link, and the process registry follows none. Remove it, or set options.registryPath \
                 (or SPAWN_OWNED_REGISTRY) to where it points.",
                path.display()
            ),
            Self::NotAFile { path } => {
                write!(
                    f,
                    "{} is not a plain file, and the process registry must be one. Remove it, or choose another registryPath.",
                    path.display()
                )
            }
            Self::Linked { path } => write!(
                f,
                "{} has another name, too (a hard link), and may be any file: nothing is written to it. Remove it; what it \
                 says stays under its other name.",
                path.display()
            ),
            Self::Foreign { path, owner } => write!(
                f,
                "{} belongs to another user ({owner}), who could name any process in it. Remove it, or choose another \
                 registryPath.",
                path.display()
            ),
            Self::Newer { path, version } => write!(
                f,
                "the process registry {} was written by a newer spawn-owned (format {version}); this one would lose what \
                 it does not know. Upgrade spawn-owned, or choose another registryPath. Nothing was changed.",
                path.display()
            ),
            Self::Duplicate { run_id } => write!(
                f,
                "options.runId \"{run_id}\" names a run that is alive. Cancel it first, or choose another id."
            ),
            Self::Nameless => f.write_str(
                "the system does not tell its boot id, without which no process can be named for certain, or found again. Nothing \
                 was started. Let /proc/sys/kernel/random/boot_id be read (systemd: without ProcSubset=pid).",
            ),
        }
    }
}

impl std::error::Error for RegistryError {}
