//! Why a command could not be started, with texts for people.

use std::fmt;
use std::path::PathBuf;

use super::Streams;
use crate::errno::Errno;
use crate::registry::RegistryError;

/// Why a launch failed.
#[derive(Debug)]
pub enum LaunchError {
    /// A system call failed: command or directory not found, not executable, no permission, out of
    /// file descriptors … `streams` are the streams created so far. They are at end of file.
    Refused { errno: Errno, streams: Streams },
    /// `exec` of the keeper's executable failed.
    KeeperUnavailable { path: PathBuf, why: String },
    /// The keeper's executable ran, but its first message is not that of a keeper of this version.
    KeeperBroken { path: PathBuf, why: String },
    /// The keeper's executable ran, but it is another version.
    KeeperVersion { path: PathBuf, version: String, expected: String },
    /// The keeper did not answer in time. All processes that it started were ended.
    KeeperLost { why: String },
    /// Another process sends SIGSTOP to the zygote, the keeper or the exec stub, and sends it again
    /// after SIGCONT.
    KeeperStopped,
    /// One message cannot carry so many file descriptors.
    TooManyDescriptors,
    /// The command needs a terminal, and none can be opened.
    NoTerminal(Errno),
    /// The registry could not record the run.
    Unrecorded(RegistryError),
    /// The run has to outlive its bot, but its keeper has no control socket for the next bot.
    Unreachable,
    /// The run needs a cgroup, and none can be created.
    Cgroup { why: String },
    /// The run needs a cgroup, and Windows has none.
    NoCgroups,
    /// This JavaScript runtime cannot open the streams of a run.
    NoDescriptors,
}

impl From<RegistryError> for LaunchError {
    fn from(error: RegistryError) -> Self {
        match error {
            // The registry itself is intact: the system is out of file descriptors or threads.
            RegistryError::Unwritable {
                errno: errno @ (Errno::EMFILE | Errno::ENFILE | Errno::EAGAIN),
                ..
            }
            | RegistryError::Unreadable { errno: errno @ (Errno::EMFILE | Errno::ENFILE), .. } => {
                Self::refused(errno)
            }
            error => Self::Unrecorded(error),
        }
    }
}

impl LaunchError {
    pub(super) fn refused(errno: Errno) -> Self {
        Self::Refused { errno, streams: Vec::new() }
    }

    /// The `code` of the JS error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "ERR_OWNED_SPAWN",
            Self::KeeperUnavailable { .. } => "ERR_OWNED_KEEPER_UNAVAILABLE",
            Self::KeeperBroken { .. } => "ERR_OWNED_KEEPER_BROKEN",
            Self::KeeperVersion { .. } => "ERR_OWNED_VERSION_MISMATCH",
            Self::KeeperLost { .. } => "ERR_OWNED_KEEPER_LOST",
            Self::KeeperStopped => "ERR_OWNED_KEEPER_STOPPED",
            Self::TooManyDescriptors => "ERR_OWNED_TOO_MANY_STDIO",
            Self::NoTerminal(_) => "ERR_OWNED_NO_TERMINAL",
            Self::Unrecorded(error) => error.code(),
            Self::Unreachable => "ERR_OWNED_UNREACHABLE",
            Self::Cgroup { .. } | Self::NoCgroups => "ERR_OWNED_CGROUP",
            Self::NoDescriptors => "ERR_OWNED_RUNTIME",
        }
    }
}

impl fmt::Display for LaunchError {
    #[allow(clippy::too_many_lines)] // One text per variant.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { errno, .. } => write!(f, "the command cannot be started: {errno}"),
            Self::KeeperUnavailable { path, why } => {
                write!(f, "the keeper {} cannot be executed: {why}", path.display())
            }
            Self::KeeperBroken { path, why } => write!(
                f,
                "the keeper {} did not start properly: {why}. Nothing was started. Its version must match the \
                 addon's, and it must be built for this platform and libc: reinstall spawn-owned.",
                path.display()
            ),
            Self::KeeperVersion { path, version, expected } => write!(
                f,
                "the keeper {} is version {version}, and the native addon beside it is version {expected}. Nothing was \
                 started. Both must have the same version: reinstall spawn-owned, or run \"npm run build\" in a \
                 checkout.",
                path.display()
            ),
            Self::KeeperLost { why } => {
                write!(f, "the run's keeper {why}. All processes that it started were ended. Try again.")
            }
            Self::KeeperStopped => f.write_str(
                "another process sends SIGSTOP to owned-zygote or owned-keeper, and sent it again after SIGCONT. \
                 Nothing was started. End the process that stops them, and try again.",
            ),
            Self::TooManyDescriptors => write!(
                f,
                "options.stdio passes more than {} file descriptors, the maximum for a run. Nothing was started. \
                 Pass fewer, or send them over one socket.",
                crate::keeper::protocol::MAX_FDS - 1
            ),
            Self::NoTerminal(errno) if cfg!(windows) => write!(
                f,
                "options.pty needs a terminal, but none can be opened: {errno}. Nothing was started. Use Windows 10 \
                 version 1809 or newer."
            ),
            Self::NoTerminal(Errno::ENOSPC) => write!(
                f,
                "options.pty needs a terminal, but all terminals of this system are in use. Nothing was started. \
                 End processes that use one, or raise kernel.pty.max."
            ),
            Self::NoTerminal(errno) => write!(
                f,
                "options.pty needs a terminal, but none can be opened: {errno}. Nothing was started. Check that \
                 /dev/ptmx exists and that devpts is mounted."
            ),
            Self::Unrecorded(error) => write!(f, "{error}"),
            Self::Unreachable if cfg!(windows) => write!(
                f,
                "options.onOwnerExit is 'keep', but the run cannot get a handle of its own job, so the next bot \
                 could not adopt it. Nothing was started. Use 'kill'."
            ),
            Self::Unreachable => write!(
                f,
                "options.onOwnerExit is 'keep', but the run's keeper cannot open a control socket, so the next bot \
                 could not adopt it. Nothing was started. Allow Unix sockets, or use 'kill'."
            ),
            Self::Cgroup { why } => write!(
                f,
                "the run cannot have a cgroup, which options.limits and containment 'cgroup' need: {why}. \
                 Nothing was started."
            ),
            Self::NoCgroups => write!(
                f,
                "options.containment is 'cgroup', but Windows has no cgroups: every run has a Job Object. Nothing \
                 was started. Omit the option; options.limits work without it."
            ),
            Self::NoDescriptors => write!(
                f,
                "this JavaScript runtime cannot open a pipe handle on Windows: uv_open_osfhandle is missing. \
                 Nothing was started. Use Node."
            ),
        }
    }
}

impl std::error::Error for LaunchError {}
