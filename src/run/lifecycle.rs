//! The state machine of a run: events in, actions out.
//!
//! ```text
//!   starting        running                                exiting                      exited
//!
//!             started      cancel · deadline · idle · owner gone · root exited
//!   Starting ─────────► Running ───────────────────────────► Terminating ──► Killing ──► Over
//!      │                   │                                    (grace)     (bounded)     ▲
//!      │                   └── root exited, onLeaderExit: 'keep': Lingering ────── empty ─┤
//!      └── the events that end a run in Running also end it in Starting ──────────────────┘
//! ```
//!
//! Each keeper has one per run. So have the zygote (for trees of killed keepers) and a process that
//! ends a tree from outside.
//!
//! Times are milliseconds of any clock that does not go backwards. "Empty" always means: no process
//! of the tree exists, except the zombie of the root process.

mod step;

pub use step::Step;

use super::signal::{SIGKILL, SIGTERM};
use super::{Cause, Force, Policy, State, warn_after};

/// How long after SIGKILL a process may still exist.
///
/// A killed process is gone as soon as it is scheduled. A process that still exists after this time
/// is in uninterruptible sleep, or we have no permission to signal it. It is reported as a
/// survivor.
pub const KILL_LIMIT_MS: u64 = 5_000;

/// How long after the grace a keeper may take to report. After that it never will.
pub const REPORT_LIMIT_MS: u64 = KILL_LIMIT_MS + 2_000;

/// Maximum grace after the bot is gone: no caller benefits from a long grace then, and a crashed
/// bot must leave no processes.
pub const ORPHAN_GRACE_MS: u64 = 1_500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The command runs. Its deadline counts from now.
    Started,
    /// The root process ended, by itself or not.
    RootExited,
    /// No process of the tree is left.
    Empty,
    /// A request to end the tree: `signal` first, SIGKILL after `grace_ms`.
    Cancel { signal: i32, grace_ms: u64 },
    /// The command wrote no output for `limit_ms`, which is its idle timeout.
    IdleTimeout { limit_ms: u64 },
    /// The deadline moves later by `ms`.
    Extend { ms: u64 },
    /// Replaces the deadline. The new one counts from now, or from [`Event::Started`]. `None`: there
    /// is none any more.
    SetTimeout { timeout: Option<Timeout> },
    /// The control socket of the bot closed.
    OwnerGone,
    /// The keeper got a termination signal.
    Shutdown,
    /// Members have died.
    Progress,
    /// Time has passed. Sent when [`Lifecycle::wake_at`] is reached; has no effect at any other
    /// time.
    Tick,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Nothing,
    /// Report that the deadline is near.
    Warn {
        limit_ms: u64,
        remaining_ms: u64,
    },
    /// Send `signal`, then SIGCONT, to every member.
    Terminate(i32),
    /// Send SIGKILL to every member. Repeat whenever a member dies, until the tree is empty.
    Kill,
    /// Report the end. Processes that still exist are survivors.
    Finish,
}

#[derive(Debug, Clone, Copy, Hash)]
pub struct Rules {
    pub on_owner_exit: Policy,
    pub on_leader_exit: Policy,
    pub grace_ms: u64,
    /// The overall deadline. Counted from [`Event::Started`], or from the death of the owner if it
    /// died before that.
    pub timeout: Option<Timeout>,
    /// How long after the last death to give up on the members that are being killed.
    pub kill_limit_ms: u64,
}

impl Default for Rules {
    fn default() -> Self {
        let (on_owner_exit, on_leader_exit) = (Policy::Kill, Policy::Kill);
        Self { on_owner_exit, on_leader_exit, grace_ms: 0, timeout: None, kill_limit_ms: KILL_LIMIT_MS }
    }
}

/// An overall deadline, and the first signal it sends.
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
    /// The root process is gone, and its descendants may stay (`onLeaderExit: 'keep'`).
    Lingering,
    Terminating {
        kill_at: u64,
    },
    Killing {
        give_up_at: u64,
    },
    Over,
}

/// The overall deadline while it counts.
#[derive(Debug, Clone, Copy, Hash)]
struct ActiveDeadline {
    since: u64,
    limit_ms: u64,
    signal: i32,
    warned: bool,
}

impl ActiveDeadline {
    fn at(&self) -> u64 {
        self.since.saturating_add(self.limit_ms)
    }

    fn warn_at(&self) -> u64 {
        self.since.saturating_add(warn_after(self.limit_ms))
    }
}

/// The state machine of one run.
///
/// `Clone` and `Hash` are for its model, see `docs/models.md`.
#[derive(Debug, Clone, Hash)]
pub struct Lifecycle {
    rules: Rules,
    phase: Phase,
    cause: Option<Cause>,
    deadline: Option<ActiveDeadline>,
    /// The limit of the deadline that ended the run.
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

    /// Why the tree was ended. `None` before the tree is being ended.
    pub fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// The limit of the deadline that ended the run; 0 if none did.
    pub fn limit_ms(&self) -> u64 {
        self.limit_ms
    }

    /// The strongest means so far.
    pub fn force(&self) -> Force {
        self.force
    }

    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether every member is being killed. A member that is forked now must be killed too.
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
                self.deadline.map(|active| if active.warned { active.at() } else { active.warn_at() })
            }
            Phase::Terminating { kill_at } => Some(kill_at),
            Phase::Killing { give_up_at } => Some(give_up_at),
            Phase::Over => None,
        }
    }

    /// Like [`Lifecycle::on`], but also returns what has changed, for the trace.
    pub fn step(&mut self, event: Event, now: u64) -> Step {
        let from = self.phase;
        let action = self.on(event, now);
        Step { event, from, to: self.phase, cause: self.cause, action }
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
                // `Started` may come later or never, so the deadline counts from now.
                if self.phase == Phase::Starting {
                    self.arm(now);
                }
                self.phase = Phase::Lingering;
                Action::Nothing
            }
            (Phase::Starting | Phase::Running, Event::RootExited) => {
                self.end(Cause::RootExit, SIGTERM, self.rules.grace_ms, now)
            }

            (_, Event::Cancel { signal, grace_ms }) if self.is_ending() => {
                self.shorten_grace(signal, grace_ms, now)
            }
            (_, Event::Cancel { signal, grace_ms }) => self.end(Cause::Cancel, signal, grace_ms, now),

            (_, Event::OwnerGone) if self.rules.on_owner_exit == Policy::Keep => match self.phase {
                Phase::Starting => self.on(Event::Started, now),
                _ => Action::Nothing,
            },
            (_, Event::OwnerGone) if self.is_ending() => self.shorten_grace(SIGTERM, ORPHAN_GRACE_MS, now),
            (_, Event::OwnerGone) => {
                self.end(Cause::OwnerExit, SIGTERM, self.rules.grace_ms.min(ORPHAN_GRACE_MS), now)
            }

            (Phase::Starting | Phase::Running | Phase::Lingering, Event::Shutdown) => {
                self.end(Cause::Shutdown, SIGTERM, self.rules.grace_ms, now)
            }
            (Phase::Starting | Phase::Running | Phase::Lingering, Event::IdleTimeout { limit_ms }) => {
                self.limit_ms = limit_ms;
                self.end(Cause::NoOutputTimeout, SIGTERM, self.rules.grace_ms, now)
            }
            (Phase::Starting | Phase::Running | Phase::Lingering, Event::Extend { ms }) => {
                self.extend(ms);
                Action::Nothing
            }
            (Phase::Starting | Phase::Running | Phase::Lingering, Event::SetTimeout { timeout }) => {
                self.rules.timeout = timeout;
                if self.phase != Phase::Starting {
                    self.arm(now);
                }
                Action::Nothing
            }

            // Killing many members takes time. Give up only when no member dies any more.
            (Phase::Killing { .. }, Event::Progress) => {
                self.phase = Phase::Killing { give_up_at: now.saturating_add(self.rules.kill_limit_ms) };
                Action::Nothing
            }
            (
                _,
                Event::Started
                | Event::RootExited
                | Event::Shutdown
                | Event::IdleTimeout { .. }
                | Event::Extend { .. }
                | Event::SetTimeout { .. }
                | Event::Progress,
            ) => Action::Nothing,

            (_, Event::Tick) if self.wake_at().is_none_or(|at| now < at) => Action::Nothing,
            (Phase::Starting | Phase::Running | Phase::Lingering, Event::Tick) => self.deadline_reached(now),
            (Phase::Terminating { .. }, Event::Tick) => self.kill(now),
            (Phase::Killing { .. }, Event::Tick) => {
                self.phase = Phase::Over;
                Action::Finish
            }
        }
    }

    /// Starts the deadline from now. This happens after the spawn, so a slow spawn does not count.
    fn arm(&mut self, now: u64) {
        let active = |Timeout { after_ms, signal }| ActiveDeadline {
            since: now,
            limit_ms: after_ms,
            signal,
            warned: false,
        };
        self.deadline = self.rules.timeout.map(active);
    }

    /// Extends the deadline, also before it counts. A new warning follows.
    fn extend(&mut self, ms: u64) {
        if let Some(active) = &mut self.deadline {
            active.limit_ms = active.limit_ms.saturating_add(ms);
            active.warned = false;
        } else if let Some(timeout) = &mut self.rules.timeout {
            timeout.after_ms = timeout.after_ms.saturating_add(ms);
        }
    }

    fn deadline_reached(&mut self, now: u64) -> Action {
        let Some(active) = &mut self.deadline else { return Action::Nothing };
        if now < active.at() {
            active.warned = true;
            return Action::Warn { limit_ms: active.limit_ms, remaining_ms: active.at() - now };
        }
        self.limit_ms = active.limit_ms;
        let signal = active.signal;
        self.end(Cause::OverallTimeout, signal, self.rules.grace_ms, now)
    }

    fn end(&mut self, cause: Cause, signal: i32, grace_ms: u64, now: u64) -> Action {
        self.cause.get_or_insert(cause);
        if signal == SIGKILL {
            return self.kill(now);
        }
        self.force = Force::Signal;
        // The signal comes first even with a grace of 0: the next tick kills.
        self.phase = Phase::Terminating { kill_at: now.saturating_add(grace_ms) };
        Action::Terminate(signal)
    }

    /// Handles a second request: it never extends the grace of the first, but may shorten it.
    fn shorten_grace(&mut self, signal: i32, grace_ms: u64, now: u64) -> Action {
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
