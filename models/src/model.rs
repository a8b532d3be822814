//! The model: which steps are possible in a state, what each does, and what must hold.

use stateright::{Model, Property};

use crate::flaws::Flaw;
use crate::world::{Budget, Life, Role, Visit, Who, World};
use crate::{failures, keeper, owner, visitor};

/// One way the world may be set up. All that can happen in it is explored.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// `onOwnerExit: 'keep'`.
    pub is_kept: bool,
    pub roles: &'static [Role],
    pub budget: Budget,
    /// Living bots cannot be judged by others: nothing but their leases speaks for them.
    pub is_blind: bool,
    /// A mistake on purpose.
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
    Visitor(Who, visitor::Step),
    BeginCheckpoint(Who),
    EndCheckpoint(Who),
    Failure(failures::Failure),
}

impl Step {
    /// What a command does of its own accord. It may as well never do it: nobody has to wait for that.
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
            steps.extend(visitor::steps(self, world, who).into_iter().map(|step| Step::Visitor(who, step)));
        }
        steps.extend(checkpoints(world));
        // The next boot: somebody who looks when all others are through with it.
        if world.is_calm && steps.iter().all(|step| step.is_voluntary()) {
            steps.extend(
                visitor::steps(self, world, Who::Last).into_iter().map(|step| Step::Visitor(Who::Last, step)),
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
        Who::Last => world.is_calm,
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
            Step::Visitor(who, step) => visitor::take(self, &mut world, who, step),
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
            Property::always(NO_BYSTANDER, |_, world: &World| !world.sins.bystander_signalled),
            Property::always(RECORDED, |_, world: &World| is_recorded(world)),
            Property::always(ONE_ACTS, |_, world: &World| acting(world).count() <= 1),
            Property::always(FIRST_CLAIM, |_, world: &World| is_as_claimed(world)),
            Property::always(KNOWN_FIRST, |_, world: &World| !world.sins.visitor_told_before_it_was_known),
            Property::always(TRUE_END, |_, world: &World| !world.sins.told_too_early),
            Property::always(SETTLED, |scenario: &Self, world: &World| {
                is_settled(world) || !scenario.steps(world).is_empty()
            }),
        ]
    }
}

pub const NO_BYSTANDER: &str = "no process is signalled that is not the run's";
pub const RECORDED: &str = "nothing of a run is alive without a record that says so";
pub const ONE_ACTS: &str = "never two act on one entry";
pub const FIRST_CLAIM: &str = "who acts is whom the registry names: the first claim counts";
pub const KNOWN_FIRST: &str = "an end is known to the owner or written down before visitors hear of it";
pub const TRUE_END: &str = "an end that is told is true";
pub const SETTLED: &str = "when nothing fails any more, the run is extinct and its entry gone";

/// A command, or what it has left, is named by an entry that does not say that it is over.
fn is_recorded(world: &World) -> bool {
    let has_entry = || world.registry.entry().is_some_and(|entry| entry.0.exit.is_none());
    !world.is_run_alive() || has_entry()
}

/// Whoever holds a claim and does something by it.
fn acting(world: &World) -> impl Iterator<Item = Who> {
    Who::ALL.into_iter().filter(|who| {
        world.other(*who).is_some_and(|other| {
            let acts = matches!(
                other.visit,
                Visit::Acting(..)
                    | Visit::Asked(_)
                    | Visit::Outside(_)
                    | Visit::Settling(_)
                    | Visit::Applying(_)
                    | Visit::Owning
                    | Visit::Watching
            );
            acts && other.life != Life::Dead && other.role != Role::Canceller
        })
    })
}

/// A canceller drops what is extinct, so there may be no entry any more; but there is never another's.
fn is_as_claimed(world: &World) -> bool {
    let named = || world.registry.entry().and_then(|entry| entry.owner());
    acting(world).all(|who| named().is_none_or(|named| named == who))
}

fn is_settled(world: &World) -> bool {
    world.is_tree_empty() && world.registry.entry().is_none()
}
