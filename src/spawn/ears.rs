//! Listening to one run until its end.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use tokio::io::unix::AsyncFd;

use super::run::Run;
use super::unix::refused_with;
use super::zygote::Origin;
use super::{Ending, OnEvent, RunEvent, runtime};
use crate::contain::ProcessInfo;
use crate::contain::outside::{self, Target};
use crate::identity::ProcessRef;
use crate::keeper::channel;
use crate::keeper::protocol::{self, Inbox, Report, Request};
use crate::registry::Entry;
use crate::run::lifecycle::{KILL_LIMIT_MS, ORPHAN_GRACE_MS};

pub struct Ears {
    pub run: Run,
    /// Closes when the command is executed; `None` if that was long ago.
    pub exec: Option<OwnedFd>,
    /// What the keeper has said already.
    pub heard: Vec<Report>,
    pub inbox: Inbox,
    pub root: ProcessRef,
    /// `None` for an adopted run: another bot's zygote is none of ours.
    pub origin: Option<Origin>,
    pub run_id: String,
    pub entry: Entry,
    /// To be armed when the command runs.
    pub has_deadline: bool,
    pub on_event: OnEvent,
}

impl Ears {
    pub async fn listen(mut self) {
        if let Some(exec) = self.exec.take() {
            if let Some(errno) = refusal(exec).await {
                self.entry.over();
                return (self.on_event)(RunEvent::Refused(errno));
            }
            self.entry.started();
        }
        if self.has_deadline {
            // A keeper that cannot be told is dead, which shows at once.
            let _ = self.run.ask(&Request::Arm);
        }
        let heard = self.hear().await;
        self.run.over();
        let last = match heard {
            Some(last) => last,
            // We have hung up ourselves, and the run is its keeper's business.
            None if self.run.is_abandoned() => return self.entry.abandon(),
            None => {
                // Usually it is dead. If it merely talks nonsense, this tells it that we are through with it.
                self.run.hang_up();
                let survivors = self.end_from_outside().await;
                RunEvent::Extinct {
                    ending: Ending::Lost,
                    reason: String::new(),
                    escaped: Vec::new(),
                    survivors,
                }
            }
        };
        // Written down before it is told: whoever hears of the end finds no entry any more.
        self.entry.over();
        (self.on_event)(last);
    }

    /// Passes on what the keeper says; returns its last word, or `None` if it died without one.
    async fn hear(&mut self) -> Option<RunEvent> {
        // SAFETY: the descriptor is owned by what is registered.
        let socket = unsafe { AsyncFd::register(self.run.clone()) }.ok()?;
        let mut buffer = [0; 1024];
        let mut heard = std::mem::take(&mut self.heard).into_iter();
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
                Report::Extinct { cause, reason, escaped, survivors } => {
                    let ending = Ending::Kept(cause);
                    return Some(RunEvent::Extinct { ending, reason, escaped, survivors });
                }
                // Not for an owner's ears.
                Report::Ready { .. } | Report::Adopted { .. } => return None,
                Report::Ending(cause) => {
                    self.entry.exiting();
                    (self.on_event)(RunEvent::Ending(cause));
                }
                Report::RootExited(status) => (self.on_event)(RunEvent::RootExited(status)),
                Report::SignalFailed { errno } => {
                    (self.on_event)(RunEvent::SignalFailed(Errno::from_raw(errno)));
                }
            }
        }
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
        let end = move || {
            outside::end_tree(&Target::spawned(&root, &run_id), libc::SIGTERM, grace, limit).survivors
        };
        match runtime::get() {
            Ok(runtime) => runtime.run(end).await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

/// Waits until the command was executed (`None`, usually at once), or has failed to be.
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
