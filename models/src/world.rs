//! The state: processes, sockets, files, and the next step of each actor.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use spawn_owned::run::Policy;
use spawn_owned::run::lifecycle::{Lifecycle, Rules};

use crate::registry::{Memory, Registry, Seen};

/// The bots. The owner starts the run. Others come during the run. The last one comes when no more
/// failures occur.
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

/// The run's root process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Root {
    /// It waits for a command.
    Stub,
    Command,
    /// Dead, but not reaped: its parent still holds its PID.
    Zombie,
    /// Its PID is free.
    Reaped,
}

/// A process that the command starts and that leaves its group. It carries the cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Child {
    Unborn,
    Alive,
    Gone,
}

/// The socket between the owner and the exec stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Launch {
    Open,
    /// The socket contains the command.
    Sent,
    /// The owner's end was closed before it sent a command.
    Closed,
    Executed,
    Refused,
}

/// A message to a keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    AssignRun,
    Cancel,
    Adopt,
}

/// A message from a keeper to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Report {
    Ending,
    RootExited,
    Extinct,
}

/// The progress of the keeper's report of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndReport {
    NotYet,
    Due,
    /// The owner was informed, or the end was recorded.
    Known,
    /// Control clients were informed, too.
    Sent,
}

#[derive(Debug, Clone, Hash)]
pub struct Keeper {
    pub life: Life,
    /// It exited normally.
    pub is_clean: bool,
    /// The product's own state machine, and its clock.
    pub lifecycle: Lifecycle,
    pub now: u64,
    /// It reads only the bot's socket, until it is assigned a run or the bot is gone.
    pub is_waiting: bool,
    /// It received the owner and the rules of the run.
    pub has_rules: bool,
    /// The bot at the other end of its control socket, as far as the keeper knows.
    pub owner: Option<Who>,
    /// Messages from the owner that the keeper has not read.
    pub inbox: Vec<Request>,
    /// Messages from the keeper that the owner has not read.
    pub outbox: Vec<Report>,
    /// Control clients that connect, each with its request.
    pub connecting: Vec<(Who, Request)>,
    /// Control clients whose cancel was accepted.
    pub clients: Vec<Who>,
    pub has_reported_root: bool,
    pub end_report: EndReport,
}

/// The next step of the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    Beginning,
    Recorded,
    Sent,
    Listening,
    /// The keeper died without a report.
    Lost,
    Finished,
}

#[derive(Debug, Clone, Hash)]
pub struct Owner {
    pub life: Life,
    pub stage: Stage,
    pub memory: Memory,
    pub has_recorded_start: bool,
    pub has_cancelled: bool,
}

/// The task of another bot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Reaper,
    /// A reaper with `stealFromLive`: it also takes runs of live owners whose lease has expired.
    Thief,
    /// Prefers to adopt a run.
    Adopter,
    /// Cancels the run, whichever bot owns it.
    Canceller,
}

/// What the bot does with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Plan {
    Drop,
    End,
    Adopt,
}

/// The next step of another bot.
#[derive(Debug, Clone, Hash)]
pub enum BotState {
    Reading,
    Scanning(Seen),
    Claiming(Plan, Seen),
    /// The claim is written, and must be read again.
    Checking(Plan, Seen),
    /// The bot owns the entry; or it is a canceller, which needs no claim.
    Acting(Plan, Seen),
    /// The keeper received a request to end the tree.
    AwaitingEnd(Seen),
    /// There is no keeper.
    EndingFromOutside(Seen),
    /// The tree has ended.
    Settling(Seen),
    /// The keeper received a request to accept this bot as its owner.
    AwaitingAdoption(Seen),
    /// The bot is the owner, and reads the keeper's messages.
    Owning,
    /// The bot owns a run without a keeper, and waits for its end.
    Watching,
    Done,
}

#[derive(Debug, Clone, Hash)]
pub struct Other {
    pub role: Role,
    pub life: Life,
    pub state: BotState,
    pub memory: Memory,
    /// The keeper has informed it that the tree has ended.
    pub was_informed: bool,
    /// Whether the keeper accepted it as its owner.
    pub granted: Option<bool>,
}

/// What may still fail or happen.
#[derive(Debug, Clone, Copy, Default, Hash)]
pub struct Budget {
    pub owner_killed: bool,
    pub owner_stopped: bool,
    pub keeper_killed: bool,
    pub keeper_stopped: bool,
    pub zygote_killed: bool,
    pub other_killed: bool,
    pub lease_expires: bool,
    pub pid_reused: bool,
    /// Control clients and the owner may time out on a keeper that is merely slow, and kill it.
    pub may_time_out: bool,
    pub owner_cancels: bool,
    /// The exec stub may fail to execute the command.
    pub exec_fails: bool,
    /// The command may start a child.
    pub forks: bool,
    /// How many checkpoints are made. Each has two steps, by any bot at any time. 0: every line is
    /// in the file immediately.
    pub checkpoints: u8,
}

/// Events that must never happen.
#[derive(Debug, Clone, Copy, Default, Hash)]
pub struct Violations {
    pub bystander_signalled: bool,
    pub client_informed_before_end_was_known: bool,
    pub reported_too_early: bool,
}

#[allow(clippy::derived_hash_with_manual_eq)] // Equality compares the hashes.
#[derive(Debug, Clone, Hash)]
pub struct World {
    pub registry: Registry,
    pub root: Root,
    pub child: Child,
    /// Another process has the root's PID.
    pub pid_reused: bool,
    pub launch: Launch,
    pub keeper: Keeper,
    pub zygote: Life,
    pub owner: Owner,
    pub others: Vec<Other>,
    pub last: Other,
    /// Incremented when leases expire: a lease that was given before is over.
    pub epoch: u64,
    /// No more failures occur.
    pub failures_ended: bool,
    pub budget: Budget,
    pub violations: Violations,
}

/// States are equal if their hashes are equal. The checker compares them the same way.
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
            state: BotState::Reading,
            memory: Memory::new(who),
            was_informed: false,
            granted: None,
        };
        Self {
            registry: Registry::new(budget.checkpoints > 0),
            root: Root::Stub,
            child: Child::Unborn,
            pid_reused: false,
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
                connecting: Vec::new(),
                clients: Vec::new(),
                has_reported_root: false,
                end_report: EndReport::NotYet,
            },
            zygote: Life::Alive,
            owner: Owner {
                life: Life::Alive,
                stage: Stage::Beginning,
                memory: Memory::new(Who::Owner),
                has_recorded_start: false,
                has_cancelled: false,
            },
            others: roles.iter().zip(0..).map(|(role, index)| other(Who::Other(index), *role)).collect(),
            last: other(Who::Last, Role::Reaper),
            epoch: 0,
            failures_ended: false,
            budget,
            violations: Violations::default(),
        }
    }

    /// The end of a lease that is given now.
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
    pub fn has_disconnected(&self, who: Who) -> bool {
        let is_over = match self.other(who) {
            None => self.owner.stage == Stage::Finished,
            Some(other) => !matches!(other.state, BotState::AwaitingAdoption(_) | BotState::Owning),
        };
        is_over || self.life_of(who) == Life::Dead
    }

    pub fn is_root_alive(&self) -> bool {
        matches!(self.root, Root::Stub | Root::Command)
    }

    /// Whether a process of the run is alive and can act.
    pub fn is_run_alive(&self) -> bool {
        self.root == Root::Command || self.child == Child::Alive
    }

    /// Whether nothing of the tree exists, except the root's zombie.
    pub fn is_tree_empty(&self) -> bool {
        !self.is_root_alive() && self.child != Child::Alive
    }

    /// Sends SIGKILL to all descendants of the caller. No PID that could be reused is involved.
    pub fn kill_tree(&mut self) {
        if self.is_root_alive() {
            self.root = Root::Zombie;
        }
        if self.child == Child::Alive {
            self.child = Child::Gone;
        }
    }

    /// Sends SIGKILL to the process that has the root's PID.
    pub fn kill_by_pid(&mut self) {
        self.violations.bystander_signalled |= self.pid_reused;
        if self.is_root_alive() {
            self.root = Root::Zombie;
        }
    }

    /// The automatic actions of the kernel.
    pub fn settle(&mut self) {
        // Init adopts a process without a parent, and reaps it.
        if self.keeper.life == Life::Dead && self.zygote == Life::Dead && self.root == Root::Zombie {
            self.root = Root::Reaped;
        }
        if self.launch == Launch::Open
            && (self.owner.life == Life::Dead || self.owner.stage == Stage::Finished)
        {
            self.launch = Launch::Closed;
        }
        if self.keeper.life == Life::Dead {
            self.keeper.connecting.clear();
            self.keeper.clients.clear();
            self.keeper.inbox.clear();
        }
    }

    pub fn on_owner_exit(keep: bool) -> Policy {
        if keep { Policy::Keep } else { Policy::Kill }
    }
}
