//! The failures. Each occurs at most once, at any time, until no more failures occur.

use crate::world::{BotState, Budget, Life, Other, Root, Who, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    OwnerKilled,
    OwnerStopped,
    KeeperKilled,
    KeeperStopped,
    ZygoteKilled,
    OtherKilled(u8),
    LeaseExpires,
    /// Another process gets the root's PID.
    PidReused,
    /// From here on nothing fails.
    FailuresEnd,
}

pub fn steps(world: &World) -> Vec<Failure> {
    if world.failures_ended {
        return Vec::new();
    }
    let budget = &world.budget;
    let mut steps = vec![Failure::FailuresEnd];
    let mut add_if = |is_possible: bool, failure| steps.extend(is_possible.then_some(failure));
    add_if(budget.owner_killed && world.owner.life != Life::Dead, Failure::OwnerKilled);
    add_if(budget.owner_stopped && world.owner.life == Life::Alive, Failure::OwnerStopped);
    add_if(budget.keeper_killed && world.keeper.life != Life::Dead, Failure::KeeperKilled);
    add_if(budget.keeper_stopped && world.keeper.life == Life::Alive, Failure::KeeperStopped);
    add_if(budget.zygote_killed && world.zygote != Life::Dead, Failure::ZygoteKilled);
    add_if(budget.lease_expires, Failure::LeaseExpires);
    add_if(budget.pid_reused && world.root == Root::Reaped, Failure::PidReused);
    for (index, other) in (0..).zip(&world.others) {
        add_if(budget.other_killed && other.life != Life::Dead, Failure::OtherKilled(index));
    }
    steps
}

fn is_owning(other: &Other) -> bool {
    other.life != Life::Dead && matches!(other.state, BotState::Owning)
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
        Failure::LeaseExpires => {
            budget.lease_expires = false;
            world.epoch += 1;
        }
        Failure::PidReused => {
            budget.pid_reused = false;
            world.pid_reused = true;
        }
        Failure::FailuresEnd => {
            world.failures_ended = true;
            // Only the zygote notices a stopped keeper before a request arrives. Without a zygote
            // the failure would last, but here failures end, so the keeper continues.
            let has_live_owner = world.owner.life != Life::Dead || world.others.iter().any(is_owning);
            if world.keeper.life == Life::Stopped && world.zygote == Life::Dead && has_live_owner {
                world.keeper.life = Life::Alive;
            }
            // Unused failures make no difference any more, so merge these states.
            let Budget { exec_fails, forks, checkpoints, .. } = world.budget;
            world.budget = Budget { exec_fails, forks, checkpoints, ..Budget::default() };
        }
    }
}
