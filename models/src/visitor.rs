//! Another bot: reaper, adopter or canceller, as `src/reap/` and `src/spawn/adopt.rs` have them.

use spawn_owned::reap::classify::{
    Action, Boot, Facts, Group, Keeper, Lease, Namespace, Owner, Root as Process, classify,
};
use spawn_owned::registry::Record;
use spawn_owned::run::Policy;

use crate::flaws::Flaw;
use crate::model::Scenario;
use crate::owner::end_from_outside;
use crate::registry::Seen;
use crate::world::{Ask, Child, Life, Other, Plan, Role, Root, Tell, Visit, Who, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    ReadsRegistry,
    LooksAndDecides,
    WritesClaim,
    ReadsAgain,
    Drops,
    AsksKeeper,
    HearsEnd,
    FindsKeeperDead,
    /// It loses patience with the keeper.
    KillsKeeper,
    EndsFromOutside,
    SeesNothingLeft,
    DropsEntry,
    AsksToAdopt,
    IsAdopted,
    IsRefused,
    FindsNobodyToAdoptFrom,
    HearsKeeper,
    SeesItEnd,
    RenewsLease,
}

pub fn steps(scenario: &Scenario, world: &World, who: Who) -> Vec<Step> {
    let Some(bot) = world.other(who).filter(|bot| bot.life == Life::Alive) else { return Vec::new() };
    let mut steps = Vec::new();
    let mut offer = |is_possible: bool, step| steps.extend(is_possible.then_some(step));
    let keeper_is_dead = world.keeper.life == Life::Dead;
    match &bot.visit {
        Visit::Reading => offer(bot.memory.load(&world.registry).is_some(), Step::ReadsRegistry),
        Visit::Looking(_) => offer(true, Step::LooksAndDecides),
        Visit::Claiming(..) => offer(true, Step::WritesClaim),
        Visit::Checking(..) => offer(true, Step::ReadsAgain),
        Visit::Acting(Plan::Drop, _) => offer(true, Step::Drops),
        Visit::Acting(Plan::Adopt, _) => offer(true, Step::AsksToAdopt),
        Visit::Acting(Plan::End, _) if keeper_is_dead => offer(true, Step::FindsKeeperDead),
        Visit::Acting(Plan::End, _) => {
            offer(world.keeper.life == Life::Alive || !scenario.has(Flaw::NobodyWakes), Step::AsksKeeper);
        }
        Visit::Asked(_) => {
            offer(bot.was_told, Step::HearsEnd);
            offer(!bot.was_told && keeper_is_dead, Step::FindsKeeperDead);
            // One that was stopped again, or that listens to nobody but its bot.
            let is_deaf = world.keeper.life == Life::Stopped
                || (world.keeper.is_waiting && world.owner.life == Life::Stopped);
            let gives_up = (is_deaf || world.budget.impatient) && !scenario.has(Flaw::NobodyWakes);
            offer(!bot.was_told && !keeper_is_dead && gives_up, Step::KillsKeeper);
        }
        Visit::Outside(_) => {
            offer(!world.is_tree_empty(), Step::EndsFromOutside);
            offer(world.is_tree_empty() || scenario.has(Flaw::SignalByNumber), Step::SeesNothingLeft);
        }
        Visit::Settling(_) => offer(true, Step::DropsEntry),
        Visit::Applying(_) => {
            offer(bot.granted == Some(true), Step::IsAdopted);
            offer(bot.granted == Some(false), Step::IsRefused);
            offer(bot.granted.is_none() && keeper_is_dead, Step::FindsNobodyToAdoptFrom);
        }
        Visit::Owning => {
            offer(!world.keeper.outbox.is_empty(), Step::HearsKeeper);
            offer(world.keeper.outbox.is_empty() && keeper_is_dead, Step::FindsKeeperDead);
        }
        Visit::Watching => offer(world.is_tree_empty(), Step::SeesItEnd),
        Visit::Done => {}
    }
    let lease = bot.memory.lease();
    offer(lease.is_some_and(|until| until <= world.epoch), Step::RenewsLease);
    steps
}

pub fn take(scenario: &Scenario, world: &mut World, who: Who, step: Step) {
    let Some(bot) = world.other(who).cloned() else { return };
    let next = match (step, bot.visit.clone()) {
        (Step::ReadsRegistry, _) => match bot.memory.load(&world.registry) {
            Some(entry) if bot.role == Role::Canceller => Visit::Acting(Plan::End, entry),
            Some(entry) => Visit::Looking(entry),
            None => Visit::Done,
        },
        (Step::LooksAndDecides, Visit::Looking(entry)) => decide(scenario, world, &bot, who, entry),
        (Step::WritesClaim, Visit::Claiming(plan, entry)) => claim(scenario, world, who, plan, entry),
        (Step::ReadsAgain, Visit::Checking(plan, entry)) => check(scenario, world, who, plan, entry),
        (Step::Drops | Step::DropsEntry, Visit::Acting(_, entry) | Visit::Settling(entry)) => {
            settle(world, &bot, who, &entry)
        }
        (Step::AsksKeeper, Visit::Acting(_, entry)) => {
            // One that was stopped is woken first.
            world.keeper.life = Life::Alive;
            world.keeper.door.push((who, Ask::Cancel));
            if scenario.has(Flaw::DropWhenAsked) { Visit::Settling(entry) } else { Visit::Asked(entry) }
        }
        (Step::HearsEnd, Visit::Asked(entry)) => Visit::Settling(entry),
        (Step::KillsKeeper, Visit::Asked(entry)) => {
            world.keeper.life = Life::Dead;
            Visit::Outside(entry)
        }
        (Step::FindsKeeperDead, Visit::Acting(_, entry) | Visit::Asked(entry)) => Visit::Outside(entry),
        (Step::FindsKeeperDead, _) => {
            // It had become the owner: what is left is ended from outside.
            end_from_outside(scenario, world);
            Visit::Watching
        }
        (Step::EndsFromOutside, visit @ Visit::Outside(_)) => {
            end_from_outside(scenario, world);
            visit
        }
        (Step::SeesNothingLeft, Visit::Outside(entry)) => {
            if scenario.has(Flaw::SignalByNumber) {
                world.kill_number();
            }
            Visit::Settling(entry)
        }
        (Step::AsksToAdopt, Visit::Acting(_, entry)) => {
            if world.keeper.life != Life::Dead {
                world.keeper.life = Life::Alive;
                world.keeper.door.push((who, Ask::Adopt));
            }
            Visit::Applying(entry)
        }
        (Step::IsAdopted, _) => {
            world.memory_mut(who).take_adopted();
            let mut memory = world.memory_mut(who).clone();
            memory.started(&mut world.registry);
            *world.memory_mut(who) = memory;
            Visit::Owning
        }
        (Step::IsRefused, Visit::Applying(former)) => {
            world.memory_mut(who).give_back();
            world.registry.returned(&former, who);
            Visit::Done
        }
        (Step::FindsNobodyToAdoptFrom, _) => {
            world.memory_mut(who).take_adopted();
            Visit::Watching
        }
        (Step::HearsKeeper, visit) => match world.keeper.outbox.remove(0) {
            Tell::Extinct => over(world, who),
            Tell::Ending | Tell::RootExited => visit,
        },
        (Step::SeesItEnd, _) => over(world, who),
        (Step::RenewsLease, visit) => {
            let until = world.lease_until();
            let mut memory = world.memory_mut(who).clone();
            memory.renew(&mut world.registry, until);
            *world.memory_mut(who) = memory;
            visit
        }
        (step, visit) => unreachable!("{step:?} in {visit:?}"),
    };
    if let Some(bot) = world.other_mut(who) {
        bot.visit = next;
    }
}

/// The product's own decision, from what this bot sees.
fn decide(scenario: &Scenario, world: &World, bot: &Other, who: Who, entry: Seen) -> Visit {
    let facts = facts(scenario, world, bot, who, &entry);
    let plan = match classify(&facts).action {
        Action::Leave | Action::Skip => return Visit::Done,
        Action::Drop { .. } => Plan::Drop,
        // What its keeper is ending already cannot be taken over.
        Action::End(_) if bot.role == Role::Adopter && entry.0.on_owner_exit == Policy::Keep => Plan::Adopt,
        Action::End(_) => Plan::End,
    };
    if scenario.has(Flaw::ClaimAfterSignal) {
        Visit::Acting(plan, entry)
    } else {
        Visit::Claiming(plan, entry)
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
            Root::Blank | Root::Command => Process::Alive,
            Root::Reaped if world.number_reused => Process::Recycled,
            Root::Zombie | Root::Reaped => Process::Exited,
        },
        group: match world.root {
            Root::Blank | Root::Command => Group::Ours,
            Root::Reaped if world.number_reused => Group::Unproven,
            Root::Zombie | Root::Reaped => Group::Empty,
        },
        keeper: if world.keeper.life == Life::Dead { Keeper::Dead } else { Keeper::Alive },
        carriers: child || world.root == Root::Command,
        service: false,
        state: entry.0.state,
        protected: None,
    }
}

fn owner(scenario: &Scenario, world: &World, bot: &Other, who: Who, entry: &Seen) -> Owner {
    let Some(owner) = entry.owner() else { return Owner::Unknown };
    // The last bot has the owner's PID.
    let is_me =
        owner == who || (scenario.has(Flaw::OwnerByNumber) && who == Who::Last && owner == Who::Owner);
    match world.life_of(owner) {
        _ if is_me && bot.memory.is_loose() => Owner::Dead,
        _ if is_me => Owner::Me,
        Life::Dead => Owner::Dead,
        Life::Alive | Life::Stopped if scenario.is_blind => Owner::Unknown,
        Life::Alive | Life::Stopped => Owner::Alive,
    }
}

fn claim(scenario: &Scenario, world: &mut World, who: Who, plan: Plan, entry: Seen) -> Visit {
    let from = entry.0.owner_instance_id.clone();
    if !scenario.has(Flaw::ClaimNotRemembered) && !world.memory_mut(who).claim(from.clone()) {
        return Visit::Done;
    }
    let seen = match world.registry.entry() {
        Some(now) if scenario.has(Flaw::LastClaimCounts) => now.0.owner_instance_id.clone(),
        _ => from,
    };
    let lease_until = world.lease_until();
    world.registry.claimed(seen, who, lease_until);
    if scenario.has(Flaw::ClaimNotChecked) {
        Visit::Acting(plan, entry)
    } else {
        Visit::Checking(plan, entry)
    }
}

fn check(scenario: &Scenario, world: &mut World, who: Who, plan: Plan, former: Seen) -> Visit {
    let now = world.registry.entry().filter(|now| now.owner() == Some(who));
    let Some(now) = now else {
        world.memory_mut(who).unclaim();
        return Visit::Done;
    };
    if scenario.has(Flaw::ClaimNotRemembered) {
        world.memory_mut(who).know_instance();
    }
    if plan == Plan::Adopt {
        world.memory_mut(who).adopt(Record::clone(&now.0), &former);
    }
    Visit::Acting(plan, former)
}

/// The entry goes, unless its owner is there to see to that.
fn settle(world: &mut World, bot: &Other, who: Who, entry: &Seen) -> Visit {
    let is_answered_for =
        bot.role == Role::Canceller && entry.owner().is_some_and(|owner| world.life_of(owner) != Life::Dead);
    if !is_answered_for {
        world.memory_mut(who).unclaim();
        world.registry.dropped();
    }
    Visit::Done
}

/// A run that had become this bot's.
fn over(world: &mut World, who: Who) -> Visit {
    world.memory_mut(who).forget();
    world.registry.dropped();
    world.sins.told_too_early |= world.is_run_alive();
    Visit::Done
}
