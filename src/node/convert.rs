//! Conversions between JS values and the core's types.

use crate::errno::Errno;
use napi::Error;
use napi_derive::napi;
use serde::Serialize;

use crate::identity::ProcessRef;
use crate::pty::Size;
use crate::run::{self, Ended, ExitStatus, ProcessInfo};
use crate::spawn::{RunEvent, Stdio};

/// A descriptor that becomes a new stream.
pub const STREAM: i32 = -3;

/// Values up to this mean a stream of [`super::Host::open_streams`]: on Windows those are handles,
/// not descriptors.
const OPENED: i32 = -1_000;

/// The value of such a stream in the `stdio` of [`super::Host::begin`].
pub fn stdio_slot(stream: i32) -> i32 {
    if cfg!(windows) { OPENED - stream } else { stream }
}

/// The sources of the command's descriptors, from the `stdio` of [`super::Host::begin`].
pub fn stdio(slots: &[i32]) -> Result<Vec<Stdio>, String> {
    let source = |&slot: &i32| match slot {
        -1 => Ok(Stdio::Closed),
        -2 => Ok(Stdio::Null),
        STREAM => Ok(Stdio::Pipe),
        0.. => Ok(Stdio::Fd(slot)),
        ..=OPENED if cfg!(windows) => Ok(Stdio::Handle(OPENED - slot)),
        other => Err(format!("stdio has an invalid value: {other}")),
    };
    slots.iter().map(source).collect()
}

/// The size of a terminal. `None` if a value does not fit into the kernel's 16 bits.
pub fn size(cols: u32, rows: u32) -> Option<Size> {
    Some(Size { cols: cols.try_into().ok()?, rows: rows.try_into().ok()? })
}

/// A duration in milliseconds as a whole number.
pub fn milliseconds(value: f64) -> u64 {
    whole(value)
}

/// The limit of a timeout. 0 means none.
pub fn limit(ms: f64) -> Option<u64> {
    Some(milliseconds(ms)).filter(|&ms| ms > 0)
}

/// JS numbers are doubles. The cast saturates, and NaN becomes 0.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn whole(value: f64) -> u64 {
    value as u64
}

/// The streams of a command that starts later.
#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct Opened {
    /// Why no stream could be created, or 0.
    pub errno: i32,
    /// Our ends, -1 where there is none. The caller must take or close them.
    pub fds: Vec<i32>,
    /// The `stdio` for [`super::Host::begin`].
    pub stdio: Vec<i32>,
    /// The command's ends and duplicates of the caller's descriptors; -1 where there is none. The
    /// caller must close them.
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
    /// Its value in the `stdio` of [`super::Host::begin`].
    pub slot: i32,
}

#[napi(object, object_from_js = false)]
pub struct Begun {
    /// Why the launch failed before `exec` (then its streams, if any, are at end of file), or 0.
    pub errno: i32,
    pub pid: i32,
    /// Our ends of the new streams, -1 where there is none. The caller must take or close them.
    pub fds: Vec<i32>,
}

#[napi(object, object_from_js = false)]
pub struct Finished {
    /// Why `exec` failed (then the streams are at end of file), or 0 if the command runs.
    pub errno: i32,
    /// The ID of the run in later calls.
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
    /// `warning`
    pub limit_ms: Option<f64>,
    /// `ending`
    #[napi(ts_type = "End['ending']")]
    pub ending: Option<&'static str>,
    /// `ending`: the value that `RunExit.reason` will have.
    #[napi(ts_type = "import('../index.js').TerminationReason")]
    pub reason: Option<&'static str>,
    /// `extinct`
    pub end: Option<End>,
    /// `usage`
    pub processes: Option<u32>,
    pub cpu_ms: Option<f64>,
    pub rss_bytes: Option<f64>,
}

/// How a run ended: the form of [`Ended`] for JavaScript, in events and in JSON.
#[napi(object, object_from_js = false)]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    #[napi(
        ts_type = "'root-exit' | 'cancel' | 'overall-timeout' | 'no-output-timeout' | 'owner-exit' | 'shutdown' | 'lost' | 'gone'"
    )]
    pub ending: &'static str,
    /// The value of `RunExit.reason`.
    #[napi(ts_type = "import('../index.js').TerminationReason")]
    pub reason: &'static str,
    /// The root's exit code, or the signal that ended it. Neither if its exit status is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The limit of the deadline that ended the run, or 0.
    pub limit_ms: f64,
    pub leftovers: Vec<Process>,
    pub escaped: Vec<Process>,
    pub forced: Vec<Process>,
    pub survivors: Vec<Process>,
    /// Absent if every list is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<Unlisted>,
}

impl From<Ended> for End {
    fn from(ended: Ended) -> Self {
        Self {
            ending: ended.ending.name(),
            reason: ended.reason().name(),
            exit_code: ended.status.and_then(ExitStatus::code),
            signal: ended.status.and_then(ExitStatus::signal),
            limit_ms: number(ended.limit_ms),
            leftovers: processes(ended.leftovers),
            escaped: processes(ended.escaped),
            forced: processes(ended.forced),
            survivors: processes(ended.survivors),
            unlisted: Unlisted::of(ended.unlisted),
        }
    }
}

/// A process in a report: [`ProcessInfo`] for JavaScript, as an object or as JSON.
#[napi(object, object_from_js = false)]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    pub pid: i32,
    pub start_token: String,
    pub command: String,
    pub why: String,
}

/// How many processes are missing in each list of a report.
#[napi(object, object_from_js = false)]
#[derive(Serialize)]
pub struct Unlisted {
    pub leftovers: u32,
    pub escaped: u32,
    pub forced: u32,
    pub survivors: u32,
}

impl Unlisted {
    /// `None` if every list is complete.
    fn of(unlisted: run::Unlisted) -> Option<Self> {
        let run::Unlisted { leftovers, escaped, forced, survivors } = unlisted;
        (unlisted != run::Unlisted::default()).then_some(Self { leftovers, escaped, forced, survivors })
    }
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
            RunEvent::Extinct(ended) => Self { end: Some(ended.into()), ..js("extinct") },
        }
    }
}

/// A JS number. It is exact up to 2^53, more than any duration here.
#[allow(clippy::cast_precision_loss)]
pub fn number(value: u64) -> f64 {
    value as f64
}

/// The processes of a report, for JavaScript.
fn processes(list: Vec<ProcessInfo>) -> Vec<Process> {
    let process = |ProcessInfo { pid, start, command, why }| {
        let start_token = ProcessRef::known(pid, start).to_string();
        Process { pid, start_token, command, why }
    };
    list.into_iter().map(process).collect()
}

/// A value as JSON text.
pub(super) fn json(value: &impl Serialize) -> Result<String, Error<String>> {
    serde_json::to_string(value).map_err(|error| coded("ERR_OWNED_NATIVE", &error))
}

/// A JS error with a `code`.
pub(super) fn coded(code: &str, error: &dyn std::fmt::Display) -> Error<String> {
    Error::new(code.to_owned(), error.to_string())
}
