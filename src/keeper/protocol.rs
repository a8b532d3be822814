//! The words that bot, keeper and command-to-be exchange, and how they are framed. Used by all ends.
//!
//! ```text
//!   bot ── control socket ── keeper     ← Ready   Own, Started, Signal, Cancel … →   ← Ending, RootExited … Extinct
//!   anybody ── its address ─ keeper     ← Ready …   Cancel, Usage, or Adopt if it has no owner →   ← as above
//!   bot ── launch socket ─── blank      Command + descriptors →   ← Refusal, or its end: exec has succeeded
//! ```
//!
//! On Windows the keeper is a part of the bot, and there is neither a blank nor a socket between them; who comes from elsewhere
//! comes by a named pipe.
//!
//! A frame is `b"SO"`, the protocol version, a zero byte, the payload's length (u32, little-endian) and the payload:
//! one message in postcard's encoding. Descriptors travel as ancillary data with a frame's first byte. Frames are
//! bounded; anything else on a socket is an error and ends the conversation.

use serde::{Deserialize, Serialize};

#[cfg(unix)]
use crate::contain::Limits;
#[cfg(unix)]
use crate::contain::cgroup::{Base, Trouble};
use crate::contain::{ProcessInfo, Usage};
use crate::run::lifecycle::Timeout;
use crate::run::{Cause, ExitStatus, Force, Policy};

pub const VERSION: u8 = 4;

/// Arguments and environment fit: the kernel itself takes no more than 6 MiB of both.
pub const MAX_PAYLOAD: usize = 8 << 20;

/// The kernel passes at most this many descriptors in one message (SCM_MAX_FD).
pub const MAX_FDS: usize = 253;

const HEADER: usize = 8;

/// From the bot to the keeper.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// The first message: the blank has been given a command, and these are the run's rules.
    #[serde(borrow)]
    Own(Own<'a>),
    /// The command runs, and its overall deadline counts from now.
    Started,
    /// The overall deadline is to be so much later.
    Extend { ms: u64 },
    /// The bot, which hears the output, has heard nothing for this long, and that is too long.
    Silent { limit_ms: u64 },
    /// What does the tree use now? Answered with [`Report::Usage`], in the order of asking.
    Usage,
    /// To the root alone.
    Signal { signal: i32 },
    /// To the whole tree: `signal`, and SIGKILL after `grace_ms`. The first one's `reason` is reported with the end.
    Cancel { signal: i32, grace_ms: u64, reason: &'a str },
    /// From a visitor: make me the owner, if there is none.
    Adopt,
    /// Windows, from a visitor, first of all: the run that it wants to talk to, by its key. One bot keeps many.
    #[cfg(windows)]
    Visit { key: &'a str },
}

/// From the bot to the zygote, as the rest of a request for a keeper: the run is to have a cgroup.
#[cfg(unix)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InCgroup {
    pub base: Base,
    pub limits: Limits,
}

/// The rules of a run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Own<'a> {
    pub run_id: &'a str,
    /// What people see in `ps`.
    pub preview: &'a str,
    pub on_owner_exit: Policy,
    pub on_leader_exit: Policy,
    pub grace_ms: u64,
    /// The overall deadline, to be counted from [`Request::Started`]; from the owner's death, if that never came.
    pub timeout: Option<Timeout>,
    /// Where the end is to be written down if no owner is there to hear it, and the entry's key there.
    pub registry: &'a str,
    pub key: &'a str,
}

/// From the bot to the blank: what to become.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Command<'a> {
    /// Looked up in the PATH of `env` unless it contains a slash.
    pub file: &'a str,
    /// Each argument ended by a NUL, `argv[0]` included.
    pub argv: &'a str,
    /// `KEY=value`, each ended by a NUL; complete, cookie included.
    pub env: &'a str,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub umask: u32,
    /// The first descriptor sent along is the working directory; else it is the one the blank is in.
    pub directory: bool,
    /// What it gets as descriptor 0 is to be its controlling terminal.
    pub terminal: bool,
    /// What the command gets as descriptor 0, 1, 2, …
    pub stdio: Vec<Slot>,
}

/// From the blank to the bot: it could not become the command, and is gone.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub errno: i32,
}

/// One of the command's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Slot {
    /// Not open.
    Closed,
    /// `/dev/null`.
    Null,
    /// The next of the descriptors sent along.
    Sent,
}

/// A process and its start token (see [`crate::identity`]), read by its parent or by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    pub start: u64,
}

/// From the keeper to the bot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The first message, to whoever comes: this root waits to become a command, or has. The address is an abstract Unix
    /// socket; empty if there could be none.
    Ready { keeper: Process, root: Process, address: String, cgroup: Option<String> },
    /// Instead of it: there is no cgroup, hence no root either. The keeper is about to end.
    #[cfg(unix)]
    NoCgroup(Trouble),
    /// The answer to [`Request::Adopt`].
    Adopted { granted: bool },
    /// A [`Request::Signal`] did not arrive.
    SignalFailed { errno: i32 },
    /// The overall deadline is near.
    Warning { limit_ms: u64, remaining_ms: u64 },
    /// The answer to [`Request::Usage`].
    Usage(Usage),
    /// The tree is being ended, by request or by a deadline. The reason is what the cancel gave as such.
    Ending { cause: Cause, reason: String },
    /// The root ended. Its zombie is held until the tree is extinct.
    RootExited(ExitStatus),
    /// The last word: no process of the tree exists, but for the survivors listed.
    Extinct(End),
}

/// How a tree came to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub cause: Cause,
    /// What the cancel that did it gave as its reason; empty if it was none.
    pub reason: String,
    /// The limit of the deadline that did it; 0 if none did.
    pub limit_ms: u64,
    pub force: Force,
    pub escaped: Vec<ProcessInfo>,
    pub survivors: Vec<ProcessInfo>,
}

/// Hears reports until the last one: how the root has ended, as far as that was told, and the end of the tree.
pub fn last_word<E>(mut next: impl FnMut() -> Result<Report, E>) -> Result<(Option<ExitStatus>, End), E> {
    let mut status = None;
    loop {
        match next()? {
            Report::RootExited(how) => status = Some(how),
            Report::Extinct(end) => return Ok((status, end)),
            _ => {}
        }
    }
}

/// Why bytes on the socket are not a conversation. Whoever hears that has an errno for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolError {
    NotOurs,
    Version(u8),
    TooLong(usize),
    Malformed,
}

/// A message as bytes without a frame, for sockets that keep messages apart.
pub fn payload(message: &impl Serialize) -> Result<Vec<u8>, ProtocolError> {
    postcard::to_allocvec(message).map_err(|_| ProtocolError::Malformed)
}

/// A message as bytes for the socket.
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

/// A payload as a message. Bytes left over are as wrong as bytes missing.
pub fn decode<'a, M: Deserialize<'a>>(payload: &'a [u8]) -> Result<M, ProtocolError> {
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        _ => Err(ProtocolError::Malformed),
    }
}

/// Bytes as they arrive, cut into frames.
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

    /// The next complete payload, if there is one. A header is judged as soon as it is there, so a hostile length
    /// is refused before anything of that length is awaited.
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

    fn own() -> Request<'static> {
        Request::Own(Own {
            run_id: "r1",
            preview: "sh -c …",
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
            Report::NoCgroup(Trouble::Failed { path: "/x".into(), step: "open".into(), errno: 2 }),
            Report::Adopted { granted: true },
            Report::SignalFailed { errno: 1 },
            Report::Warning { limit_ms: 10, remaining_ms: 2 },
            Report::Usage(Usage { processes: 3, cpu_ms: u64::MAX, rss_bytes: 1 << 40 }),
            Report::Ending { cause: Cause::OverallTimeout, reason: String::new() },
            Report::RootExited(ExitStatus::Signal(9)),
            Report::Extinct(End {
                cause: Cause::Cancel,
                reason: "shutdown".into(),
                limit_ms: 7,
                force: Force::Kill,
                escaped: vec![info.clone()],
                survivors: vec![info],
            }),
        ]
    }

    #[test]
    fn every_message_survives_the_wire_in_any_chunking() {
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
            own(),
            Request::Started,
            Request::Extend { ms: u64::MAX },
            Request::Silent { limit_ms: 1 },
            Request::Usage,
            Request::Cancel { signal: 15, grace_ms: 0, reason: "manual-cancel" },
            Request::Adopt,
        ] {
            assert_eq!(decode::<Request>(&encode(&request).unwrap()[HEADER..]).as_ref(), Ok(&request));
        }
    }

    #[test]
    fn refuses_another_version_another_protocol_and_a_hostile_length_at_the_header() {
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
    fn no_truncated_or_padded_or_flipped_payload_is_taken_for_the_command_it_was() {
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
            // Whatever it decodes to, it must not panic, and it must not be the message it was.
            assert_ne!(decode::<Command>(&bytes).ok(), Some(command()), "flipped at {index}");
        }
    }

    /// The blank has to be told at once that it cannot become such a command, or it would wait for the rest of it.
    #[test]
    fn what_does_not_fit_into_a_frame_is_not_begun() {
        for (length, expected) in [(MAX_PAYLOAD / 2, true), (MAX_PAYLOAD, false)] {
            let env = "x".repeat(length);
            let frame = encode(&Command { env: &env, ..command() });
            assert_eq!(frame.is_ok(), expected, "{length}");
            let too_long = matches!(frame, Err(ProtocolError::TooLong(bytes)) if bytes > MAX_PAYLOAD);
            assert_ne!(too_long, expected, "{length}");
        }
    }

    #[test]
    fn a_frame_is_a_payload_behind_its_header() {
        for report in reports() {
            let alone = payload(&report).unwrap();
            assert_eq!(encode(&report).unwrap()[HEADER..], alone);
            assert_eq!(decode::<Report>(&alone), Ok(report));
        }
    }

    #[test]
    fn the_last_word_is_the_end_of_the_tree_and_not_that_of_its_root() {
        let Some(Report::Extinct(end)) = reports().pop() else { unreachable!() };
        let exited = |code| Ok(Report::RootExited(ExitStatus::Code(code)));
        let extinct = || Ok(Report::Extinct(end.clone()));
        let adopted = || Ok(Report::Adopted { granted: true });
        for (said, expected) in [
            (vec![extinct()], Ok((None, end.clone()))),
            (vec![adopted(), exited(3), adopted(), extinct()], Ok((Some(ExitStatus::Code(3)), end.clone()))),
            (vec![exited(3), Err("gone")], Err("gone")),
            // Nothing is heard after it.
            (vec![extinct(), exited(3)], Ok((None, end.clone()))),
        ] {
            let mut said = said.into_iter();
            assert_eq!(last_word(|| said.next().unwrap_or(Err("nothing more"))), expected);
        }
    }
}
