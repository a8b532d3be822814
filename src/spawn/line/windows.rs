//! A queue to a keeper that is a task of ours.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::contain::ProcessInfo;
use crate::contain::job::Job;
use crate::contain::outside::{self, Target};
use crate::errno::Errno;
use crate::identity::{self, ProcessRef};
use crate::keeper::protocol::{self, Report, Request};
use crate::keeper::visit::Visit;
use crate::keeper::windows::{self as keeper, Held, Holding, Message};
use crate::registry::{Entry, Instance, Keeper, Record, now_ms};
use crate::run::Policy;
use crate::run::lifecycle::{KILL_LIMIT_MS, Rules};
use crate::run::signal::{SIGKILL, ends_on_windows};
use crate::runtime;
use crate::spawn::run::Run;

#[derive(Debug)]
pub struct Line {
    keeper: UnboundedSender<Message>,
    root: Arc<Held>,
}

impl Line {
    /// Has the run held, and is the line to whoever holds it.
    pub fn hold(holding: Holding) -> Result<(Self, Ear), Errno> {
        let runtime = runtime::get().map_err(|_| Errno::EAGAIN)?;
        let root = holding.root.clone();
        let (keeper, reports) = keeper::hold(holding, &runtime.loop_handle)?;
        Ok((Self { keeper, root }, Ear { reports }))
    }

    pub fn ask(&self, request: &Request) -> Result<(), Errno> {
        let payload = protocol::payload(request).map_err(|_| Errno::EINVAL)?;
        self.keeper.send(Message::Asked(payload)).map_err(|_| Errno::EPIPE)
    }

    /// At once, and whether it has arrived is known at once.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        if signal != 0 && !ends_on_windows(signal) {
            return Err(Errno::ENOSYS);
        }
        match self.root.signal(signal) {
            // It has ended, and nobody here has heard of it yet: to its owner it is as if it had been ended now.
            Err(Errno::ESRCH) if signal != 0 => Ok(()),
            sent => sent,
        }
    }

    pub fn hang_up(&self) {
        let _ = self.keeper.send(Message::HungUp);
    }

    /// It knows.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)] // As elsewhere.
    pub fn introduce(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// A task cannot be stopped.
    #[allow(clippy::unused_self)] // As elsewhere.
    pub fn rouse(&self) -> std::future::Ready<()> {
        std::future::ready(())
    }

    #[allow(clippy::unused_self)]
    pub fn insist(&self, _limit: Duration) -> Option<std::future::Ready<()>> {
        None
    }
}

#[derive(Debug)]
pub struct Ear {
    reports: UnboundedReceiver<Report>,
}

impl Ear {
    #[allow(clippy::unnecessary_wraps)] // Elsewhere it may not be possible.
    pub fn open(self, _run: &Run) -> Option<Self> {
        Some(self)
    }

    pub async fn next(&mut self) -> Option<Report> {
        self.reports.recv().await
    }
}

/// The command was executed when it was started.
pub struct Exec;

impl Exec {
    #[allow(clippy::unused_async)] // As elsewhere.
    pub async fn refusal(self, _root: &ProcessRef) -> Option<Errno> {
        None
    }
}

/// There is nobody from whom keepers come.
pub struct Origin;

/// Reattaches to the job of a run that has lost its owner, by its name. `ESRCH` if that cannot be found, `EBUSY` if somebody has it.
///
/// Anybody can make a job of any name: it is the run's only if the recorded root, which is alive, is in it.
pub fn take_over(
    keeper: &Keeper,
    root: &ProcessRef,
    record: &Record,
    entry: &Entry,
) -> Result<(Line, Ear), Errno> {
    match Visit::start(&keeper.start_token, &keeper.address, root) {
        Ok(_) => return Err(Errno::EBUSY),
        Err(Errno::ESRCH) => {}
        // It lives, and its door cannot be found: then it may hold the run.
        Err(Errno::ECONNREFUSED) => return Err(Errno::EBUSY),
        Err(errno) => return Err(errno),
    }
    let pin = root.pinned()?;
    let job = record.job.as_deref().and_then(|name| Job::open(name).ok()).ok_or(Errno::ESRCH)?;
    if !job.has(std::os::windows::io::AsHandle::as_handle(&pin))? {
        return Err(Errno::ESRCH);
    }
    let kept = record.rules.as_ref();
    Line::hold(Holding {
        job: Arc::new(job),
        root: Arc::new(Held::new(pin, root.clone())),
        rules: Rules {
            on_owner_exit: Policy::Keep,
            on_leader_exit: kept.map_or(Policy::Kill, |rules| rules.on_leader_exit),
            timeout: kept.and_then(|rules| rules.timeout),
            grace_ms: record.grace_ms,
            ..Rules::default()
        },
        entry: entry.clone(),
        polite: None,
        age: Some(Duration::from_millis(now_ms().saturating_sub(record.started_at))),
    })
}

/// From here on it is we who can be asked. If that cannot be written down, others end it from outside.
pub fn note_keeper(owner: &Instance, record: &Record) {
    if let Ok(me) = identity::me() {
        let keeper = Keeper { start_token: me, address: keeper::address().to_owned() };
        let _ = owner.keep(record, keeper);
    }
}

/// Whoever held it has failed us, and with it the job's handle is gone, which has ended the tree; unless it was to outlive us.
pub async fn end_lost(
    _run: &Run,
    _origin: Option<&Origin>,
    root: ProcessRef,
    run_id: String,
    job: Option<String>,
) -> Vec<ProcessInfo> {
    let limit = Duration::from_millis(KILL_LIMIT_MS);
    let end = move || {
        let target = Target { job: job.as_deref(), ..Target::spawned(&root, &run_id) };
        outside::end_tree(&target, SIGKILL, Duration::ZERO, limit).survivors
    };
    match runtime::get() {
        Ok(runtime) => runtime.run(end).await.unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}
