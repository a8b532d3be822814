//! The connection to a keeper process: a socket.

mod send_queue;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use tokio::io::unix::AsyncFd;

use crate::contain::cgroup::Recorded;
use crate::contain::outside::{self, Target};
use crate::contain::tracer;
use crate::identity::{ProcessRef, State, read_stat};
use crate::keeper::channel;
use crate::keeper::control_client::ControlClient;
use crate::keeper::protocol::{self, Inbox, Report, Request};
use crate::registry::{Entry, Instance, Keeper, Record};
use crate::run::Ended;
use crate::run::lifecycle::{KILL_LIMIT_MS, ORPHAN_GRACE_MS};
use crate::run::reason::Ending;
use crate::runtime;
use crate::spawn::run::Run;
pub use crate::spawn::unix::Origin;
use crate::spawn::unix::{EXEC_WAKE_AFTER, refused_with};
use send_queue::SendQueue;

/// Sends requests to a keeper, and wakes or kills its process.
#[derive(Debug)]
pub struct KeeperConnection {
    send_queue: Arc<SendQueue>,
    keeper: ProcessRef,
}

impl KeeperConnection {
    /// A connection to a keeper that has its rules.
    pub fn new(control: OwnedFd, keeper: ProcessRef) -> Self {
        Self { send_queue: SendQueue::new(control, Vec::new()), keeper }
    }

    /// A connection to a new keeper. [`KeeperConnection::send_rules`] or the first request sends it
    /// the rules.
    pub fn to_new_keeper(control: OwnedFd, keeper: ProcessRef, rules: &Request) -> Self {
        // Cannot fail: every field was checked before and fits into a frame.
        let rules = protocol::encode(rules).unwrap_or_default();
        Self { send_queue: SendQueue::new(control, rules), keeper }
    }

    /// Sends a request without blocking. An error means that the keeper is dead, or that it is
    /// stopped and the send queue is full.
    pub fn send(&self, request: &Request) -> Result<(), Errno> {
        let frame = protocol::encode(request).map_err(|_| Errno::EINVAL)?;
        if ends_run(request) { self.send_queue.send_final(&frame) } else { self.send_queue.send(&frame) }
    }

    /// Sends the rules to a new keeper, unless they were sent already.
    pub fn send_rules(&self) -> Result<(), Errno> {
        self.send_queue.send_first()
    }

    /// Requests a signal to the root process. A report says later if the delivery failed.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.send(&Request::Signal { signal })
    }

    /// Closes the connection, after the rules and all queued requests. A keeper needs its rules to
    /// write the end of its run into the registry entry.
    pub fn disconnect(&self) {
        let _ = self.send_rules();
        self.send_queue.close();
    }

    /// Wakes a keeper that has something to do now. Kills the keeper if it is stopped at every
    /// check: another process stops it again and again, or its own command traces it, and only
    /// SIGKILL ends that. Then the zygote adopts the tree.
    pub fn wake_or_kill(&self) -> impl Future<Output = ()> + Send + 'static {
        let keeper = self.keeper.clone();
        async move {
            for _ in 0..CHECKS {
                wake(&keeper);
                tokio::time::sleep(CHECK_INTERVAL).await;
                if !is_stopped_or_traced(&keeper) {
                    return;
                }
            }
            kill(&keeper).await;
        }
    }

    /// Kills the keeper. Then the zygote adopts the tree.
    pub fn kill_keeper(&self) -> impl Future<Output = ()> + Send + 'static {
        let keeper = self.keeper.clone();
        async move { kill(&keeper).await }
    }

    /// Wakes the keeper, and kills it if it has not ended the tree within `limit`. Then the zygote
    /// adopts the tree. A command runs as the same user as its keeper, and can stop it.
    #[allow(clippy::unnecessary_wraps)] // `None` on Windows, where the keeper is a task of the bot.
    pub fn kill_after(&self, limit: Duration) -> Option<impl Future<Output = ()> + Send + 'static> {
        let keeper = self.keeper.clone();
        Some(async move {
            wake(&keeper);
            tokio::time::sleep(limit).await;
            kill(&keeper).await;
        })
    }
}

fn ends_run(request: &Request) -> bool {
    matches!(
        request,
        Request::Cancel { .. } | Request::IdleTimeout { .. } | Request::Signal { signal: libc::SIGKILL }
    )
}

/// Checks before a stopped keeper is killed. A person with a debugger also stops it for a moment.
const CHECKS: u32 = 10;
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// How long a killed process usually takes to exit.
const EXIT_TIME: Duration = Duration::from_millis(50);

/// Kills a keeper. A member of its tree can trace it and hold it at its exit, so kill that tracer,
/// too.
async fn kill(keeper: &ProcessRef) {
    let _ = keeper.signal(libc::SIGKILL);
    for _ in 0..CHECKS {
        tokio::time::sleep(EXIT_TIME).await;
        if keeper.state() != State::Alive {
            return;
        }
        tracer::kill_own_tracer(keeper);
    }
}

fn is_stopped_or_traced(keeper: &ProcessRef) -> bool {
    read_stat(keeper.pid).is_ok_and(|stat| stat.start == keeper.start && matches!(stat.state, 'T' | 't'))
}

/// Sends SIGCONT. It has no effect on a process that is not stopped.
fn wake(keeper: &ProcessRef) {
    let _ = keeper.signal(libc::SIGCONT);
}

/// The control socket.
impl AsFd for Run {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection().send_queue.control.as_fd()
    }
}

impl AsRawFd for Run {
    fn as_raw_fd(&self) -> RawFd {
        self.connection().send_queue.control.as_raw_fd()
    }
}

/// The reports of a keeper. Open it to read them.
pub struct ReportStream {
    /// Reports that were read already.
    pub received: Vec<Report>,
    pub inbox: Inbox,
}

pub struct OpenReportStream {
    socket: AsyncFd<Run>,
    received: std::vec::IntoIter<Report>,
    inbox: Inbox,
}

impl ReportStream {
    /// Registers the control socket with the event loop. Call it on the native thread.
    pub fn open(self, run: &Run) -> Option<OpenReportStream> {
        // SAFETY: the registered value owns the descriptor.
        let socket = unsafe { AsyncFd::register(run.clone()) }.ok()?;
        Some(OpenReportStream { socket, received: self.received.into_iter(), inbox: self.inbox })
    }
}

impl OpenReportStream {
    /// The next report. `None` if no more can come.
    pub async fn next(&mut self) -> Option<Report> {
        let mut buffer = [0; 1024];
        loop {
            if let Some(report) = self.received.next() {
                return Some(report);
            }
            if let Some(payload) = self.inbox.next_payload().ok()? {
                return protocol::decode(&payload).ok();
            }
            let count = receive(&self.socket, &mut buffer).await?;
            self.inbox.push(&buffer[..count]);
        }
    }
}

/// The launch socket, which closes when `exec` succeeds.
pub struct Exec(pub OwnedFd);

impl Exec {
    /// Waits for the result of `exec`: `None` if it succeeded, usually at once. Wakes the exec stub
    /// now and then, because another process may have stopped it.
    pub async fn refusal(self, root: &ProcessRef) -> Option<Errno> {
        let mut refusal = pin!(refusal(self.0));
        loop {
            match tokio::time::timeout(EXEC_WAKE_AFTER, &mut refusal).await {
                Ok(refusal) => return refusal,
                Err(_) => drop(root.signal(libc::SIGCONT)),
            }
        }
    }
}

async fn refusal(exec: OwnedFd) -> Option<Errno> {
    // SAFETY: the registered value owns the descriptor.
    let socket = unsafe { AsyncFd::register(exec) }.ok()?;
    let mut inbox = Inbox::default();
    let mut buffer = [0; 64];
    while let Some(count) = receive(&socket, &mut buffer).await {
        inbox.push(&buffer[..count]);
        if let Some(payload) = inbox.next_payload().ok()? {
            return Some(refused_with(&payload));
        }
    }
    None
}

/// Asks a keeper without an owner to accept this process as its owner. `ESRCH` if the keeper is
/// dead.
pub fn take_over(
    keeper: &Keeper,
    root: &ProcessRef,
    _record: &Record,
    _entry: &Entry,
) -> Result<(KeeperConnection, ReportStream), Errno> {
    let mut client = ControlClient::start(&keeper.start_token, &keeper.address, root)?;
    let received = client.adopt()?;
    let connection = KeeperConnection::new(client.socket, keeper.start_token.clone());
    Ok((connection, ReportStream { received, inbox: client.inbox }))
}

/// No-op: the registry entry names the keeper already.
pub fn record_keeper(_owner: &Instance, _record: &Record) {}

/// Ends the tree of a dead keeper, and returns the survivors. The zygote has adopted the tree and
/// ends it. If the zygote is dead, too, this ends every process that is proven to belong to the
/// run.
pub async fn end_lost(
    run: &Run,
    origin: Option<&Origin>,
    root: ProcessRef,
    cookie_key: Option<String>,
    cgroup: Option<String>,
) -> Ended {
    let grace = Duration::from_millis(ORPHAN_GRACE_MS);
    let limit = Duration::from_millis(KILL_LIMIT_MS);
    if let Some(Ok(gone)) = origin.map(Origin::orphans_gone) {
        let _ = tokio::time::timeout(grace + limit, wait_for_eof(&gone)).await;
    }
    let keeper = run.connection().keeper.clone();
    let end = move || {
        let cgroup = cgroup.as_deref().map(|path| Recorded { path, keeper: &keeper });
        let target = Target { cgroup, ..Target::spawned(&root, cookie_key.as_deref()) };
        let ended = outside::end_tree(&target, libc::SIGTERM, grace, limit);
        #[cfg(target_os = "linux")]
        crate::spawn::unix::reparented::wait_for_root(&root);
        ended
    };
    let ended = match runtime::get() {
        Ok(runtime) => runtime.run(end).await,
        Err(_) => None,
    };
    ended.unwrap_or_else(|| Ended::new(Ending::KeeperLost))
}

/// Waits for the end of file of a socket that carries no data.
async fn wait_for_eof(socket: &OwnedFd) -> Option<()> {
    // SAFETY: the descriptor is borrowed, and outlives the registration.
    let socket = unsafe { AsyncFd::register(socket.as_fd()) }.ok()?;
    receive(&socket, &mut [0]).await.map(drop)
}

/// Reads the next bytes. `None` at end of file or on an error.
async fn receive(socket: &AsyncFd<impl AsFd + AsRawFd>, buffer: &mut [u8]) -> Option<usize> {
    loop {
        let mut ready = socket.readable().await.ok()?;
        // Otherwise the event loop was wrong, and the socket is not readable yet.
        if let Ok(result) = ready.try_io(|socket| Ok(channel::receive_now(socket.get_ref(), buffer)?)) {
            return result.ok().filter(|&count| count > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::protocol::AssignRun;
    use crate::run::Policy;

    const RULES: Request = Request::AssignRun(AssignRun {
        run_id: "r",
        cookie_key: "",
        on_owner_exit: Policy::Kill,
        on_leader_exit: Policy::Kill,
        grace_ms: 5,
        timeout: None,
        registry: "",
        key: "k",
    });

    /// Creates a connection to a new keeper, and returns the messages that arrive after `use_it`.
    fn received(use_it: impl FnOnce(&KeeperConnection)) -> Vec<Vec<u8>> {
        let (ours, theirs) = channel::pair().unwrap();
        use_it(&KeeperConnection::to_new_keeper(ours, ProcessRef::known(1, 1), &RULES));
        let (mut inbox, mut buffer) = (Inbox::default(), [0; 1024]);
        while let Ok(count @ 1..) = channel::receive(&theirs, &mut buffer, &mut Vec::new()) {
            inbox.push(&buffer[..count]);
        }
        std::iter::from_fn(|| inbox.next_payload().unwrap()).collect()
    }

    fn payload(request: &Request) -> Vec<u8> {
        protocol::payload(request).unwrap()
    }

    #[test]
    fn no_request_overtakes_the_rules_and_the_rules_are_sent_once() {
        let cancel = Request::Cancel { signal: 15, grace_ms: 0, reason: "" };
        let request_first = received(|connection| {
            connection.send(&cancel).unwrap();
            connection.send_rules().unwrap();
            connection.send(&Request::Usage).unwrap();
        });
        assert_eq!(request_first, [payload(&RULES), payload(&cancel), payload(&Request::Usage)]);
        let rules_first = received(|connection| {
            connection.send_rules().unwrap();
            connection.signal(9).unwrap();
        });
        assert_eq!(rules_first, [payload(&RULES), payload(&Request::Signal { signal: 9 })]);
    }

    #[test]
    fn requests_that_do_not_fit_into_the_socket_are_sent_later_in_order() {
        const MANY: i32 = 2000;
        let (ours, theirs) = channel::pair().unwrap();
        let connection = KeeperConnection::new(ours, ProcessRef::known(1, 1));
        for signal in 0..MANY {
            connection.signal(signal).unwrap();
        }
        let (mut inbox, mut buffer, mut next_signal) = (Inbox::default(), [0; 4096], 0);
        while next_signal < MANY {
            let count = channel::receive(&theirs, &mut buffer, &mut Vec::new()).unwrap();
            inbox.push(&buffer[..count]);
            while let Some(payload) = inbox.next_payload().unwrap() {
                assert_eq!(protocol::decode(&payload), Ok(Request::Signal { signal: next_signal }));
                next_signal += 1;
            }
        }
    }

    /// A connection to a keeper that reads nothing and whose send queue is full, and the keeper's
    /// end.
    fn with_full_queue() -> (KeeperConnection, OwnedFd) {
        let (ours, theirs) = channel::pair().unwrap();
        let connection = KeeperConnection::new(ours, ProcessRef::known(1, 1));
        assert!((0..100_000).any(|_| connection.signal(15) == Err(Errno::EAGAIN)));
        (connection, theirs)
    }

    /// The last message that arrives before the connection closes.
    fn last_received(theirs: &OwnedFd) -> Vec<u8> {
        let (mut inbox, mut buffer, mut last) = (Inbox::default(), [0; 4096], Vec::new());
        while let Ok(count @ 1..) = channel::receive(theirs, &mut buffer, &mut Vec::new()) {
            inbox.push(&buffer[..count]);
            while let Some(payload) = inbox.next_payload().unwrap() {
                last = payload;
            }
        }
        last
    }

    #[test]
    fn a_full_queue_still_accepts_a_request_that_ends_the_run() {
        for last in [
            Request::Cancel { signal: 15, grace_ms: 0, reason: "" },
            Request::IdleTimeout { limit_ms: 5 },
            Request::Signal { signal: 9 },
        ] {
            let (connection, theirs) = with_full_queue();
            assert_eq!(connection.send(&last), Ok(()));
            assert_eq!(
                connection.send(&Request::Usage),
                Err(Errno::EAGAIN),
                "this request does not end the run"
            );
            // The queued request still arrives after the disconnect.
            connection.disconnect();
            assert_eq!(connection.send(&last), Err(Errno::EPIPE));
            assert_eq!(last_received(&theirs), payload(&last));
        }
    }

    #[test]
    fn a_stopped_keeper_makes_endless_requests_fail_with_eagain() {
        let (connection, _theirs) = with_full_queue();
        assert!((0..100_000).any(|_| connection.signal(9) == Err(Errno::EAGAIN)));
    }

    #[test]
    fn a_disconnect_sends_the_rules_first() {
        assert_eq!(received(KeeperConnection::disconnect), [payload(&RULES)]);
    }
}
