//! Listening to one run until its end.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;

use super::run::Run;
use super::unix::{EXEC_PATIENCE, refused_with};
use super::zygote::Origin;
use super::{Extinct, OnEvent, RunEvent, runtime};
use crate::contain::ProcessInfo;
use crate::contain::cgroup::Recorded;
use crate::contain::outside::{self, Target};
use crate::identity::ProcessRef;
use crate::keeper::channel;
use crate::keeper::protocol::{self, End, Inbox, Report, Request};
use crate::observe::counters::Counters;
use crate::run::lifecycle::{KILL_LIMIT_MS, ORPHAN_GRACE_MS};
use crate::run::reason::{Ending, Reason};
use crate::run::{Cause, Deadline, ExitStatus, Force};

/// How much later than it should a deadline may be kept before we help.
const OVERDUE: Duration = Duration::from_millis(250);

pub struct Ears {
    pub run: Run,
    /// Closes when the command is executed; `None` if that was long ago.
    pub exec: Option<OwnedFd>,
    /// What the keeper has said already.
    pub heard: Vec<Report>,
    pub inbox: Inbox,
    pub root: ProcessRef,
    /// The directory of its cgroup.
    pub cgroup: Option<String>,
    /// `None` for an adopted run: another bot's zygote is none of ours.
    pub origin: Option<Origin>,
    pub run_id: String,
    /// Whoever listens for silence, while that means something.
    pub silence: Option<AbortHandle>,
    /// Its overall deadline, if it has one that is told to its keeper here.
    pub timeout: Option<Duration>,
    pub counters: Arc<Counters>,
    pub on_event: OnEvent,
}

impl Ears {
    pub async fn listen(mut self) {
        if let Some(exec) = self.exec.take() {
            if let Some(errno) = self.refusal(exec).await {
                self.run.entry().over();
                self.end_terminal();
                self.counters.refused();
                return (self.on_event)(RunEvent::Refused(errno));
            }
            self.counters.spawned();
            self.run.entry().started();
            // Without a deadline it makes no difference to the keeper, and need not be woken. One that cannot be told is dead,
            // which shows at once.
            if self.timeout.is_some() {
                let _ = self.run.ask(&Request::Started);
            }
            (self.on_event)(RunEvent::Started);
        }
        self.silence = self.listen_for_silence();
        let awake = self.keep_the_keeper_awake();
        let heard = self.hear().await;
        [self.silence.take(), awake].iter().flatten().for_each(AbortHandle::abort);
        self.run.over();
        let last = match heard {
            Some((status, end)) => extinct(status, end),
            // We have hung up ourselves, and the run is its keeper's business.
            None if self.run.is_abandoned() => return self.run.entry().abandon(),
            None => {
                // Usually it is dead. If it merely talks nonsense, this tells it that we are through with it.
                self.run.hang_up();
                let survivors = self.end_from_outside().await;
                lost(survivors)
            }
        };
        last.count(&self.counters);
        // Written down before it is told: whoever hears of the end finds no entry any more.
        self.run.entry().over();
        self.end_terminal();
        (self.on_event)(RunEvent::Extinct(last));
    }

    /// Waits until the command was executed (`None`, usually at once), or has failed to be. Somebody may have stopped the blank, which
    /// is a process like any other; then it is woken.
    async fn refusal(&self, exec: OwnedFd) -> Option<Errno> {
        let mut refusal = pin!(refusal(exec));
        loop {
            match tokio::time::timeout(EXEC_PATIENCE, &mut refusal).await {
                Ok(refusal) => return refusal,
                Err(_) => drop(self.root.signal(libc::SIGCONT)),
            }
        }
    }

    /// Nothing of the tree exists: what it has left in its terminal is passed on, and then that is closed.
    fn end_terminal(&self) {
        if let Some(terminal) = self.run.terminal() {
            terminal.over();
        }
    }

    /// On its own, until it is aborted.
    fn listen_for_silence(&self) -> Option<AbortHandle> {
        self.run.listening()?;
        let (run, on_event) = (self.run.clone(), self.on_event.clone());
        let task = async move {
            if let Some(listening) = run.listening() {
                listening.listen(&run, &on_event).await;
            }
        };
        Some(runtime::get().ok()?.loop_handle.spawn(task).abort_handle())
    }

    /// A command runs as the same user as its keeper and can stop it, and a keeper that is stopped keeps no deadline. So it is woken
    /// when its time has come, and again, should the deadline have been moved. Until it is aborted.
    fn keep_the_keeper_awake(&self) -> Option<AbortHandle> {
        let every = self.timeout?.saturating_add(OVERDUE);
        let run = self.run.clone();
        let task = async move {
            loop {
                tokio::time::sleep(every).await;
                run.wake_keeper();
            }
        };
        Some(runtime::get().ok()?.loop_handle.spawn(task).abort_handle())
    }

    /// Passes on what the keeper says; returns its last word and how the root ended, or `None` if it died without one.
    async fn hear(&mut self) -> Option<(Option<ExitStatus>, End)> {
        // SAFETY: the descriptor is owned by what is registered.
        let socket = unsafe { AsyncFd::register(self.run.clone()) }.ok()?;
        let mut buffer = [0; 1024];
        let mut heard = std::mem::take(&mut self.heard).into_iter();
        let mut root_exit = None;
        loop {
            let report = if let Some(report) = heard.next() {
                report
            } else if let Some(payload) = self.inbox.next_payload().ok()? {
                protocol::decode(&payload).ok()?
            } else {
                let count = receive(&socket, &mut buffer).await?;
                self.inbox.push(&buffer[..count]);
                continue;
            };
            match report {
                Report::Extinct(end) => return Some((root_exit, end)),
                // Not for an owner's ears.
                Report::Ready { .. } | Report::NoCgroup(_) | Report::Adopted { .. } => return None,
                Report::Warning { limit_ms, remaining_ms } => {
                    let deadline = Deadline::Overall;
                    (self.on_event)(RunEvent::Warning { deadline, limit_ms, remaining_ms });
                }
                Report::Usage(usage) => (self.on_event)(RunEvent::Usage(usage)),
                Report::Ending { cause, reason } => self.ending(cause, &reason),
                Report::RootExited(status) => {
                    root_exit = Some(status);
                    // What it wrote before it ended is to be found before its end is heard of.
                    if let Some(terminal) = self.run.terminal() {
                        terminal.catch_up();
                    }
                    (self.on_event)(RunEvent::RootExited(status));
                }
                Report::SignalFailed { errno } => {
                    (self.on_event)(RunEvent::SignalFailed(Errno::from_raw(errno)));
                }
            }
        }
    }

    fn ending(&mut self, cause: Cause, asked: &str) {
        self.run.entry().exiting();
        self.silence.take().as_ref().inspect(|task| task.abort());
        match cause {
            Cause::OverallTimeout => self.counters.timed_out(Deadline::Overall),
            Cause::NoOutputTimeout => self.counters.timed_out(Deadline::NoOutput),
            _ => {}
        }
        // Whoever cancels looks after that, with a grace of its own.
        if cause != Cause::Cancel {
            self.run.ending();
        }
        let reason = Reason::of(Ending::Kept(cause), asked, None, 0);
        (self.on_event)(RunEvent::Ending(cause, reason));
    }

    /// The keeper is gone, so the tree has lost its parent. It has come to the zygote, which ends all of it. If there is no
    /// zygote either, everything that can be proven to be ours goes from here.
    async fn end_from_outside(&self) -> Vec<ProcessInfo> {
        let grace = Duration::from_millis(ORPHAN_GRACE_MS);
        let limit = Duration::from_millis(KILL_LIMIT_MS);
        if let Some(Ok(gone)) = self.origin.as_ref().map(Origin::orphans_gone) {
            let _ = tokio::time::timeout(grace + limit, ended(&gone)).await;
        }
        let (root, run_id) = (self.root.clone(), self.run_id.clone());
        let (cgroup, keeper) = (self.cgroup.clone(), self.run.keeper().clone());
        let end = move || {
            let cgroup = cgroup.as_deref().map(|path| Recorded { path, keeper: &keeper });
            let target = Target { cgroup, ..Target::spawned(&root, &run_id) };
            outside::end_tree(&target, libc::SIGTERM, grace, limit).survivors
        };
        match runtime::get() {
            Ok(runtime) => runtime.run(end).await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

/// As its keeper has told it.
fn extinct(status: Option<ExitStatus>, end: End) -> Extinct {
    let ending = Ending::Kept(end.cause);
    Extinct {
        ending,
        reason: Reason::of(ending, &end.reason, status, end.escaped.len()),
        limit_ms: end.limit_ms,
        force: end.force,
        escaped: end.escaped,
        survivors: end.survivors,
    }
}

/// Nobody was left to tell; it was ended from outside.
fn lost(survivors: Vec<ProcessInfo>) -> Extinct {
    let (ending, force) = (Ending::Lost, Force::Kill);
    let reason = Reason::of(ending, "", None, 0);
    Extinct { ending, reason, limit_ms: 0, force, escaped: Vec::new(), survivors }
}

async fn refusal(exec: OwnedFd) -> Option<Errno> {
    // SAFETY: the descriptor is owned by what is registered.
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

/// Waits for the end of a socket on which nothing is ever said.
async fn ended(socket: &OwnedFd) -> Option<()> {
    // SAFETY: the descriptor is borrowed, and outlives the registration.
    let socket = unsafe { AsyncFd::register(socket.as_fd()) }.ok()?;
    receive(&socket, &mut [0]).await.map(drop)
}

/// The next bytes. `None` at the end, or when there can be no more.
async fn receive(socket: &AsyncFd<impl AsFd + AsRawFd>, buffer: &mut [u8]) -> Option<usize> {
    loop {
        let mut ready = socket.readable().await.ok()?;
        // Else it was not ready after all.
        if let Ok(result) = ready.try_io(|socket| Ok(channel::receive_now(socket.get_ref(), buffer)?)) {
            return result.ok().filter(|&count| count > 0);
        }
    }
}
