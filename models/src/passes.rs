//! The phase between the first signal and SIGKILL (follows `src/keeper/core.rs`). The keeper
//! scans the tree, signals each member that has not received the signal, and scans again. Meanwhile
//! processes start, leave their group, and exit, in every order. `contain/termination.rs` decides
//! which signal each member gets.

use std::time::Instant;

use spawn_owned::contain::termination::{Step as Sent, Termination};
use spawn_owned::identity::stat::Stat;
use spawn_owned::run::signal::SIGTERM;
use stateright::{Model, Property};

/// A deliberate mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The tree is scanned once.
    OnePass,
    /// One signal goes to the whole group, and every process that was in it at the scan counts as
    /// signalled.
    SignalGroup,
    /// A process counts as signalled if an earlier one with its PID was.
    RecordByPid,
    /// Nothing is recorded: every pass signals every process.
    NothingRecorded,
    /// The signal goes to the process that has the PID now.
    SignalByPid,
}

impl Flaw {
    /// Each flaw, and the property that it must violate.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::OnePass, ALL_SIGNALLED),
        (Self::SignalGroup, ALL_SIGNALLED),
        (Self::RecordByPid, ALL_SIGNALLED),
        (Self::NothingRecorded, SIGNALLED_ONCE),
        (Self::SignalByPid, NO_BYSTANDER),
    ];
}

pub const ALL_SIGNALLED: &str = "every process of the tree, whenever it starts, gets the signal";
pub const SIGNALLED_ONCE: &str = "no process gets the signal twice";
pub const NO_BYSTANDER: &str = "only processes of the run get the signal";

/// A tree that is being ended.
#[derive(Debug, Clone, Copy)]
pub struct Passes {
    /// How many processes may be born.
    pub births: u8,
    pub flaw: Option<Flaw>,
}

pub const NAME: &str = "births while a tree is being ended";
pub const PASSES: Passes = Passes { births: 4, flaw: None };

/// The root's zombie holds its PID.
const ROOT: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    pid: u8,
    start: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process {
    id: Identity,
    in_group: bool,
    /// How often it has received the signal.
    received: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tree {
    alive: Vec<Process>,
    /// PIDs of ended processes.
    free: Vec<u8>,
    /// The PID that a process outside the run has got.
    stranger: Option<u8>,
    births: u8,
    has_scanned: bool,
    /// The targets that this pass has not signalled yet.
    queue: Vec<Target>,
    signalled: Vec<Identity>,
    bystander_signalled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    One(Identity),
    /// The whole group; these processes were in it at the scan.
    Group(Vec<Identity>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The process with the first PID forks a child, which gets the second PID.
    Forks(u8, u8),
    LeavesGroup(u8),
    Dies(u8),
    StrangerGetsPid(u8),
    KeeperScans,
    KeeperSignals,
}

impl Passes {
    fn has(self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The product's decision: the processes to signal now.
    fn plan(self, tree: &Tree) -> Vec<Identity> {
        let stat = |id: Identity| Stat {
            pid: i32::from(id.pid),
            start: if self.has(Flaw::RecordByPid) { 0 } else { u64::from(id.start) },
            state: 'S',
            threads: 1,
            ..Stat::default()
        };
        let now = Instant::now();
        let mut termination = Termination::new(SIGTERM, now);
        if tree.has_scanned {
            termination.passed(&[], false, now, now);
        }
        for id in tree.signalled.iter().filter(|_| !self.has(Flaw::NothingRecorded)) {
            termination.note(&stat(*id), Sent::Signal);
        }
        let members: Vec<_> = tree.alive.iter().map(|process| stat(process.id)).collect();
        let members: Vec<_> = members.iter().collect();
        let planned = termination.plan(&members, |_| Some(0));
        let is_planned =
            |pid: u8| planned.iter().any(|(stat, step)| stat.pid == i32::from(pid) && *step == Sent::Signal);
        tree.alive.iter().map(|process| process.id).filter(|id| is_planned(id.pid)).collect()
    }

    fn is_scan_due(self, tree: &Tree) -> bool {
        let is_allowed = !(tree.has_scanned && self.has(Flaw::OnePass));
        is_allowed && tree.queue.is_empty() && !self.plan(tree).is_empty()
    }

    fn scan(self, tree: &mut Tree) {
        let planned = self.plan(tree);
        let is_in_group = |id: &Identity| tree.alive.iter().any(|it| it.id == *id && it.in_group);
        tree.queue = if self.has(Flaw::SignalGroup) {
            let (group, others): (Vec<_>, Vec<_>) = planned.into_iter().partition(is_in_group);
            std::iter::once(Target::Group(group)).chain(others.into_iter().map(Target::One)).collect()
        } else {
            planned.into_iter().map(Target::One).collect()
        };
        tree.has_scanned = true;
    }

    fn signal(self, tree: &mut Tree) {
        match tree.queue.remove(0) {
            Target::One(id) => {
                let by_pid = self.has(Flaw::SignalByPid);
                tree.bystander_signalled |= by_pid && tree.stranger == Some(id.pid);
                let is_target = |it: &&mut Process| if by_pid { it.id.pid == id.pid } else { it.id == id };
                if let Some(process) = tree.alive.iter_mut().find(is_target) {
                    process.received += 1;
                    tree.signalled.push(process.id);
                }
            }
            Target::Group(members) => {
                tree.alive.iter_mut().filter(|it| it.in_group).for_each(|it| it.received += 1);
                tree.signalled.extend(members);
            }
        }
        tree.signalled.sort_by_key(|id| (id.pid, id.start));
        tree.signalled.dedup();
    }

    fn steps(self, tree: &Tree) -> Vec<Step> {
        let mut steps = Vec::new();
        for Process { id, in_group, .. } in &tree.alive {
            steps.push(Step::Dies(id.pid));
            steps.extend(in_group.then_some(Step::LeavesGroup(id.pid)));
            if tree.births > 0 {
                steps.push(Step::Forks(id.pid, tree.unused_pid()));
                steps.extend(tree.free.iter().map(|pid| Step::Forks(id.pid, *pid)));
            }
        }
        if tree.stranger.is_none() {
            steps.extend(tree.free.iter().map(|pid| Step::StrangerGetsPid(*pid)));
        }
        steps.extend(self.is_scan_due(tree).then_some(Step::KeeperScans));
        steps.extend((!tree.queue.is_empty()).then_some(Step::KeeperSignals));
        steps
    }
}

impl Tree {
    fn new(births: u8) -> Self {
        let id = Identity { pid: ROOT, start: 0 };
        Self {
            alive: vec![Process { id, in_group: true, received: 0 }],
            free: Vec::new(),
            stranger: None,
            births,
            has_scanned: false,
            queue: Vec::new(),
            signalled: Vec::new(),
            bystander_signalled: false,
        }
    }

    /// Each birth has a new PID, unless it gets one of an ended process. Start tokens distinguish
    /// these.
    fn unused_pid(&self) -> u8 {
        u8::MAX - self.births
    }

    fn with(&mut self, pid: u8, change: impl FnOnce(&mut Process)) {
        if let Some(process) = self.alive.iter_mut().find(|it| it.id.pid == pid) {
            change(process);
        }
    }

    /// Whether progress is certain: the keeper has work to do, or a signalled process ends.
    fn is_progressing(&self, model: Passes) -> bool {
        !self.queue.is_empty() || model.is_scan_due(self) || self.alive.iter().any(|it| it.received > 0)
    }
}

impl Model for Passes {
    type State = Tree;
    type Action = Step;

    fn init_states(&self) -> Vec<Tree> {
        vec![Tree::new(self.births)]
    }

    fn actions(&self, tree: &Tree, steps: &mut Vec<Step>) {
        steps.extend(self.steps(tree));
    }

    fn next_state(&self, before: &Tree, step: Step) -> Option<Tree> {
        let mut tree = before.clone();
        match step {
            Step::Forks(parent, pid) => {
                let in_group = tree.alive.iter().any(|it| it.id.pid == parent && it.in_group);
                let start = self.births - tree.births + 1;
                tree.births -= 1;
                tree.free.retain(|it| *it != pid);
                tree.alive.push(Process { id: Identity { pid, start }, in_group, received: 0 });
            }
            Step::LeavesGroup(pid) => tree.with(pid, |process| process.in_group = false),
            Step::Dies(pid) => {
                tree.alive.retain(|it| it.id.pid != pid);
                tree.free.extend((pid != ROOT).then_some(pid));
                tree.free.sort_unstable();
            }
            Step::StrangerGetsPid(pid) => {
                tree.free.retain(|it| *it != pid);
                tree.stranger = Some(pid);
            }
            Step::KeeperScans => self.scan(&mut tree),
            Step::KeeperSignals => self.signal(&mut tree),
        }
        Some(tree)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_BYSTANDER, |_, tree: &Tree| !tree.bystander_signalled),
            Property::always(SIGNALLED_ONCE, |_, tree: &Tree| tree.alive.iter().all(|it| it.received < 2)),
            Property::always(ALL_SIGNALLED, |model: &Self, tree: &Tree| {
                tree.alive.is_empty() || tree.is_progressing(*model)
            }),
        ]
    }
}
