//! The messages between bot, keeper, exec stub and control clients, and their framing.
//!
//! ```text
//!   bot ── keeper connection (socket pair) ── keeper
//!       keeper → bot      Ready, then Ending, RootExited, …, Extinct
//!       bot → keeper      AssignRun, Started, Signal, Cancel, …
//!   control client ── control socket ── keeper
//!       keeper → client   the same reports as to the bot
//!       client → keeper   Cancel, Usage; Adopt, if the run has no owner
//!   bot ── launch socket (socket pair) ── exec stub
//!       bot → stub        Command + file descriptors
//!       stub → bot        Refusal, or end of file: exec has succeeded
//! ```
//!
//! On Windows the keeper is a task inside the bot. There is no exec stub, and no socket between bot
//! and keeper. Control clients connect through a named pipe.
//!
//! A frame is `b"SO"`, the protocol version, a zero byte, the payload's length (u32, little-endian)
//! and the payload: one message in postcard's encoding. File descriptors travel as ancillary data
//! with a frame's first byte. The size of a frame is limited. The receiver closes the connection
//! when it reads any other bytes.

mod names;

use serde::{Deserialize, Serialize};

#[cfg(unix)]
use crate::contain::Limits;
use crate::contain::Usage;
#[cfg(unix)]
use crate::contain::cgroup::{Base, CgroupError};
use crate::identity::{ProcessRef, State};
use crate::run::lifecycle::Timeout;
use crate::run::{Cause, Ended, ExitStatus, MAX_LISTED, Policy, ProcessInfo};

pub const VERSION: u8 = 6;

/// Maximum size of a payload. The kernel accepts at most 6 MiB of arguments plus environment.
pub const MAX_PAYLOAD: usize = 8 << 20;

/// The kernel passes at most this many file descriptors in one message (SCM_MAX_FD).
pub const MAX_FDS: usize = 253;

const HEADER: usize = 8;

/// A request from the bot, or from a control client, to the keeper.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// The bot's first message: the exec stub has received a command. Contains the run's rules.
    #[serde(borrow)]
    AssignRun(AssignRun<'a>),
    /// The command runs. The overall timeout counts from now.
    Started,
    /// Moves the overall timeout by `ms`.
    Extend { ms: u64 },
    /// Replaces the overall timeout. It counts from now, or from `Started`. `None` removes it.
    SetTimeout { timeout: Option<Timeout> },
    /// The idle timeout has expired: the bot has read no output for `limit_ms`.
    IdleTimeout { limit_ms: u64 },
    /// Returns the tree's current resource usage as [`Report::Usage`]. Answers keep the order.
    Usage,
    /// Signals the root process only.
    Signal { signal: i32 },
    /// Sends `signal` to the whole tree, and SIGKILL after `grace_ms`.
    ///
    /// The `reason` of the first cancel is reported with the end.
    Cancel { signal: i32, grace_ms: u64, reason: &'a str },
    /// From a control client: makes it the owner, if the run has none.
    Adopt,
    /// The first message of a control client on Windows: the key of the run that it means.
    ///
    /// One bot is the keeper of many runs.
    ControlClient { key: &'a str },
}

/// The rest of the bot's request to the zygote for a keeper whose run gets a cgroup.
#[cfg(unix)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InCgroup {
    pub base: Base,
    pub limits: Limits,
}

/// The rules of a run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct AssignRun<'a> {
    pub run_id: &'a str,
    /// The key that members carry in their environment, see [`crate::contain::cookie`].
    pub cookie_key: &'a str,
    pub on_owner_exit: Policy,
    pub on_leader_exit: Policy,
    pub grace_ms: u64,
    /// The overall timeout. It counts from [`Request::Started`], or from the owner's death if the
    /// owner dies before it sends `Started`.
    pub timeout: Option<Timeout>,
    /// The path of the registry, where the keeper records the end if the run has no owner.
    pub registry: &'a str,
    /// The key of the run's registry entry.
    pub key: &'a str,
}

/// The command that the bot sends to the exec stub.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Command<'a> {
    /// The program. The stub searches the PATH of `env` unless it contains a slash.
    pub file: &'a str,
    /// The arguments with `argv[0]`. A NUL ends each of them.
    pub argv: &'a str,
    /// The complete environment with the cookie: `KEY=value`. A NUL ends each variable.
    pub env: &'a str,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub umask: u32,
    /// If true, the first file descriptor sent is the working directory. If false, the command runs
    /// in the stub's working directory.
    pub directory: bool,
    /// If true, file descriptor 0 becomes the command's controlling terminal.
    pub terminal: bool,
    /// The command's file descriptors 0, 1, 2, …
    pub stdio: Vec<Slot>,
}

/// From the exec stub to the bot: `exec` has failed, and the stub exits.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub errno: i32,
}

/// One of the command's file descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Slot {
    /// Not open.
    Closed,
    /// `/dev/null`.
    Null,
    /// The next of the file descriptors sent with the message.
    Sent,
}

/// A PID and its start token (see [`crate::identity`]), read by its parent or by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    pub start: u64,
}

/// A report from the keeper to the bot and to control clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The first message to the bot and to each control client. The root is the exec stub, or the
    /// command that the stub has executed.
    ///
    /// `address` names the keeper's control socket. It is empty if the keeper could not create one.
    Ready { keeper: Process, root: Process, address: String, cgroup: Option<String> },
    /// Sent instead of `Ready`: the keeper could not create the cgroup. There is no root, and the
    /// keeper exits.
    #[cfg(unix)]
    NoCgroup(CgroupError),
    /// The answer to [`Request::Adopt`].
    Adopted { granted: bool },
    /// A [`Request::Signal`] has failed.
    SignalFailed { errno: i32 },
    /// The overall timeout expires soon.
    Warning { limit_ms: u64, remaining_ms: u64 },
    /// The answer to [`Request::Usage`].
    Usage(Usage),
    /// The keeper has begun to end the tree. `reason` is the reason of the cancel, if a cancel is
    /// the cause.
    Ending { cause: Cause, reason: String },
    /// The root has exited. The keeper does not reap it until the tree is extinct.
    RootExited(ExitStatus),
    /// The last report: no process of the tree exists, except the listed survivors.
    Extinct(Ended),
    /// Sent instead of `Ready`: the keeper could not fork the exec stub. The keeper exits.
    NoRoot { errno: i32 },
}

/// Shortens a list to [`MAX_LISTED`] and returns how many processes it omits.
pub fn shorten(list: &mut Vec<ProcessInfo>) -> u32 {
    let unlisted = list.len().saturating_sub(MAX_LISTED);
    list.truncate(MAX_LISTED);
    u32::try_from(unlisted).unwrap_or(u32::MAX)
}

/// True if a reported end is false: it lists no survivor, but the root is alive.
///
/// A keeper reaps its root before it reports the end. So another process has sent this report,
/// with a copy of the keeper's socket. An unknown state of the root contradicts nothing.
///
/// Recycling of the root's PID causes no error: the new process has another start token.
pub fn is_contradicted(ended: &Ended, root: &ProcessRef) -> bool {
    // On Windows the keeper is a task inside the bot. No other process can send its reports.
    cfg!(unix) && ended.survivors.is_empty() && root.state() == State::Alive
}

/// Reads reports until `Extinct`. Returns the end of the tree, with the root's exit status if a
/// report contained it.
pub fn read_until_extinct<E>(mut next: impl FnMut() -> Result<Report, E>) -> Result<Ended, E> {
    let mut status = None;
    loop {
        match next()? {
            Report::RootExited(exit) => status = Some(exit),
            Report::Extinct(ended) => return Ok(Ended { status, ..ended }),
            _ => {}
        }
    }
}

/// Why received bytes are not a valid message. Callers convert it to an errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolError {
    NotOurs,
    Version(u8),
    TooLong(usize),
    Malformed,
}

/// Encodes a message without a frame, for sockets that preserve message boundaries.
pub fn payload(message: &impl Serialize) -> Result<Vec<u8>, ProtocolError> {
    postcard::to_allocvec(message).map_err(|_| ProtocolError::Malformed)
}

/// Encodes a message with its frame, for stream sockets.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, ProtocolError> {
    let mut frame = postcard::to_extend(message, vec![0; HEADER]).map_err(|_| ProtocolError::Malformed)?;
    let length = frame.len() - HEADER;
    if length > MAX_PAYLOAD {
        return Err(ProtocolError::TooLong(length));
    }
    frame[..4].copy_from_slice(&[b'S', b'O', VERSION, 0]);
    frame[4..HEADER].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    Ok(frame)
}

/// Decodes a payload. Both missing and surplus bytes are errors.
pub fn decode<'a, M: Deserialize<'a>>(payload: &'a [u8]) -> Result<M, ProtocolError> {
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        _ => Err(ProtocolError::Malformed),
    }
}

/// A buffer that splits received bytes into frames.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes and returns the next complete payload, or `None` if it has not arrived completely.
    ///
    /// It checks a header as soon as the header is complete. So it rejects an excessive length
    /// before the receiver waits for that many bytes.
    pub fn next_payload(&mut self) -> Result<Option<Vec<u8>>, ProtocolError> {
        let known = self.bytes.len().min(2);
        if self.bytes[..known] != b"SO"[..known] {
            return Err(ProtocolError::NotOurs);
        }
        let Some(header) = self.bytes.first_chunk::<HEADER>() else { return Ok(None) };
        if header[2] != VERSION || header[3] != 0 {
            return Err(ProtocolError::Version(header[2]));
        }
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        if length > MAX_PAYLOAD {
            return Err(ProtocolError::TooLong(length));
        }
        if self.bytes.len() < HEADER + length {
            return Ok(None);
        }
        let payload = self.bytes[HEADER..HEADER + length].to_vec();
        self.bytes.drain(..HEADER + length);
        Ok(Some(payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::reason::Ending;
    use crate::run::{Force, Unlisted};

    fn command() -> Command<'static> {
        Command {
            file: "sh",
            argv: "sh\0-c\0exit 3\0",
            env: "A=1\0SPAWN_OWNED_RUN=r1\0",
            uid: Some(1),
            gid: None,
            umask: 0o22,
            terminal: true,
            directory: true,
            stdio: vec![Slot::Null, Slot::Sent, Slot::Closed],
        }
    }

    fn assign_run() -> Request<'static> {
        Request::AssignRun(AssignRun {
            run_id: "r1",
            cookie_key: "0123456789abcdef0123456789abcdef",
            on_owner_exit: Policy::Kill,
            on_leader_exit: Policy::Keep,
            grace_ms: 5_000,
            timeout: Some(Timeout { after_ms: 9, signal: 15 }),
            registry: "/x/process-registry.json",
            key: "7:8:9:b",
        })
    }

    fn reports() -> Vec<Report> {
        let info = ProcessInfo { pid: 9, start: 8, command: ") S 1 (".into(), why: "…".into() };
        vec![
            Report::Ready {
                keeper: Process { pid: 2, start: 1 },
                root: Process { pid: 1, start: u64::MAX },
                address: "00abc".into(),
                cgroup: Some("/sys/fs/cgroup/x".into()),
            },
            #[cfg(unix)]
            Report::NoCgroup(CgroupError::Failed { path: "/x".into(), step: "open".into(), errno: 2 }),
            Report::Adopted { granted: true },
            Report::SignalFailed { errno: 1 },
            Report::Warning { limit_ms: 10, remaining_ms: 2 },
            Report::Usage(Usage { processes: 3, cpu_ms: u64::MAX, rss_bytes: 1 << 40 }),
            Report::Ending { cause: Cause::OverallTimeout, reason: String::new() },
            Report::RootExited(ExitStatus::Signal(9)),
            Report::Extinct(Ended {
                ending: Ending::Cause(Cause::Cancel),
                named_reason: "shutdown".into(),
                limit_ms: 7,
                force: Force::Kill,
                leftovers: vec![info.clone(), info.clone()],
                escaped: vec![info.clone()],
                forced: vec![info.clone()],
                survivors: vec![info],
                unlisted: Unlisted { leftovers: 1, escaped: 2, forced: 3, survivors: 4 },
                status: None,
            }),
        ]
    }

    /// Bots and keepers of other versions with this [`VERSION`] read these bytes. The root's exit
    /// status is not among them: [`Report::RootExited`] has it.
    #[test]
    fn the_bytes_of_the_last_report_do_not_change() {
        let Some(Report::Extinct(ended)) = reports().pop() else { unreachable!() };
        let process = [&[18, 8, 7][..], b") S 1 (", &[3], "…".as_bytes()].concat();
        let one = [&[1][..], &process].concat();
        let lists = [&[2][..], &process, &process, &one, &one, &one, &[1, 2, 3, 4]].concat();
        let expected = [&[1, 8][..], b"shutdown", &[7, 2], &lists].concat();
        assert_eq!(VERSION, 6);
        assert_eq!(payload(&ended).unwrap(), expected);
        let exited = Ended { status: Some(ExitStatus::Code(7)), ..ended.clone() };
        assert_eq!(payload(&exited).unwrap(), expected);
        assert_eq!(decode::<Ended>(&expected), Ok(ended));
    }

    #[test]
    fn a_report_counts_the_processes_that_it_omits() {
        let info = ProcessInfo { pid: 9, start: 8, command: String::new(), why: String::new() };
        for (all, listed, unlisted) in [(0, 0, 0), (1024, 1024, 0), (1025, 1024, 1), (5000, 1024, 3976)] {
            let mut list = vec![info.clone(); all];
            assert_eq!((shorten(&mut list), list.len()), (unlisted, listed));
        }
    }

    #[test]
    fn every_message_is_decoded_unchanged_from_chunks_of_any_size() {
        let expected = reports();
        let bytes: Vec<u8> = expected.iter().flat_map(|report| encode(report).unwrap()).collect();
        for chunk in [1, 2, 7, 8, 9, bytes.len()] {
            let mut inbox = Inbox::with_capacity(chunk);
            let mut got = Vec::new();
            for part in bytes.chunks(chunk) {
                inbox.push(part);
                while let Some(payload) = inbox.next_payload().unwrap() {
                    got.push(decode::<Report>(&payload).unwrap());
                }
            }
            assert_eq!(got, expected, "in chunks of {chunk}");
        }
        assert_eq!(decode::<Command>(&encode(&command()).unwrap()[HEADER..]), Ok(command()));
        for request in [
            assign_run(),
            Request::Started,
            Request::Extend { ms: u64::MAX },
            Request::SetTimeout { timeout: None },
            Request::SetTimeout { timeout: Some(Timeout { after_ms: 7, signal: 15 }) },
            Request::IdleTimeout { limit_ms: 1 },
            Request::Usage,
            Request::Cancel { signal: 15, grace_ms: 0, reason: "manual-cancel" },
            Request::Adopt,
        ] {
            assert_eq!(decode::<Request>(&encode(&request).unwrap()[HEADER..]).as_ref(), Ok(&request));
        }
    }

    #[test]
    fn the_header_check_rejects_other_versions_other_protocols_and_excessive_lengths() {
        for (bytes, error) in [
            (&b"X"[..], ProtocolError::NotOurs),
            (b"SX", ProtocolError::NotOurs),
            (b"GET / HTTP/1.1\r\n", ProtocolError::NotOurs),
            (&[b'S', b'O', VERSION + 1, 0, 0, 0, 0, 0], ProtocolError::Version(VERSION + 1)),
            (&[b'S', b'O', VERSION, 0, 255, 255, 255, 255], ProtocolError::TooLong(u32::MAX as usize)),
        ] {
            let mut inbox = Inbox::default();
            inbox.push(bytes);
            assert_eq!(inbox.next_payload(), Err(error), "{bytes:?}");
        }
    }

    #[test]
    fn a_truncated_padded_or_modified_payload_never_decodes_to_the_original_command() {
        let frame = encode(&command()).unwrap();
        let payload = &frame[HEADER..];
        for end in 0..payload.len() {
            assert!(decode::<Command>(&payload[..end]).is_err(), "cut at {end}");
        }
        let padded = [payload, &[0]].concat();
        assert_eq!(decode::<Command>(&padded), Err(ProtocolError::Malformed));
        for index in 0..payload.len() {
            let mut bytes = payload.to_vec();
            bytes[index] ^= 0xff;
            // The modified bytes may decode to another message, but must not cause a panic.
            assert_ne!(decode::<Command>(&bytes).ok(), Some(command()), "flipped at {index}");
        }
    }

    /// If the bot sent a part of such a command, the exec stub would wait for the rest.
    #[test]
    fn encode_rejects_a_message_that_does_not_fit_into_a_frame() {
        for (length, expected) in [(MAX_PAYLOAD / 2, true), (MAX_PAYLOAD, false)] {
            let env = "x".repeat(length);
            let frame = encode(&Command { env: &env, ..command() });
            assert_eq!(frame.is_ok(), expected, "{length}");
            let too_long = matches!(frame, Err(ProtocolError::TooLong(bytes)) if bytes > MAX_PAYLOAD);
            assert_ne!(too_long, expected, "{length}");
        }
    }

    #[test]
    fn a_frame_is_a_header_followed_by_the_payload() {
        for report in reports() {
            let alone = payload(&report).unwrap();
            assert_eq!(encode(&report).unwrap()[HEADER..], alone);
            assert_eq!(decode::<Report>(&alone), Ok(report));
        }
    }

    #[test]
    fn read_until_extinct_stops_at_the_end_of_the_tree_and_not_at_the_exit_of_its_root() {
        let Some(Report::Extinct(end)) = reports().pop() else { unreachable!() };
        let exited = |code| Ok(Report::RootExited(ExitStatus::Code(code)));
        let extinct = || Ok(Report::Extinct(end.clone()));
        let adopted = || Ok(Report::Adopted { granted: true });
        for (reports, expected) in [
            (vec![extinct()], Ok(end.clone())),
            (
                vec![adopted(), exited(3), adopted(), extinct()],
                Ok(Ended { status: Some(ExitStatus::Code(3)), ..end.clone() }),
            ),
            (vec![exited(3), Err("gone")], Err("gone")),
            // Reports after `Extinct` are not read.
            (vec![extinct(), exited(3)], Ok(end.clone())),
        ] {
            let mut reports = reports.into_iter();
            assert_eq!(read_until_extinct(|| reports.next().unwrap_or(Err("no report left"))), expected);
        }
    }
}
