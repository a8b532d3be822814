//! The run itself, its keeper as `src/keeper/keep.rs` has it, and its zygote as `src/keeper/zygote.rs` has it.

use spawn_owned::run::lifecycle::{Action, Event, Lifecycle, Rules};
use spawn_owned::run::signal::SIGTERM;
use spawn_owned::run::{Cause, State};

use crate::flaws::Flaw;
use crate::model::Scenario;
use crate::world::{Ask, Child, LastWord, Launch, Life, Root, Tell, Who, World};

const GRACE_MS: u64 = 5_000;

/// What blank, command and its child do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStep {
    Executes,
    FailsToExecute,
    BlankGivesUp,
    Forks,
    CommandExits,
    ChildExits,
}

pub fn run_steps(world: &World) -> Vec<RunStep> {
    let mut steps = Vec::new();
    let mut offer = |is_possible: bool, step| steps.extend(is_possible.then_some(step));
    let (blank, command) = (world.root == Root::Blank, world.root == Root::Command);
    offer(blank && world.launch == Launch::Sent, RunStep::Executes);
    offer(blank && world.launch == Launch::Sent && world.budget.exec_fails, RunStep::FailsToExecute);
    offer(blank && world.launch == Launch::Closed, RunStep::BlankGivesUp);
    offer(command && world.child == Child::Unborn && world.budget.forks, RunStep::Forks);
    offer(command, RunStep::CommandExits);
    offer(world.child == Child::Alive, RunStep::ChildExits);
    steps
}

pub fn take_run(world: &mut World, step: RunStep) {
    match step {
        RunStep::Executes => (world.root, world.launch) = (Root::Command, Launch::Executed),
        RunStep::FailsToExecute => (world.root, world.launch) = (Root::Zombie, Launch::Refused),
        RunStep::BlankGivesUp | RunStep::CommandExits => world.root = Root::Zombie,
        RunStep::Forks => world.child = Child::Alive,
        RunStep::ChildExits => world.child = Child::Gone,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    HearsOwner,
    FindsOwnerGone,
    LooksAtTree,
    LosesPatience,
    ServesVisitor,
    /// The last word: to the owner, or else to the registry.
    MakesEndKnown,
    TellsVisitors,
    Exits,
}

pub fn steps(scenario: &Scenario, world: &World) -> Vec<Step> {
    let keeper = &world.keeper;
    let mut steps = Vec::new();
    if keeper.life != Life::Alive {
        return steps;
    }
    let mut offer = |is_possible: bool, step| steps.extend(is_possible.then_some(step));
    let has_hung_up = keeper.owner.is_some_and(|owner| world.has_hung_up(owner));
    let is_over = keeper.lifecycle.is_over();
    if !is_over {
        offer(keeper.owner.is_some() && !keeper.inbox.is_empty(), Step::HearsOwner);
        let waits_on = scenario.has(Flaw::OrphanWaits);
        offer(has_hung_up && keeper.inbox.is_empty() && !waits_on, Step::FindsOwnerGone);
    }
    if !is_over && !keeper.is_waiting {
        offer(has_news(world), Step::LooksAtTree);
        let is_asking = keeper.lifecycle.state() == State::Exiting && !keeper.lifecycle.is_killing();
        offer(is_asking, Step::LosesPatience);
        offer(!keeper.door.is_empty(), Step::ServesVisitor);
    }
    match keeper.last_word {
        LastWord::NotYet => {}
        LastWord::Due if scenario.has(Flaw::VisitorsToldFirst) && !keeper.guests.is_empty() => {
            offer(true, Step::TellsVisitors);
        }
        LastWord::Due => offer(true, Step::MakesEndKnown),
        LastWord::Known => offer(true, Step::TellsVisitors),
        LastWord::Spoken => offer(true, Step::Exits),
    }
    steps
}

/// Whether a look at the tree would show anything new.
fn has_news(world: &World) -> bool {
    let is_killing = world.keeper.lifecycle.is_killing();
    let root_is_dead = !world.is_root_alive();
    (is_killing && !world.is_tree_empty())
        || (root_is_dead && !world.keeper.has_told_root)
        || world.is_tree_empty()
}

pub fn take(scenario: &Scenario, world: &mut World, step: Step) {
    match step {
        Step::HearsOwner => match world.keeper.inbox.remove(0) {
            Ask::Own => {
                let on_owner_exit = World::on_owner_exit(scenario.is_kept);
                let rules = Rules { on_owner_exit, grace_ms: GRACE_MS, ..Rules::default() };
                world.keeper.lifecycle = Lifecycle::new(rules);
                (world.keeper.has_rules, world.keeper.is_waiting) = (true, false);
            }
            Ask::Cancel | Ask::Adopt => cancel(scenario, world),
        },
        Step::FindsOwnerGone => owner_gone(scenario, world),
        Step::LooksAtTree => look_at_tree(scenario, world),
        Step::LosesPatience => {
            world.keeper.now = world.keeper.lifecycle.wake_at().unwrap_or(world.keeper.now);
            tell(scenario, world, Event::Tick);
        }
        Step::ServesVisitor => {
            let (who, ask) = world.keeper.door.remove(0);
            serve(scenario, world, who, ask);
        }
        Step::MakesEndKnown => {
            let hears = world.keeper.owner.is_some_and(|owner| !world.has_hung_up(owner));
            if hears {
                world.keeper.outbox.push(Tell::Extinct);
            } else if world.keeper.has_rules {
                world.registry.ended();
            }
            world.keeper.last_word = LastWord::Known;
        }
        Step::TellsVisitors => tell_visitors(world),
        Step::Exits => (world.keeper.life, world.keeper.is_clean) = (Life::Dead, true),
    }
}

fn tell_visitors(world: &mut World) {
    world.sins.visitor_told_before_it_was_known |=
        world.keeper.last_word != LastWord::Known && !world.keeper.guests.is_empty();
    for guest in std::mem::take(&mut world.keeper.guests) {
        world.sins.told_too_early |= world.is_run_alive();
        if let Some(other) = world.other_mut(guest) {
            other.was_told = true;
        }
    }
    if world.keeper.last_word == LastWord::Known {
        world.keeper.last_word = LastWord::Spoken;
    }
}

fn serve(scenario: &Scenario, world: &mut World, who: Who, ask: Ask) {
    match ask {
        Ask::Cancel | Ask::Own => {
            world.keeper.guests.push(who);
            cancel(scenario, world);
        }
        Ask::Adopt => {
            // Whoever comes may know of the last owner's death before the keeper does: that is what it comes for.
            if world.keeper.owner.is_some_and(|owner| world.has_hung_up(owner)) {
                owner_gone(scenario, world);
            }
            let granted = world.keeper.owner.is_none() && !world.has_hung_up(who);
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
    tell(scenario, world, Event::Cancel { signal: SIGTERM, grace_ms: GRACE_MS });
}

fn owner_gone(scenario: &Scenario, world: &mut World) {
    (world.keeper.owner, world.keeper.is_waiting) = (None, false);
    world.keeper.inbox.clear();
    world.keeper.outbox.clear();
    tell(scenario, world, Event::OwnerGone);
}

fn look_at_tree(scenario: &Scenario, world: &mut World) {
    if world.keeper.lifecycle.is_killing() {
        kill(scenario, world);
    }
    let is_root_news = !world.is_root_alive() && !world.keeper.has_told_root;
    if scenario.has(Flaw::RootNotHeld) && world.root == Root::Zombie {
        world.root = Root::Reaped;
    }
    if world.is_tree_empty() {
        // The kernel has the last word: the zombie goes when nothing else is left.
        world.root = Root::Reaped;
        world.keeper.has_told_root = true;
        world.keeper.lifecycle.on(Event::Empty, world.keeper.now);
        world.keeper.last_word = LastWord::Due;
    } else if is_root_news {
        world.keeper.has_told_root = true;
        send(world, Tell::RootExited);
        tell(scenario, world, Event::RootExited);
    }
}

fn tell(scenario: &Scenario, world: &mut World, event: Event) {
    let before = world.keeper.lifecycle.state();
    let action = world.keeper.lifecycle.on(event, world.keeper.now);
    let lifecycle = &world.keeper.lifecycle;
    let is_asked = lifecycle.cause().is_some_and(|cause| cause != Cause::RootExit);
    if before < State::Exiting && lifecycle.state() == State::Exiting && is_asked {
        send(world, Tell::Ending);
    }
    match action {
        // Who is asked to end may do so: that it exits is possible at any time.
        Action::Nothing | Action::Warn { .. } | Action::Terminate(_) => {}
        Action::Kill => kill(scenario, world),
        Action::Finish => world.keeper.last_word = LastWord::Due,
    }
}

/// All that descends from the keeper. The root's group goes by its number, as long as its zombie holds that.
fn kill(scenario: &Scenario, world: &mut World) {
    if world.root != Root::Reaped || scenario.has(Flaw::RootNotHeld) {
        world.kill_number();
    }
    world.kill_tree();
}

fn send(world: &mut World, what: Tell) {
    if world.keeper.owner.is_some_and(|owner| !world.has_hung_up(owner)) {
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
    let mut offer = |is_possible: bool, step| steps.extend(is_possible.then_some(step));
    let is_stopped = world.keeper.life == Life::Stopped;
    offer(is_stopped && !scenario.has(Flaw::NobodyWakes), ZygoteStep::WakesKeeper);
    let is_heir = world.keeper.life == Life::Dead;
    offer(is_heir && world.root == Root::Zombie, ZygoteStep::Reaps);
    offer(is_heir && !world.keeper.is_clean && !world.is_tree_empty(), ZygoteStep::EndsOrphans);
    steps
}

pub fn take_zygote(world: &mut World, step: ZygoteStep) {
    match step {
        ZygoteStep::WakesKeeper => world.keeper.life = Life::Alive,
        ZygoteStep::Reaps => world.root = Root::Reaped,
        ZygoteStep::EndsOrphans => world.kill_tree(),
    }
}
