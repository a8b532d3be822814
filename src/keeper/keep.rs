//! A keeper's life: start the command, hold the tree, report, end.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;

use super::protocol::{self, Inbox, Report, Request, Start};
use super::{channel, exec, signals, title};
use crate::contain::ProcessInfo;
use crate::contain::subreaper::{self, Tree};
use crate::identity::read_stat;
use crate::run::lifecycle::{Action, Event, Lifecycle, Rules};
use crate::run::{Cause, Policy};

/// While members are being killed, look again this often even if nobody reports: a fork may have slipped between a
/// look and its kill, and an orphan of a process that cannot die yet sends us no signal.
const KILL_PASS_MS: u64 = 2;

/// A report lists at most so many processes; beyond that the number is what matters, and the socket is bounded.
const MAX_LISTED: usize = 256;

/// Serves one run over its control socket and returns when the tree is extinct.
///
/// `Err` means that there was no run: nothing was asked for, or it could not be understood.
pub fn keep(control: OwnedFd) -> Result<(), Errno> {
    subreaper::become_subreaper()?;
    let signals = signals::listen()?;
    let mut inbox = Inbox::default();
    let mut fds = Vec::new();
    let payload = first_payload(&control, &mut inbox, &mut fds)?;
    let Ok(Request::Start(start)) = protocol::decode(&payload) else { return Err(Errno::EPROTO) };
    title::set(c"owned-keeper", &format!("spawn-owned-keeper {} {}", start.run_id, start.preview));

    let outcome = exec::start(&start, fds);
    let mut keeper = Keeper::new(control, signals, inbox, &start, *outcome.as_ref().unwrap_or(&0));
    match outcome {
        Ok(pid) => {
            // Our own unreaped child: whoever has this number now is the one we started.
            let token = read_stat(pid).map_or(0, |stat| stat.start);
            keeper.send(&[Report::Started { pid, start: token }]);
            drop(payload);
            keeper.hold();
        }
        Err(errno) => keeper.send(&[Report::SpawnFailed { errno: errno as i32 }]),
    }
    Ok(())
}

/// Blocks until the bot has asked for something, or is gone.
fn first_payload(control: &OwnedFd, inbox: &mut Inbox, fds: &mut Vec<OwnedFd>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        if let Some(payload) = inbox.next_payload().map_err(|_| Errno::EPROTO)? {
            return Ok(payload);
        }
        match channel::receive(control, &mut buffer, fds)? {
            0 => return Err(Errno::ECONNRESET),
            count => inbox.push(&buffer[..count]),
        }
    }
}

struct Keeper {
    /// `None` once the bot is gone.
    control: Option<OwnedFd>,
    signals: SignalFd,
    inbox: Inbox,
    tree: Tree,
    life: Lifecycle,
    born: Instant,
    grace_ms: u64,
    /// Whether a member outside the session at the root's end counts as an escape.
    escapes_count: bool,
    root_reported: bool,
    escaped: Vec<ProcessInfo>,
}

impl Keeper {
    fn new(control: OwnedFd, signals: SignalFd, inbox: Inbox, start: &Start, root: i32) -> Self {
        let rules = Rules {
            on_owner_exit: start.on_owner_exit,
            on_leader_exit: start.on_leader_exit,
            grace_ms: start.grace_ms,
            timeout: start.timeout,
        };
        Self {
            control: Some(control),
            signals,
            inbox,
            tree: Tree::new(root),
            life: Lifecycle::started(rules, 0),
            born: Instant::now(),
            grace_ms: start.grace_ms,
            escapes_count: start.on_leader_exit == Policy::Kill,
            root_reported: false,
            escaped: Vec::new(),
        }
    }

    /// Until the tree is extinct, or what is left of it cannot be ended.
    ///
    /// What has happened to the tree is looked at before what the bot asks for: a cancel that arrives together with
    /// the root's exit finds a run that ended by itself.
    fn hold(&mut self) {
        while !self.life.is_over() {
            let (signalled, spoken) = self.sleep();
            let asked_to_end = signalled && self.drain_signals();
            if signalled || self.life.is_killing() {
                self.look_at_tree();
            }
            if asked_to_end {
                self.tell(Event::Cancel { signal: Signal::SIGTERM as i32, grace_ms: self.grace_ms });
            }
            if spoken {
                self.listen();
            }
            self.tell(Event::Tick);
        }
    }

    /// Sleeps until a signal or a message arrives or a deadline passes: (signal, message).
    fn sleep(&self) -> (bool, bool) {
        let now = self.now();
        let until = self.life.wake_at().map(|at| at.saturating_sub(now));
        let until = if self.life.is_killing() { Some(until.unwrap_or(0).min(KILL_PASS_MS)) } else { until };
        // A deadline further away than poll can count only means one more turn of the loop.
        let timeout =
            until.map_or(PollTimeout::NONE, |ms| i32::try_from(ms).map_or(PollTimeout::MAX, poll_timeout));
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if let Some(control) = &self.control {
            fds.push(PollFd::new(control.as_fd(), PollFlags::POLLIN));
        }
        // EINTR cannot be: every signal we do not listen to has its default action.
        let _ = poll(&mut fds, timeout);
        let ready = |index: usize| {
            fds.get(index).is_some_and(|fd| fd.revents().is_some_and(|events| !events.is_empty()))
        };
        (ready(0), ready(1))
    }

    /// Takes the pending signals. True if one of them asks us to end.
    fn drain_signals(&mut self) -> bool {
        let mut asked = false;
        while let Ok(Some(info)) = self.signals.read_signal() {
            asked |= info.ssi_signo != Signal::SIGCHLD as u32;
        }
        asked
    }

    fn look_at_tree(&mut self) {
        // The kernel has the last word: were there a child left after all, we would go on.
        let empty = self.tree.reap() && self.tree.release_root();
        let root_exited = self.tree.root_status().filter(|_| !self.root_reported);
        if let Some(status) = root_exited {
            self.root_reported = true;
            if empty {
                // One write for both: a lone command's usual end.
                let over = self.over();
                self.send(&[Report::RootExited(status), over]);
                return;
            }
            self.send(&[Report::RootExited(status)]);
            if self.escapes_count && self.life.cause().is_none() {
                self.escaped = self.tree.escaped();
            }
            self.tell(Event::RootExited);
        } else if empty {
            let over = self.over();
            self.send(&[over]);
        } else if self.life.is_killing() {
            self.tree.kill();
        }
    }

    /// Everything the bot has said. Its silence for ever (end of file, or bytes that are not ours) means it is gone.
    fn listen(&mut self) {
        let Some(control) = &self.control else { return };
        let mut buffer = [0; 4096];
        // Descriptors that nobody asked for are closed right away.
        let received = channel::receive(control, &mut buffer, &mut Vec::new());
        match received {
            Ok(count) if count > 0 => self.inbox.push(&buffer[..count]),
            _ => return self.owner_gone(),
        }
        loop {
            match self.inbox.next_payload() {
                Ok(None) => return,
                Ok(Some(payload)) => match protocol::decode(&payload) {
                    Ok(Request::Signal { signal }) => self.signal_root(signal),
                    Ok(Request::Cancel { signal, grace_ms }) => self.tell(Event::Cancel { signal, grace_ms }),
                    Ok(Request::Start(_)) | Err(_) => return self.owner_gone(),
                },
                Err(_) => return self.owner_gone(),
            }
        }
    }

    fn owner_gone(&mut self) {
        self.control = None;
        self.tell(Event::OwnerGone);
    }

    fn signal_root(&mut self, signal: i32) {
        if let Err(errno) = self.tree.signal_root(signal) {
            self.send(&[Report::SignalFailed { errno: errno as i32 }]);
        }
    }

    fn tell(&mut self, event: Event) {
        let ending_before = self.life.cause().is_some();
        let action = self.life.on(event, self.now());
        if let (false, Some(cause @ (Cause::OverallTimeout | Cause::Cancel))) =
            (ending_before, self.life.cause())
        {
            self.send(&[Report::Ending(cause)]);
        }
        match action {
            Action::Nothing => {}
            Action::Terminate(signal) => self.tree.terminate(signal),
            Action::Kill => self.tree.kill(),
            Action::Finish => {
                let survivors = self.tree.survivors();
                let report = self.extinct(survivors);
                self.send(&[report]);
            }
        }
    }

    /// The tree is empty, the root's zombie gone: the report is true when it is read.
    fn over(&mut self) -> Report {
        self.life.on(Event::Empty, self.now());
        self.extinct(Vec::new())
    }

    fn extinct(&mut self, mut survivors: Vec<ProcessInfo>) -> Report {
        let mut escaped = std::mem::take(&mut self.escaped);
        survivors.truncate(MAX_LISTED);
        escaped.truncate(MAX_LISTED);
        let cause = self.life.cause().unwrap_or(Cause::RootExit);
        Report::Extinct { cause, escaped, survivors }
    }

    /// Reports in one write. A bot that no longer listens shows itself at the next read.
    fn send(&self, reports: &[Report]) {
        let Some(control) = &self.control else { return };
        let frames: Vec<u8> =
            reports.iter().filter_map(|report| protocol::encode(report).ok()).flatten().collect();
        let _ = channel::send_all(control, &frames, &[]);
    }

    /// Milliseconds of this keeper's life.
    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn poll_timeout(ms: i32) -> PollTimeout {
    PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
}
