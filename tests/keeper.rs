//! Tests of the keeper's executable. Each test uses the protocol as a bot does. A test detects that
//! a tree is gone by the end of file of a pipe that every process of the tree holds.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // A test may fail.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use spawn_owned::keeper::protocol::{
    self, AssignRun, Command as Launch, Inbox, Refusal, Report, Request, Slot,
};
use spawn_owned::keeper::{FORK, HELLO, ORPHANS, TITLE_ROOM, ZYGOTE, channel};
use spawn_owned::run::lifecycle::Timeout;
use spawn_owned::run::reason::Ending;
use spawn_owned::run::{Cause, Ended, ExitStatus, Force, Policy};

const SOON: Duration = Duration::from_secs(5);

/// A bot with a zygote.
struct Bot {
    socket: OwnedFd,
    zygote: Child,
}

/// A bot's side of one run.
struct Run {
    control: Option<OwnedFd>,
    inbox: Inbox,
    launch: OwnedFd,
    pid: i32,
    keeper: i32,
    address: String,
    registry: Arc<Folder>,
}

impl Bot {
    fn new() -> Self {
        let (socket, theirs) = channel::message_pair().unwrap();
        let zygote = Command::new(env!("CARGO_BIN_EXE_spawn-owned-keeper"))
            .args([ZYGOTE, &" ".repeat(TITLE_ROOM)])
            .env_clear()
            .stdin(Stdio::from(theirs))
            .spawn()
            .unwrap();
        let mut hello = [0; HELLO.len()];
        channel::receive_within(&socket, &mut hello, &mut Vec::new(), SOON).unwrap();
        assert_eq!(hello, HELLO);
        Self { socket, zygote }
    }

    /// Orders a keeper, which waits for a run.
    fn keeper(&self) -> Run {
        channel::send_all(&self.socket, &[FORK], &[]).unwrap();
        let (mut errno, mut fds) = ([1; 4], Vec::new());
        channel::receive_within(&self.socket, &mut errno, &mut fds, SOON).unwrap();
        assert_eq!((errno, fds.len()), ([0; 4], 2));
        let (launch, control) = (fds.pop().unwrap(), fds.pop().unwrap());
        let (inbox, registry) = (Inbox::default(), Arc::new(Folder::new()));
        let mut run = Run {
            control: Some(control),
            inbox,
            launch,
            pid: 0,
            keeper: 0,
            address: String::new(),
            registry,
        };
        let Report::Ready { keeper, root, address, .. } = run.next_report().unwrap() else {
            panic!("not ready")
        };
        assert!(keeper.start > 0 && root.start > 0 && !address.is_empty());
        (run.pid, run.keeper, run.address) = (root.pid, keeper.pid, address);
        run
    }

    /// Runs `sh -c script` with the tree's pipe as file descriptor 3.
    fn run(&self, script: &str, pipe: &TreePipe, policy: Policy) -> Run {
        let run = self.keeper();
        run.launch(&["sh", "-c", script], pipe);
        assert_eq!(run.exec_result(), None);
        run.assign(policy, None);
        run
    }
}

impl Bot {
    /// Closes the socket, and waits for the zygote, which exits after its last keeper.
    fn exit(self) {
        let Self { socket, mut zygote } = self;
        drop(socket);
        assert!(zygote.wait().unwrap().success());
    }
}

impl Run {
    fn launch(&self, argv: &[&str], pipe: &TreePipe) {
        let argv = argv.join("\0") + "\0";
        let command = Launch {
            file: argv.split('\0').next().unwrap(),
            argv: &argv,
            env: "PATH=/usr/bin:/bin\0SPAWN_OWNED_RUN=test\0",
            uid: None,
            gid: None,
            umask: 0o22,
            directory: true,
            terminal: false,
            stdio: vec![Slot::Null, Slot::Null, Slot::Null, Slot::Sent],
        };
        let here = std::fs::File::open(".").unwrap();
        let fds: [RawFd; 2] = [here.as_raw_fd(), pipe.write.as_ref().unwrap().as_raw_fd()];
        channel::send_all(&self.launch, &protocol::encode(&command).unwrap(), &fds).unwrap();
    }

    /// The errno of `exec`, or `None` if it succeeded.
    fn exec_result(&self) -> Option<i32> {
        let (mut inbox, mut buffer) = (Inbox::default(), [0; 64]);
        loop {
            match channel::receive_within(&self.launch, &mut buffer, &mut Vec::new(), SOON).unwrap() {
                0 => return None,
                count => inbox.push(&buffer[..count]),
            }
            if let Some(payload) = inbox.next_payload().unwrap() {
                return Some(protocol::decode::<Refusal>(&payload).unwrap().errno);
            }
        }
    }

    fn assign(&self, policy: Policy, timeout: Option<Timeout>) {
        self.send(&Request::AssignRun(AssignRun {
            run_id: "test",
            cookie_key: "",
            on_owner_exit: policy,
            on_leader_exit: Policy::Kill,
            grace_ms: 5_000,
            timeout,
            registry: self.registry.file().to_str().unwrap(),
            key: "7:8:9:b",
        }));
    }

    fn send(&self, request: &Request) {
        let control = self.control.as_ref().unwrap();
        channel::send_all(control, &protocol::encode(request).unwrap(), &[]).unwrap();
    }

    /// The keeper's next report; `None` at end of file.
    fn next_report(&mut self) -> Option<Report> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(payload) = self.inbox.next_payload().unwrap() {
                return Some(protocol::decode(&payload).unwrap());
            }
            let control = self.control.as_ref().unwrap();
            match channel::receive_within(control, &mut buffer, &mut Vec::new(), SOON) {
                Ok(0) => return None,
                Ok(count) => self.inbox.push(&buffer[..count]),
                Err(error) => panic!("no report from the keeper within {SOON:?}: {error}"),
            }
        }
    }
}

/// A pipe whose writing end every process of a tree holds. End of file means that none exists.
struct TreePipe {
    read: std::io::PipeReader,
    write: Option<std::io::PipeWriter>,
}

impl TreePipe {
    fn new() -> Self {
        let (read, write) = std::io::pipe().unwrap();
        Self { read, write: Some(write) }
    }

    /// Waits until the tree has written this many bytes: each of its processes writes one.
    fn wait_for_tree(&mut self, bytes: usize) {
        self.read.read_exact(&mut vec![0; bytes]).unwrap();
    }

    /// Asserts that no process holds the pipe now.
    fn assert_tree_is_gone(mut self) {
        drop(self.write.take());
        nix::fcntl::fcntl(&self.read, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).unwrap();
        assert_eq!(self.read.read(&mut [0]).unwrap(), 0);
    }

    /// Waits until no process holds the pipe.
    fn wait_until_tree_is_gone(mut self) {
        drop(self.write.take());
        let began = Instant::now();
        std::io::copy(&mut self.read, &mut std::io::sink()).unwrap();
        assert!(began.elapsed() < SOON, "it took {:?} to end the tree", began.elapsed());
    }
}

/// The keeper's report after a cancel with this reason.
fn cancelled(reason: &str) -> Report {
    Report::Ending { cause: Cause::Cancel, reason: reason.to_owned() }
}

/// A command that runs until it is killed, or for 60 seconds.
const FOREVER: &str = "exec sleep 60";

#[test]
fn the_keeper_reports_the_exit_of_a_command_and_closes_its_connection() {
    let (bot, pipe) = (Bot::new(), TreePipe::new());
    let mut run = bot.run("exit 7", &pipe, Policy::Kill);
    assert_eq!(run.next_report(), Some(Report::RootExited(ExitStatus::Code(7))));
    let ended = Ended::new(Ending::Cause(Cause::RootExit));
    assert_eq!(run.next_report(), Some(Report::Extinct(ended)));
    assert_eq!(run.next_report(), None);
    pipe.wait_until_tree_is_gone();
}

#[test]
fn the_exec_stub_reports_the_errno_of_a_failed_exec() {
    let (bot, pipe) = (Bot::new(), TreePipe::new());
    let run = bot.keeper();
    run.launch(&["no-such-command"], &pipe);
    assert_eq!(run.exec_result(), Some(nix::libc::ENOENT));
    drop(run);
    pipe.wait_until_tree_is_gone();
}

#[test]
fn the_keeper_ends_the_tree_when_the_bot_closes_its_connection() {
    let (bot, mut pipe) = (Bot::new(), TreePipe::new());
    let run =
        bot.run(&format!("setsid sh -c 'echo >&3; {FOREVER}' & echo >&3; {FOREVER}"), &pipe, Policy::Kill);
    pipe.wait_for_tree(2);
    drop(run);
    pipe.wait_until_tree_is_gone();
}

#[test]
fn the_keeper_ends_the_tree_of_a_bot_that_dies_between_launch_and_rules() {
    let (bot, mut pipe) = (Bot::new(), TreePipe::new());
    let run = bot.keeper();
    run.launch(
        &["sh", "-c", &format!("trap '' TERM; setsid sh -c 'echo >&3; {FOREVER}' & echo >&3; wait")],
        &pipe,
    );
    pipe.wait_for_tree(2);
    drop(run);
    pipe.wait_until_tree_is_gone();
}

#[test]
fn the_keeper_ends_the_tree_when_it_receives_invalid_bytes() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"SO\x63\0\0\0\0\0",
        b"SO\x01\0\xff\xff\xff\xff",
        b"SO\x01\0\x01\0\0\0\xee",
    ] {
        let (bot, mut pipe) = (Bot::new(), TreePipe::new());
        let run = bot.run(&format!("echo >&3; {FOREVER}"), &pipe, Policy::Kill);
        pipe.wait_for_tree(1);
        channel::send_all(run.control.as_ref().unwrap(), bytes, &[]).unwrap();
        pipe.wait_until_tree_is_gone();
    }
}

#[test]
fn the_keeper_carries_out_requests_that_arrive_together_with_the_rules() {
    let (bot, pipe) = (Bot::new(), TreePipe::new());
    let mut run = bot.keeper();
    run.launch(&["sh", "-c", FOREVER], &pipe);
    assert_eq!(run.exec_result(), None);
    let rules = AssignRun {
        run_id: "test",
        cookie_key: "",
        on_owner_exit: Policy::Kill,
        on_leader_exit: Policy::Kill,
        grace_ms: 5_000,
        timeout: None,
        registry: "",
        key: "",
    };
    let kill = Request::Cancel { signal: nix::libc::SIGKILL, grace_ms: 0, reason: "shutdown" };
    let both =
        [protocol::encode(&Request::AssignRun(rules)).unwrap(), protocol::encode(&kill).unwrap()].concat();
    channel::send_all(run.control.as_ref().unwrap(), &both, &[]).unwrap();
    assert_eq!(run.next_report(), Some(cancelled("shutdown")));
    assert_eq!(run.next_report(), Some(Report::RootExited(ExitStatus::Signal(nix::libc::SIGKILL))));
    pipe.wait_until_tree_is_gone();
}

/// A run with policy `Keep` whose bot has died.
fn orphan(script: &str, timeout: Option<Timeout>) -> (Bot, TreePipe, Run) {
    let (bot, mut pipe) = (Bot::new(), TreePipe::new());
    let mut run = bot.keeper();
    run.launch(&["sh", "-c", &format!("echo >&3; {script}")], &pipe);
    assert_eq!(run.exec_result(), None);
    // The bot dies before it sends `Started`.
    run.assign(Policy::Keep, timeout);
    pipe.wait_for_tree(1);
    drop(run.control.take());
    (bot, pipe, run)
}

#[test]
fn a_kept_run_outlives_its_bot_with_its_timeout_and_the_keeper_records_its_end() {
    let (mut bot, pipe, run) = orphan(FOREVER, Some(Timeout { after_ms: 300, signal: nix::libc::SIGUSR1 }));
    std::fs::write(run.registry.file(), "{\"version\":1,\"entries\":[]}").unwrap();
    drop(bot.socket);
    // Only the run's own timeout ends it.
    pipe.wait_until_tree_is_gone();
    assert!(bot.zygote.wait().unwrap().success(), "the keeper exits, because it has recorded the end");
}

#[test]
fn the_keeper_stays_with_an_end_that_it_cannot_record_until_a_client_adopts_the_run() {
    let (mut bot, pipe, run) = orphan(FOREVER, Some(Timeout { after_ms: 300, signal: nix::libc::SIGUSR1 }));
    // A folder at the journal's path makes every write fail.
    std::fs::create_dir(run.registry.file().with_extension("json.journal")).unwrap();
    drop(bot.socket);
    pipe.wait_until_tree_is_gone();
    let mut next = control_client(&run);
    assert!(matches!(next.next_report(), Some(Report::Ready { root, .. }) if root.pid == run.pid));
    // An exiting process closes the pipe before its keeper sees the exit. So the keeper may still
    // be ending the tree now.
    let mut report = next.next_report();
    if matches!(report, Some(Report::Ending { cause: Cause::OverallTimeout, .. })) {
        report = next.next_report();
    }
    assert_eq!(report, Some(Report::RootExited(ExitStatus::Signal(nix::libc::SIGUSR1))));
    assert!(matches!(
        next.next_report(),
        Some(Report::Extinct(Ended { ending: Ending::Cause(Cause::OverallTimeout), .. }))
    ));
    next.send(&Request::Adopt);
    assert_eq!(next.next_report(), Some(Report::Adopted { granted: true }));
    assert_eq!(next.next_report(), None, "the keeper exits, because the new owner knows the end");
    assert!(bot.zygote.wait().unwrap().success());
}

#[test]
fn the_next_owner_of_a_kept_run_can_end_it() {
    let (mut bot, pipe, run) = orphan(FOREVER, None);
    drop(bot.socket);
    let mut next = control_client(&run);
    assert!(matches!(next.next_report(), Some(Report::Ready { .. })));
    next.send(&Request::Adopt);
    assert_eq!(next.next_report(), Some(Report::Adopted { granted: true }));
    next.send(&cancel("shutdown"));
    assert_eq!(next.next_report(), Some(cancelled("shutdown")));
    assert!(matches!(next.next_report(), Some(Report::RootExited(_))));
    assert!(
        matches!(next.next_report(), Some(Report::Extinct(Ended { named_reason, .. })) if named_reason == "shutdown")
    );
    pipe.wait_until_tree_is_gone();
    assert!(bot.zygote.wait().unwrap().success());
}

/// The keeper wakes up and finds the last words of a bot, its exit, and the next owner, at once.
#[test]
fn a_keeper_that_was_stopped_while_its_run_was_handed_over_keeps_the_run_and_serves_its_clients() {
    for assigned_before in [false, true] {
        let (bot, mut pipe) = (Bot::new(), TreePipe::new());
        let mut run = bot.keeper();
        run.launch(&["sh", "-c", &format!("echo >&3; {FOREVER}")], &pipe);
        assert_eq!(run.exec_result(), None);
        pipe.wait_for_tree(1);
        if assigned_before {
            run.assign(Policy::Keep, None);
            run.send(&Request::Usage);
            assert!(matches!(run.next_report(), Some(Report::Usage(_))));
        }
        let zygote = bot.zygote.id().cast_signed();
        // The zygote first, because it wakes a stopped keeper.
        for pid in [zygote, run.keeper] {
            stop(pid);
        }
        if !assigned_before {
            run.assign(Policy::Keep, None);
        }
        drop(run.control.take());
        let mut next = control_client(&run);
        next.send(&Request::Adopt);
        for pid in [run.keeper, zygote] {
            signal(pid, nix::libc::SIGCONT);
        }

        assert!(matches!(next.next_report(), Some(Report::Ready { .. })));
        assert_eq!(next.next_report(), Some(Report::Adopted { granted: true }), "{assigned_before}");
        // The new owner is silent, and a client cancels the run.
        let client = control_client(&run);
        client.send(&cancel("manual-cancel"));
        assert_eq!(next.next_report(), Some(cancelled("manual-cancel")), "{assigned_before}");
        assert!(matches!(next.next_report(), Some(Report::RootExited(_))));
        assert!(matches!(next.next_report(), Some(Report::Extinct(_))));
        pipe.assert_tree_is_gone();
        bot.exit();
    }
}

fn signal(pid: i32, signal: i32) {
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::try_from(signal).unwrap(),
    )
    .unwrap();
}

/// Stops a process, and returns when it is stopped.
fn stop(pid: i32) {
    signal(pid, nix::libc::SIGSTOP);
    let began = Instant::now();
    while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ") {
        assert!(began.elapsed() < SOON, "process {pid} does not stop");
        std::thread::yield_now();
    }
}

#[test]
fn a_control_client_can_cancel_a_run_that_has_an_owner_and_both_get_the_reports() {
    let (bot, mut pipe) = (Bot::new(), TreePipe::new());
    let mut run = bot.run(&format!("echo >&3; {FOREVER}"), &pipe, Policy::Kill);
    pipe.wait_for_tree(1);
    let mut other = control_client(&run);
    assert!(matches!(other.next_report(), Some(Report::Ready { .. })));
    other.send(&Request::Adopt);
    assert_eq!(other.next_report(), Some(Report::Adopted { granted: false }), "the run has an owner");
    other.send(&cancel("manual-cancel"));
    for end in [&mut run, &mut other] {
        assert_eq!(end.next_report(), Some(cancelled("manual-cancel")));
        assert!(matches!(end.next_report(), Some(Report::RootExited(_))));
        let last = end.next_report();
        assert!(
            matches!(&last, Some(Report::Extinct(Ended { named_reason, .. })) if named_reason == "manual-cancel"),
            "{last:?}"
        );
    }
    pipe.wait_until_tree_is_gone();
}

#[test]
fn a_control_client_that_sends_invalid_bytes_or_does_not_read_does_not_disturb_the_run() {
    let (bot, mut pipe) = (Bot::new(), TreePipe::new());
    let mut run = bot.run(&format!("echo >&3; {FOREVER}"), &pipe, Policy::Kill);
    pipe.wait_for_tree(1);
    let silent: Vec<_> = (0..20).map(|_| control_client(&run)).collect();
    let invalid = control_client(&run);
    let _ = channel::send_all(invalid.control.as_ref().unwrap(), b"GET / HTTP/1.1", &[]);
    let rules = AssignRun {
        run_id: "x",
        cookie_key: "",
        on_owner_exit: Policy::Kill,
        on_leader_exit: Policy::Kill,
        grace_ms: 0,
        timeout: None,
        registry: "",
        key: "",
    };
    let _ = channel::send_all(
        silent[0].control.as_ref().unwrap(),
        &protocol::encode(&Request::AssignRun(rules)).unwrap(),
        &[],
    );
    run.send(&cancel(""));
    assert_eq!(run.next_report(), Some(cancelled("")));
    pipe.wait_until_tree_is_gone();
}

#[test]
fn the_overall_timeout_counts_from_the_start_causes_a_warning_and_can_be_extended() {
    let (bot, pipe) = (Bot::new(), TreePipe::new());
    let mut run = bot.keeper();
    run.launch(&["sh", "-c", FOREVER], &pipe);
    assert_eq!(run.exec_result(), None);
    run.assign(Policy::Kill, Some(Timeout { after_ms: 500, signal: nix::libc::SIGUSR1 }));
    run.send(&Request::Extend { ms: 500 });
    run.send(&Request::Started);
    assert!(matches!(run.next_report(), Some(Report::Warning { limit_ms: 1_000, remaining_ms: 1..=200 })));
    run.send(&Request::Extend { ms: 500 });
    assert!(matches!(run.next_report(), Some(Report::Warning { limit_ms: 1_500, remaining_ms: 1..=300 })));
    let ending = Report::Ending { cause: Cause::OverallTimeout, reason: String::new() };
    assert_eq!(run.next_report(), Some(ending));
    assert_eq!(run.next_report(), Some(Report::RootExited(ExitStatus::Signal(nix::libc::SIGUSR1))));
    assert!(matches!(
        run.next_report(),
        Some(Report::Extinct(Ended { limit_ms: 1_500, force: Force::Signal, .. }))
    ));
    pipe.assert_tree_is_gone();
}

#[test]
fn the_keeper_ends_a_run_when_its_bot_reports_an_idle_timeout() {
    let (bot, pipe) = (Bot::new(), TreePipe::new());
    let mut run = bot.run(FOREVER, &pipe, Policy::Kill);
    run.send(&Request::IdleTimeout { limit_ms: 70 });
    let ending = Report::Ending { cause: Cause::NoOutputTimeout, reason: String::new() };
    assert_eq!(run.next_report(), Some(ending));
    assert_eq!(run.next_report(), Some(Report::RootExited(ExitStatus::Signal(nix::libc::SIGTERM))));
    assert!(matches!(run.next_report(), Some(Report::Extinct(Ended { limit_ms: 70, .. }))));
    pipe.assert_tree_is_gone();
}

#[test]
fn owner_and_control_clients_get_the_usage_of_the_tree_including_exited_members() {
    let (bot, mut pipe) = (Bot::new(), TreePipe::new());
    // Uses CPU time in a child that exits before the request. Then the tree has two processes.
    let burn = "(i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done); sleep 60 & echo >&3; wait";
    let mut run = bot.run(burn, &pipe, Policy::Kill);
    pipe.wait_for_tree(1);
    run.send(&Request::Usage);
    let Some(Report::Usage(usage)) = run.next_report() else { panic!("no answer") };
    assert_eq!(usage.processes, 2);
    assert!(usage.cpu_ms >= 10 && usage.rss_bytes > 100_000, "{usage:?}");
    let mut client = control_client(&run);
    assert!(matches!(client.next_report(), Some(Report::Ready { .. })));
    client.send(&Request::Usage);
    assert!(matches!(client.next_report(), Some(Report::Usage(_))));
    drop(run);
    pipe.wait_until_tree_is_gone();
}

fn cancel(reason: &str) -> Request<'_> {
    Request::Cancel { signal: nix::libc::SIGTERM, grace_ms: 5_000, reason }
}

#[test]
fn a_waiting_keeper_and_its_exec_stub_exit_with_their_bot() {
    let (bot, mut pipe) = (Bot::new(), TreePipe::new());
    // The exec stub holds the descriptors that it has received. So an incomplete command makes it
    // hold the pipe.
    let run = bot.keeper();
    let write = pipe.write.as_ref().unwrap().as_raw_fd();
    channel::send_all(&run.launch, b"SO", &[write]).unwrap();
    pipe.write.take();
    drop(run);
    pipe.wait_until_tree_is_gone();
}

/// A process without the cookie, the session and the parent of the run. Only a subreaper finds it.
const HIDDEN: &str =
    "env -i setsid sh -c 'trap \"\" TERM; sh -c \"echo >&3; exec sleep 60\" & echo >&3; wait' &";

/// Kills the keeper. No race: it is alive, so its PID is not recycled.
fn kill_keeper(run: &Run) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(run.keeper), nix::sys::signal::SIGKILL).unwrap();
}

#[test]
fn the_zygote_ends_the_tree_of_a_killed_keeper() {
    let (bot, mut pipe) = (Bot::new(), TreePipe::new());
    let run = bot.run(&format!("{HIDDEN} echo >&3; {FOREVER}"), &pipe, Policy::Kill);
    pipe.wait_for_tree(3);
    kill_keeper(&run);
    let (ours, theirs) = channel::pair().unwrap();
    let mut request = [ORPHANS, 0, 0, 0, 0];
    request[1..].copy_from_slice(&run.keeper.to_le_bytes());
    channel::send_all(&bot.socket, &request, &[theirs.as_raw_fd()]).unwrap();
    drop(theirs);
    let received = channel::receive_within(&ours, &mut [0], &mut Vec::new(), SOON);
    assert_eq!(received, Ok(0), "the zygote closes the socket when the tree is gone");
    pipe.assert_tree_is_gone();
    // The zygote still forks keepers.
    drop(bot.keeper());
    bot.exit();
}

#[test]
fn the_zygote_ends_the_tree_of_a_keeper_that_is_killed_together_with_its_bot() {
    let (bot, mut pipe) = (Bot::new(), TreePipe::new());
    let run = bot.run(&format!("{HIDDEN} echo >&3; {FOREVER}"), &pipe, Policy::Kill);
    pipe.wait_for_tree(3);
    kill_keeper(&run);
    drop(run);
    bot.exit();
    pipe.assert_tree_is_gone();
}

/// A control client of the run's keeper.
fn control_client(run: &Run) -> Run {
    let client = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    connect(client.as_raw_fd(), &UnixAddr::new_abstract(run.address.as_bytes()).unwrap()).unwrap();
    let (launch, _) = channel::pair().unwrap();
    let (inbox, address, registry) = (Inbox::default(), run.address.clone(), run.registry.clone());
    Run { control: Some(client), inbox, launch, pid: 0, keeper: 0, address, registry }
}

/// A temporary folder for a registry. A drop removes it.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("keeper-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        #[allow(clippy::disallowed_methods)] // This process has no JavaScript runtime.
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.join("process-registry.json")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
