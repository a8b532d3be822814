//! Messages as bytes, and bytes that are no messages.

use super::frame::HEADER;
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
