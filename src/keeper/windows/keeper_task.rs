//! The keeper task on Windows: contains one run's job until the job is empty.
//!
//! All events arrive as a [`Message`] in one queue: requests of the owner and of control clients,
//! the root's exit, and changes of the job's members. The task checks the tree before it handles a
//! request. So a cancel that arrives after the root's exit finds a run that ended by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::completion_port;
use super::job_tree::JobTree;
use super::member_handles::MemberHandles;
use super::members::{self, Members, RecordedMembers};
use super::{RootProcess, control_pipe};
use crate::contain::job::Job;
use crate::errno::Errno;
use crate::identity::{ProcessRef, Wait};
use crate::keeper::control_request::ControlRequest;
use crate::keeper::core::{Core, Platform};
use crate::keeper::protocol::{self, Process, Report};
use crate::registry::Entry;
use crate::run::lifecycle::{Event, Lifecycle, Rules};
use crate::run::{Ended, Policy};
use crate::runtime;

#[derive(Debug)]
pub enum Message {
    /// A request of the owner: a `Request` in the protocol's encoding.
    Asked(Vec<u8>),
    /// The owner is gone.
    HungUp,
    /// A control client has connected. It first gets the reports that it has missed.
    ClientConnected(UnboundedSender<Report>),
    /// A control client's request, and the channel for the answer.
    ClientRequest(ControlRequest, UnboundedSender<Report>),
    /// The root has exited.
    RootExited,
    /// A process has entered or left the job.
    Changed,
    /// All messages that the job posted before its keeper asked for this one have been handled.
    CaughtUp,
    /// The registry contains the job's members, as far as they could be identified.
    Recorded(RecordedMembers),
}

/// Requests the end of a tree that has a terminal. Returns whether the request was sent.
pub type Polite = Box<dyn Fn() -> bool + Send + Sync>;

/// A run to contain.
pub struct Holding {
    pub job: Arc<Job>,
    pub root: Arc<RootProcess>,
    pub rules: Rules,
    pub entry: Entry,
    /// How to request the end of a run that has a terminal.
    pub polite: Option<Polite>,
    /// How long the run has been running, if known. If not, its overall timeout counts from
    /// `Request::Started`.
    pub age: Option<Duration>,
}

/// Starts the keeper task on the native thread. Returns the channels to it and from it.
pub fn hold(
    holding: Holding,
    handle: &tokio::runtime::Handle,
) -> Result<(UnboundedSender<Message>, UnboundedReceiver<Report>), Errno> {
    control_pipe::open(handle);
    let (messages, inbox) = unbounded_channel();
    let (reports, owner_reports) = unbounded_channel();
    // A job of another bot may still be associated with that bot's port. Then there is no
    // subscription, and the task checks the job at intervals.
    let handles = Arc::new(MemberHandles::new(holding.job.clone(), holding.root.pin.pid()));
    let subscription = completion_port::open()
        .and_then(|port| port.listen(&holding.job, handles.clone(), messages.clone()))
        .ok();
    let on_exit = messages.clone();
    let wait = holding.root.pin.on_exit(move || drop(on_exit.send(Message::RootExited)))?;
    let listed = control_pipe::list(holding.entry.key(), messages.clone());
    let mut life = Lifecycle::new(holding.rules);
    if holding.age.is_some() {
        life.on(Event::Started, 0);
    }
    let connections = Connections {
        owner: Some(reports),
        clients: Vec::new(),
        root: holding.root.process.clone(),
        started_at: Instant::now(),
        age_ms: holding.age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
    };
    let tree = JobTree::new(holding.job, holding.root, handles, subscription, holding.polite);
    let keeper = Keeper {
        _wait: wait,
        core: Core::new(tree, connections, life),
        entry: holding.entry,
        messages: messages.clone(),
        inbox,
        members: Members::default(),
        _listed: listed,
    };
    handle.spawn(keeper.run_until_over());
    Ok((messages, owner_reports))
}

struct Keeper {
    /// The first field, so that it is dropped first: it waits on the root's handle.
    _wait: Wait,
    core: Core<JobTree, Connections>,
    entry: Entry,
    /// The sender of `inbox`.
    messages: UnboundedSender<Message>,
    inbox: UnboundedReceiver<Message>,
    members: Members,
    _listed: control_pipe::Listed,
}

impl Keeper {
    async fn run_until_over(mut self) {
        self.core.check_tree();
        while !self.core.is_over() {
            let message = self.next_message().await;
            self.core.check_tree();
            if let Some(message) = message
                && !self.handle(message)
            {
                return;
            }
            self.core.tick();
        }
    }

    /// Sleeps until a message arrives or a check is due.
    async fn next_message(&mut self) -> Option<Message> {
        match self.core.wake_in() {
            Some(ms) => {
                tokio::time::timeout(Duration::from_millis(ms), self.inbox.recv()).await.ok().flatten()
            }
            None => self.inbox.recv().await,
        }
    }

    /// Handles a message. False if this task no longer contains the run.
    fn handle(&mut self, message: Message) -> bool {
        match message {
            Message::Asked(payload) => {
                let is_valid =
                    protocol::decode(&payload).is_ok_and(|request| self.core.serve_owner(&request));
                return is_valid || !self.core.owner_gone();
            }
            // The job keeps a run that outlives its bot, because the root has a handle of the job.
            // The next owner opens it by its name.
            Message::HungUp => return !self.core.owner_gone(),
            Message::ClientConnected(reports) => self.add_client(reports),
            Message::ClientRequest(request, client) => self.core.serve_client(&client, request),
            Message::RootExited => {}
            Message::CaughtUp => {
                if self.core.tree.caught_up() {
                    self.core.check_tree();
                }
            }
            Message::Changed => self.record_members(),
            Message::Recorded(recorded) => {
                self.members.recorded = recorded.members;
                self.members.is_recording = false;
                if self.members.has_changed || !recorded.is_complete {
                    self.record_members();
                }
            }
        }
        true
    }

    /// Adds a control client. It gets the reports that it has missed, and all later ones.
    fn add_client(&mut self, reports: UnboundedSender<Report>) {
        for report in self.core.missed_reports() {
            let _ = reports.send(report);
        }
        self.core.platform.clients.push(reports);
    }

    /// Writes the members of a run that outlives its bot to the registry. A reaper needs them when
    /// both the bot and the root are gone.
    ///
    /// It can take long to inspect many processes and to write. So another thread does it, at most
    /// once per [`members::RECORD_EVERY`].
    fn record_members(&mut self) {
        if self.core.rules().on_owner_exit != Policy::Keep {
            return;
        }
        self.members.has_changed = self.members.is_recording;
        if self.members.is_recording {
            return;
        }
        self.members.is_recording = true;
        let (job, root) = (self.core.tree.job.clone(), self.core.tree.root.process.clone());
        let entry = self.entry.clone();
        let (recorded, messages) = (std::mem::take(&mut self.members.recorded), self.messages.clone());
        tokio::spawn(async move {
            let record = move || members::record(&job, &entry, &root, recorded);
            let recorded = match runtime::get() {
                Ok(runtime) => runtime.run(record).await,
                Err(_) => None,
            };
            tokio::time::sleep(members::RECORD_EVERY).await;
            let recorded = recorded.unwrap_or(RecordedMembers { members: Vec::new(), is_complete: true });
            let _ = messages.send(Message::Recorded(recorded));
        });
    }
}

/// The keeper's side of all connections: a queue for each receiver of reports.
struct Connections {
    /// `None` after the owner has gone.
    owner: Option<UnboundedSender<Report>>,
    clients: Vec<UnboundedSender<Report>>,
    root: ProcessRef,
    started_at: Instant,
    /// The run's age when this task started.
    age_ms: u64,
}

impl Platform for Connections {
    type Client = UnboundedSender<Report>;

    /// The run's age in milliseconds.
    fn now(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(self.age_ms)
    }

    fn ready(&self) -> Report {
        let identity = |process: &ProcessRef| Process { pid: process.pid, start: process.start };
        Report::Ready {
            keeper: crate::identity::me().map_or(Process { pid: 0, start: 0 }, |me| identity(&me)),
            root: identity(&self.root),
            address: String::new(),
            cgroup: None,
        }
    }

    fn key(&self) -> String {
        self.root.to_string()
    }

    fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    fn drop_owner(&mut self) {
        self.owner = None;
    }

    fn send_to_owner(&mut self, reports: &[Report]) -> bool {
        let owner = self.owner.as_ref();
        owner.is_some_and(|owner| reports.iter().all(|report| owner.send(report.clone()).is_ok()))
    }

    fn send_to_clients(&mut self, reports: &[Report]) {
        self.clients.retain(|client| reports.iter().all(|report| client.send(report.clone()).is_ok()));
    }

    fn answer(&mut self, client: &Self::Client, report: Report) {
        let _ = client.send(report);
    }

    /// False: while this task exists, the bot contains the run. The next owner opens the job by its
    /// name instead.
    fn make_owner(&mut self, _client: &Self::Client) -> bool {
        false
    }

    /// True: the bot itself is the keeper, so the end of a run without owner needs no record here.
    fn record_end(&self, _end: &Ended) -> bool {
        true
    }
}
