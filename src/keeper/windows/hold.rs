//! Holding one run's job until nobody is left in it.
//!
//! Everything that happens comes in as a [`Message`], in one queue: what the owner and visitors ask for, that the root has ended, that
//! somebody has come into the job or gone. What has happened to the tree is looked at before what is asked for: a cancel that arrives
//! after the root's exit finds a run that ended by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::members::{self, Members, Noted};
use super::port::{self, Subscription};
use super::{Held, MAX_LISTED, console, door};
use crate::contain::ProcessInfo;
use crate::contain::job::Job;
use crate::errno::Errno;
use crate::identity::{ProcessRef, Wait};
use crate::keeper::protocol::{self, End, Process, Report, Request};
use crate::registry::Entry;
use crate::run::lifecycle::{Action, Event, Lifecycle, Rules};
use crate::run::signal::{SIGKILL, exit_code};
use crate::run::{Cause, ExitStatus, Policy, State};
use crate::runtime;

/// While members are being ended, they are looked at this often even if nobody reports.
const KILL_PASS_MS: u64 = 5;

/// How often a job is looked at whose root is gone, in case a message was lost.
const LINGER_PASS_MS: u64 = 1_000;

#[derive(Debug)]
pub enum Message {
    /// From the owner: a [`Request`] in the protocol's encoding.
    Asked(Vec<u8>),
    /// The owner is gone.
    HungUp,
    /// Somebody has come to the door. What it has missed is told first.
    Visitor(UnboundedSender<Report>),
    /// A visitor's request, and whom to answer.
    Wished(Vec<u8>, UnboundedSender<Report>),
    /// The root has ended.
    RootEnded,
    /// Somebody has come into the job or gone.
    Changed,
    /// Those who were in it are written down; those of whom that was possible.
    Noted(Noted),
}

/// Asks the tree to end by other means than its console. Returns whether it was asked.
pub type Polite = Box<dyn Fn() -> bool + Send + Sync>;

/// What is to be held.
pub struct Holding {
    pub job: Arc<Job>,
    pub root: Arc<Held>,
    pub rules: Rules,
    pub entry: Entry,
    /// How it is asked to end if it has a terminal.
    pub polite: Option<Polite>,
    /// How long it has run, if that is known. Else its deadline counts from when it is told that it runs.
    pub age: Option<Duration>,
}

/// Has the run held by the native thread. What is said to it, and what it says.
pub fn hold(
    holding: Holding,
    handle: &tokio::runtime::Handle,
) -> Result<(UnboundedSender<Message>, UnboundedReceiver<Report>), Errno> {
    door::open(handle);
    let (messages, inbox) = unbounded_channel();
    let (reports, ear) = unbounded_channel();
    // A job that another bot has had may still tell its port. Then nobody tells us, and it is looked at from time to time.
    let subscription = port::open().and_then(|port| port.listen(&holding.job, messages.clone())).ok();
    let told = messages.clone();
    let wait = holding.root.pin.on_exit(move || drop(told.send(Message::RootEnded)))?;
    let listed = door::list(holding.entry.key(), messages.clone());
    let mut life = Lifecycle::new(holding.rules);
    if holding.age.is_some() {
        life.on(Event::Started, 0);
    }
    let keeper = Keeper {
        life,
        age_ms: holding.age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        messages: messages.clone(),
        job: holding.job,
        root: holding.root,
        entry: holding.entry,
        polite: holding.polite,
        inbox,
        owner: Some(reports),
        visitors: Vec::new(),
        born: Instant::now(),
        reason: String::new(),
        asked: None,
        at_once: None,
        root_exit: None,
        active: u32::MAX,
        members: Members::default(),
        subscription,
        _wait: wait,
        _listed: listed,
    };
    handle.spawn(keeper.hold());
    Ok((messages, ear))
}

struct Keeper {
    /// First, so that it goes first: it waits for what the root holds.
    _wait: Wait,
    job: Arc<Job>,
    root: Arc<Held>,
    life: Lifecycle,
    /// Of the run, when it came to us.
    age_ms: u64,
    entry: Entry,
    /// To ourselves.
    messages: UnboundedSender<Message>,
    polite: Option<Polite>,
    inbox: UnboundedReceiver<Message>,
    /// `None` once it is gone.
    owner: Option<UnboundedSender<Report>>,
    visitors: Vec<UnboundedSender<Report>>,
    /// Since when we hold it.
    born: Instant,
    /// What the cancel that has ended the run gave as its reason.
    reason: String,
    /// The signal for which the tree was asked to end, and the one for which it is ended because it could not be asked.
    asked: Option<i32>,
    at_once: Option<i32>,
    root_exit: Option<ExitStatus>,
    active: u32,
    members: Members,
    subscription: Option<Subscription>,
    _listed: door::Listed,
}

impl Keeper {
    async fn hold(mut self) {
        self.look_at_tree();
        while !self.life.is_over() {
            let first = self.next_message().await;
            self.look_at_tree();
            if let Some(message) = first
                && !self.take(message)
            {
                return;
            }
            self.tell(Event::Tick);
        }
    }

    /// Sleeps until something happens, or it is time to look.
    async fn next_message(&mut self) -> Option<Message> {
        let now = self.now();
        let mut until = self.life.wake_at().map(|at| at.saturating_sub(now));
        if self.life.is_killing() {
            until = Some(until.unwrap_or(u64::MAX).min(KILL_PASS_MS));
        } else if self.root_exit.is_some() || self.subscription.is_none() {
            until = Some(until.unwrap_or(u64::MAX).min(LINGER_PASS_MS));
        }
        match until {
            Some(ms) => {
                tokio::time::timeout(Duration::from_millis(ms), self.inbox.recv()).await.ok().flatten()
            }
            None => self.inbox.recv().await,
        }
    }

    /// `false` if the run is nobody's here from now on.
    fn take(&mut self, message: Message) -> bool {
        match message {
            Message::Asked(payload) => self.obey(&payload),
            Message::HungUp => return self.owner_gone(),
            Message::Visitor(reports) => self.welcome(reports),
            Message::Wished(payload, visitor) => self.serve(&payload, &visitor),
            Message::RootEnded => {}
            Message::Changed => self.note_members(),
            Message::Noted(noted) => {
                self.members.known = noted.members;
                self.members.is_noting = false;
                if self.members.has_changed || !noted.is_all {
                    self.note_members();
                }
            }
        }
        true
    }

    fn look_at_tree(&mut self) {
        if let Some(subscription) = &self.subscription {
            subscription.looking();
        }
        if self.life.is_killing() {
            self.kill();
        }
        let Ok(active) = self.job.active() else { return };
        if active < self.active {
            self.tell(Event::Progress);
        }
        self.active = active;
        let root_exit = self.root.status(self.asked).filter(|_| self.root_exit.is_none());
        // The root is counted until the system is through with it: no more is needed, and no less.
        let is_empty = active == 0 && (self.root_exit.is_some() || root_exit.is_some());
        if let Some(status) = root_exit {
            self.root_exit = Some(status);
            self.send(&Report::RootExited(status));
            if !is_empty {
                self.tell(Event::RootExited);
            }
        }
        if is_empty && !self.life.is_over() {
            self.life.on(Event::Empty, self.now());
            self.finish(Vec::new());
        }
    }

    fn obey(&mut self, payload: &[u8]) {
        match protocol::decode(payload) {
            Ok(Request::Started) => self.tell(Event::Started),
            Ok(Request::Extend { ms }) => self.tell(Event::Extend { ms }),
            Ok(Request::Silent { limit_ms }) => self.tell(Event::Silent { limit_ms }),
            Ok(Request::Usage) => self.tell_owner(&Report::Usage(self.job.usage())),
            Ok(Request::Signal { signal }) => {
                if let Err(errno) = self.root.signal(signal) {
                    self.tell_owner(&Report::SignalFailed { errno: errno as i32 });
                }
            }
            Ok(Request::Cancel { signal, grace_ms, reason }) => self.cancel(signal, grace_ms, reason),
            Ok(Request::Own(_) | Request::Adopt | Request::Visit { .. }) | Err(_) => {}
        }
    }

    /// Visitors hear how it goes on, and what they have missed.
    fn welcome(&mut self, reports: UnboundedSender<Report>) {
        let named = |process: &ProcessRef| Process { pid: process.pid, start: process.start };
        let me = crate::identity::me().map_or(Process { pid: 0, start: 0 }, |me| named(&me));
        let ready = Report::Ready {
            keeper: me,
            root: named(&self.root.process),
            address: String::new(),
            cgroup: None,
        };
        let ending = self
            .life
            .cause()
            .filter(|_| self.life.state() == State::Exiting)
            .and_then(|cause| self.ending(cause));
        for report in [Some(ready), ending, self.root_exit.map(Report::RootExited)].into_iter().flatten() {
            let _ = reports.send(report);
        }
        self.visitors.push(reports);
    }

    fn serve(&mut self, payload: &[u8], visitor: &UnboundedSender<Report>) {
        match protocol::decode(payload) {
            Ok(Request::Cancel { signal, grace_ms, reason }) => self.cancel(signal, grace_ms, reason),
            Ok(Request::Usage) => drop(visitor.send(Report::Usage(self.job.usage()))),
            // Whoever may have it is told by the job's name; as long as we are here, somebody has it.
            Ok(Request::Adopt) => drop(visitor.send(Report::Adopted { granted: false })),
            _ => {}
        }
    }

    /// The reason of the cancel that does it is the run's.
    fn cancel(&mut self, signal: i32, grace_ms: u64, reason: &str) {
        if self.life.cause().is_none() {
            reason.clone_into(&mut self.reason);
        }
        self.tell(Event::Cancel { signal, grace_ms });
    }

    /// A run that outlives its bot is let go: its root has a handle of the job, by whose name the next owner finds it.
    fn owner_gone(&mut self) -> bool {
        self.owner = None;
        if self.life.rules().on_owner_exit == Policy::Keep && self.life.state() < State::Exiting {
            return false;
        }
        self.tell(Event::OwnerGone);
        true
    }

    fn tell(&mut self, event: Event) {
        let before = self.life.state();
        let action = self.life.on(event, self.now());
        if before < State::Exiting
            && self.life.state() == State::Exiting
            && let Some(ending) = self.life.cause().and_then(|cause| self.ending(cause))
        {
            self.send(&ending);
        }
        match action {
            Action::Nothing => {}
            Action::Warn { limit_ms, remaining_ms } => self.send(&Report::Warning { limit_ms, remaining_ms }),
            Action::Terminate(signal) => self.terminate(signal),
            Action::Kill => self.kill(),
            Action::Finish => {
                let survivors = self.survivors();
                self.finish(survivors);
            }
        }
    }

    /// Asks, if there is a way to ask. Who cannot be asked is not waited for either: it is ended at once, as Node does for any signal.
    fn terminate(&mut self, signal: i32) {
        self.asked = Some(signal);
        let was_asked = match &self.polite {
            Some(ask) => ask(),
            None => console::ask_to_end(&self.root.pin, &self.job),
        };
        if !was_asked {
            self.at_once = Some(signal);
            self.tell(Event::Cancel { signal: SIGKILL, grace_ms: 0 });
        }
    }

    /// Everybody in the job. Who is being created at this moment is found by the next look.
    fn kill(&mut self) {
        let signal = self.at_once.unwrap_or(SIGKILL);
        self.root.will_end_for(signal);
        let _ = self.job.terminate(exit_code(signal));
    }

    /// Those who are to be found when their bot is gone, and the root with it. Only of a run that outlives its bot.
    ///
    /// To look at many processes, and to write, may take a while: that is done elsewhere, and at most once in a [`members::NOTE_EVERY`].
    fn note_members(&mut self) {
        if self.life.rules().on_owner_exit != Policy::Keep {
            return;
        }
        self.members.has_changed = self.members.is_noting;
        if self.members.is_noting {
            return;
        }
        self.members.is_noting = true;
        let (job, entry, root) = (self.job.clone(), self.entry.clone(), self.root.process.clone());
        let (known, messages) = (std::mem::take(&mut self.members.known), self.messages.clone());
        tokio::spawn(async move {
            let note = move || members::note(&job, &entry, &root, known);
            let noted = match runtime::get() {
                Ok(runtime) => runtime.run(note).await,
                Err(_) => None,
            };
            tokio::time::sleep(members::NOTE_EVERY).await;
            let noted = noted.unwrap_or(Noted { members: Vec::new(), is_all: true });
            let _ = messages.send(Message::Noted(noted));
        });
    }

    /// That the tree is being ended. A root that exits by itself is told as such.
    fn ending(&self, cause: Cause) -> Option<Report> {
        (cause != Cause::RootExit).then(|| Report::Ending { cause, reason: self.reason.clone() })
    }

    /// Who is left. If that cannot be seen, somebody is said to be: nobody is only if nobody is counted.
    fn survivors(&self) -> Vec<ProcessInfo> {
        let members = self.job.members().unwrap_or_default();
        let described = members.iter().take(MAX_LISTED).filter_map(|pin| {
            let stat = pin.stat().ok()?;
            let why = "it was ended, and is still there".to_owned();
            Some(ProcessInfo { pid: stat.pid, start: stat.start, command: stat.comm, why })
        });
        let mut survivors: Vec<_> = described.collect();
        if survivors.is_empty() && self.job.active() != Ok(0) {
            let ProcessRef { pid, start, .. } = self.root.process;
            let why = "somebody is left in its job who cannot be seen".to_owned();
            survivors.push(ProcessInfo { pid, start, command: String::new(), why });
        }
        survivors
    }

    fn finish(&mut self, survivors: Vec<ProcessInfo>) {
        let end = End {
            cause: self.life.cause().unwrap_or(Cause::RootExit),
            reason: self.reason.clone(),
            limit_ms: self.life.limit_ms(),
            force: self.life.force(),
            // Nobody leaves a job.
            escaped: Vec::new(),
            survivors,
        };
        self.send(&Report::Extinct(end));
    }

    fn send(&mut self, report: &Report) {
        self.tell_owner(report);
        self.visitors.retain(|visitor| visitor.send(report.clone()).is_ok());
    }

    fn tell_owner(&self, report: &Report) {
        if let Some(owner) = &self.owner {
            let _ = owner.send(report.clone());
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(self.age_ms)
    }
}
