//! What to start: the options of a run, and what the bot adds to them.

use std::collections::BTreeMap;

use super::{RawStream, RequestedContainment};
use crate::contain::Limits;
use crate::identity::ProcessRef;
use crate::pty;
use crate::registry::{self, Instance, Record, State};
use crate::run::Policy;
use crate::run::lifecycle::Timeout;

/// A command to start.
#[derive(Debug)]
pub struct Launch {
    /// The supervisor that owns the run, and the registry that records it.
    pub owner: Instance,
    /// The secret part of the run's cookie.
    pub cookie_key: String,
    pub options: LaunchOptions,
    pub stdio: Vec<Stdio>,
    /// Our ends of the output streams that were created before this launch.
    pub outputs: Vec<RawStream>,
}

/// The options of a launch. `src/node/launch_options.rs` reads each from JavaScript. The strings
/// have the format of [`crate::keeper::protocol::Command`], without the cookie.
#[derive(Debug, Default)]
pub struct LaunchOptions {
    pub run_id: String,
    /// True if the caller chose the run id.
    pub given_id: bool,
    pub session_id: Option<String>,
    pub backend_id: Option<String>,
    pub scope_key: Option<String>,
    /// See [`Record::service`].
    pub service: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// See [`Record::metadata`].
    pub metadata: Option<serde_json::Value>,
    pub preview: String,
    pub file: String,
    pub argv: String,
    pub env: String,
    pub cwd: Option<String>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Windows: start the command without a window.
    pub windows_hide: bool,
    /// Windows: pass the arguments as the command line, without adding quotes.
    pub windows_verbatim_arguments: bool,
    /// The terminal of the command, if any. Then the first two entries of [`Launch::stdio`] are its
    /// input and its output.
    pub terminal: Option<TerminalSettings>,
    pub on_owner_exit: Policy,
    pub on_leader_exit: Policy,
    pub grace_ms: u64,
    pub timeout_ms: Option<u64>,
    /// The first signal after `timeout_ms`.
    pub timeout_signal: i32,
    /// The idle timeout: how long the command may produce no output.
    pub idle_timeout_ms: Option<u64>,
    pub containment: RequestedContainment,
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
}

impl LaunchOptions {
    pub fn limits(&self) -> Limits {
        Limits { memory_bytes: self.memory_bytes, processes: self.processes }
    }

    pub fn timeout(&self) -> Option<Timeout> {
        self.timeout_ms.map(|after_ms| Timeout { after_ms, signal: self.timeout_signal })
    }
}

impl Launch {
    /// The registry record written before the command runs. The caller adds the containment fields.
    pub(super) fn record(&self, root: &ProcessRef) -> Record {
        let now = registry::now_ms();
        let options = &self.options;
        Record {
            pid: root.pid,
            started_at: now,
            session_id: options.session_id.clone(),
            command_preview: options.preview.clone(),
            run_id: options.run_id.clone(),
            cookie_key: Some(self.cookie_key.clone()),
            state: State::Starting,
            start_token: Some(root.clone()),
            backend_id: options.backend_id.clone(),
            scope_key: options.scope_key.clone(),
            service: options.service.clone(),
            labels: options.labels.clone(),
            metadata: options.metadata.clone(),
            grace_ms: options.grace_ms,
            on_owner_exit: options.on_owner_exit,
            created_at_ms: now,
            updated_at_ms: now,
            ..Record::empty()
        }
    }
}

/// The terminal of a command.
#[derive(Debug)]
pub struct TerminalSettings {
    pub size: pty::Size,
    /// The value of `TERM`. It replaces the value in the environment.
    pub name: Option<String>,
}

/// The source of one of the command's file descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdio {
    Closed,
    Null,
    /// One end of a new socket pair. The other end is in [`super::Pending::streams`].
    Pipe,
    /// A file descriptor of the caller. The caller still owns it.
    Fd(i32),
    /// A handle of the caller, on Windows. The caller still owns it.
    Handle(i32),
}
