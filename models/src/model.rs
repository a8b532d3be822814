//! The model: which steps are possible in a state, what each does, and what must hold.

use stateright::{Model, Property};

use crate::flaws::Flaw;
use crate::world::{BotState, Budget, Life, Role, Who, World};
use crate::{failures, keeper, other_bot, owner};

/// One initial state. The checker explores all that can happen from it.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// `onOwnerExit: 'keep'`.
    pub is_kept: bool,
    pub roles: &'static [Role],
    pub budget: Budget,
    /// Other bots cannot check whether a live bot is alive. Only its lease shows it.
    pub is_liveness_hidden: bool,
    /// A deliberate mistake.
    pub flaw: Option<Flaw>,
}

impl Scenario {
    pub fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }
}

/// One indivisible step of one actor: a system call, a line in the journal, a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Owner(owner::Step),
    Run(keeper::RunStep),
    Keeper(keeper::Step),
    Zygote(keeper::ZygoteStep),
    OtherBot(Who, other_bot::Step),
    BeginCheckpoint(Who),
    EndCheckpoint(Who),
    Failure(failures::Failure),
}

impl Step {
    /// Whether a command takes this step by itself. It may also never take it, so no actor waits
    /// for it.
    fn is_voluntary(self) -> bool {
        matches!(
            self,
            Self::Run(keeper::RunStep::CommandExits | keeper::RunStep::ChildExits | keeper::RunStep::Forks)
        )
    }
}

impl Scenario {
    fn steps(&self, world: &World) -> Vec<Step> {
        let mut steps = Vec::new();
        steps.extend(owner::steps(self, world).into_iter().map(Step::Owner));
        steps.extend(keeper::run_steps(world).into_iter().map(Step::Run));
        steps.extend(keeper::steps(self, world).into_iter().map(Step::Keeper));
        steps.extend(keeper::zygote_steps(self, world).into_iter().map(Step::Zygote));
        for (index, _) in (0u8..).zip(&world.others) {
            let who = Who::Other(index);
            steps
                .extend(other_bot::steps(self, world, who).into_iter().map(|step| Step::OtherBot(who, step)));
        }
        steps.extend(checkpoints(world));
        // The next boot of the bot: a last reaper, which comes when all others have finished.
        if world.failures_ended && steps.iter().all(|step| step.is_voluntary()) {
            steps.extend(
                other_bot::steps(self, world, Who::Last)
                    .into_iter()
                    .map(|step| Step::OtherBot(Who::Last, step)),
            );
        }
        steps.extend(failures::steps(world).into_iter().map(Step::Failure));
        steps
    }
}

fn checkpoints(world: &World) -> Vec<Step> {
    let bots = Who::ALL.into_iter().filter(|who| match who {
        Who::Owner => true,
        Who::Other(index) => usize::from(*index) < world.others.len(),
        Who::Last => world.failures_ended,
    });
    let awake = bots.filter(|who| world.life_of(*who) == Life::Alive);
    awake
        .filter_map(|who| {
            if world.registry.is_locked_by(who) {
                Some(Step::EndCheckpoint(who))
            } else {
                (world.budget.checkpoints > 0 && world.registry.is_due())
                    .then_some(Step::BeginCheckpoint(who))
            }
        })
        .collect()
}

impl Model for Scenario {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.roles, self.budget)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        steps.extend(self.steps(world));
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        match step {
            Step::Owner(step) => owner::take(self, &mut world, step),
            Step::Run(step) => keeper::take_run(&mut world, step),
            Step::Keeper(step) => keeper::take(self, &mut world, step),
            Step::Zygote(step) => keeper::take_zygote(&mut world, step),
            Step::OtherBot(who, step) => other_bot::take(self, &mut world, who, step),
            Step::BeginCheckpoint(who) => {
                world.budget.checkpoints -= 1;
                let mut memory = world.memory_mut(who).clone();
                world.registry.begin_checkpoint(&mut memory);
                *world.memory_mut(who) = memory;
            }
            Step::EndCheckpoint(who) => {
                let mut memory = world.memory_mut(who).clone();
                world.registry.end_checkpoint(&mut memory);
                *world.memory_mut(who) = memory;
            }
            Step::Failure(failure) => failures::take(&mut world, failure),
        }
        world.settle();
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_BYSTANDER, |_, world: &World| !world.violations.bystander_signalled),
            Property::always(RECORDED, |_, world: &World| is_recorded(world)),
            Property::always(ONE_ACTS, |_, world: &World| acting(world).count() <= 1),
            Property::always(FIRST_CLAIM, |_, world: &World| is_as_claimed(world)),
            Property::always(KNOWN_FIRST, |_, world: &World| {
                !world.violations.client_informed_before_end_was_known
            }),
            Property::always(TRUE_END, |_, world: &World| !world.violations.reported_too_early),
            Property::always(SETTLED, |scenario: &Self, world: &World| {
                is_settled(world) || !scenario.steps(world).is_empty()
            }),
        ]
    }
}

pub const NO_BYSTANDER: &str = "only processes of the run are signalled";
pub const RECORDED: &str = "every live process of the run has an entry without a recorded end";
pub const ONE_ACTS: &str = "at most one bot acts on an entry";
pub const FIRST_CLAIM: &str = "the bot that acts is the one that the registry names: the first claim wins";
pub const KNOWN_FIRST: &str =
    "the owner knows an end, or it is recorded, before control clients are informed";
pub const TRUE_END: &str = "a reported end is true";
pub const SETTLED: &str = "when no more failures occur, the run ends and its entry is removed";

/// A live process of the run has an entry without a recorded end.
fn is_recorded(world: &World) -> bool {
    let has_entry = || world.registry.entry().is_some_and(|entry| entry.0.exit.is_none());
    !world.is_run_alive() || has_entry()
}

/// The bots that hold a claim and act by it.
fn acting(world: &World) -> impl Iterator<Item = Who> {
    Who::ALL.into_iter().filter(|who| {
        world.other(*who).is_some_and(|other| {
            let acts = matches!(
                other.state,
                BotState::Acting(..)
                    | BotState::AwaitingEnd(_)
                    | BotState::EndingFromOutside(_)
                    | BotState::Settling(_)
                    | BotState::AwaitingAdoption(_)
                    | BotState::Owning
                    | BotState::Watching
            );
            acts && other.life != Life::Dead && other.role != Role::Canceller
        })
    })
}

/// The owner in the entry is the bot that acts. There may be no entry, because a canceller drops
/// the entry of an ended run.
fn is_as_claimed(world: &World) -> bool {
    let named = || world.registry.entry().and_then(|entry| entry.owner());
    acting(world).all(|who| named().is_none_or(|named| named == who))
}

fn is_settled(world: &World) -> bool {
    world.is_tree_empty() && world.registry.entry().is_none()
}
