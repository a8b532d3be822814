//! A keeper's life: fork a blank, wait until it is needed, hold its tree, report, end.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::unistd::{ForkResult, Pid, fork, getpid};

use super::address::Address;
use super::protocol::{self, Inbox, Own, Process, Report, Request};
use super::{blank, channel, signals, title};
use crate::contain::ProcessInfo;
use crate::contain::subreaper::{self, Tree};
use crate::identity::read_stat;
use crate::run::lifecycle::{Action, Event, Lifecycle, Rules};
use crate::run::{Cause, Policy};

/// While members are being killed, look again this often even if nobody reports: a fork may have slipped between a
/// look and its kill, and an orphan of a process that cannot die yet sends us no signal.
pub const KILL_PASS_MS: u64 = 2;

/// How long the end of a run is kept in mind for a bot that comes back.
const REMEMBER_MS: u64 = 60 * 60 * 1_000;

/// A report lists at most so many processes; beyond that the number is what matters, and the socket is bounded.
const MAX_LISTED: usize = 1024;

/// Forks a blank, waits until it is given a run, and returns when that run's tree is extinct.
///
/// `Err` means that there was not even a blank, or that something of the tree is left.
pub fn keep(control: OwnedFd, launch: OwnedFd, bot: Pid) -> Result<(), Errno> {
    subreaper::become_subreaper()?;
    let signals = signals::listen()?;
    title::set(c"owned-keeper", "spawn-owned-keeper waiting");
    let (mut stands, standing) = std::io::pipe().map_err(|_| Errno::EMFILE)?;
    // SAFETY: this process has one thread, so the child may do whatever we may.
    let root = match unsafe { fork() }? {
        ForkResult::Child => {
            drop((control, signals, stands));
            blank::wait(launch, standing, bot);
        }
        ForkResult::Parent { child } => child.as_raw(),
    };
    drop((launch, standing));
    // Its end means that the blank leads its session, or is dead already.
    let _ = stands.read(&mut [0]);
    drop(stands);
    let mut keeper = Keeper::new(control, signals, root)?;
    keeper.wait_for_run();
    keeper.hold();
    keeper.remember();
    // What we could not end falls to the zygote, which looks after it if we do not end as if all were well.
    if keeper.left_something() { Err(Errno::EBUSY) } else { Ok(()) }
}

struct Keeper {
    /// `None` once the bot is gone.
    control: Option<OwnedFd>,
    signals: SignalFd,
    inbox: Inbox,
    tree: Tree,
    life: Lifecycle,
    born: Instant,
    rules: Rules,
    /// Where the next owner finds us, if the run may outlive this one.
    address: Option<Address>,
    /// Ourselves and the root, as the bot is to know us.
    me: Process,
    root: Process,
    root_reported: bool,
    escaped: Vec<ProcessInfo>,
    /// The last word, once it is spoken.
    end: Option<Report>,
}

impl Keeper {
    /// Announces the blank. Until the bot has given it a run, its rules are those for a bot that dies.
    fn new(control: OwnedFd, signals: SignalFd, root: i32) -> Result<Self, Errno> {
        let keeper = Self {
            // Ourselves, and our own unreaped child: nobody else can have these numbers now.
            me: process(getpid().as_raw())?,
            root: process(root)?,
            control: Some(control),
            signals,
            inbox: Inbox::default(),
            tree: Tree::new(root),
            life: Lifecycle::new(Rules::default()),
            born: Instant::now(),
            rules: Rules::default(),
            address: None,
            root_reported: false,
            escaped: Vec::new(),
            end: None,
        };
        keeper.send(&[keeper.ready()]);
        Ok(keeper)
    }

    /// Blocks until the bot has given the blank a run, or is gone. What happens to the tree meanwhile is looked at
    /// afterwards.
    ///
    /// The bot tells the blank first. If it dies in between, a tree may be there already, and it is ended like that of any
    /// bot that is gone.
    fn wait_for_run(&mut self) {
        let payload = loop {
            match self.inbox.next_payload() {
                Ok(Some(payload)) => break payload,
                Ok(None) if self.receive() => {}
                _ => return self.owner_gone(),
            }
        };
        let Ok(Request::Own(own)) = protocol::decode(&payload) else { return self.owner_gone() };
        title::set(c"owned-keeper", &format!("spawn-owned-keeper {} {}", own.run_id, own.preview));
        let Own { on_owner_exit, on_leader_exit, grace_ms, .. } = own;
        self.rules = Rules { on_owner_exit, on_leader_exit, grace_ms };
        self.life = Lifecycle::new(self.rules);
        if on_owner_exit == Policy::Keep {
            self.open_address();
        }
        // More may have come with it, and poll does not tell of what was already received.
        self.obey();
    }

    /// A run that may outlive its bot must be found by the next one. One that could not be is not kept.
    fn open_address(&mut self) {
        match Address::open() {
            Ok(address) => {
                self.send(&[Report::Reachable { name: address.name().to_owned() }]);
                self.address = Some(address);
            }
            Err(errno) => {
                self.send(&[Report::Unreachable { errno: errno as i32 }]);
                self.rules.on_owner_exit = Policy::Kill;
                self.life = Lifecycle::new(self.rules);
            }
        }
    }

    /// Until the tree is extinct, or what is left of it cannot be ended.
    ///
    /// What has happened to the tree is looked at before what the bot asks for: a cancel that arrives after the root's
    /// exit finds a run that ended by itself.
    fn hold(&mut self) {
        while !self.life.is_over() {
            let until = self.life.wake_at().map(|at| at.saturating_sub(self.now()));
            let until = match until {
                _ if self.tree.needs_another_look() => Some(0),
                until if self.life.is_killing() => Some(until.unwrap_or(0).min(KILL_PASS_MS)),
                until => until,
            };
            let Woken { signalled, spoken, visited } = self.sleep(until);
            let asked_to_end = signalled && self.drain_signals();
            if signalled || spoken || self.life.is_killing() || self.tree.needs_another_look() {
                self.look_at_tree();
            }
            if visited {
                self.welcome();
            }
            if asked_to_end {
                self.tell(Event::Shutdown);
            }
            if spoken {
                self.listen();
            }
            self.tell(Event::Tick);
        }
    }

    fn left_something(&self) -> bool {
        matches!(&self.end, Some(Report::Extinct { survivors, .. }) if !survivors.is_empty())
    }

    /// The run is over, and its bot did not live to hear it: stay until the next one asks, within reason.
    fn remember(&mut self) {
        let forget_at = self.now().saturating_add(REMEMBER_MS);
        while self.control.is_none() && self.address.is_some() && self.now() < forget_at {
            let woken = self.sleep(Some(forget_at - self.now()));
            if woken.signalled && self.drain_signals() {
                return;
            }
            if woken.visited {
                self.welcome();
            }
        }
    }

    /// Sleeps until something happens, at most so many milliseconds.
    fn sleep(&self, limit: Option<u64>) -> Woken {
        // A deadline further away than poll can count only means one more turn of the loop.
        let timeout =
            limit.map_or(PollTimeout::NONE, |ms| i32::try_from(ms).map_or(PollTimeout::MAX, poll_timeout));
        // With a bot, its words; without, a knock at the door.
        let other = match (&self.control, &self.address) {
            (Some(control), _) => Some(control.as_fd()),
            (None, address) => address.as_ref().map(AsFd::as_fd),
        };
        let watched = [Some(self.signals.as_fd()), other];
        let mut fds: Vec<_> =
            watched.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // EINTR cannot be: every signal we do not listen to has its default action.
        let _ = poll(&mut fds, timeout);
        let ready = |index: usize| fds.get(index).and_then(PollFd::any).unwrap_or(false);
        let (signalled, other) = (ready(0), ready(1));
        let owned = self.control.is_some();
        Woken { signalled, spoken: other && owned, visited: other && !owned }
    }

    /// A new owner: tell it all that the last one may have missed.
    fn welcome(&mut self) {
        self.control = self.address.as_ref().and_then(Address::accept);
        self.inbox = Inbox::default();
        let exited = self.tree.root_status().map(Report::RootExited);
        let news: Vec<_> = [Some(self.ready()), exited, self.end.clone()].into_iter().flatten().collect();
        self.send(&news);
    }

    fn ready(&self) -> Report {
        Report::Ready { keeper: self.me, root: self.root }
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
        // Kill before counting the dead: a tree that forks faster than we can reap must not win by that.
        if self.life.is_killing() {
            self.tree.kill();
        }
        // The kernel has the last word: were there a child left after all, we would go on.
        let empty = self.tree.reap() && self.tree.release_root();
        if self.tree.has_shrunk() {
            self.tell(Event::Progress);
        }
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
            if self.rules.on_leader_exit == Policy::Kill && self.life.cause().is_none() {
                self.escaped = self.tree.escaped();
            }
            self.tell(Event::RootExited);
        } else if empty {
            let over = self.over();
            self.send(&[over]);
        }
    }

    /// Everything the bot has said. Its silence for ever, or bytes that are not ours, mean that it is gone.
    fn listen(&mut self) {
        if self.receive() { self.obey() } else { self.owner_gone() }
    }

    fn obey(&mut self) {
        loop {
            match self.inbox.next_payload() {
                Ok(None) => return,
                Ok(Some(payload)) => match protocol::decode(&payload) {
                    Ok(Request::Arm(timeout)) => self.tell(Event::Arm(timeout)),
                    Ok(Request::Signal { signal }) => self.signal_root(signal),
                    Ok(Request::Cancel { signal, grace_ms }) => self.tell(Event::Cancel { signal, grace_ms }),
                    Ok(Request::Own(_)) | Err(_) => return self.owner_gone(),
                },
                Err(_) => return self.owner_gone(),
            }
        }
    }

    /// Takes what has arrived, or waits for it. `false` at the end.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 1024];
        let Some(control) = &self.control else { return false };
        // Descriptors that nobody asked for are closed right away.
        match channel::receive(control, &mut buffer, &mut Vec::new()) {
            Ok(count) => {
                self.inbox.push(&buffer[..count]);
                count > 0
            }
            Err(_) => false,
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
        if let (false, Some(cause @ (Cause::OverallTimeout | Cause::Cancel | Cause::Shutdown))) =
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
        let end = Report::Extinct { cause, escaped, survivors };
        self.end = Some(end.clone());
        end
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

fn process(pid: i32) -> Result<Process, Errno> {
    Ok(Process { pid, start: read_stat(pid)?.start })
}

/// Why a sleep has ended; none of it if time is up.
struct Woken {
    signalled: bool,
    /// The bot has said something, or is gone.
    spoken: bool,
    /// Somebody wants to be the new owner.
    visited: bool,
}

fn poll_timeout(ms: i32) -> PollTimeout {
    PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
}
