//! A run that has lost its bot, its keeper and its zygote, as `src/contain/outside/` and a reaper
//! see it. Beside it are processes that look like members: an older one that carries its key, one
//! with its id and the key of an earlier run, and a run of another bot that has got the PID of its
//! root. A caller still holds the `ChildProcess` of the root, and cancels by it.
//!
//! `contain/outside/` decides which processes are members. `ts/run/child-identity.ts` decides what a
//! handle means: nothing, after its process was seen to exit, or if the start token differs from
//! the one that was captured before the child could be reaped.

use spawn_owned::contain::outside::{Scan, Target};
use spawn_owned::identity::ProcessRef;
use spawn_owned::identity::stat::Stat;
use stateright::{Model, Property};

/// A deliberate mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// A process is a member if it carries the run's id.
    MemberById,
    /// A process that is older than the root may be a member.
    OlderMember,
    /// A member is signalled by its PID.
    SignalByPid,
    /// A handle refers to the run that has its PID now.
    HandleByPid,
    /// Only the root and its group are members.
    OnlyGroup,
}

impl Flaw {
    /// Each flaw, and the property that it must violate.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::MemberById, NO_BYSTANDER),
        (Self::OlderMember, NO_BYSTANDER),
        (Self::SignalByPid, NO_BYSTANDER),
        (Self::HandleByPid, NO_BYSTANDER),
        (Self::OnlyGroup, ALL_ENDED),
    ];
}

pub const NO_BYSTANDER: &str = "only processes of the run are signalled, whatever others carry";
pub const ALL_ENDED: &str = "every process that carries the run's key is ended";

pub const NAME: &str = "look-alikes beside a run without a keeper";
pub const CARRIERS: Carriers = Carriers { births: 3, flaw: None };

#[derive(Debug, Clone, Copy)]
pub struct Carriers {
    /// How many children the run may have.
    pub births: u8,
    pub flaw: Option<Flaw>,
}

const KEY: &str = "00112233445566778899aabbccddeeff";
const EARLIER_KEY: &str = "ffeeddccbbaa99887766554433221100";
const ROOT_PID: i32 = 100;
const ROOT_START: u64 = 5;
const CHILD_PID: i32 = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Root,
    Child,
    /// Started before the root, and carries its key: it has called `exec` with the environment of
    /// the run.
    Older,
    /// A daemon of an earlier run with the same id.
    Stale,
    /// A run of another bot. It may have the root's PID.
    OtherRun,
}

impl Kind {
    fn is_member(self) -> bool {
        matches!(self, Self::Root | Self::Child)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process {
    kind: Kind,
    pid: i32,
    start: u64,
    group: i32,
    /// Dead, and not reaped.
    is_zombie: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    processes: Vec<Process>,
    births: u8,
    /// The processes that the reaper will signal, by PID and start token.
    queue: Vec<(i32, u64)>,
    /// The caller's handle reports that its process has exited. That happens some time after the
    /// exit.
    handle_exited: bool,
    may_cancel: bool,
    bystander_signalled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Forks(i32),
    LeavesGroup(i32),
    Dies(i32),
    RootIsReaped,
    HandleSeesExit,
    /// A run of another bot gets the root's PID.
    PidIsReused,
    ReaperScans,
    ReaperSignals,
    CallerCancels,
}

impl Carriers {
    fn has(self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The product's decision: the live members of the run.
    fn members(self, world: &World) -> Vec<(i32, u64)> {
        let rows = world.processes.iter().map(|process| (self.stat(process), self.keys(process.kind)));
        let root = ProcessRef::known(ROOT_PID, ROOT_START);
        let key = if self.has(Flaw::OnlyGroup) { None } else { Some(KEY) };
        let found = Scan::of_processes(rows).tree(&Target::spawned(&root, key), None);
        let mut found: Vec<_> = found.iter().map(|stat| (stat.pid, stat.start)).collect();
        found.sort_unstable();
        found
    }

    fn stat(self, process: &Process) -> Stat {
        let is_young = self.has(Flaw::OlderMember) && process.kind == Kind::Older;
        Stat {
            pid: process.pid,
            comm: "x".into(),
            state: if process.is_zombie { 'Z' } else { 'S' },
            // Their parents have ended.
            ppid: 2,
            pgrp: process.group,
            session: process.group,
            threads: 1,
            start: if is_young { ROOT_START } else { process.start },
            ..Stat::default()
        }
    }

    fn keys(self, kind: Kind) -> Vec<String> {
        let key = match kind {
            Kind::Root | Kind::Child | Kind::Older => KEY,
            Kind::Stale | Kind::OtherRun if self.has(Flaw::MemberById) => KEY,
            Kind::Stale | Kind::OtherRun => EARLIER_KEY,
        };
        vec![key.to_owned()]
    }

    fn signal(self, world: &mut World, (pid, start): (i32, u64)) {
        let by_pid = self.has(Flaw::SignalByPid);
        let is_young = |process: &Process| self.has(Flaw::OlderMember) && process.kind == Kind::Older;
        let is_target = |it: &&mut Process| it.pid == pid && (by_pid || it.start == start || is_young(it));
        if let Some(process) = world.processes.iter_mut().find(is_target) {
            world.bystander_signalled |= !process.kind.is_member();
            process.is_zombie = true;
        }
    }

    /// The decision of `cancel(childProcess)`. The bot captured the start token right after it
    /// started the child.
    fn cancel_by_handle(self, world: &mut World) {
        if world.handle_exited && !self.has(Flaw::HandleByPid) {
            return;
        }
        let is_proven = |it: &&Process| it.start == ROOT_START || self.has(Flaw::HandleByPid);
        let found = world.processes.iter().find(|it| it.pid == ROOT_PID).filter(is_proven);
        if let Some(target) = found.map(|it| (it.pid, it.start)) {
            self.signal(world, target);
        }
    }

    fn steps(self, world: &World) -> Vec<Step> {
        let mut steps = Vec::new();
        for process in world.processes.iter().filter(|it| it.kind.is_member() && !it.is_zombie) {
            steps.push(Step::Dies(process.pid));
            steps.extend(
                (process.group == ROOT_PID && process.kind == Kind::Child)
                    .then_some(Step::LeavesGroup(process.pid)),
            );
            steps.extend((world.births > 0).then_some(Step::Forks(process.pid)));
        }
        let holder = world.processes.iter().find(|it| it.pid == ROOT_PID);
        let is_reapable = holder.is_some_and(|it| it.kind == Kind::Root && it.is_zombie);
        steps.extend(is_reapable.then_some(Step::RootIsReaped));
        // The kernel does not reuse a PID while a group has it as its ID.
        let is_free =
            world.processes.iter().all(|it| it.pid != ROOT_PID && (it.group != ROOT_PID || it.is_zombie));
        steps.extend(is_free.then_some(Step::PidIsReused));
        steps.extend((!world.handle_exited && !world.is_root_alive()).then_some(Step::HandleSeesExit));
        steps.extend(world.may_cancel.then_some(Step::CallerCancels));
        let is_due = world.queue.is_empty() && !self.members(world).is_empty();
        steps.extend(is_due.then_some(Step::ReaperScans));
        steps.extend((!world.queue.is_empty()).then_some(Step::ReaperSignals));
        steps
    }
}

impl World {
    fn new(births: u8) -> Self {
        let process = |kind, pid, start| Process { kind, pid, start, group: pid, is_zombie: false };
        Self {
            processes: vec![
                process(Kind::Root, ROOT_PID, ROOT_START),
                process(Kind::Older, 50, ROOT_START - 1),
                process(Kind::Stale, 60, ROOT_START + 1),
            ],
            births,
            queue: Vec::new(),
            handle_exited: false,
            may_cancel: true,
            bystander_signalled: false,
        }
    }

    fn is_root_alive(&self) -> bool {
        self.processes.iter().any(|it| it.kind == Kind::Root && !it.is_zombie)
    }

    fn with(&mut self, pid: i32, change: impl FnOnce(&mut Process)) {
        if let Some(process) = self.processes.iter_mut().find(|it| it.pid == pid) {
            change(process);
        }
    }
}

impl Model for Carriers {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.births)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        steps.extend(self.steps(world));
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        match step {
            Step::Forks(parent) => {
                let group =
                    world.processes.iter().find(|it| it.pid == parent).map_or(ROOT_PID, |it| it.group);
                let pid = CHILD_PID + i32::from(world.births);
                let start = ROOT_START + u64::from(self.births - world.births);
                world.births -= 1;
                world.processes.push(Process { kind: Kind::Child, pid, start, group, is_zombie: false });
            }
            Step::LeavesGroup(pid) => world.with(pid, |process| process.group = pid),
            Step::Dies(pid) => world.with(pid, |process| process.is_zombie = true),
            Step::RootIsReaped => world.processes.retain(|it| it.kind != Kind::Root),
            Step::HandleSeesExit => world.handle_exited = true,
            Step::PidIsReused => world.processes.push(Process {
                kind: Kind::OtherRun,
                pid: ROOT_PID,
                start: ROOT_START + 9,
                group: ROOT_PID,
                is_zombie: false,
            }),
            Step::ReaperScans => world.queue = self.members(&world),
            Step::ReaperSignals => {
                let target = world.queue.remove(0);
                self.signal(&mut world, target);
            }
            Step::CallerCancels => {
                world.may_cancel = false;
                self.cancel_by_handle(&mut world);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_BYSTANDER, |_, world: &World| !world.bystander_signalled),
            Property::always(ALL_ENDED, |model: &Self, world: &World| {
                let has_live_member = world.processes.iter().any(|it| it.kind.is_member() && !it.is_zombie);
                !has_live_member || !world.queue.is_empty() || !model.members(world).is_empty()
            }),
        ]
    }
}
