//! Between JS values and the core's types.

use crate::errno::Errno;
use napi::bindgen_prelude::{Array, FromNapiValue};
use napi::{Error, Status};
use napi_derive::napi;

use crate::contain::Limits;
use crate::contain::ProcessInfo;
use crate::identity::ProcessRef;
use crate::pty::Size;
use crate::registry::Instance;
use crate::run::Policy;
use crate::run::lifecycle::Timeout;
use crate::spawn::{Extinct, Launch, RunEvent, Stdio, TerminalSettings, Tier};

/// A descriptor that is to be a new stream.
pub const STREAM: i32 = -3;

/// Below this, what is meant is one of the streams that [`super::Host::open_streams`] has made: on Windows those are no descriptors.
#[cfg(windows)]
const LENT: i32 = -1_000;

/// How one of those is named in [`LaunchOptions::stdio`].
pub fn lent(stream: i32) -> i32 {
    #[cfg(windows)]
    return LENT - stream;
    #[cfg(unix)]
    return stream;
}

/// What to start. Strings as in the keeper's protocol: each argument and each variable ended by a NUL.
#[napi(object, object_to_js = false)]
// They are what the JS options are.
#[allow(clippy::struct_excessive_bools)]
pub struct LaunchOptions {
    pub run_id: String,
    /// The caller has chosen the id.
    pub given_id: bool,
    pub session_id: Option<String>,
    pub backend_id: Option<String>,
    pub scope_key: Option<String>,
    /// The name of the service that it is, if it is one.
    pub service: Option<String>,
    /// A JSON object; not given if there are none.
    pub labels: Option<String>,
    pub preview: String,
    pub file: String,
    pub argv: String,
    /// Not given: the process's own environment.
    pub env: Option<String>,
    pub cwd: Option<String>,
    pub uid: Option<i32>,
    pub gid: Option<i32>,
    /// Only Windows has use for these two.
    pub windows_hide: bool,
    pub verbatim_arguments: bool,
    /// For each of the command's descriptors: one of ours, or -1 closed, -2 `/dev/null`, -3 a new stream.
    pub stdio: Vec<i32>,
    /// If it is to have a terminal. Then the first two descriptors are what is typed and what it says, and the third is nothing.
    pub terminal: Option<TerminalOptions>,
    pub keep_on_owner_exit: bool,
    pub keep_on_leader_exit: bool,
    pub grace_ms: f64,
    /// 0: no deadline.
    pub timeout_ms: f64,
    pub timeout_signal: i32,
    /// 0: it may be silent for as long as it likes.
    pub silence_ms: f64,
    /// Our ends of its outputs, of those that [`super::Host::open_streams`] has made.
    pub outputs: Vec<i32>,
    #[napi(ts_type = "'auto' | 'keeper' | 'cgroup'")]
    pub containment: String,
    /// Not given: no limit.
    pub memory_bytes: Option<f64>,
    pub processes: Option<f64>,
}

#[napi(object, object_to_js = false)]
pub struct TerminalOptions {
    pub cols: u32,
    pub rows: u32,
    pub name: Option<String>,
}

impl TerminalOptions {
    fn settings(self) -> Result<TerminalSettings, String> {
        let size = size(self.cols, self.rows).ok_or("a terminal has at most 65535 columns and rows")?;
        Ok(TerminalSettings { size, name: self.name })
    }
}

/// `None` if it cannot be told to the kernel.
pub fn size(cols: u32, rows: u32) -> Option<Size> {
    Some(Size { cols: cols.try_into().ok()?, rows: rows.try_into().ok()? })
}

/// Values of an array, one after the other.
struct InOrder<'a> {
    values: &'a Array<'a>,
    next: u32,
}

impl InOrder<'_> {
    fn take<T: FromNapiValue>(&mut self) -> napi::Result<T> {
        self.next += 1;
        let value = self.values.get(self.next - 1)?;
        value.ok_or_else(|| {
            Error::new(Status::InvalidArg, "the addon and its JavaScript are not of the same version")
        })
    }
}

impl LaunchOptions {
    /// By position, in the order of the fields: to look up thirty names takes longer than everything else that is done with them.
    /// The other side of this is `inOrder` in ts/native.ts.
    pub fn read(values: &Array) -> napi::Result<Self> {
        let mut values = InOrder { values, next: 0 };
        Ok(Self {
            run_id: values.take()?,
            given_id: values.take()?,
            session_id: values.take()?,
            backend_id: values.take()?,
            scope_key: values.take()?,
            service: values.take()?,
            labels: values.take()?,
            preview: values.take()?,
            file: values.take()?,
            argv: values.take()?,
            env: values.take()?,
            cwd: values.take()?,
            uid: values.take()?,
            gid: values.take()?,
            windows_hide: values.take()?,
            verbatim_arguments: values.take()?,
            stdio: values.take()?,
            terminal: values.take()?,
            keep_on_owner_exit: values.take()?,
            keep_on_leader_exit: values.take()?,
            grace_ms: values.take()?,
            timeout_ms: values.take()?,
            timeout_signal: values.take()?,
            silence_ms: values.take()?,
            outputs: values.take()?,
            containment: values.take()?,
            memory_bytes: values.take()?,
            processes: values.take()?,
        })
    }

    pub fn launch(self, owner: Instance) -> Result<Launch, String> {
        let options = self;
        let policy = |keep| if keep { Policy::Keep } else { Policy::Kill };
        let stdio = options
            .stdio
            .iter()
            .map(|&slot| match slot {
                -1 => Ok(Stdio::Closed),
                -2 => Ok(Stdio::Null),
                STREAM => Ok(Stdio::Pipe),
                fd if fd >= 0 => Ok(Stdio::Fd(fd)),
                #[cfg(windows)]
                lent if lent <= LENT => Ok(Stdio::Handle(LENT - lent)),
                other => Err(format!("stdio has no form {other}")),
            })
            .collect::<Result<_, _>>()?;
        let (after_ms, silence_ms) = (milliseconds(options.timeout_ms), milliseconds(options.silence_ms));
        let labels = options.labels.map(|json| serde_json::from_str(&json)).transpose();
        Ok(Launch {
            owner,
            run_id: options.run_id,
            given_id: options.given_id,
            session_id: options.session_id,
            backend_id: options.backend_id,
            scope_key: options.scope_key,
            service: options.service,
            labels: labels.map_err(|error| error.to_string())?.unwrap_or_default(),
            preview: options.preview,
            file: options.file,
            argv: options.argv,
            env: options.env,
            cwd: options.cwd,
            uid: options.uid.map(i32::cast_unsigned),
            gid: options.gid.map(i32::cast_unsigned),
            windows_hide: options.windows_hide,
            verbatim: options.verbatim_arguments,
            stdio,
            terminal: options.terminal.map(TerminalOptions::settings).transpose()?,
            on_owner_exit: policy(options.keep_on_owner_exit),
            on_leader_exit: policy(options.keep_on_leader_exit),
            grace_ms: milliseconds(options.grace_ms),
            tier: match options.containment.as_str() {
                "keeper" => Tier::Keeper,
                "cgroup" => Tier::Cgroup,
                _ => Tier::Auto,
            },
            limits: Limits {
                memory_bytes: options.memory_bytes.map(whole),
                processes: options.processes.map(whole),
            },
            timeout: (after_ms > 0).then_some(Timeout { after_ms, signal: options.timeout_signal }),
            silence_ms: (silence_ms > 0).then_some(silence_ms),
            outputs: options.outputs,
        })
    }
}

pub fn milliseconds(value: f64) -> u64 {
    whole(value)
}

/// JS numbers are doubles; the cast saturates, and NaN becomes 0.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> u64 {
    value as u64
}

/// Streams of a command that is to be started later.
#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct Opened {
    /// Why there are none, or 0.
    pub errno: i32,
    /// Our ends, -1 where there is none. To be taken or closed.
    pub fds: Vec<i32>,
    /// For [`LaunchOptions::stdio`].
    pub stdio: Vec<i32>,
    /// The command's ends, and copies of what else it gets; -1 where there is none. To be closed.
    pub theirs: Vec<i32>,
}

impl Opened {
    pub fn failed(errno: Errno) -> Self {
        Self { errno: errno as i32, ..Self::default() }
    }
}

/// The command's end of a channel.
#[napi(object, object_from_js = false)]
pub struct Borrowed {
    pub stream: i32,
    /// The same for [`LaunchOptions::stdio`].
    pub slot: i32,
}

#[napi(object, object_from_js = false)]
pub struct Begun {
    /// Why the command could not even be tried (then its streams, if any, are at their end), or 0.
    pub errno: i32,
    pub pid: i32,
    /// Our ends of the new streams, -1 where there is none. To be taken or closed.
    pub fds: Vec<i32>,
}

#[napi(object, object_from_js = false)]
pub struct Finished {
    /// Why the command could not be started (then its streams are at their end), 0 if it runs.
    pub errno: i32,
    /// Names the run in later calls.
    pub run: u32,
}

#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct Event {
    pub run: u32,
    #[napi(
        ts_type = "'refused' | 'started' | 'warning' | 'ending' | 'exit' | 'signal-failed' | 'usage' | 'extinct'"
    )]
    pub kind: &'static str,
    /// `exit`: the root's exit code, or the signal that ended it.
    pub code: Option<i64>,
    pub signal: Option<i32>,
    /// `refused`, `signal-failed`
    pub errno: Option<i32>,
    /// `warning`
    #[napi(ts_type = "'overall' | 'no-output'")]
    pub deadline: Option<&'static str>,
    pub remaining_ms: Option<f64>,
    /// `warning`; `extinct`: the limit of the deadline that has ended it, or 0.
    pub limit_ms: Option<f64>,
    /// `ending`, `extinct`
    #[napi(
        ts_type = "'root-exit' | 'cancel' | 'overall-timeout' | 'no-output-timeout' | 'owner-exit' | 'shutdown' | 'lost' | 'gone'"
    )]
    pub ending: Option<&'static str>,
    /// `ending`, `extinct`: as `RunExit.reason` has it.
    #[napi(ts_type = "import('../index.js').TerminationReason")]
    pub reason: Option<&'static str>,
    pub escaped: Option<Vec<Process>>,
    pub survivors: Option<Vec<Process>>,
    /// `usage`
    pub processes: Option<u32>,
    pub cpu_ms: Option<f64>,
    pub rss_bytes: Option<f64>,
}

#[napi(object, object_from_js = false)]
pub struct Process {
    pub pid: i32,
    pub start_token: String,
    pub command: String,
    pub why: String,
}

impl Event {
    pub fn new(run: u32, event: RunEvent) -> Self {
        let js = |kind| Self { run, kind, ..Self::default() };
        match event {
            RunEvent::Started => js("started"),
            RunEvent::Warning { deadline, limit_ms, remaining_ms } => Self {
                deadline: Some(deadline.name()),
                limit_ms: Some(number(limit_ms)),
                remaining_ms: Some(number(remaining_ms)),
                ..js("warning")
            },
            RunEvent::Ending(cause, reason) => {
                Self { ending: Some(cause.name()), reason: Some(reason.name()), ..js("ending") }
            }
            RunEvent::RootExited(status) => {
                Self { code: status.code(), signal: status.signal(), ..js("exit") }
            }
            RunEvent::Refused(errno) => Self { errno: Some(errno as i32), ..js("refused") },
            RunEvent::SignalFailed(errno) => Self { errno: Some(errno as i32), ..js("signal-failed") },
            RunEvent::Usage(usage) => Self {
                processes: Some(usage.processes),
                cpu_ms: Some(number(usage.cpu_ms)),
                rss_bytes: Some(number(usage.rss_bytes)),
                ..js("usage")
            },
            RunEvent::Extinct(Extinct { ending, reason, limit_ms, escaped, survivors, .. }) => Self {
                ending: Some(ending.name()),
                reason: Some(reason.name()),
                limit_ms: Some(number(limit_ms)),
                escaped: Some(escaped.into_iter().map(Process::from).collect()),
                survivors: Some(survivors.into_iter().map(Process::from).collect()),
                ..js("extinct")
            },
        }
    }
}

/// JS numbers are exact up to 2^53, and nobody waits that long.
#[allow(clippy::cast_precision_loss)]
pub fn number(value: u64) -> f64 {
    value as f64
}

impl From<ProcessInfo> for Process {
    fn from(info: ProcessInfo) -> Self {
        let start_token = ProcessRef::known(info.pid, info.start).to_string();
        Self { pid: info.pid, start_token, command: info.command, why: info.why }
    }
}
