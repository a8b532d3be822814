//! The bot that starts the run (follows `src/spawn/unix/launch.rs` and `src/spawn/run_monitor.rs`).

use crate::flaws::Flaw;
use crate::model::Scenario;
use crate::registry::intent;
use crate::world::{Launch, Life, Report, Request, Root, Stage, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    WritesIntent,
    SendsCommand,
    SendsRules,
    SeesExecFail,
    RecordsStart,
    Cancels,
    /// It times out on the keeper.
    KillsKeeper,
    ReadsKeeperMessage,
    FindsKeeperDead,
    EndsFromOutside,
    SeesTreeEmpty,
    RenewsLease,
    Continues,
}

pub fn steps(scenario: &Scenario, world: &World) -> Vec<Step> {
    let owner = &world.owner;
    let mut steps = Vec::new();
    match owner.life {
        Life::Dead => return steps,
        // A SIGCONT arrives, or the machine wakes up.
        Life::Stopped => return vec![Step::Continues],
        Life::Alive => {}
    }
    let mut add_if = |is_possible: bool, step| steps.extend(is_possible.then_some(step));
    let intent_is_late = scenario.has(Flaw::IntentAfterCommand);
    match owner.stage {
        Stage::Beginning if intent_is_late => add_if(true, Step::SendsCommand),
        Stage::Beginning => add_if(true, Step::WritesIntent),
        Stage::Recorded => add_if(true, Step::SendsCommand),
        Stage::Sent if intent_is_late && !owner.memory.has_entry() => add_if(true, Step::WritesIntent),
        // For a known program the owner does not wait for the exec. For another it does, and then a
        // failed exec is seen first.
        Stage::Sent => {
            add_if(world.launch == Launch::Refused, Step::SeesExecFail);
            add_if(world.launch != Launch::Refused, Step::SendsRules);
        }
        Stage::Listening => {
            add_if(world.launch == Launch::Refused, Step::SeesExecFail);
            add_if(world.launch == Launch::Executed && !owner.has_recorded_start, Step::RecordsStart);
            add_if(world.budget.owner_cancels && !world.failures_ended, Step::Cancels);
            add_if(!world.keeper.outbox.is_empty(), Step::ReadsKeeperMessage);
            let is_dead = world.keeper.life == Life::Dead;
            add_if(is_dead && world.keeper.outbox.is_empty(), Step::FindsKeeperDead);
            let is_late = world.keeper.life == Life::Stopped || world.budget.may_time_out;
            add_if(owner.has_cancelled && !is_dead && is_late, Step::KillsKeeper);
        }
        Stage::Lost => {
            // The owner waits for the zygote first. That wait has a timeout, so the model does not
            // require it.
            add_if(!world.is_tree_empty(), Step::EndsFromOutside);
            add_if(world.is_tree_empty() || scenario.has(Flaw::LostCountsAsEnded), Step::SeesTreeEmpty);
        }
        Stage::Finished => {}
    }
    let lease = owner.memory.lease();
    add_if(lease.is_some_and(|until| until <= world.epoch), Step::RenewsLease);
    steps
}

pub fn take(scenario: &Scenario, world: &mut World, step: Step) {
    match step {
        Step::WritesIntent => {
            let record = intent(World::on_owner_exit(scenario.is_kept), world.lease_until());
            world.owner.memory.remember(record.clone());
            world.registry.intent(record);
            if world.owner.stage == Stage::Beginning {
                world.owner.stage = Stage::Recorded;
            }
        }
        // An exec stub that has exited does not take the command. (The product then tries another
        // one; that is another run.)
        Step::SendsCommand if world.root != Root::Stub => finish(world),
        Step::SendsCommand => {
            world.launch = Launch::Sent;
            world.owner.stage = Stage::Sent;
        }
        Step::SendsRules => {
            if world.keeper.life != Life::Dead {
                world.keeper.inbox.push(Request::AssignRun);
            }
            world.owner.stage = Stage::Listening;
        }
        Step::RecordsStart => {
            world.owner.has_recorded_start = true;
            world.owner.memory.started(&mut world.registry);
        }
        Step::Cancels => {
            (world.budget.owner_cancels, world.owner.has_cancelled) = (false, true);
            if world.keeper.life != Life::Dead {
                world.keeper.inbox.push(Request::Cancel);
                world.keeper.life = Life::Alive;
            }
        }
        Step::KillsKeeper => world.keeper.life = Life::Dead,
        Step::ReadsKeeperMessage => match world.keeper.outbox.remove(0) {
            Report::RootExited => {}
            Report::Ending => world.owner.memory.exiting(&mut world.registry),
            Report::Extinct => finish(world),
        },
        Step::FindsKeeperDead => world.owner.stage = Stage::Lost,
        Step::EndsFromOutside => end_from_outside(scenario, world),
        Step::SeesExecFail | Step::SeesTreeEmpty => finish(world),
        Step::RenewsLease => {
            let until = world.lease_until();
            world.owner.memory.renew(&mut world.registry, until);
        }
        Step::Continues => world.owner.life = Life::Alive,
    }
}

/// Drops the entry, then reports the end.
fn finish(world: &mut World) {
    world.owner.memory.forget();
    world.registry.dropped();
    world.violations.reported_too_early |= world.is_run_alive();
    world.owner.stage = Stage::Finished;
}

/// Ends the tree from outside. Each process is verified, by identity or cookie, at the moment of
/// the signal.
pub fn end_from_outside(scenario: &Scenario, world: &mut World) {
    if scenario.has(Flaw::SignalByPid) {
        world.kill_by_pid();
    }
    world.kill_tree();
}
