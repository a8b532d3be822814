//! Inputs that only our own encoder can make. They change with the protocol, so none of them
//! is a file.

use spawn_owned::contain::cgroup::Base;
use spawn_owned::contain::{Limits, Usage};
use spawn_owned::identity::macos::kinfo;
use spawn_owned::keeper::protocol::{
    AssignRun, Command, InCgroup, Process, Refusal, Report, Request, Slot, encode, payload,
};
use spawn_owned::run::lifecycle::Timeout;
use spawn_owned::run::reason::Ending;
use spawn_owned::run::{Cause, Ended, ExitStatus, Force, Policy, ProcessInfo, Unlisted};

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

fn requests() -> Vec<Request<'static>> {
    vec![
        assign_run(),
        Request::Started,
        Request::Extend { ms: u64::MAX },
        Request::SetTimeout { timeout: None },
        Request::IdleTimeout { limit_ms: 1 },
        Request::Usage,
        Request::Signal { signal: 15 },
        Request::Cancel { signal: 15, grace_ms: 1_500, reason: "manual-cancel" },
        Request::Cancel { signal: i32::MIN, grace_ms: u64::MAX, reason: "" },
        Request::Adopt,
    ]
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
            leftovers: vec![info.clone()],
            forced: vec![info.clone()],
            escaped: vec![info.clone()],
            survivors: vec![info],
            unlisted: Unlisted::default(),
            status: None,
        }),
    ]
}

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

fn all<M: serde::Serialize>(kind: u8, messages: &[M]) -> Vec<Vec<u8>> {
    let tagged = |message| [&[kind], &*payload(message).unwrap_or_default()].concat();
    messages.iter().map(tagged).collect()
}

pub fn messages() -> Vec<Vec<u8>> {
    let nest =
        InCgroup { base: Base { dir: "/x".into(), roomy: Some("/y".into()) }, limits: Limits::default() };
    [
        all(0, &requests()),
        all(1, &reports()),
        all(2, &[command()]),
        all(3, &[Refusal { errno: 2 }]),
        all(4, &[nest]),
    ]
    .concat()
}

pub fn frames() -> Vec<Vec<u8>> {
    let frames = |messages: Vec<Vec<u8>>| [vec![3], messages.concat()].concat();
    vec![
        frames(requests().iter().flat_map(encode).collect()),
        frames(reports().iter().flat_map(encode).collect()),
        frames(vec![b"GET / HTTP/1.1\r\n\r\n".to_vec()]),
    ]
}

pub fn conversations() -> Vec<Vec<u8>> {
    let words: Vec<u8> = requests()[1..8].iter().flat_map(encode).flatten().collect();
    (0..16).map(|rules| [&[rules, 7 * rules], &*words].concat()).collect()
}

pub fn macos() -> Vec<Vec<u8>> {
    let mut process = vec![0; 2 * kinfo::SIZE];
    process[0] = 1;
    process[40] = 7;
    process[kinfo::SIZE] = 1;
    let arguments = b"\x02\0\0\0/bin/sh\0\0\0sh\0-c\0A=1\0SPAWN_OWNED_RUN=r0:r1\0\0ptr_munge=\0";
    vec![process, arguments.to_vec()]
}
