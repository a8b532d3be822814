//! The connection to a keeper process: a socket.

mod report_stream;
mod send_queue;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

use crate::contain::cgroup::Recorded;
use crate::contain::outside::{self, Target};
use crate::contain::tracer;
use crate::identity::{ProcessRef, State, read_stat};
use crate::keeper::control_client::ControlClient;
use crate::keeper::protocol::{self, Request};
use crate::registry::{Entry, Instance, Keeper, Record};
use crate::run::Ended;
use crate::run::lifecycle::{KILL_LIMIT_MS, ORPHAN_GRACE_MS};
use crate::run::reason::Ending;
use crate::runtime;
use crate::spawn::run::Run;
pub use crate::spawn::unix::Origin;
use report_stream::wait_for_eof;
pub use report_stream::{Exec, ReportStream};
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
