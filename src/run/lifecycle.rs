//! The state machine of a run: what happened goes in, what to do comes out.
//!
//! ```text
//!   starting        running                                exiting                      exited
//!
//!             started        cancel · deadline · silence · owner gone · root gone
//!   Starting ─────────► Running ───────────────────────────► Terminating ──► Killing ──► Over
//!      │                   │                                    (grace)     (bounded)     ▲
//!      │                   └── root gone, descendants declared: Lingering ──────── empty ─┤
//!      └── whatever ends a running one ends one that starts ──────────────────────────────┘
//! ```
//!
//! Keepers, the zygote (for what killed keepers leave) and whoever ends a tree from outside have one each. Times are
//! milliseconds on any clock that does not go backwards. "Empty" always means: no process of the tree exists, but for
//! the root's zombie.

use super::signal::{SIGKILL, SIGTERM};
use super::{Cause, Force, Policy, State, warn_after};

/// After SIGKILL a process is gone as soon as it is scheduled. What is still there after this long sleeps
/// uninterruptibly or must not be signalled by us, and is reported as a survivor.
pub const KILL_LIMIT_MS: u64 = 5_000;

/// A keeper that has not reported this long after the grace is not going to.
pub const REPORT_LIMIT_MS: u64 = KILL_LIMIT_MS + 2_000;

/// Nobody is left to benefit from a long grace once the bot is gone, and a crashed bot shall leave nothing.
pub const ORPHAN_GRACE_MS: u64 = 1_500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The command runs, and its deadline counts from now.
    Started,
    /// The root ended, by itself or not.
    RootExited,
    /// Nothing of the tree is left.
    Empty,
    /// Somebody wants the tree ended: `signal` first, SIGKILL after `grace_ms`.
    Cancel { signal: i32, grace_ms: u64 },
    /// Nothing was heard of it for this long, and that is too long.
    Silent { limit_ms: u64 },
    /// The deadline is to be so much later.
    Extend { ms: u64 },
    /// The control socket closed.
    OwnerGone,
    /// The keeper was asked to end, by a signal.
    Shutdown,
    /// Members have died.
    Progress,
    /// Time passed; sent when [`Lifecycle::wake_at`] is reached, harmless at any other time.
    Tick,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Nothing,
    /// Tell that the deadline is near.
    Warn {
        limit_ms: u64,
        remaining_ms: u64,
    },
    /// Send `signal`, then SIGCONT, to every member.
    Terminate(i32),
    /// SIGKILL every member; repeat whenever one dies, until the tree is empty.
    Kill,
    /// Report. What is still there is a survivor.
    Finish,
}

#[derive(Debug, Clone, Copy, Hash)]
pub struct Rules {
    pub on_owner_exit: Policy,
    pub on_leader_exit: Policy,
    pub grace_ms: u64,
    /// Counted from [`Event::Started`]; from the owner's death, if it has not lived to say so.
    pub timeout: Option<Timeout>,
    /// How long after the last death what is being killed is given up.
    pub kill_limit_ms: u64,
}

impl Default for Rules {
    fn default() -> Self {
        let (on_owner_exit, on_leader_exit) = (Policy::Kill, Policy::Kill);
        Self { on_owner_exit, on_leader_exit, grace_ms: 0, timeout: None, kill_limit_ms: KILL_LIMIT_MS }
    }
}

/// An overall deadline, and the signal it starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeout {
    pub after_ms: u64,
    pub signal: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Starting,
    Running,
    /// The root is gone, its descendants were declared (`onLeaderExit: 'keep'`).
    Lingering,
    Terminating {
        kill_at: u64,
    },
    Killing {
        give_up_at: u64,
    },
    Over,
}

/// The overall deadline, once it counts.
#[derive(Debug, Clone, Copy, Hash)]
struct Armed {
    since: u64,
    limit_ms: u64,
    signal: i32,
    warned: bool,
}

impl Armed {
    fn at(&self) -> u64 {
        self.since.saturating_add(self.limit_ms)
    }

    fn warn_at(&self) -> u64 {
        self.since.saturating_add(warn_after(self.limit_ms))
    }
}

/// Copies and hashes are for the model of it, see `docs/models.md`.
#[derive(Debug, Clone, Hash)]
pub struct Lifecycle {
    rules: Rules,
    phase: Phase,
    cause: Option<Cause>,
    deadline: Option<Armed>,
    /// The limit of the deadline that has ended it.
    limit_ms: u64,
    force: Force,
}

impl Lifecycle {
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            phase: Phase::Starting,
            cause: None,
            deadline: None,
            limit_ms: 0,
            force: Force::Nothing,
        }
    }

    pub fn state(&self) -> State {
        match self.phase {
            Phase::Starting => State::Starting,
            Phase::Running | Phase::Lingering => State::Running,
            Phase::Terminating { .. } | Phase::Killing { .. } => State::Exiting,
            Phase::Over => State::Exited,
        }
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Why the tree was ended. A run that is not being ended has no cause yet.
    pub fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// The limit of the deadline that has ended it; 0 if none has.
    pub fn limit_ms(&self) -> u64 {
        self.limit_ms
    }

    /// What it has taken so far.
    pub fn force(&self) -> Force {
        self.force
    }

    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Every member dies now; a fork that slips in is to be killed too.
    pub fn is_killing(&self) -> bool {
        matches!(self.phase, Phase::Killing { .. })
    }

    fn is_ending(&self) -> bool {
        self.state() >= State::Exiting
    }

    /// When to send the next [`Event::Tick`].
    pub fn wake_at(&self) -> Option<u64> {
        match self.phase {
            Phase::Starting | Phase::Running | Phase::Lingering => {
                self.deadline.map(|armed| if armed.warned { armed.at() } else { armed.warn_at() })
            }
            Phase::Terminating { kill_at } => Some(kill_at),
            Phase::Killing { give_up_at } => Some(give_up_at),
            Phase::Over => None,
        }
    }

    pub fn on(&mut self, event: Event, now: u64) -> Action {
        match (self.phase, event) {
            (Phase::Over, _) => Action::Nothing,

            (Phase::Starting, Event::Started) => {
                self.phase = Phase::Running;
                self.arm(now);
                Action::Nothing
            }

            (_, Event::Empty) => {
                self.cause.get_or_insert(Cause::RootExit);
                self.phase = Phase::Over;
                Action::Finish
            }

            (Phase::Starting | Phase::Running, Event::RootExited)
                if self.rules.on_leader_exit == Policy::Keep =>
            {
                // Its bot may say only now, or never, that it has run.
                if self.phase == Phase::Starting {
                    self.arm(now);
                }
                self.phase = Phase::Lingering;
                Action::Nothing
            }
            (Phase::Starting | Phase::Running, Event::RootExited) => {
                self.end(Cause::RootExit, SIGTERM, self.rules.grace_ms, now)
            }

            (_, Event::Cancel { signal, grace_ms }) if self.is_ending() => self.hurry(signal, grace_ms, now),
            (_, Event::Cancel { signal, grace_ms }) => self.end(Cause::Cancel, signal, grace_ms, now),

            (_, Event::OwnerGone) if self.rules.on_owner_exit == Policy::Keep => match self.phase {
                Phase::Starting => self.on(Event::Started, now),
                _ => Action::Nothing,
            },
            (_, Event::OwnerGone) if self.is_ending() => self.hurry(SIGTERM, ORPHAN_GRACE_MS, now),
            (_, Event::OwnerGone) => {
                self.end(Cause::OwnerExit, SIGTERM, self.rules.grace_ms.min(ORPHAN_GRACE_MS), now)
            }

            (Phase::Starting | Phase::Running | Phase::Lingering, Event::Shutdown) => {
                self.end(Cause::Shutdown, SIGTERM, self.rules.grace_ms, now)
            }
            (Phase::Starting | Phase::Running | Phase::Lingering, Event::Silent { limit_ms }) => {
                self.limit_ms = limit_ms;
                self.end(Cause::NoOutputTimeout, SIGTERM, self.rules.grace_ms, now)
            }
            (Phase::Starting | Phase::Running | Phase::Lingering, Event::Extend { ms }) => {
                self.extend(ms);
                Action::Nothing
            }

            // Many to kill take their time. Only what does not die is given up.
            (Phase::Killing { .. }, Event::Progress) => {
                self.phase = Phase::Killing { give_up_at: now.saturating_add(self.rules.kill_limit_ms) };
                Action::Nothing
            }
            (
                _,
                Event::Started
                | Event::RootExited
                | Event::Shutdown
                | Event::Silent { .. }
                | Event::Extend { .. }
                | Event::Progress,
            ) => Action::Nothing,

            (_, Event::Tick) if self.wake_at().is_none_or(|at| now < at) => Action::Nothing,
            (Phase::Starting | Phase::Running | Phase::Lingering, Event::Tick) => self.near_deadline(now),
            (Phase::Terminating { .. }, Event::Tick) => self.kill(now),
            (Phase::Killing { .. }, Event::Tick) => {
                self.phase = Phase::Over;
                Action::Finish
            }
        }
    }

    /// Counted from here, and this comes after the spawn: a slow spawn cannot trip it.
    fn arm(&mut self, now: u64) {
        let armed =
            |Timeout { after_ms, signal }| Armed { since: now, limit_ms: after_ms, signal, warned: false };
        self.deadline = self.rules.timeout.map(armed);
    }

    /// Also before it counts. What was warned of is warned of again.
    fn extend(&mut self, ms: u64) {
        if let Some(armed) = &mut self.deadline {
            armed.limit_ms = armed.limit_ms.saturating_add(ms);
            armed.warned = false;
        } else if let Some(timeout) = &mut self.rules.timeout {
            timeout.after_ms = timeout.after_ms.saturating_add(ms);
        }
    }

    fn near_deadline(&mut self, now: u64) -> Action {
        let Some(armed) = &mut self.deadline else { return Action::Nothing };
        if now < armed.at() {
            armed.warned = true;
            return Action::Warn { limit_ms: armed.limit_ms, remaining_ms: armed.at() - now };
        }
        self.limit_ms = armed.limit_ms;
        let signal = armed.signal;
        self.end(Cause::OverallTimeout, signal, self.rules.grace_ms, now)
    }

    fn end(&mut self, cause: Cause, signal: i32, grace_ms: u64, now: u64) -> Action {
        self.cause.get_or_insert(cause);
        if signal == SIGKILL {
            return self.kill(now);
        }
        self.force = Force::Signal;
        // Also with a grace of nothing the signal is sent first: the next tick kills.
        self.phase = Phase::Terminating { kill_at: now.saturating_add(grace_ms) };
        Action::Terminate(signal)
    }

    /// A second request never prolongs the first; it may shorten it.
    fn hurry(&mut self, signal: i32, grace_ms: u64, now: u64) -> Action {
        match self.phase {
            Phase::Terminating { .. } if signal == SIGKILL => self.kill(now),
            Phase::Terminating { kill_at } => {
                self.phase = Phase::Terminating { kill_at: kill_at.min(now.saturating_add(grace_ms)) };
                Action::Nothing
            }
            _ => Action::Nothing,
        }
    }

    fn kill(&mut self, now: u64) -> Action {
        self.force = Force::Kill;
        self.phase = Phase::Killing { give_up_at: now.saturating_add(self.rules.kill_limit_ms) };
        Action::Kill
    }
}

#[cfg(test)]
mod tests;
