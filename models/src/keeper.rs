//! The run itself, its keeper (follows `src/keeper/core.rs`), and its zygote (follows
//! `src/keeper/zygote.rs`).

use spawn_owned::run::lifecycle::{Action, Event, Lifecycle, Rules};
use spawn_owned::run::signal::SIGTERM;
use spawn_owned::run::{Cause, State};

use crate::flaws::Flaw;
use crate::model::Scenario;
use crate::world::{Child, EndReport, Launch, Life, Report, Request, Root, Who, World};

const GRACE_MS: u64 = 5_000;

/// The steps of the exec stub, the command and its child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStep {
    Executes,
    FailsToExecute,
    StubGivesUp,
    Forks,
    CommandExits,
    ChildExits,
}

pub fn run_steps(world: &World) -> Vec<RunStep> {
    let mut steps = Vec::new();
    let mut add_if = |is_possible: bool, step| steps.extend(is_possible.then_some(step));
    let (stub, command) = (world.root == Root::Stub, world.root == Root::Command);
    add_if(stub && world.launch == Launch::Sent, RunStep::Executes);
    add_if(stub && world.launch == Launch::Sent && world.budget.exec_fails, RunStep::FailsToExecute);
    add_if(stub && world.launch == Launch::Closed, RunStep::StubGivesUp);
    add_if(command && world.child == Child::Unborn && world.budget.forks, RunStep::Forks);
    add_if(command, RunStep::CommandExits);
    add_if(world.child == Child::Alive, RunStep::ChildExits);
    steps
}

pub fn take_run(world: &mut World, step: RunStep) {
    match step {
        RunStep::Executes => (world.root, world.launch) = (Root::Command, Launch::Executed),
        RunStep::FailsToExecute => (world.root, world.launch) = (Root::Zombie, Launch::Refused),
        RunStep::StubGivesUp | RunStep::CommandExits => world.root = Root::Zombie,
        RunStep::Forks => world.child = Child::Alive,
        RunStep::ChildExits => world.child = Child::Gone,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    ReadsOwnerMessage,
    SeesOwnerGone,
    ScansTree,
    GraceExpires,
    ServesClient,
    /// Reports the end: to the owner, or else to the registry.
    ReportsEnd,
    InformsClients,
    Exits,
}

pub fn steps(scenario: &Scenario, world: &World) -> Vec<Step> {
    let keeper = &world.keeper;
    let mut steps = Vec::new();
    if keeper.life != Life::Alive {
        return steps;
    }
    let mut add_if = |is_possible: bool, step| steps.extend(is_possible.then_some(step));
    let has_disconnected = keeper.owner.is_some_and(|owner| world.has_disconnected(owner));
    let is_over = keeper.lifecycle.is_over();
    if !is_over {
        add_if(keeper.owner.is_some() && !keeper.inbox.is_empty(), Step::ReadsOwnerMessage);
        let waits_forever = scenario.has(Flaw::OrphanWaits);
        add_if(has_disconnected && keeper.inbox.is_empty() && !waits_forever, Step::SeesOwnerGone);
    }
    if !is_over && !keeper.is_waiting {
        add_if(is_scan_due(world), Step::ScansTree);
        let is_terminating = keeper.lifecycle.state() == State::Exiting && !keeper.lifecycle.is_killing();
        add_if(is_terminating, Step::GraceExpires);
        add_if(!keeper.connecting.is_empty(), Step::ServesClient);
    }
    match keeper.end_report {
        EndReport::NotYet => {}
        EndReport::Due if scenario.has(Flaw::ClientsInformedFirst) && !keeper.clients.is_empty() => {
            add_if(true, Step::InformsClients);
        }
        EndReport::Due => add_if(true, Step::ReportsEnd),
        EndReport::Known => add_if(true, Step::InformsClients),
        EndReport::Sent => add_if(true, Step::Exits),
    }
    steps
}

/// Whether a scan of the tree would find a change.
fn is_scan_due(world: &World) -> bool {
    let is_killing = world.keeper.lifecycle.is_killing();
    let root_is_dead = !world.is_root_alive();
    (is_killing && !world.is_tree_empty())
        || (root_is_dead && !world.keeper.has_reported_root)
        || world.is_tree_empty()
}

pub fn take(scenario: &Scenario, world: &mut World, step: Step) {
    match step {
        Step::ReadsOwnerMessage => match world.keeper.inbox.remove(0) {
            Request::AssignRun => {
                let on_owner_exit = World::on_owner_exit(scenario.is_kept);
                let rules = Rules { on_owner_exit, grace_ms: GRACE_MS, ..Rules::default() };
                world.keeper.lifecycle = Lifecycle::new(rules);
                (world.keeper.has_rules, world.keeper.is_waiting) = (true, false);
            }
            Request::Cancel | Request::Adopt => cancel(scenario, world),
        },
        Step::SeesOwnerGone => owner_gone(scenario, world),
        Step::ScansTree => scan_tree(scenario, world),
        Step::GraceExpires => {
            world.keeper.now = world.keeper.lifecycle.wake_at().unwrap_or(world.keeper.now);
            apply(scenario, world, Event::Tick);
        }
        Step::ServesClient => {
            let (who, ask) = world.keeper.connecting.remove(0);
            serve(scenario, world, who, ask);
        }
        Step::ReportsEnd => {
            let is_connected = world.keeper.owner.is_some_and(|owner| !world.has_disconnected(owner));
            if is_connected {
                world.keeper.outbox.push(Report::Extinct);
            } else if world.keeper.has_rules {
                world.registry.ended();
            }
            world.keeper.end_report = EndReport::Known;
        }
        Step::InformsClients => inform_clients(world),
        Step::Exits => (world.keeper.life, world.keeper.is_clean) = (Life::Dead, true),
    }
}

fn inform_clients(world: &mut World) {
    world.violations.client_informed_before_end_was_known |=
        world.keeper.end_report != EndReport::Known && !world.keeper.clients.is_empty();
    for client in std::mem::take(&mut world.keeper.clients) {
        world.violations.reported_too_early |= world.is_run_alive();
        if let Some(other) = world.other_mut(client) {
            other.was_informed = true;
        }
    }
    if world.keeper.end_report == EndReport::Known {
        world.keeper.end_report = EndReport::Sent;
    }
}

fn serve(scenario: &Scenario, world: &mut World, who: Who, ask: Request) {
    match ask {
        Request::Cancel | Request::AssignRun => {
            world.keeper.clients.push(who);
            cancel(scenario, world);
        }
        Request::Adopt => {
            // The control client may know of the last owner's death before the keeper does: that is
            // why it comes.
            if world.keeper.owner.is_some_and(|owner| world.has_disconnected(owner)) {
                owner_gone(scenario, world);
            }
            let granted = world.keeper.owner.is_none() && !world.has_disconnected(who);
            if granted {
                world.keeper.owner = Some(who);
                world.keeper.outbox.clear();
            }
            if let Some(other) = world.other_mut(who) {
                other.granted = Some(granted);
            }
        }
    }
}

fn cancel(scenario: &Scenario, world: &mut World) {
    apply(scenario, world, Event::Cancel { signal: SIGTERM, grace_ms: GRACE_MS });
}

fn owner_gone(scenario: &Scenario, world: &mut World) {
    (world.keeper.owner, world.keeper.is_waiting) = (None, false);
    world.keeper.inbox.clear();
    world.keeper.outbox.clear();
    apply(scenario, world, Event::OwnerGone);
}

fn scan_tree(scenario: &Scenario, world: &mut World) {
    if world.keeper.lifecycle.is_killing() {
        kill(scenario, world);
    }
    let is_root_exit_new = !world.is_root_alive() && !world.keeper.has_reported_root;
    if scenario.has(Flaw::RootNotHeld) && world.root == Root::Zombie {
        world.root = Root::Reaped;
    }
    if world.is_tree_empty() {
        // The keeper reaps the root's zombie only when nothing else is left.
        world.root = Root::Reaped;
        world.keeper.has_reported_root = true;
        world.keeper.lifecycle.on(Event::Empty, world.keeper.now);
        world.keeper.end_report = EndReport::Due;
    } else if is_root_exit_new {
        world.keeper.has_reported_root = true;
        send(world, Report::RootExited);
        apply(scenario, world, Event::RootExited);
    }
}

fn apply(scenario: &Scenario, world: &mut World, event: Event) {
    let before = world.keeper.lifecycle.state();
    let action = world.keeper.lifecycle.on(event, world.keeper.now);
    let lifecycle = &world.keeper.lifecycle;
    let is_requested = lifecycle.cause().is_some_and(|cause| cause != Cause::RootExit);
    if before < State::Exiting && lifecycle.state() == State::Exiting && is_requested {
        send(world, Report::Ending);
    }
    match action {
        // A process that gets SIGTERM may exit. The model allows that at any time anyway.
        Action::Nothing | Action::Warn { .. } | Action::Terminate(_) => {}
        Action::Kill => kill(scenario, world),
        Action::Finish => world.keeper.end_report = EndReport::Due,
    }
}

/// Kills all descendants of the keeper. The root's group is signalled by PID, while its zombie
/// holds the PID.
fn kill(scenario: &Scenario, world: &mut World) {
    if world.root != Root::Reaped || scenario.has(Flaw::RootNotHeld) {
        world.kill_by_pid();
    }
    world.kill_tree();
}

fn send(world: &mut World, what: Report) {
    if world.keeper.owner.is_some_and(|owner| !world.has_disconnected(owner)) {
        world.keeper.outbox.push(what);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZygoteStep {
    WakesKeeper,
    Reaps,
    EndsOrphans,
}

pub fn zygote_steps(scenario: &Scenario, world: &World) -> Vec<ZygoteStep> {
    let mut steps = Vec::new();
    if world.zygote != Life::Alive {
        return steps;
    }
    let mut add_if = |is_possible: bool, step| steps.extend(is_possible.then_some(step));
    let is_stopped = world.keeper.life == Life::Stopped;
    add_if(is_stopped && !scenario.has(Flaw::StoppedKeeperNotWoken), ZygoteStep::WakesKeeper);
    let has_adopted_tree = world.keeper.life == Life::Dead;
    add_if(has_adopted_tree && world.root == Root::Zombie, ZygoteStep::Reaps);
    add_if(has_adopted_tree && !world.keeper.is_clean && !world.is_tree_empty(), ZygoteStep::EndsOrphans);
    steps
}

pub fn take_zygote(world: &mut World, step: ZygoteStep) {
    match step {
        ZygoteStep::WakesKeeper => world.keeper.life = Life::Alive,
        ZygoteStep::Reaps => world.root = Root::Reaped,
        ZygoteStep::EndsOrphans => world.kill_tree(),
    }
}
