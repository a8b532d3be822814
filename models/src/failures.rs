//! What goes wrong. Each at most once, at any time, until nothing fails any more.

use crate::world::{Budget, Life, Other, Root, Visit, Who, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    OwnerKilled,
    OwnerStopped,
    KeeperKilled,
    KeeperStopped,
    ZygoteKilled,
    OtherKilled(u8),
    LeaseRunsOut,
    /// A stranger gets the root's number.
    NumberReused,
    /// From here on nothing fails.
    Calm,
}

pub fn steps(world: &World) -> Vec<Failure> {
    if world.is_calm {
        return Vec::new();
    }
    let budget = &world.budget;
    let mut steps = vec![Failure::Calm];
    let mut offer = |is_possible: bool, failure| steps.extend(is_possible.then_some(failure));
    offer(budget.owner_killed && world.owner.life != Life::Dead, Failure::OwnerKilled);
    offer(budget.owner_stopped && world.owner.life == Life::Alive, Failure::OwnerStopped);
    offer(budget.keeper_killed && world.keeper.life != Life::Dead, Failure::KeeperKilled);
    offer(budget.keeper_stopped && world.keeper.life == Life::Alive, Failure::KeeperStopped);
    offer(budget.zygote_killed && world.zygote != Life::Dead, Failure::ZygoteKilled);
    offer(budget.lease_runs_out, Failure::LeaseRunsOut);
    offer(budget.number_reused && world.root == Root::Reaped, Failure::NumberReused);
    for (index, other) in (0..).zip(&world.others) {
        offer(budget.other_killed && other.life != Life::Dead, Failure::OtherKilled(index));
    }
    steps
}

fn is_owning(other: &Other) -> bool {
    other.life != Life::Dead && matches!(other.visit, Visit::Owning)
}

pub fn take(world: &mut World, failure: Failure) {
    let budget = &mut world.budget;
    match failure {
        Failure::OwnerKilled => {
            budget.owner_killed = false;
            world.owner.life = Life::Dead;
            world.registry.unlock(Who::Owner);
        }
        Failure::OwnerStopped => {
            budget.owner_stopped = false;
            world.owner.life = Life::Stopped;
        }
        Failure::KeeperKilled => {
            budget.keeper_killed = false;
            world.keeper.life = Life::Dead;
        }
        Failure::KeeperStopped => {
            budget.keeper_stopped = false;
            world.keeper.life = Life::Stopped;
        }
        Failure::ZygoteKilled => {
            budget.zygote_killed = false;
            world.zygote = Life::Dead;
        }
        Failure::OtherKilled(index) => {
            budget.other_killed = false;
            world.others[usize::from(index)].life = Life::Dead;
            world.registry.unlock(Who::Other(index));
        }
        Failure::LeaseRunsOut => {
            budget.lease_runs_out = false;
            world.epoch += 1;
        }
        Failure::NumberReused => {
            budget.number_reused = false;
            world.number_reused = true;
        }
        Failure::Calm => {
            world.is_calm = true;
            // Nobody but its zygote notices that a keeper was stopped before it is asked for something. Without one that is a
            // failure that lasts, and this is where failures end.
            let is_answered_for = world.owner.life != Life::Dead || world.others.iter().any(is_owning);
            if world.keeper.life == Life::Stopped && world.zygote == Life::Dead && is_answered_for {
                world.keeper.life = Life::Alive;
            }
            // What is past makes no difference any more.
            let Budget { exec_fails, forks, checkpoints, .. } = world.budget;
            world.budget = Budget { exec_fails, forks, checkpoints, ..Budget::default() };
        }
    }
}
