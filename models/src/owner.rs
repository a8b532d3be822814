//! The bot that starts the run, as `src/spawn/unix.rs` and `src/spawn/ears.rs` have it.

use crate::flaws::Flaw;
use crate::model::Scenario;
use crate::registry::intent;
use crate::world::{Ask, At, Launch, Life, Root, Tell, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    WritesIntent,
    SendsCommand,
    TellsRules,
    HearsRefusal,
    NotesStart,
    Cancels,
    /// It loses patience with the keeper.
    KillsKeeper,
    HearsKeeper,
    FindsKeeperDead,
    EndsFromOutside,
    SeesNothingLeft,
    RenewsLease,
    GoesOn,
}

pub fn steps(scenario: &Scenario, world: &World) -> Vec<Step> {
    let owner = &world.owner;
    let mut steps = Vec::new();
    match owner.life {
        Life::Dead => return steps,
        // Somebody continues it, or the machine wakes up.
        Life::Stopped => return vec![Step::GoesOn],
        Life::Alive => {}
    }
    let mut offer = |is_possible: bool, step| steps.extend(is_possible.then_some(step));
    let intent_comes_late = scenario.has(Flaw::IntentAfterCommand);
    match owner.at {
        At::Beginning if intent_comes_late => offer(true, Step::SendsCommand),
        At::Beginning => offer(true, Step::WritesIntent),
        At::Recorded => offer(true, Step::SendsCommand),
        At::Sent if intent_comes_late && !owner.memory.has_entry() => offer(true, Step::WritesIntent),
        // A program that has run before is not waited for; another is, and then its refusal comes first.
        At::Sent => {
            offer(world.launch == Launch::Refused, Step::HearsRefusal);
            offer(world.launch != Launch::Refused, Step::TellsRules);
        }
        At::Listening => {
            offer(world.launch == Launch::Refused, Step::HearsRefusal);
            offer(world.launch == Launch::Executed && !owner.has_noted_start, Step::NotesStart);
            offer(world.budget.owner_cancels && !world.is_calm, Step::Cancels);
            offer(!world.keeper.outbox.is_empty(), Step::HearsKeeper);
            let is_dead = world.keeper.life == Life::Dead;
            offer(is_dead && world.keeper.outbox.is_empty(), Step::FindsKeeperDead);
            let is_late = world.keeper.life == Life::Stopped || world.budget.impatient;
            offer(owner.has_cancelled && !is_dead && is_late, Step::KillsKeeper);
        }
        At::Lost => {
            // It waits for the zygote first. That may take longer than it cares to wait, so it is not modelled that it must.
            offer(!world.is_tree_empty(), Step::EndsFromOutside);
            offer(world.is_tree_empty() || scenario.has(Flaw::LostIsOver), Step::SeesNothingLeft);
        }
        At::Over => {}
    }
    let lease = owner.memory.lease();
    offer(lease.is_some_and(|until| until <= world.epoch), Step::RenewsLease);
    steps
}

pub fn take(scenario: &Scenario, world: &mut World, step: Step) {
    match step {
        Step::WritesIntent => {
            let record = intent(World::on_owner_exit(scenario.is_kept), world.lease_until());
            world.owner.memory.remember(record.clone());
            world.registry.intent(record);
            if world.owner.at == At::Beginning {
                world.owner.at = At::Recorded;
            }
        }
        // A blank that is gone does not take it. (Another would be tried; that is another run.)
        Step::SendsCommand if world.root != Root::Blank => over(world),
        Step::SendsCommand => {
            world.launch = Launch::Sent;
            world.owner.at = At::Sent;
        }
        Step::TellsRules => {
            if world.keeper.life != Life::Dead {
                world.keeper.inbox.push(Ask::Own);
            }
            world.owner.at = At::Listening;
        }
        Step::NotesStart => {
            world.owner.has_noted_start = true;
            world.owner.memory.started(&mut world.registry);
        }
        Step::Cancels => {
            (world.budget.owner_cancels, world.owner.has_cancelled) = (false, true);
            if world.keeper.life != Life::Dead {
                world.keeper.inbox.push(Ask::Cancel);
                world.keeper.life = Life::Alive;
            }
        }
        Step::KillsKeeper => world.keeper.life = Life::Dead,
        Step::HearsKeeper => match world.keeper.outbox.remove(0) {
            Tell::RootExited => {}
            Tell::Ending => world.owner.memory.exiting(&mut world.registry),
            Tell::Extinct => over(world),
        },
        Step::FindsKeeperDead => world.owner.at = At::Lost,
        Step::EndsFromOutside => end_from_outside(scenario, world),
        Step::HearsRefusal | Step::SeesNothingLeft => over(world),
        Step::RenewsLease => {
            let until = world.lease_until();
            world.owner.memory.renew(&mut world.registry, until);
        }
        Step::GoesOn => world.owner.life = Life::Alive,
    }
}

/// The entry goes, then it is told.
fn over(world: &mut World) {
    world.owner.memory.forget();
    world.registry.dropped();
    world.sins.told_too_early |= world.is_run_alive();
    world.owner.at = At::Over;
}

/// Every process is named by its identity, or by the cookie it carries, at the moment it is signalled.
pub fn end_from_outside(scenario: &Scenario, world: &mut World) {
    if scenario.has(Flaw::SignalByNumber) {
        world.kill_number();
    }
    world.kill_tree();
}
