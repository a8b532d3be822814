//! The connection to a keeper that is a task of this process: a queue.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::contain::job::Job;
use crate::contain::outside::{self, Target};
use crate::errno::Errno;
use crate::identity::{self, ProcessRef};
use crate::keeper::control_client::ControlClient;
use crate::keeper::protocol::{self, Report, Request};
use crate::keeper::windows::{self as keeper, Holding, Message, RootProcess};
use crate::registry::{Entry, Instance, Keeper, Record, now_ms};
use crate::run::lifecycle::{KILL_LIMIT_MS, Rules};
use crate::run::reason::Ending;
use crate::run::signal::{SIGKILL, ends_on_windows};
use crate::run::{Ended, Policy};
use crate::runtime;
use crate::spawn::run::Run;

/// Sends requests to the keeper task, and signals to the root process.
#[derive(Debug)]
pub struct KeeperConnection {
    keeper: UnboundedSender<Message>,
    root: Arc<RootProcess>,
}

impl KeeperConnection {
    /// Starts the keeper task of a run, and returns the connection to it.
    pub fn start_keeper(holding: Holding) -> Result<(Self, ReportStream), Errno> {
        let runtime = runtime::get().map_err(|_| Errno::EAGAIN)?;
        let root = holding.root.clone();
        let (keeper, reports) = keeper::hold(holding, &runtime.loop_handle)?;
        Ok((Self { keeper, root }, ReportStream { reports }))
    }

    pub fn send(&self, request: &Request) -> Result<(), Errno> {
        let payload = protocol::payload(request).map_err(|_| Errno::EINVAL)?;
        self.keeper.send(Message::Asked(payload)).map_err(|_| Errno::EPIPE)
    }

    /// Signals the root process at once, and returns the result.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        if signal != 0 && !ends_on_windows(signal) {
            return Err(Errno::ENOSYS);
        }
        match self.root.signal(signal) {
            // The root has exited, and its exit was not reported yet. To the owner this signal
            // ended it.
            Err(Errno::ESRCH) if signal != 0 => Ok(()),
            sent => sent,
        }
    }

    pub fn disconnect(&self) {
        let _ = self.keeper.send(Message::HungUp);
    }

    /// No-op: the in-process keeper gets its rules when it is created.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)] // The signature is the same as on Unix.
    pub fn send_rules(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// No-op: the keeper is a part of the bot.
    #[allow(clippy::unused_self)]
    pub fn kill_keeper(&self) -> impl Future<Output = ()> + Send + 'static {
        std::future::ready(())
    }

    /// No-op: a task cannot be stopped.
    #[allow(clippy::unused_self)] // The signature is the same as on Unix.
    pub fn wake_or_kill(&self) -> std::future::Ready<()> {
        std::future::ready(())
    }

    /// `None`: a task cannot be stopped.
    #[allow(clippy::unused_self)] // The signature is the same as on Unix.
    pub fn kill_after(&self, _limit: Duration) -> Option<std::future::Ready<()>> {
        None
    }
}

/// The reports of a keeper task.
#[derive(Debug)]
pub struct ReportStream {
    reports: UnboundedReceiver<Report>,
}

impl ReportStream {
    #[allow(clippy::unnecessary_wraps)] // On Unix this can fail.
    pub fn open(self, _run: &Run) -> Option<Self> {
        Some(self)
    }

    pub async fn next(&mut self) -> Option<Report> {
        self.reports.recv().await
    }
}

/// The result of `exec`: it is known already when the process was created.
pub struct Exec;

impl Exec {
    #[allow(clippy::unused_async)] // The signature is the same as on Unix.
    pub async fn refusal(self, _root: &ProcessRef) -> Option<Errno> {
        None
    }
}

/// Empty: there is no zygote.
pub struct Origin;

/// Opens the job of a run that has lost its owner, by the job's name. `ESRCH` if there is no such
/// job, `EBUSY` if another process keeps the run.
///
/// Any process can create a job of any name. The job is the run's only if it contains the recorded
/// root, and the root is alive.
pub fn take_over(
    keeper: &Keeper,
    root: &ProcessRef,
    record: &Record,
    entry: &Entry,
) -> Result<(KeeperConnection, ReportStream), Errno> {
    match ControlClient::start(&keeper.start_token, &keeper.address, root) {
        Ok(_) => return Err(Errno::EBUSY),
        Err(Errno::ESRCH) => {}
        // The keeper's process is alive, but its control pipe does not answer. It may keep the run.
        Err(Errno::ECONNREFUSED) => return Err(Errno::EBUSY),
        Err(errno) => return Err(errno),
    }
    let handle = root.open_handle()?;
    let job = record.job.as_deref().and_then(|name| Job::open(name).ok()).ok_or(Errno::ESRCH)?;
    if !job.has(std::os::windows::io::AsHandle::as_handle(&handle))? {
        return Err(Errno::ESRCH);
    }
    let rules = record.rules.as_ref();
    KeeperConnection::start_keeper(Holding {
        job: Arc::new(job),
        root: Arc::new(RootProcess::new(handle, root.clone())),
        rules: Rules {
            on_owner_exit: Policy::Keep,
            on_leader_exit: rules.map_or(Policy::Kill, |rules| rules.on_leader_exit),
            timeout: rules.and_then(|rules| rules.timeout),
            grace_ms: record.grace_ms,
            ..Rules::default()
        },
        entry: entry.clone(),
        polite: None,
        age: Some(Duration::from_millis(now_ms().saturating_sub(record.started_at))),
    })
}

/// Records this process as the keeper. If that fails, other processes end the run from outside.
pub fn record_keeper(owner: &Instance, record: &Record) {
    if let Ok(me) = identity::me() {
        let keeper = Keeper { start_token: me, address: keeper::address().to_owned() };
        let _ = owner.keep(record, keeper);
    }
}

/// Ends the tree of a failed keeper task, and returns the survivors. The job's handle is closed,
/// which has ended the tree, unless the run has to outlive its bot.
pub async fn end_lost(
    _run: &Run,
    _origin: Option<&Origin>,
    root: ProcessRef,
    _cookie_key: Option<String>,
    job: Option<String>,
) -> Ended {
    let limit = Duration::from_millis(KILL_LIMIT_MS);
    let end = move || {
        let target = Target { job: job.as_deref(), ..Target::spawned(&root, None) };
        outside::end_tree(&target, SIGKILL, Duration::ZERO, limit)
    };
    let ended = match runtime::get() {
        Ok(runtime) => runtime.run(end).await,
        Err(_) => None,
    };
    ended.unwrap_or_else(|| Ended::new(Ending::KeeperLost))
}
