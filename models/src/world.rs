//! Everything that a state consists of: processes, sockets, files, and what each actor is about to do.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use spawn_owned::run::Policy;
use spawn_owned::run::lifecycle::{Lifecycle, Rules};

use crate::registry::{Memory, Registry, Seen};

/// Bots. The owner starts the run; others come while it lives; the last one comes when nothing fails any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    Owner,
    Other(u8),
    Last,
}

impl Who {
    pub const ALL: [Self; 4] = [Self::Owner, Self::Other(0), Self::Other(1), Self::Last];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Life {
    Alive,
    Stopped,
    Dead,
}

/// The run's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Root {
    /// It waits for a command.
    Blank,
    Command,
    /// Dead, and its number is held by whoever is its parent.
    Zombie,
    /// Its number is free.
    Reaped,
}

/// One process that the command starts and that leaves its group. It carries the cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Child {
    Unborn,
    Alive,
    Gone,
}

/// The socket between owner and blank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Launch {
    Open,
    /// The command is in it.
    Sent,
    /// The owner's end was closed before there was a command.
    Closed,
    Executed,
    Refused,
}

/// What a keeper is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ask {
    Own,
    Cancel,
    Adopt,
}

/// What a keeper tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tell {
    Ending,
    RootExited,
    Extinct,
}

/// How far the keeper's last word has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LastWord {
    NotYet,
    Due,
    /// The owner was told, or else it was written down.
    Known,
    /// Visitors were told, too.
    Spoken,
}

#[derive(Debug, Clone, Hash)]
pub struct Keeper {
    pub life: Life,
    /// It ended as if all were well.
    pub is_clean: bool,
    /// The product's own state machine, and its clock.
    pub lifecycle: Lifecycle,
    pub now: u64,
    /// It listens to nobody but the bot, until it is given a run or the bot is gone.
    pub is_waiting: bool,
    /// It was told whose run this is, and by which rules.
    pub has_rules: bool,
    /// Whoever is at the other end of its control socket, as far as it knows.
    pub owner: Option<Who>,
    /// What the owner has said and the keeper has not read.
    pub inbox: Vec<Ask>,
    /// What the keeper has said and the owner has not read.
    pub outbox: Vec<Tell>,
    /// Visitors at the door, and what they are going to ask for.
    pub door: Vec<(Who, Ask)>,
    /// Visitors that were heard.
    pub guests: Vec<Who>,
    pub has_told_root: bool,
    pub last_word: LastWord,
}

/// What the owner is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum At {
    Beginning,
    Recorded,
    Sent,
    Listening,
    /// The keeper has died without a last word.
    Lost,
    Over,
}

#[derive(Debug, Clone, Hash)]
pub struct Owner {
    pub life: Life,
    pub at: At,
    pub memory: Memory,
    pub has_noted_start: bool,
    pub has_cancelled: bool,
}

/// Why another bot is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Reaper,
    /// Takes expired leases even of owners that are alive.
    Thief,
    /// Prefers to take a run over.
    Adopter,
    /// Cancels the run, whoever's it is.
    Canceller,
}

/// What it does with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Plan {
    Drop,
    End,
    Adopt,
}

/// What another bot is about to do.
#[derive(Debug, Clone, Hash)]
pub enum Visit {
    Reading,
    Looking(Seen),
    Claiming(Plan, Seen),
    /// The claim is written, and is to be read again.
    Checking(Plan, Seen),
    /// The entry is ours; or nobody asks whose it is.
    Acting(Plan, Seen),
    /// The keeper was asked to end the tree.
    Asked(Seen),
    /// There is no keeper.
    Outside(Seen),
    /// Nothing is left of the tree.
    Settling(Seen),
    /// The keeper was asked to take us for its owner.
    Applying(Seen),
    /// It is the owner, and listens to the keeper.
    Owning,
    /// The run is ours and has no keeper: its end is waited for.
    Watching,
    Done,
}

#[derive(Debug, Clone, Hash)]
pub struct Other {
    pub role: Role,
    pub life: Life,
    pub visit: Visit,
    pub memory: Memory,
    /// The keeper has told it that the tree is extinct.
    pub was_told: bool,
    /// Whether the keeper took it for its owner.
    pub granted: Option<bool>,
}

/// What may still go wrong, or happen.
#[derive(Debug, Clone, Copy, Default, Hash)]
pub struct Budget {
    pub owner_killed: bool,
    pub owner_stopped: bool,
    pub keeper_killed: bool,
    pub keeper_stopped: bool,
    pub zygote_killed: bool,
    pub other_killed: bool,
    pub lease_runs_out: bool,
    pub number_reused: bool,
    /// Visitors and the owner may lose patience with a keeper that is merely slow, and kill it.
    pub impatient: bool,
    pub owner_cancels: bool,
    /// The blank may fail to execute the command.
    pub exec_fails: bool,
    /// The command may start a child.
    pub forks: bool,
    /// How many checkpoints are made, in two steps, by anybody at any time. 0: every line is in the file at once.
    pub checkpoints: u8,
}

/// What has happened that must never happen.
#[derive(Debug, Clone, Copy, Default, Hash)]
pub struct Sins {
    pub bystander_signalled: bool,
    pub visitor_told_before_it_was_known: bool,
    pub told_too_early: bool,
}

#[allow(clippy::derived_hash_with_manual_eq)] // Equality is that of the hash.
#[derive(Debug, Clone, Hash)]
pub struct World {
    pub registry: Registry,
    pub root: Root,
    pub child: Child,
    /// Somebody else has the root's number.
    pub number_reused: bool,
    pub launch: Launch,
    pub keeper: Keeper,
    pub zygote: Life,
    pub owner: Owner,
    pub others: Vec<Other>,
    pub last: Other,
    /// Leases that were given before the last time they ran out are over.
    pub epoch: u64,
    /// Nothing fails any more.
    pub is_calm: bool,
    pub budget: Budget,
    pub sins: Sins,
}

/// States are the same if they hash the same: that is how the checker tells them apart, too.
impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        let digest = |world: &Self| BuildHasherDefault::<DefaultHasher>::default().hash_one(world);
        digest(self) == digest(other)
    }
}

impl World {
    pub fn new(roles: &[Role], budget: Budget) -> Self {
        let other = |who, role| Other {
            role,
            life: Life::Alive,
            visit: Visit::Reading,
            memory: Memory::new(who),
            was_told: false,
            granted: None,
        };
        Self {
            registry: Registry::new(budget.checkpoints > 0),
            root: Root::Blank,
            child: Child::Unborn,
            number_reused: false,
            launch: Launch::Open,
            keeper: Keeper {
                life: Life::Alive,
                is_clean: false,
                lifecycle: Lifecycle::new(Rules::default()),
                now: 0,
                is_waiting: true,
                has_rules: false,
                owner: Some(Who::Owner),
                inbox: Vec::new(),
                outbox: Vec::new(),
                door: Vec::new(),
                guests: Vec::new(),
                has_told_root: false,
                last_word: LastWord::NotYet,
            },
            zygote: Life::Alive,
            owner: Owner {
                life: Life::Alive,
                at: At::Beginning,
                memory: Memory::new(Who::Owner),
                has_noted_start: false,
                has_cancelled: false,
            },
            others: roles.iter().zip(0..).map(|(role, index)| other(Who::Other(index), *role)).collect(),
            last: other(Who::Last, Role::Reaper),
            epoch: 0,
            is_calm: false,
            budget,
            sins: Sins::default(),
        }
    }

    /// Leases that are given now.
    pub fn lease_until(&self) -> u64 {
        self.epoch + 1
    }

    pub fn other(&self, who: Who) -> Option<&Other> {
        match who {
            Who::Owner => None,
            Who::Other(index) => self.others.get(usize::from(index)),
            Who::Last => Some(&self.last),
        }
    }

    pub fn other_mut(&mut self, who: Who) -> Option<&mut Other> {
        match who {
            Who::Owner => None,
            Who::Other(index) => self.others.get_mut(usize::from(index)),
            Who::Last => Some(&mut self.last),
        }
    }

    pub fn life_of(&self, who: Who) -> Life {
        self.other(who).map_or(self.owner.life, |other| other.life)
    }

    pub fn memory_mut(&mut self, who: Who) -> &mut Memory {
        match who {
            Who::Owner => &mut self.owner.memory,
            Who::Last => &mut self.last.memory,
            Who::Other(index) => &mut self.others[usize::from(index)].memory,
        }
    }

    /// Whether a bot has closed its end of the keeper's control socket.
    pub fn has_hung_up(&self, who: Who) -> bool {
        let is_over = match self.other(who) {
            None => self.owner.at == At::Over,
            Some(other) => !matches!(other.visit, Visit::Applying(_) | Visit::Owning),
        };
        is_over || self.life_of(who) == Life::Dead
    }

    pub fn is_root_alive(&self) -> bool {
        matches!(self.root, Root::Blank | Root::Command)
    }

    /// Something of the run is alive: it can do things.
    pub fn is_run_alive(&self) -> bool {
        self.root == Root::Command || self.child == Child::Alive
    }

    /// Nothing of the tree exists, but for the root's zombie.
    pub fn is_tree_empty(&self) -> bool {
        !self.is_root_alive() && self.child != Child::Alive
    }

    /// SIGKILL to all that descends from whoever is calling. Nobody's number is needed for that which could be another's.
    pub fn kill_tree(&mut self) {
        if self.is_root_alive() {
            self.root = Root::Zombie;
        }
        if self.child == Child::Alive {
            self.child = Child::Gone;
        }
    }

    /// SIGKILL to whatever has the root's number.
    pub fn kill_number(&mut self) {
        self.sins.bystander_signalled |= self.number_reused;
        if self.is_root_alive() {
            self.root = Root::Zombie;
        }
    }

    /// What the kernel does by itself.
    pub fn settle(&mut self) {
        // Whoever has no parent left is init's, which waits for everybody.
        if self.keeper.life == Life::Dead && self.zygote == Life::Dead && self.root == Root::Zombie {
            self.root = Root::Reaped;
        }
        if self.launch == Launch::Open && (self.owner.life == Life::Dead || self.owner.at == At::Over) {
            self.launch = Launch::Closed;
        }
        if self.keeper.life == Life::Dead {
            self.keeper.door.clear();
            self.keeper.guests.clear();
            self.keeper.inbox.clear();
        }
    }

    pub fn on_owner_exit(keep: bool) -> Policy {
        if keep { Policy::Keep } else { Policy::Kill }
    }
}
