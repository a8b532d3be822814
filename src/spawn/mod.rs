//! Starting a run and listening to it: the bot's side of the keeper.
//!
//! [`Launcher::begin`] hands the command to a waiting process, [`Launcher::finish`] blocks until it runs or has failed to,
//! unless that program is known to run ([`programs`]): that is the only wait on the caller's thread. Afterwards a native
//! thread ([`runtime`]) listens ([`ears`]) to the run's control socket and passes on what it hears.

pub mod adopt;
#[cfg(unix)]
pub mod borrow;
mod ears;
mod environment;
#[cfg(unix)]
mod inherited;
mod line;
#[cfg(unix)]
mod plumbing;
#[cfg(unix)]
mod programs;
pub mod register;
mod run;
mod silence;
mod tier;
#[cfg(unix)]
mod unix;
pub(crate) mod watch;
#[cfg(any(windows, test))]
mod windows;
#[cfg(unix)]
mod zygote;

#[cfg(unix)]
use std::os::fd::{OwnedFd, RawFd};
#[cfg(unix)]
use std::path::PathBuf;
use std::sync::Arc;

use crate::errno::Errno;

use std::collections::BTreeMap;

use crate::contain::Limits;
#[cfg(unix)]
use crate::contain::cgroup::Trouble;
use crate::contain::{ProcessInfo, Usage};
use crate::identity::ProcessRef;
use crate::observe::counters::Counters;
use crate::pty;
use crate::registry::{self, Instance, Record, RegistryError, State};
use crate::run::lifecycle::Timeout;
use crate::run::reason::{Ending, Reason};
use crate::run::{Cause, Deadline, ExitStatus, Force, Policy};

#[cfg(unix)]
pub use plumbing::{duplicate, end_stream, hand_out, number, stream_pair};
pub use run::Run;
pub use tier::Tier;
#[cfg(unix)]
pub use unix::{Launcher, Pending};
#[cfg(windows)]
pub use windows::{Launcher, Pending, borrow, duplicate, end_stream, hand_out, lend, number, stream_pair};

/// An end of a stream: what the system calls it, and its number.
#[cfg(unix)]
pub type OwnedStream = OwnedFd;
#[cfg(unix)]
pub type RawStream = RawFd;
#[cfg(windows)]
pub type OwnedStream = std::os::windows::io::OwnedHandle;
/// The value of a handle.
#[cfg(windows)]
pub type RawStream = i32;

/// What to start. The strings are as in [`crate::keeper::protocol::Command`], without the cookie.
#[derive(Debug)]
pub struct Launch {
    /// Who is to own the run, and where that is recorded.
    pub owner: Instance,
    pub run_id: String,
    /// The caller has chosen the id.
    pub given_id: bool,
    pub session_id: Option<String>,
    pub backend_id: Option<String>,
    pub scope_key: Option<String>,
    /// See [`Record::service`].
    pub service: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub preview: String,
    pub file: String,
    pub argv: String,
    /// `None`: the bot's own environment as it is now.
    pub env: Option<String>,
    pub cwd: Option<String>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Windows: without a window.
    pub windows_hide: bool,
    /// Windows: the arguments are the command line as it is, without quotes of ours.
    pub verbatim: bool,
    pub stdio: Vec<Stdio>,
    /// If it is to have a terminal. Then the first two of `stdio` are what is typed and what it says.
    pub terminal: Option<TerminalSettings>,
    pub on_owner_exit: Policy,
    pub on_leader_exit: Policy,
    pub grace_ms: u64,
    pub tier: Tier,
    pub limits: Limits,
    pub timeout: Option<Timeout>,
    /// How long nothing may be heard of it.
    pub silence_ms: Option<u64>,
    /// Our ends of its outputs, of those that were made before.
    pub outputs: Vec<RawStream>,
}

impl Launch {
    /// What is written down of it before the command runs, but for what holds it together.
    fn record(&self, root: &ProcessRef) -> Record {
        let now = registry::now_ms();
        Record {
            pid: root.pid,
            started_at: now,
            session_id: self.session_id.clone(),
            command_preview: self.preview.clone(),
            run_id: self.run_id.clone(),
            state: State::Starting,
            start_token: Some(root.clone()),
            backend_id: self.backend_id.clone(),
            scope_key: self.scope_key.clone(),
            service: self.service.clone(),
            labels: self.labels.clone(),
            grace_ms: self.grace_ms,
            on_owner_exit: self.on_owner_exit,
            created_at_ms: now,
            updated_at_ms: now,
            ..Record::blank()
        }
    }
}

/// The terminal that a command is to have.
#[derive(Debug)]
pub struct TerminalSettings {
    pub size: pty::Size,
    /// What `TERM` is to be, whatever the environment says.
    pub name: Option<String>,
}

/// Where one of the command's descriptors comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdio {
    Closed,
    Null,
    /// One end of a new socket pair; the other comes back in [`Pending::streams`].
    Pipe,
    /// A descriptor of the caller's, which stays the caller's.
    Fd(i32),
    /// A handle, likewise.
    #[cfg(windows)]
    Handle(i32),
}

/// Ends of new streams, one per [`Stdio::Pipe`], at its place.
pub type Streams = Vec<Option<OwnedStream>>;

/// Called on the native thread, once per event; the last is [`RunEvent::Extinct`], or the only one [`RunEvent::Refused`].
pub type OnEvent = Arc<dyn Fn(RunEvent) + Send + Sync>;

/// What a run tells after it was started.
#[derive(Debug)]
pub enum RunEvent {
    /// A program that was executed before could not be executed now. The last event; there is no tree.
    Refused(Errno),
    /// It has been executed.
    Started,
    /// A deadline is near.
    Warning {
        deadline: Deadline,
        limit_ms: u64,
        remaining_ms: u64,
    },
    /// The keeper has begun to end the tree. With it, the reason that the end is going to have.
    Ending(Cause, Reason),
    /// The answer to [`Run::ask_usage`].
    Usage(Usage),
    RootExited(ExitStatus),
    SignalFailed(Errno),
    /// The last event: nothing of the tree exists but the survivors.
    Extinct(Extinct),
}

/// How a tree came to its end.
#[derive(Debug)]
pub struct Extinct {
    pub ending: Ending,
    pub reason: Reason,
    /// The limit of the deadline that ended it; 0 if none did.
    pub limit_ms: u64,
    pub force: Force,
    pub escaped: Vec<ProcessInfo>,
    pub survivors: Vec<ProcessInfo>,
}

impl Extinct {
    /// A cancel may ask for any reason; that something has escaped it cannot ask for.
    fn count(&self, counters: &Counters) {
        counters.ended(self.reason, self.force);
        if self.ending == Ending::Kept(Cause::RootExit) && !self.escaped.is_empty() {
            counters.escaped();
        }
    }
}

/// Why nothing was started.
#[derive(Debug)]
pub enum LaunchError {
    /// The system says no: command or directory not found, not executable, no permission, out of descriptors … If there are
    /// streams already, they are at their end.
    Refused { errno: Errno, streams: Streams },
    /// The keeper's executable could not be run.
    #[cfg(unix)]
    KeeperUnavailable { path: PathBuf, errno: Errno },
    /// It was run, but did not answer as a keeper of this version does.
    #[cfg(unix)]
    KeeperBroken { path: PathBuf, why: String },
    /// It did not answer in time. Whatever it may have started was ended.
    #[cfg(unix)]
    KeeperLost { why: String },
    /// More descriptors than one message can carry.
    #[cfg(unix)]
    TooManyDescriptors,
    /// It was to have a terminal.
    NoTerminal(Errno),
    /// The run could not be recorded.
    Unrecorded(RegistryError),
    /// It was to outlive its bot, but its keeper has no address at which it could be found again.
    Unreachable,
    /// It was to have a cgroup, and cannot.
    #[cfg(unix)]
    Cgroup(Trouble),
    /// It was to have a cgroup, and this system knows none.
    #[cfg(windows)]
    NoCgroups,
    /// This runtime cannot be given the streams of a run.
    #[cfg(windows)]
    NoDescriptors,
}

impl From<RegistryError> for LaunchError {
    fn from(error: RegistryError) -> Self {
        Self::Unrecorded(error)
    }
}

impl LaunchError {
    fn refused(errno: Errno) -> Self {
        Self::Refused { errno, streams: Vec::new() }
    }

    /// The `code` of the JS error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "ERR_OWNED_SPAWN",
            #[cfg(unix)]
            Self::KeeperUnavailable { .. } => "ERR_OWNED_KEEPER_UNAVAILABLE",
            #[cfg(unix)]
            Self::KeeperBroken { .. } => "ERR_OWNED_KEEPER_BROKEN",
            #[cfg(unix)]
            Self::KeeperLost { .. } => "ERR_OWNED_KEEPER_LOST",
            #[cfg(unix)]
            Self::TooManyDescriptors => "ERR_OWNED_TOO_MANY_STDIO",
            Self::NoTerminal(_) => "ERR_OWNED_NO_TERMINAL",
            Self::Unrecorded(error) => error.code(),
            Self::Unreachable => "ERR_OWNED_UNREACHABLE",
            #[cfg(unix)]
            Self::Cgroup(_) => "ERR_OWNED_CGROUP",
            #[cfg(windows)]
            Self::NoCgroups => "ERR_OWNED_CGROUP",
            #[cfg(windows)]
            Self::NoDescriptors => "ERR_OWNED_RUNTIME",
        }
    }
}

impl std::fmt::Display for LaunchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused { errno, .. } => write!(f, "the command cannot be started: {errno}"),
            #[cfg(unix)]
            Self::KeeperUnavailable { path, errno } => {
                let path = path.display();
                match errno {
                    Errno::ENOENT => write!(
                        f,
                        "the keeper {path} cannot be executed: the file, or the loader it needs, is missing. Nothing \
                         was started. Reinstall spawn-owned for this platform and libc."
                    ),
                    Errno::EACCES | Errno::EPERM => write!(
                        f,
                        "the keeper {path} cannot be executed: permission denied. Nothing was started. Make it \
                         executable (chmod +x) and keep it off a file system mounted noexec."
                    ),
                    Errno::ENOEXEC => write!(
                        f,
                        "the keeper {path} cannot be executed: it is not a program for this machine. Nothing was \
                         started. Reinstall spawn-owned for this platform."
                    ),
                    errno => write!(
                        f,
                        "the keeper {path} cannot be executed: {errno}. Nothing was started. Try again; if it stays, look at the limits of processes, \
                         descriptors and memory."
                    ),
                }
            }
            #[cfg(unix)]
            Self::KeeperBroken { path, why } => write!(
                f,
                "the keeper {} did not start properly: {why}. Nothing was started. Its version must match the addon's, \
                 and it must be built for this platform and libc: reinstall spawn-owned.",
                path.display()
            ),
            #[cfg(unix)]
            Self::KeeperLost { why } => {
                write!(f, "the run's keeper {why}. Whatever it may have started was ended; try again.")
            }
            #[cfg(unix)]
            Self::TooManyDescriptors => write!(
                f,
                "options.stdio passes more than {} descriptors, the most a run can be given. Nothing was started. Pass fewer, or send \
                 them over one socket.",
                crate::keeper::protocol::MAX_FDS - 1
            ),
            #[cfg(unix)]
            Self::NoTerminal(Errno::ENOSPC) => write!(
                f,
                "options.pty asks for a terminal, but this system has none left. Nothing was started. End some that use one, or \
                 raise kernel.pty.max."
            ),
            #[cfg(windows)]
            Self::NoTerminal(errno) => write!(
                f,
                "options.pty asks for a terminal, but none can be opened here: {errno}. Nothing was started. It takes Windows 10 1809 or \
                 newer."
            ),
            #[cfg(unix)]
            Self::NoTerminal(errno) => write!(
                f,
                "options.pty asks for a terminal, but none can be opened here: {errno}. Nothing was started. Is /dev/ptmx there, \
                 and devpts mounted?"
            ),
            Self::Unrecorded(error) => write!(f, "{error}"),
            #[cfg(windows)]
            Self::Unreachable => write!(
                f,
                "options.onOwnerExit is 'keep', but the run's job cannot be handed to it, so the next bot would not find it. Nothing was \
                 started. Use 'kill'."
            ),
            #[cfg(unix)]
            Self::Unreachable => write!(
                f,
                "options.onOwnerExit is 'keep', but the run's keeper cannot open an address at which the next bot would find \
                 it. Nothing was started. Allow Unix sockets, or use 'kill'."
            ),
            #[cfg(unix)]
            Self::Cgroup(trouble) => write!(
                f,
                "the run cannot have a cgroup, which options.limits and containment 'cgroup' need: {trouble}. Nothing was started."
            ),
            #[cfg(windows)]
            Self::NoCgroups => write!(
                f,
                "options.containment is 'cgroup', which Windows does not have: there every run has a Job Object. Leave it out; \
                 options.limits work without. Nothing was started."
            ),
            #[cfg(windows)]
            Self::NoDescriptors => write!(
                f,
                "this JavaScript runtime has no way to take over a pipe on Windows (uv_open_osfhandle). Use Node there. Nothing was \
                 started."
            ),
        }
    }
}

impl std::error::Error for LaunchError {}
