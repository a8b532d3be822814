//! Another bot: reaper, adopter or canceller (follows `src/reap/` and `src/spawn/adopt.rs`).

use spawn_owned::reap::classify::{
    Action, Boot, Facts, Group, Keeper, Lease, Namespace, Owner, Root as Process, classify,
};
use spawn_owned::registry::Record;
use spawn_owned::run::Policy;

use crate::flaws::Flaw;
use crate::model::Scenario;
use crate::owner::end_from_outside;
use crate::registry::Seen;
use crate::world::{BotState, Child, Life, Other, Plan, Report, Request, Role, Root, Who, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    ReadsRegistry,
    ScansAndDecides,
    WritesClaim,
    ReadsAgain,
    Drops,
    SendsCancel,
    IsInformedOfEnd,
    FindsKeeperDead,
    /// It times out on the keeper.
    KillsKeeper,
    EndsFromOutside,
    SeesTreeEmpty,
    DropsEntry,
    RequestsAdoption,
    AdoptionGranted,
    AdoptionRefused,
    FindsNoKeeperToAdoptFrom,
    ReadsKeeperMessage,
    SeesRunEnd,
    RenewsLease,
}

pub fn steps(scenario: &Scenario, world: &World, who: Who) -> Vec<Step> {
    let Some(bot) = world.other(who).filter(|bot| bot.life == Life::Alive) else { return Vec::new() };
    let mut steps = Vec::new();
    let mut add_if = |is_possible: bool, step| steps.extend(is_possible.then_some(step));
    let keeper_is_dead = world.keeper.life == Life::Dead;
    match &bot.state {
        BotState::Reading => add_if(bot.memory.load(&world.registry).is_some(), Step::ReadsRegistry),
        BotState::Scanning(_) => add_if(true, Step::ScansAndDecides),
        BotState::Claiming(..) => add_if(true, Step::WritesClaim),
        BotState::Checking(..) => add_if(true, Step::ReadsAgain),
        BotState::Acting(Plan::Drop, _) => add_if(true, Step::Drops),
        BotState::Acting(Plan::Adopt, _) => add_if(true, Step::RequestsAdoption),
        BotState::Acting(Plan::End, _) if keeper_is_dead => add_if(true, Step::FindsKeeperDead),
        BotState::Acting(Plan::End, _) => {
            add_if(
                world.keeper.life == Life::Alive || !scenario.has(Flaw::StoppedKeeperNotWoken),
                Step::SendsCancel,
            );
        }
        BotState::AwaitingEnd(_) => {
            add_if(bot.was_informed, Step::IsInformedOfEnd);
            add_if(!bot.was_informed && keeper_is_dead, Step::FindsKeeperDead);
            // A keeper that was stopped again, or that reads only its bot's socket.
            let is_unresponsive = world.keeper.life == Life::Stopped
                || (world.keeper.is_waiting && world.owner.life == Life::Stopped);
            let gives_up =
                (is_unresponsive || world.budget.may_time_out) && !scenario.has(Flaw::StoppedKeeperNotWoken);
            add_if(!bot.was_informed && !keeper_is_dead && gives_up, Step::KillsKeeper);
        }
        BotState::EndingFromOutside(_) => {
            add_if(!world.is_tree_empty(), Step::EndsFromOutside);
            add_if(world.is_tree_empty() || scenario.has(Flaw::SignalByPid), Step::SeesTreeEmpty);
        }
        BotState::Settling(_) => add_if(true, Step::DropsEntry),
        BotState::AwaitingAdoption(_) => {
            add_if(bot.granted == Some(true), Step::AdoptionGranted);
            add_if(bot.granted == Some(false), Step::AdoptionRefused);
            add_if(bot.granted.is_none() && keeper_is_dead, Step::FindsNoKeeperToAdoptFrom);
        }
        BotState::Owning => {
            add_if(!world.keeper.outbox.is_empty(), Step::ReadsKeeperMessage);
            add_if(world.keeper.outbox.is_empty() && keeper_is_dead, Step::FindsKeeperDead);
        }
        BotState::Watching => add_if(world.is_tree_empty(), Step::SeesRunEnd),
        BotState::Done => {}
    }
    let lease = bot.memory.lease();
    add_if(lease.is_some_and(|until| until <= world.epoch), Step::RenewsLease);
    steps
}

pub fn take(scenario: &Scenario, world: &mut World, who: Who, step: Step) {
    let Some(bot) = world.other(who).cloned() else { return };
    let next = match (step, bot.state.clone()) {
        (Step::ReadsRegistry, _) => match bot.memory.load(&world.registry) {
            Some(entry) if bot.role == Role::Canceller => BotState::Acting(Plan::End, entry),
            Some(entry) => BotState::Scanning(entry),
            None => BotState::Done,
        },
        (Step::ScansAndDecides, BotState::Scanning(entry)) => decide(scenario, world, &bot, who, entry),
        (Step::WritesClaim, BotState::Claiming(plan, entry)) => claim(scenario, world, who, plan, entry),
        (Step::ReadsAgain, BotState::Checking(plan, entry)) => check(scenario, world, who, plan, entry),
        (Step::Drops | Step::DropsEntry, BotState::Acting(_, entry) | BotState::Settling(entry)) => {
            settle(world, &bot, who, &entry)
        }
        (Step::SendsCancel, BotState::Acting(_, entry)) => {
            // A stopped keeper is woken first.
            world.keeper.life = Life::Alive;
            world.keeper.connecting.push((who, Request::Cancel));
            if scenario.has(Flaw::DropBeforeEnd) {
                BotState::Settling(entry)
            } else {
                BotState::AwaitingEnd(entry)
            }
        }
        (Step::IsInformedOfEnd, BotState::AwaitingEnd(entry)) => BotState::Settling(entry),
        (Step::KillsKeeper, BotState::AwaitingEnd(entry)) => {
            world.keeper.life = Life::Dead;
            BotState::EndingFromOutside(entry)
        }
        (Step::FindsKeeperDead, BotState::Acting(_, entry) | BotState::AwaitingEnd(entry)) => {
            BotState::EndingFromOutside(entry)
        }
        (Step::FindsKeeperDead, _) => {
            // This bot had become the owner, so it ends the rest from outside.
            end_from_outside(scenario, world);
            BotState::Watching
        }
        (Step::EndsFromOutside, state @ BotState::EndingFromOutside(_)) => {
            end_from_outside(scenario, world);
            state
        }
        (Step::SeesTreeEmpty, BotState::EndingFromOutside(entry)) => {
            if scenario.has(Flaw::SignalByPid) {
                world.kill_by_pid();
            }
            BotState::Settling(entry)
        }
        (Step::RequestsAdoption, BotState::Acting(_, entry)) => {
            if world.keeper.life != Life::Dead {
                world.keeper.life = Life::Alive;
                world.keeper.connecting.push((who, Request::Adopt));
            }
            BotState::AwaitingAdoption(entry)
        }
        (Step::AdoptionGranted, _) => {
            world.memory_mut(who).take_adopted();
            let mut memory = world.memory_mut(who).clone();
            memory.started(&mut world.registry);
            *world.memory_mut(who) = memory;
            BotState::Owning
        }
        (Step::AdoptionRefused, BotState::AwaitingAdoption(former)) => {
            world.memory_mut(who).give_back();
            world.registry.returned(&former, who);
            BotState::Done
        }
        (Step::FindsNoKeeperToAdoptFrom, _) => {
            world.memory_mut(who).take_adopted();
            BotState::Watching
        }
        (Step::ReadsKeeperMessage, state) => match world.keeper.outbox.remove(0) {
            Report::Extinct => finish(world, who),
            Report::Ending | Report::RootExited => state,
        },
        (Step::SeesRunEnd, _) => finish(world, who),
        (Step::RenewsLease, state) => {
            let until = world.lease_until();
            let mut memory = world.memory_mut(who).clone();
            memory.renew(&mut world.registry, until);
            *world.memory_mut(who) = memory;
            state
        }
        (step, state) => unreachable!("{step:?} in {state:?}"),
    };
    if let Some(bot) = world.other_mut(who) {
        bot.state = next;
    }
}

/// The product's own decision, from the facts that this bot sees.
fn decide(scenario: &Scenario, world: &World, bot: &Other, who: Who, entry: Seen) -> BotState {
    let facts = facts(scenario, world, bot, who, &entry);
    let plan = match classify(&facts).action {
        Action::Leave | Action::Skip => return BotState::Done,
        Action::Drop | Action::DropReused => Plan::Drop,
        // A run that its keeper is already ending cannot be adopted.
        Action::End(_) if bot.role == Role::Adopter && entry.0.on_owner_exit == Policy::Keep => Plan::Adopt,
        Action::End(_) => Plan::End,
        // Only a policy makes this of `End`.
        Action::Adopt(_) => Plan::Adopt,
    };
    if scenario.has(Flaw::ClaimAfterSignal) {
        BotState::Acting(plan, entry)
    } else {
        BotState::Claiming(plan, entry)
    }
}

fn facts(scenario: &Scenario, world: &World, bot: &Other, who: Who, entry: &Seen) -> Facts {
    let child = world.child == Child::Alive;
    Facts {
        owner: owner(scenario, world, bot, who, entry),
        lease: match entry.0.lease_expires_at_ms {
            None => Lease::None,
            Some(until) if until > world.epoch => Lease::Valid,
            Some(_) => Lease::Expired,
        },
        steal_from_live: bot.role == Role::Thief,
        boot: Boot::Same,
        namespace: Namespace::Same,
        root: match world.root {
            Root::Stub | Root::Command => Process::Alive,
            Root::Reaped if world.pid_reused => Process::Recycled,
            Root::Zombie | Root::Reaped => Process::Exited,
        },
        group: match world.root {
            Root::Stub | Root::Command => Group::Ours,
            Root::Reaped if world.pid_reused => Group::Unproven,
            Root::Zombie | Root::Reaped => Group::Empty,
        },
        keeper: if world.keeper.life == Life::Dead { Keeper::Dead } else { Keeper::Alive },
        carriers: child || world.root == Root::Command,
        keyless: false,
        service: false,
        state: entry.0.state,
        protected: None,
    }
}

fn owner(scenario: &Scenario, world: &World, bot: &Other, who: Who, entry: &Seen) -> Owner {
    let Some(owner) = entry.owner() else { return Owner::Unknown };
    // The last bot has the owner's PID.
    let is_me = owner == who || (scenario.has(Flaw::OwnerByPid) && who == Who::Last && owner == Who::Owner);
    match world.life_of(owner) {
        _ if is_me && bot.memory.is_unsettled() => Owner::Dead,
        _ if is_me => Owner::Me,
        Life::Dead => Owner::Dead,
        Life::Alive | Life::Stopped if scenario.is_liveness_hidden => Owner::Unknown,
        Life::Alive | Life::Stopped => Owner::Alive,
    }
}

fn claim(scenario: &Scenario, world: &mut World, who: Who, plan: Plan, entry: Seen) -> BotState {
    let from = entry.0.owner_instance_id.clone();
    if !scenario.has(Flaw::ClaimNotRemembered) && !world.memory_mut(who).claim(from.clone()) {
        return BotState::Done;
    }
    let seen = match world.registry.entry() {
        Some(now) if scenario.has(Flaw::LastClaimCounts) => now.0.owner_instance_id.clone(),
        _ => from,
    };
    let lease_until = world.lease_until();
    world.registry.claimed(seen, who, lease_until);
    if scenario.has(Flaw::ClaimNotChecked) {
        BotState::Acting(plan, entry)
    } else {
        BotState::Checking(plan, entry)
    }
}

fn check(scenario: &Scenario, world: &mut World, who: Who, plan: Plan, former: Seen) -> BotState {
    let now = world.registry.entry().filter(|now| now.owner() == Some(who));
    let Some(now) = now else {
        world.memory_mut(who).lose_claim();
        return BotState::Done;
    };
    if scenario.has(Flaw::ClaimNotRemembered) {
        world.memory_mut(who).know_instance();
    }
    if plan == Plan::Adopt {
        world.memory_mut(who).adopt(Record::clone(&now.0), &former);
    }
    BotState::Acting(plan, former)
}

/// Drops the entry, unless a live owner does that.
fn settle(world: &mut World, bot: &Other, who: Who, entry: &Seen) -> BotState {
    let has_live_owner =
        bot.role == Role::Canceller && entry.owner().is_some_and(|owner| world.life_of(owner) != Life::Dead);
    if !has_live_owner {
        world.memory_mut(who).release();
        world.registry.dropped();
    }
    BotState::Done
}

/// Finishes a run that this bot had adopted.
fn finish(world: &mut World, who: Who) -> BotState {
    world.memory_mut(who).forget();
    world.registry.dropped();
    world.violations.reported_too_early |= world.is_run_alive();
    BotState::Done
}
