//! The keeper's executable, spoken to as a bot speaks to it. Liveness is judged by the end of a pipe that every process
//! of a tree holds.

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
    self, Command as Launch, End, Inbox, Own, Refusal, Report, Request, Slot,
};
use spawn_owned::keeper::{FORK, HELLO, ORPHANS, TITLE_ROOM, ZYGOTE, channel};
use spawn_owned::run::lifecycle::Timeout;
use spawn_owned::run::{Cause, ExitStatus, Force, Policy};

const SOON: Duration = Duration::from_secs(5);

/// A bot with a zygote.
struct Bot {
    socket: OwnedFd,
    zygote: Child,
}

/// What a bot holds of one run.
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
        let mut hello = [0; 4];
        channel::receive_within(&socket, &mut hello, &mut Vec::new(), SOON).unwrap();
        assert_eq!(hello, HELLO);
        Self { socket, zygote }
    }

    /// A keeper that waits for a run.
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
        let Report::Ready { keeper, root, address, .. } = run.hear().unwrap() else { panic!("not ready") };
        assert!(keeper.start > 0 && root.start > 0 && !address.is_empty());
        (run.pid, run.keeper, run.address) = (root.pid, keeper.pid, address);
        run
    }

    /// `sh -c script` that holds the witness as descriptor 3.
    fn run(&self, script: &str, witness: &Witness, policy: Policy) -> Run {
        let run = self.keeper();
        run.launch(&["sh", "-c", script], witness);
        assert_eq!(run.exec_result(), None);
        run.own(policy, None);
        run
    }
}

impl Bot {
    /// Its sockets close. Its zygote goes when its last keeper is gone.
    fn dies(self) {
        let Self { socket, mut zygote } = self;
        drop(socket);
        assert!(zygote.wait().unwrap().success());
    }
}

impl Run {
    fn launch(&self, argv: &[&str], witness: &Witness) {
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
        let fds: [RawFd; 2] = [here.as_raw_fd(), witness.write.as_ref().unwrap().as_raw_fd()];
        channel::send_all(&self.launch, &protocol::encode(&command).unwrap(), &fds).unwrap();
    }

    /// `None`: executed.
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

    fn own(&self, policy: Policy, timeout: Option<Timeout>) {
        self.say(&Request::Own(Own {
            run_id: "test",
            preview: "sh",
            on_owner_exit: policy,
            on_leader_exit: Policy::Kill,
            grace_ms: 5_000,
            timeout,
            registry: self.registry.file().to_str().unwrap(),
            key: "7:8:9:b",
        }));
    }

    fn say(&self, request: &Request) {
        let control = self.control.as_ref().unwrap();
        channel::send_all(control, &protocol::encode(request).unwrap(), &[]).unwrap();
    }

    /// The keeper's next word; `None` when it has hung up.
    fn hear(&mut self) -> Option<Report> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(payload) = self.inbox.next_payload().unwrap() {
                return Some(protocol::decode(&payload).unwrap());
            }
            let control = self.control.as_ref().unwrap();
            match channel::receive_within(control, &mut buffer, &mut Vec::new(), SOON) {
                Ok(0) => return None,
                Ok(count) => self.inbox.push(&buffer[..count]),
                Err(error) => panic!("the keeper says nothing: {error}"),
            }
        }
    }
}

/// A pipe. Its end means that no process that was given the other side exists.
struct Witness {
    read: std::io::PipeReader,
    write: Option<std::io::PipeWriter>,
}

impl Witness {
    fn new() -> Self {
        let (read, write) = std::io::pipe().unwrap();
        Self { read, write: Some(write) }
    }

    /// Waits until the tree has written so many bytes: it stands.
    fn stands(&mut self, bytes: usize) {
        self.read.read_exact(&mut vec![0; bytes]).unwrap();
    }

    /// Nobody holds the pipe, and that right now.
    fn has_gone(mut self) {
        drop(self.write.take());
        nix::fcntl::fcntl(&self.read, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).unwrap();
        assert_eq!(self.read.read(&mut [0]).unwrap(), 0);
    }

    /// Waits until nobody holds the pipe any more.
    fn gone(mut self) {
        drop(self.write.take());
        let began = Instant::now();
        std::io::copy(&mut self.read, &mut std::io::sink()).unwrap();
        assert!(began.elapsed() < SOON, "it took {:?} to end the tree", began.elapsed());
    }
}

/// What a keeper says when a cancel with that reason reaches it.
fn cancelled(reason: &str) -> Report {
    Report::Ending { cause: Cause::Cancel, reason: reason.to_owned() }
}

/// Lives until it is killed, and no longer than a test may take.
const FOREVER: &str = "exec sleep 60";

#[test]
fn a_command_that_exits_is_reported_and_its_keeper_hangs_up() {
    let (bot, witness) = (Bot::new(), Witness::new());
    let mut run = bot.run("exit 7", &witness, Policy::Kill);
    assert_eq!(run.hear(), Some(Report::RootExited(ExitStatus::Code(7))));
    let end = End {
        cause: Cause::RootExit,
        reason: String::new(),
        limit_ms: 0,
        force: Force::Nothing,
        escaped: vec![],
        survivors: vec![],
    };
    assert_eq!(run.hear(), Some(Report::Extinct(end)));
    assert_eq!(run.hear(), None);
    witness.gone();
}

#[test]
fn a_command_that_cannot_be_executed_is_refused_with_the_reason() {
    let (bot, witness) = (Bot::new(), Witness::new());
    let run = bot.keeper();
    run.launch(&["no-such-command"], &witness);
    assert_eq!(run.exec_result(), Some(nix::libc::ENOENT));
    drop(run);
    witness.gone();
}

#[test]
fn a_bot_that_hangs_up_takes_the_tree_along() {
    let (bot, mut witness) = (Bot::new(), Witness::new());
    let run =
        bot.run(&format!("setsid sh -c 'echo >&3; {FOREVER}' & echo >&3; {FOREVER}"), &witness, Policy::Kill);
    witness.stands(2);
    drop(run);
    witness.gone();
}

#[test]
fn a_bot_that_dies_between_launch_and_rules_leaves_nothing() {
    let (bot, mut witness) = (Bot::new(), Witness::new());
    let run = bot.keeper();
    run.launch(
        &["sh", "-c", &format!("trap '' TERM; setsid sh -c 'echo >&3; {FOREVER}' & echo >&3; wait")],
        &witness,
    );
    witness.stands(2);
    drop(run);
    witness.gone();
}

#[test]
fn what_is_not_our_protocol_ends_the_run_like_a_bot_that_is_gone() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"SO\x63\0\0\0\0\0",
        b"SO\x01\0\xff\xff\xff\xff",
        b"SO\x01\0\x01\0\0\0\xee",
    ] {
        let (bot, mut witness) = (Bot::new(), Witness::new());
        let run = bot.run(&format!("echo >&3; {FOREVER}"), &witness, Policy::Kill);
        witness.stands(1);
        channel::send_all(run.control.as_ref().unwrap(), bytes, &[]).unwrap();
        witness.gone();
    }
}

#[test]
fn requests_that_arrive_together_with_the_rules_are_obeyed() {
    let (bot, witness) = (Bot::new(), Witness::new());
    let mut run = bot.keeper();
    run.launch(&["sh", "-c", FOREVER], &witness);
    assert_eq!(run.exec_result(), None);
    let own = Own {
        run_id: "test",
        preview: "",
        on_owner_exit: Policy::Kill,
        on_leader_exit: Policy::Kill,
        grace_ms: 5_000,
        timeout: None,
        registry: "",
        key: "",
    };
    let kill = Request::Cancel { signal: nix::libc::SIGKILL, grace_ms: 0, reason: "shutdown" };
    let both = [protocol::encode(&Request::Own(own)).unwrap(), protocol::encode(&kill).unwrap()].concat();
    channel::send_all(run.control.as_ref().unwrap(), &both, &[]).unwrap();
    assert_eq!(run.hear(), Some(cancelled("shutdown")));
    assert_eq!(run.hear(), Some(Report::RootExited(ExitStatus::Signal(nix::libc::SIGKILL))));
    witness.gone();
}

/// A kept run whose bot has died.
fn orphan(script: &str, deadline: Option<Timeout>) -> (Bot, Witness, Run) {
    let (bot, mut witness) = (Bot::new(), Witness::new());
    let mut run = bot.keeper();
    run.launch(&["sh", "-c", &format!("echo >&3; {script}")], &witness);
    assert_eq!(run.exec_result(), None);
    // Not armed: the bot dies before it could say that the command runs.
    run.own(Policy::Keep, deadline);
    witness.stands(1);
    drop(run.control.take());
    (bot, witness, run)
}

#[test]
fn a_kept_run_outlives_its_bot_keeps_its_deadline_and_its_end_is_written_down() {
    let (mut bot, witness, run) =
        orphan(FOREVER, Some(Timeout { after_ms: 300, signal: nix::libc::SIGUSR1 }));
    std::fs::write(run.registry.file(), "{\"version\":1,\"entries\":[]}").unwrap();
    drop(bot.socket);
    // Only its own deadline ends it.
    witness.gone();
    assert!(bot.zygote.wait().unwrap().success(), "it need not be remembered");
}

#[test]
fn an_end_that_cannot_be_written_down_is_remembered_until_somebody_asks() {
    let (mut bot, witness, run) =
        orphan(FOREVER, Some(Timeout { after_ms: 300, signal: nix::libc::SIGUSR1 }));
    // What is in the journal's place can be no journal.
    std::fs::create_dir(run.registry.file().with_extension("json.journal")).unwrap();
    drop(bot.socket);
    witness.gone();
    let mut next = visit(&run);
    assert!(matches!(next.hear(), Some(Report::Ready { root, .. }) if root.pid == run.pid));
    // The dead let go of the witness before their keeper hears of them: it may still be at it.
    let mut heard = next.hear();
    if matches!(heard, Some(Report::Ending { cause: Cause::OverallTimeout, .. })) {
        heard = next.hear();
    }
    assert_eq!(heard, Some(Report::RootExited(ExitStatus::Signal(nix::libc::SIGUSR1))));
    assert!(matches!(next.hear(), Some(Report::Extinct(End { cause: Cause::OverallTimeout, .. }))));
    next.say(&Request::Adopt);
    assert_eq!(next.hear(), Some(Report::Adopted { granted: true }));
    assert_eq!(next.hear(), None, "told once, it need not be remembered any more");
    assert!(bot.zygote.wait().unwrap().success());
}

#[test]
fn the_next_owner_of_a_kept_run_can_end_it() {
    let (mut bot, witness, run) = orphan(FOREVER, None);
    drop(bot.socket);
    let mut next = visit(&run);
    assert!(matches!(next.hear(), Some(Report::Ready { .. })));
    next.say(&Request::Adopt);
    assert_eq!(next.hear(), Some(Report::Adopted { granted: true }));
    next.say(&cancel("shutdown"));
    assert_eq!(next.hear(), Some(cancelled("shutdown")));
    assert!(matches!(next.hear(), Some(Report::RootExited(_))));
    assert!(matches!(next.hear(), Some(Report::Extinct(End { reason, .. })) if reason == "shutdown"));
    witness.gone();
    assert!(bot.zygote.wait().unwrap().success());
}

#[test]
fn a_visitor_can_end_a_run_that_has_an_owner_and_both_hear_of_it() {
    let (bot, mut witness) = (Bot::new(), Witness::new());
    let mut run = bot.run(&format!("echo >&3; {FOREVER}"), &witness, Policy::Kill);
    witness.stands(1);
    let mut other = visit(&run);
    assert!(matches!(other.hear(), Some(Report::Ready { .. })));
    other.say(&Request::Adopt);
    assert_eq!(other.hear(), Some(Report::Adopted { granted: false }), "it has an owner");
    other.say(&cancel("manual-cancel"));
    for end in [&mut run, &mut other] {
        assert_eq!(end.hear(), Some(cancelled("manual-cancel")));
        assert!(matches!(end.hear(), Some(Report::RootExited(_))));
        let last = end.hear();
        assert!(
            matches!(&last, Some(Report::Extinct(End { reason, .. })) if reason == "manual-cancel"),
            "{last:?}"
        );
    }
    witness.gone();
}

#[test]
fn a_visitor_that_talks_nonsense_or_does_not_read_harms_nobody() {
    let (bot, mut witness) = (Bot::new(), Witness::new());
    let mut run = bot.run(&format!("echo >&3; {FOREVER}"), &witness, Policy::Kill);
    witness.stands(1);
    let silent: Vec<_> = (0..20).map(|_| visit(&run)).collect();
    let rude = visit(&run);
    let _ = channel::send_all(rude.control.as_ref().unwrap(), b"GET / HTTP/1.1", &[]);
    let own = Own {
        run_id: "x",
        preview: "",
        on_owner_exit: Policy::Kill,
        on_leader_exit: Policy::Kill,
        grace_ms: 0,
        timeout: None,
        registry: "",
        key: "",
    };
    let _ = channel::send_all(
        silent[0].control.as_ref().unwrap(),
        &protocol::encode(&Request::Own(own)).unwrap(),
        &[],
    );
    run.say(&cancel(""));
    assert_eq!(run.hear(), Some(cancelled("")));
    witness.gone();
}

#[test]
fn a_deadline_counts_from_the_start_is_warned_of_and_can_be_moved() {
    let (bot, witness) = (Bot::new(), Witness::new());
    let mut run = bot.keeper();
    run.launch(&["sh", "-c", FOREVER], &witness);
    assert_eq!(run.exec_result(), None);
    run.own(Policy::Kill, Some(Timeout { after_ms: 500, signal: nix::libc::SIGUSR1 }));
    run.say(&Request::Extend { ms: 500 });
    run.say(&Request::Started);
    assert!(matches!(run.hear(), Some(Report::Warning { limit_ms: 1_000, remaining_ms: 1..=200 })));
    run.say(&Request::Extend { ms: 500 });
    assert!(matches!(run.hear(), Some(Report::Warning { limit_ms: 1_500, remaining_ms: 1..=300 })));
    let ending = Report::Ending { cause: Cause::OverallTimeout, reason: String::new() };
    assert_eq!(run.hear(), Some(ending));
    assert_eq!(run.hear(), Some(Report::RootExited(ExitStatus::Signal(nix::libc::SIGUSR1))));
    assert!(matches!(run.hear(), Some(Report::Extinct(End { limit_ms: 1_500, force: Force::Signal, .. }))));
    witness.has_gone();
}

#[test]
fn a_run_that_its_bot_finds_silent_is_ended_as_such() {
    let (bot, witness) = (Bot::new(), Witness::new());
    let mut run = bot.run(FOREVER, &witness, Policy::Kill);
    run.say(&Request::Silent { limit_ms: 70 });
    let ending = Report::Ending { cause: Cause::NoOutputTimeout, reason: String::new() };
    assert_eq!(run.hear(), Some(ending));
    assert_eq!(run.hear(), Some(Report::RootExited(ExitStatus::Signal(nix::libc::SIGTERM))));
    assert!(matches!(run.hear(), Some(Report::Extinct(End { limit_ms: 70, .. }))));
    witness.has_gone();
}

#[test]
fn what_the_tree_uses_is_told_to_owner_and_visitors_also_of_those_that_are_gone() {
    let (bot, mut witness) = (Bot::new(), Witness::new());
    // Burns some time in a child that is gone when it is asked for, and has two processes then.
    let burn = "(i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done); sleep 60 & echo >&3; wait";
    let mut run = bot.run(burn, &witness, Policy::Kill);
    witness.stands(1);
    run.say(&Request::Usage);
    let Some(Report::Usage(usage)) = run.hear() else { panic!("no answer") };
    assert_eq!(usage.processes, 2);
    assert!(usage.cpu_ms >= 10 && usage.rss_bytes > 100_000, "{usage:?}");
    let mut guest = visit(&run);
    assert!(matches!(guest.hear(), Some(Report::Ready { .. })));
    guest.say(&Request::Usage);
    assert!(matches!(guest.hear(), Some(Report::Usage(_))));
    drop(run);
    witness.gone();
}

fn cancel(reason: &str) -> Request<'_> {
    Request::Cancel { signal: nix::libc::SIGTERM, grace_ms: 5_000, reason }
}

#[test]
fn waiting_keepers_and_blanks_end_with_their_bot() {
    let (bot, mut witness) = (Bot::new(), Witness::new());
    // The blank holds what it was sent, so a half-sent request makes it hold the witness.
    let run = bot.keeper();
    let write = witness.write.as_ref().unwrap().as_raw_fd();
    channel::send_all(&run.launch, b"SO", &[write]).unwrap();
    witness.write.take();
    drop(run);
    witness.gone();
}

/// Without cookie, session and parent: only a subreaper finds it.
const HIDDEN: &str =
    "env -i setsid sh -c 'trap \"\" TERM; sh -c \"echo >&3; exec sleep 60\" & echo >&3; wait' &";

/// Our own descendant, which nobody has had a reason to wait for.
fn kill_keeper(run: &Run) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(run.keeper), nix::sys::signal::SIGKILL).unwrap();
}

#[test]
fn what_a_killed_keeper_leaves_behind_is_ended_by_the_zygote() {
    let (bot, mut witness) = (Bot::new(), Witness::new());
    let run = bot.run(&format!("{HIDDEN} echo >&3; {FOREVER}"), &witness, Policy::Kill);
    witness.stands(3);
    kill_keeper(&run);
    let (ours, theirs) = channel::pair().unwrap();
    let mut request = [ORPHANS, 0, 0, 0, 0];
    request[1..].copy_from_slice(&run.keeper.to_le_bytes());
    channel::send_all(&bot.socket, &request, &[theirs.as_raw_fd()]).unwrap();
    drop(theirs);
    let told = channel::receive_within(&ours, &mut [0], &mut Vec::new(), SOON);
    assert_eq!(told, Ok(0), "the zygote lets go when nothing is left");
    witness.has_gone();
    // And it goes on forking keepers.
    drop(bot.keeper());
    bot.dies();
}

#[test]
fn what_a_keeper_leaves_behind_that_is_killed_together_with_its_bot_is_ended_too() {
    let (bot, mut witness) = (Bot::new(), Witness::new());
    let run = bot.run(&format!("{HIDDEN} echo >&3; {FOREVER}"), &witness, Policy::Kill);
    witness.stands(3);
    kill_keeper(&run);
    drop(run);
    bot.dies();
    witness.has_gone();
}

/// Somebody at the keeper's door.
fn visit(run: &Run) -> Run {
    let visitor = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    connect(visitor.as_raw_fd(), &UnixAddr::new_abstract(run.address.as_bytes()).unwrap()).unwrap();
    let (launch, _) = channel::pair().unwrap();
    let (inbox, address, registry) = (Inbox::default(), run.address.clone(), run.registry.clone());
    Run { control: Some(visitor), inbox, launch, pid: 0, keeper: 0, address, registry }
}

/// A folder for a registry, gone with the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("keeper-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
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
