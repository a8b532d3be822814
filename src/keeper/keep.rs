//! A keeper's life: fork a blank, wait until it is needed, hold its tree, report, end.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{ForkResult, Pid, getpid};

use super::protocol::{self, End, InCgroup, Inbox, Own, Process, Report, Request};
use super::signals::Signals;
use super::visitors::{Visitors, Wish};
use super::{blank, channel, nest, signals, title};
use crate::contain::ProcessInfo;
use crate::contain::cgroup::{Cgroup, Trouble};
use crate::contain::inside::{self, Tree};
use crate::identity::read_stat;
use crate::registry::{self, Exit, Line};
use crate::run::lifecycle::{Action, Event, Lifecycle, Rules};
use crate::run::reason::{Ending, Reason};
use crate::run::{Cause, ExitStatus, Policy, State};

/// While members are being killed, look again this often even if nobody reports: a fork may have slipped between a
/// look and its kill, and an orphan of a process that cannot die yet sends us no signal.
pub const KILL_PASS_MS: u64 = 2;

/// How often shells are looked at that are to end after all others.
const SHELL_PASS_MS: u64 = 10;

/// How long the end of a run is kept in mind for a bot that comes back, if it could not be written down.
const REMEMBER_MS: u64 = 60 * 60 * 1_000;
/// And how often that is tried again.
const RETRY_MS: u64 = 30_000;

/// A report lists at most so many processes; beyond that the number is what matters, and the socket is bounded.
const MAX_LISTED: usize = 1024;

/// Forks a blank, waits until it is given a run, and returns when that run's tree is extinct.
///
/// `Err` means that there was not even a blank, or that something of the tree is left. If there is none because there is no
/// cgroup, the bot is told.
pub fn keep(control: OwnedFd, launch: OwnedFd, bot: Pid, order: Option<&InCgroup>) -> Result<(), Errno> {
    inside::become_subreaper()?;
    let signals = signals::listen()?;
    title::set(super::NAME, "spawn-owned-keeper waiting");
    let cgroup = match nest::build(order) {
        Ok(cgroup) => cgroup,
        Err(trouble) => return tell_trouble(&control, trouble),
    };
    let (stands, standing) = std::io::pipe().map_err(|_| Errno::EMFILE)?;
    // SAFETY: this process has one thread. The child waits, does system calls and calls `exec`, or ends.
    let root = match unsafe { nest::fork_child(cgroup.as_ref(), &standing) } {
        Ok(ForkResult::Child) => {
            drop((control, signals, stands));
            blank::wait(launch, standing, bot);
        }
        Ok(ForkResult::Parent { child }) => child.as_raw(),
        Err(errno) => {
            return cgroup.map_or(Err(errno), |nest| tell_trouble(&control, nest::given_up(&nest, errno)));
        }
    };
    drop((launch, standing));
    if let Err(trouble) = nest::await_standing(stands, root, cgroup.as_ref()) {
        return tell_trouble(&control, trouble);
    }
    let mut keeper = Keeper::new(control, signals, root, cgroup)?;
    keeper.wait_for_run();
    keeper.hold();
    keeper.remember();
    // What we could not end falls to the zygote, which looks after it if we do not end as if all were well.
    if keeper.left_something() { Err(Errno::EBUSY) } else { Ok(()) }
}

struct Keeper {
    /// `None` once the bot is gone.
    control: Option<OwnedFd>,
    signals: Signals,
    inbox: Inbox,
    tree: Tree,
    life: Lifecycle,
    born: Instant,
    visitors: Visitors,
    /// Where the end is written down if no owner hears it, and the entry's key.
    registry: String,
    key: String,
    /// What the cancel that has ended the run gave as its reason.
    reason: String,
    /// Ourselves and the root, as the bot is to know us.
    me: Process,
    root: Process,
    cgroup: Option<String>,
    root_reported: bool,
    escaped: Vec<ProcessInfo>,
    /// The last word, once it is spoken, and whether somebody has heard it or can read it.
    end: Option<End>,
    known: bool,
}

impl Keeper {
    /// Announces the blank. Until the bot has given it a run, its rules are those for a bot that dies.
    fn new(control: OwnedFd, signals: Signals, root: i32, cgroup: Option<Cgroup>) -> Result<Self, Errno> {
        let keeper = Self {
            cgroup: cgroup.as_ref().map(|cgroup| cgroup.path().to_string_lossy().into_owned()),
            // Ourselves, and our own unreaped child: nobody else can have these numbers now.
            me: process(getpid().as_raw())?,
            root: process(root)?,
            control: Some(control),
            signals,
            inbox: Inbox::default(),
            tree: Tree::new(root, cgroup)?,
            life: Lifecycle::new(Rules::default()),
            born: Instant::now(),
            visitors: Visitors::expect(),
            registry: String::new(),
            key: String::new(),
            reason: String::new(),
            root_reported: false,
            escaped: Vec::new(),
            end: None,
            known: false,
        };
        keeper.tell_owner(&encode(&[keeper.ready()]));
        Ok(keeper)
    }

    /// Blocks until the bot has given the blank a run, or is gone, or somebody else has cancelled it. What happens to the tree meanwhile
    /// is looked at afterwards: only the rules say what it means.
    ///
    /// The bot tells the blank first. If it dies in between, a tree may be there already, and it is ended like that of any
    /// bot that is gone. If it is stopped in between, the run is on record and can be visited like any other.
    fn wait_for_run(&mut self) {
        while self.life.cause().is_none() {
            match self.inbox.next_payload() {
                Ok(Some(payload)) => {
                    let Ok(Request::Own(own)) = protocol::decode(&payload) else { return self.owner_gone() };
                    self.take_run(&own);
                    // More may have come with it, and poll does not tell of what was already received.
                    return self.obey();
                }
                Ok(None) => {}
                Err(_) => return self.owner_gone(),
            }
            let Woken { spoken, visited, .. } = self.sleep_through(None, Heed::Callers);
            if visited {
                self.serve_visitors();
            }
            if spoken && !self.receive() {
                return self.owner_gone();
            }
        }
    }

    /// The rules of a run that is being ended already change nothing about that.
    fn take_run(&mut self, own: &Own) {
        title::set(super::NAME, &format!("spawn-owned-keeper {} {}", own.run_id, own.preview));
        self.tree.expect_carriers(own.run_id);
        (self.registry, self.key) = (own.registry.to_owned(), own.key.to_owned());
        let &Own { on_owner_exit, on_leader_exit, grace_ms, timeout, .. } = own;
        if self.life.cause().is_none() {
            self.life = Lifecycle::new(Rules {
                on_owner_exit,
                on_leader_exit,
                grace_ms,
                timeout,
                ..Rules::default()
            });
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
                until if self.tree.awaits_shells() => Some(until.unwrap_or(SHELL_PASS_MS).min(SHELL_PASS_MS)),
                until => until,
            };
            let Woken { signalled, spoken, visited } = self.sleep(until);
            let asked_to_end = signalled && self.signals.take();
            if signalled || spoken || self.life.is_killing() || self.tree.needs_another_look() {
                self.look_at_tree();
            }
            if visited {
                self.serve_visitors();
            }
            if asked_to_end {
                self.tell(Event::Shutdown);
            }
            if spoken {
                self.listen();
            }
            self.tell(Event::Tick);
            if self.tree.awaits_shells() && !self.life.is_killing() {
                self.tree.ask_shells();
            }
        }
    }

    fn left_something(&self) -> bool {
        self.end.as_ref().is_some_and(|end| !end.survivors.is_empty())
    }

    /// The run is over, nobody has heard it, and it could not be written down: stay until somebody asks, within reason.
    fn remember(&mut self) {
        let forget_at = self.now().saturating_add(REMEMBER_MS);
        // An owner that came after the end was told of it when it came in.
        while !self.known
            && self.control.is_none()
            && !self.visitors.address().is_empty()
            && self.now() < forget_at
        {
            let woken = self.sleep(Some(RETRY_MS.min(forget_at.saturating_sub(self.now()))));
            if woken.signalled && self.signals.take() {
                return;
            }
            if woken.visited {
                self.serve_visitors();
            }
            // Whoever comes may have made room.
            self.known = self.write_down();
        }
    }

    /// Sleeps until something happens, at most so many milliseconds.
    fn sleep(&self, limit: Option<u64>) -> Woken {
        self.sleep_through(limit, Heed::Everything)
    }

    /// The same, through what is not heeded: that is still to be seen afterwards.
    fn sleep_through(&self, limit: Option<u64>, heed: Heed) -> Woken {
        // A deadline further away than poll can count only means one more turn of the loop.
        let timeout =
            limit.map_or(PollTimeout::NONE, |ms| i32::try_from(ms).map_or(PollTimeout::MAX, poll_timeout));
        let own = [Some(self.signals.as_fd()), self.control.as_ref().map(AsFd::as_fd)];
        let watched = own.into_iter().flatten().chain(self.visitors.watched());
        let mut fds: Vec<_> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let visitors = 1 + usize::from(self.control.is_some())..fds.len();
        match heed {
            Heed::Everything => fds.extend(self.tree.changes()),
            Heed::Callers => fds[0].set_events(PollFlags::empty()),
        }
        // EINTR cannot be: every signal we do not listen to has its default action.
        let _ = poll(&mut fds, timeout);
        let ready = |fd: &PollFd| fd.any().unwrap_or(false);
        Woken {
            signalled: ready(&fds[0]) || fds[visitors.end..].iter().any(ready),
            spoken: self.control.is_some() && ready(&fds[1]),
            visited: fds[visitors].iter().any(ready),
        }
    }

    /// Lets in who knocks and does what visitors ask for. What the last owner may have missed is told to all of them.
    fn serve_visitors(&mut self) {
        let exited = self.tree.root_status().map(Report::RootExited);
        let ending = self
            .life
            .cause()
            .filter(|_| self.life.state() == State::Exiting)
            .and_then(|cause| self.ending(cause));
        let over = self.end.clone().map(Report::Extinct);
        let news: Vec<_> = [Some(self.ready()), ending, exited, over].into_iter().flatten().collect();
        self.visitors.welcome(&encode(&news));
        for (id, wish) in self.visitors.wishes() {
            match wish {
                Wish::Cancel { signal, grace_ms, reason } => self.cancel(signal, grace_ms, &reason),
                Wish::Usage => self.visitors.answer(id, &encode(&[Report::Usage(self.tree.usage())])),
                Wish::Adopt => self.adopt(id),
            }
        }
    }

    /// A visitor becomes the owner, if the last one is gone.
    ///
    /// Whoever comes may know of the last one's death before we do: that is what it comes for.
    fn adopt(&mut self, id: u32) {
        if self.control.as_ref().is_some_and(|control| channel::has_hung_up(control) == Ok(true)) {
            self.owner_gone();
        }
        if self.control.is_some() {
            return self.visitors.answer(id, &encode(&[Report::Adopted { granted: false }]));
        }
        if let Some(guest) = self.visitors.take(id) {
            (self.control, self.inbox) = (Some(guest.socket), guest.inbox);
            self.tell_owner(&encode(&[Report::Adopted { granted: true }]));
        }
    }

    fn ready(&self) -> Report {
        let (address, cgroup) = (self.visitors.address().to_owned(), self.cgroup.clone());
        Report::Ready { keeper: self.me, root: self.root, address, cgroup }
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
                return self.finish(&[Report::RootExited(status), over]);
            }
            self.send(&[Report::RootExited(status)]);
            if self.life.rules().on_leader_exit == Policy::Kill && self.life.cause().is_none() {
                self.escaped = self.tree.escaped();
            }
            self.tell(Event::RootExited);
        } else if empty {
            let over = self.over();
            self.finish(&[over]);
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
                    Ok(Request::Started) => self.tell(Event::Started),
                    Ok(Request::Extend { ms }) => self.tell(Event::Extend { ms }),
                    Ok(Request::Silent { limit_ms }) => self.tell(Event::Silent { limit_ms }),
                    Ok(Request::Usage) => {
                        let usage = Report::Usage(self.tree.usage());
                        self.tell_owner(&encode(&[usage]));
                    }
                    Ok(Request::Signal { signal }) => self.signal_root(signal),
                    Ok(Request::Cancel { signal, grace_ms, reason }) => self.cancel(signal, grace_ms, reason),
                    // It was cancelled before the bot got round to saying what it is.
                    Ok(Request::Own(own)) if self.key.is_empty() => self.take_run(&own),
                    Ok(Request::Own(_) | Request::Adopt) | Err(_) => return self.owner_gone(),
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
            self.tell_owner(&encode(&[Report::SignalFailed { errno: errno as i32 }]));
        }
    }

    /// The reason of the cancel that does it is the run's.
    fn cancel(&mut self, signal: i32, grace_ms: u64, reason: &str) {
        if self.life.cause().is_none() {
            reason.clone_into(&mut self.reason);
        }
        self.tell(Event::Cancel { signal, grace_ms });
    }

    fn tell(&mut self, event: Event) {
        let before = self.life.state();
        let action = self.life.on(event, self.now());
        if before < State::Exiting
            && self.life.state() == State::Exiting
            && let Some(ending) = self.life.cause().and_then(|cause| self.ending(cause))
        {
            self.send(&[ending]);
        }
        match action {
            Action::Nothing => {}
            Action::Warn { limit_ms, remaining_ms } => {
                self.send(&[Report::Warning { limit_ms, remaining_ms }]);
            }
            Action::Terminate(signal) => self.tree.terminate(signal),
            Action::Kill => self.tree.kill(),
            Action::Finish => {
                let survivors = self.tree.survivors();
                // If there are none that is all; else the kernel refuses, and we are through with it all the same.
                self.tree.remove_cgroup();
                let report = self.extinct(survivors);
                self.finish(&[report]);
            }
        }
    }

    /// That the tree is being ended. A root that exits by itself is told as such.
    fn ending(&self, cause: Cause) -> Option<Report> {
        (cause != Cause::RootExit).then(|| Report::Ending { cause, reason: self.reason.clone() })
    }

    /// The tree is empty, the root's zombie gone: the report is true when it is read.
    fn over(&mut self) -> Report {
        self.tree.remove_cgroup();
        self.life.on(Event::Empty, self.now());
        self.extinct(Vec::new())
    }

    fn extinct(&mut self, mut survivors: Vec<ProcessInfo>) -> Report {
        let mut escaped = std::mem::take(&mut self.escaped);
        survivors.truncate(MAX_LISTED);
        escaped.truncate(MAX_LISTED);
        let end = End {
            cause: self.life.cause().unwrap_or(Cause::RootExit),
            reason: self.reason.clone(),
            limit_ms: self.life.limit_ms(),
            force: self.life.force(),
            escaped,
            survivors,
        };
        self.end = Some(end.clone());
        Report::Extinct(end)
    }

    /// Reports in one write, to everybody. A bot that no longer listens shows itself at the next read.
    fn send(&mut self, reports: &[Report]) {
        let frames = encode(reports);
        self.tell_owner(&frames);
        self.visitors.tell(&frames);
    }

    fn tell_owner(&self, frames: &[u8]) -> bool {
        self.control.as_ref().is_some_and(|control| channel::send_all(control, frames, &[]).is_ok())
    }

    /// The last word. If there is no owner to hear it, it is written down first: whoever hears it from us may then rely on
    /// finding it.
    fn finish(&mut self, reports: &[Report]) {
        let frames = encode(reports);
        self.known = self.tell_owner(&frames) || self.write_down();
        self.visitors.tell(&frames);
    }

    fn write_down(&self) -> bool {
        let Some(End { cause, reason, limit_ms, escaped, survivors, .. }) = &self.end else { return false };
        let status = self.tree.root_status();
        let ending = Ending::Kept(*cause);
        let exit = Exit {
            at_ms: registry::now_ms(),
            reason: Reason::of(ending, reason, status, escaped.len()).name().to_owned(),
            ending: ending.name().to_owned(),
            limit_ms: *limit_ms,
            exit_code: status.and_then(ExitStatus::code),
            signal: status.and_then(ExitStatus::signal),
            survivors: survivors.len(),
        };
        let line = Line::Ended { key: self.key.clone(), exit };
        // A bot that died before it gave us a run has left nothing to be written down either.
        self.key.is_empty() || registry::record_end(Path::new(&self.registry), &line).is_ok()
    }

    /// Milliseconds of this keeper's life.
    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// There will be no run here.
fn tell_trouble(control: &OwnedFd, trouble: Trouble) -> Result<(), Errno> {
    channel::send_all(control, &encode(&[Report::NoCgroup(trouble)]), &[])
}

fn encode(reports: &[Report]) -> Vec<u8> {
    reports.iter().filter_map(|report| protocol::encode(report).ok()).flatten().collect()
}

fn process(pid: i32) -> Result<Process, Errno> {
    Ok(Process { pid, start: read_stat(pid)?.start })
}

/// What ends a sleep.
#[derive(Debug, Clone, Copy)]
enum Heed {
    Everything,
    /// The bot, and visitors; not signals, nor what happens to the tree.
    Callers,
}

/// Why a sleep has ended; none of it if time is up.
struct Woken {
    /// There is a signal, or something has happened to the tree.
    signalled: bool,
    /// The bot has said something, or is gone.
    spoken: bool,
    /// Somebody has knocked, or a visitor has said something.
    visited: bool,
}

fn poll_timeout(ms: i32) -> PollTimeout {
    PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
}
