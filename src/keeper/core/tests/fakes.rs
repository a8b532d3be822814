//! A tree and connections that log what the core does with them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::super::*;
use crate::contain::Usage;
use crate::contain::contained_tree::Unreachable;
use crate::errno::Errno;
use crate::run::ExitStatus;
use crate::run::lifecycle::KILL_LIMIT_MS;

pub const GRACE_MS: u64 = 100;
pub const EXITED: Option<ExitStatus> = Some(ExitStatus::Code(3));

pub type Log = Rc<RefCell<Vec<String>>>;

/// A tree that logs what is done to it. A step of the test sets what it contains.
pub struct FakeTree {
    log: Log,
    /// What each scan finds; the last one is repeated.
    pub found: VecDeque<Population>,
    pub status: Option<ExitStatus>,
    pub has_shrunk: bool,
    pub is_unfinished: bool,
    pub is_reachable: bool,
    pub next_check_in: Option<u64>,
}

impl FakeTree {
    fn log(&self, action: impl Into<String>) {
        self.log.borrow_mut().push(action.into());
    }
}

impl ContainedTree for FakeTree {
    const KILL_PASS_MS: u64 = 2;

    fn scan(&mut self) -> Population {
        self.log("scan");
        match self.found.len() {
            0 => Population::Living,
            1 => self.found[0].clone(),
            _ => self.found.pop_front().unwrap(),
        }
    }

    fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    fn has_shrunk(&mut self) -> bool {
        std::mem::take(&mut self.has_shrunk)
    }

    fn root_status(&self) -> Option<ExitStatus> {
        self.status
    }

    fn signal_root(&self, signal: i32) -> Result<(), Errno> {
        self.log(format!("signal root {signal}"));
        if self.status.is_some() { Err(Errno::ESRCH) } else { Ok(()) }
    }

    fn terminate(&mut self, signal: i32) -> Result<Vec<Leftover>, Unreachable> {
        self.log(format!("terminate {signal}"));
        if self.is_reachable { Ok(leftovers(&[1, 2])) } else { Err(Unreachable) }
    }

    fn next_check_in(&self) -> Option<u64> {
        self.next_check_in
    }

    fn pass(&mut self) -> Vec<Leftover> {
        self.log("pass");
        leftovers(&[2, 3])
    }

    fn kill(&mut self) -> Vec<ProcessInfo> {
        self.log("kill");
        vec![process(1), process(2), process(4)]
    }

    fn left_behind(&mut self) -> Vec<Leftover> {
        self.log("list leftovers");
        leftovers(&[1])
    }

    fn survivors(&mut self) -> Vec<ProcessInfo> {
        self.log("list survivors");
        vec![process(1)]
    }

    fn usage(&mut self) -> Usage {
        Usage { processes: 7, ..Usage::default() }
    }

    fn close(&mut self) {
        self.log("close");
    }
}

pub fn process(pid: i32) -> ProcessInfo {
    ProcessInfo { pid, start: 1, command: String::new(), why: String::new() }
}

pub fn leftovers(pids: &[i32]) -> Vec<Leftover> {
    pids.iter().map(|&pid| Leftover { process: process(pid), is_root: false, has_escaped: false }).collect()
}

/// Connections to an owner, and to one control client.
pub struct FakePlatform {
    log: Log,
    pub now: u64,
    pub has_owner: bool,
    pub can_record: bool,
}

impl FakePlatform {
    fn log(&self, receiver: &str, reports: &[Report]) {
        let reports: Vec<_> = reports.iter().map(text).collect();
        self.log.borrow_mut().push(format!("{receiver}: {}", reports.join(", ")));
    }
}

impl Platform for FakePlatform {
    type Client = u32;

    fn now(&self) -> u64 {
        self.now
    }

    fn ready(&self) -> Report {
        Report::Adopted { granted: true }
    }

    fn key(&self) -> String {
        String::new()
    }

    fn has_owner(&self) -> bool {
        self.has_owner
    }

    fn drop_owner(&mut self) {
        self.has_owner = false;
    }

    fn send_to_owner(&mut self, reports: &[Report]) -> bool {
        if self.has_owner {
            self.log("owner", reports);
        }
        self.has_owner
    }

    fn send_to_clients(&mut self, reports: &[Report]) {
        self.log("clients", reports);
    }

    fn answer(&mut self, client: &u32, report: Report) {
        self.log(&format!("client {client}"), &[report]);
    }

    fn make_owner(&mut self, _client: &u32) -> bool {
        self.has_owner = true;
        true
    }

    fn record_end(&self, end: &Ended) -> bool {
        let (Ended { status, .. }, cause) = (end, cause(end));
        self.log.borrow_mut().push(format!("record {cause:?} {status:?}"));
        self.can_record
    }
}

fn cause(ended: &Ended) -> Cause {
    let Ending::Cause(cause) = ended.ending else { unreachable!() };
    cause
}

pub fn text(report: &Report) -> String {
    match report {
        Report::Ending { cause, reason } => format!("Ending {cause:?} '{reason}'"),
        Report::RootExited(status) => format!("RootExited {status:?}"),
        Report::Extinct(ended) => {
            let Ended { named_reason: reason, force, leftovers, forced, survivors, .. } = ended;
            let cause = cause(ended);
            let pids = |list: &[ProcessInfo]| list.iter().map(|process| process.pid).collect::<Vec<_>>();
            let (leftovers, forced, survivors) = (pids(leftovers), pids(forced), pids(survivors));
            format!("Extinct {cause:?} '{reason}' {force:?} {leftovers:?} {forced:?} {survivors:?}")
        }
        Report::Warning { limit_ms, remaining_ms } => format!("Warning {limit_ms} {remaining_ms}"),
        Report::Usage(usage) => format!("Usage {}", usage.processes),
        Report::Adopted { granted } => format!("Adopted {granted}"),
        Report::SignalFailed { .. } => "SignalFailed".to_owned(),
        other => format!("{other:?}"),
    }
}

pub type FakeCore = Core<FakeTree, FakePlatform>;

pub fn core(rules: Rules) -> (FakeCore, Log) {
    let log = Log::default();
    let tree = FakeTree {
        log: log.clone(),
        found: VecDeque::new(),
        status: None,
        has_shrunk: false,
        is_unfinished: false,
        is_reachable: true,
        next_check_in: None,
    };
    let platform = FakePlatform { log: log.clone(), now: 0, has_owner: true, can_record: true };
    (Core::new(tree, platform, Lifecycle::new(rules)), log)
}

/// An event.
pub enum On {
    Owner(Request<'static>),
    Client(ControlRequest),
    OwnerGone,
    Shutdown,
    /// A scan finds this, with the root's exit status.
    Scan(Population, Option<ExitStatus>),
    /// Time has passed until this time.
    At(u64),
    /// From now on, no request to exit reaches the tree.
    Unreachable,
    /// A pass over the members is due, in the next tick and not in those after it.
    PassIsDue,
}

pub fn gone() -> On {
    On::Scan(Population::Gone(Vec::new()), EXITED)
}

pub fn living() -> On {
    On::Scan(Population::Living, None)
}

pub fn cancel(signal: i32, reason: &'static str) -> Request<'static> {
    Request::Cancel { signal, grace_ms: GRACE_MS, reason }
}

pub fn client_cancel(signal: i32, reason: &str) -> On {
    On::Client(ControlRequest::Cancel { signal, grace_ms: GRACE_MS, reason: reason.to_owned() })
}

pub fn apply(core: &mut FakeCore, event: &On) {
    match event {
        On::Owner(request) => assert!(core.serve_owner(request), "{request:?}"),
        On::Client(request) => core.serve_client(&1, request.clone()),
        On::OwnerGone => drop(core.owner_gone()),
        On::Shutdown => core.shut_down(),
        On::Scan(population, status) => {
            (core.tree.found, core.tree.status) = ([population.clone()].into(), *status);
            core.check_tree();
        }
        On::At(now) => {
            core.platform.now = *now;
            core.tick();
        }
        On::Unreachable => core.tree.is_reachable = false,
        On::PassIsDue => {
            core.tree.next_check_in = Some(0);
            core.tick();
            core.tree.next_check_in = None;
        }
    }
}

/// The actions that follow from each event, without the scans themselves.
pub fn actions(rules: Rules, events: &[On]) -> Vec<String> {
    let (mut core, log) = core(rules);
    for event in events {
        apply(&mut core, event);
    }
    log.take().into_iter().filter(|action| action != "scan").collect()
}

pub fn check(name: &str, rules: Rules, events: &[On], expected: &[&str]) {
    assert_eq!(actions(rules, events), expected, "{name}");
}

pub const KEPT: Rules = Rules { on_owner_exit: Policy::Keep, ..KILLED };
pub const LINGERING: Rules = Rules { on_leader_exit: Policy::Keep, ..KILLED };
pub const KILLED: Rules = Rules {
    on_owner_exit: Policy::Kill,
    on_leader_exit: Policy::Kill,
    grace_ms: GRACE_MS,
    timeout: None,
    kill_limit_ms: KILL_LIMIT_MS,
};
