//! The state machine of a run: what happened goes in, what to do comes out.
//!
//! ```text
//!             cancel · deadline · owner gone · root gone
//!   Running ──────────────────────────────────────────────► Terminating ──► Killing ──► Over
//!      │                                                        (grace)     (bounded)     ▲
//!      └── root gone, descendants declared: Lingering ──────────────────────────── empty ─┘
//! ```
//!
//! Times are milliseconds on any clock that does not go backwards. "Empty" always means: no process of the tree
//! exists, but for the root's zombie.

use super::{Cause, Policy};

/// After SIGKILL a process is gone as soon as it is scheduled. What is still there after this long sleeps
/// uninterruptibly or must not be signalled by us, and is reported as a survivor.
pub const KILL_LIMIT_MS: u64 = 5_000;

/// A keeper that has not reported this long after the grace is not going to.
pub const REPORT_LIMIT_MS: u64 = KILL_LIMIT_MS + 2_000;

/// Nobody is left to benefit from a long grace once the bot is gone, and a crashed bot shall leave nothing.
pub const ORPHAN_GRACE_MS: u64 = 1_500;

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The command runs, and has so long.
    Arm(Timeout),
    /// The root ended, by itself or not.
    RootExited,
    /// Nothing of the tree is left.
    Empty,
    /// Somebody wants the tree ended: `signal` first, SIGKILL after `grace_ms`.
    Cancel { signal: i32, grace_ms: u64 },
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
    /// Send `signal`, then SIGCONT, to every member.
    Terminate(i32),
    /// SIGKILL every member; repeat whenever one dies, until the tree is empty.
    Kill,
    /// Report. What is still there is a survivor.
    Finish,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    pub on_owner_exit: Policy,
    pub on_leader_exit: Policy,
    pub grace_ms: u64,
}

/// An overall deadline, and the signal it starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Timeout {
    pub after_ms: u64,
    pub signal: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
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

#[derive(Debug)]
pub struct Lifecycle {
    rules: Rules,
    phase: Phase,
    cause: Option<Cause>,
    /// When, and the signal it starts with.
    deadline: Option<(u64, i32)>,
}

impl Lifecycle {
    pub fn new(rules: Rules) -> Self {
        Self { rules, phase: Phase::Running, cause: None, deadline: None }
    }

    /// Why the tree was ended. A run that is not being ended has no cause yet.
    pub fn cause(&self) -> Option<Cause> {
        self.cause
    }

    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Every member dies now; a fork that slips in is to be killed too.
    pub fn is_killing(&self) -> bool {
        matches!(self.phase, Phase::Killing { .. })
    }

    /// When to send the next [`Event::Tick`].
    pub fn wake_at(&self) -> Option<u64> {
        match self.phase {
            Phase::Running | Phase::Lingering => self.deadline.map(|(at, _)| at),
            Phase::Terminating { kill_at } => Some(kill_at),
            Phase::Killing { give_up_at } => Some(give_up_at),
            Phase::Over => None,
        }
    }

    pub fn on(&mut self, event: Event, now: u64) -> Action {
        match (self.phase, event) {
            (Phase::Over, _) => Action::Nothing,

            // Counted from here, and this comes after the spawn: a slow spawn cannot trip it.
            (_, Event::Arm(Timeout { after_ms, signal })) => {
                self.deadline = Some((now.saturating_add(after_ms), signal));
                Action::Nothing
            }

            (_, Event::Empty) => {
                self.cause.get_or_insert(Cause::RootExit);
                self.phase = Phase::Over;
                Action::Finish
            }

            (Phase::Running, Event::RootExited) if self.rules.on_leader_exit == Policy::Keep => {
                self.phase = Phase::Lingering;
                Action::Nothing
            }
            (Phase::Running, Event::RootExited) => {
                self.end(Cause::RootExit, SIGTERM, self.rules.grace_ms, now)
            }

            (Phase::Running | Phase::Lingering, Event::Cancel { signal, grace_ms }) => {
                self.end(Cause::Cancel, signal, grace_ms, now)
            }
            (_, Event::Cancel { signal, grace_ms }) => self.hurry(signal, grace_ms, now),

            (_, Event::OwnerGone) if self.rules.on_owner_exit == Policy::Keep => Action::Nothing,
            (Phase::Running | Phase::Lingering, Event::OwnerGone) => {
                self.end(Cause::OwnerExit, SIGTERM, self.rules.grace_ms.min(ORPHAN_GRACE_MS), now)
            }
            (_, Event::OwnerGone) => self.hurry(SIGTERM, ORPHAN_GRACE_MS, now),

            (Phase::Running | Phase::Lingering, Event::Shutdown) => {
                self.end(Cause::Shutdown, SIGTERM, self.rules.grace_ms, now)
            }

            // Many to kill take their time. Only what does not die is given up.
            (Phase::Killing { .. }, Event::Progress) => {
                self.phase = Phase::Killing { give_up_at: now.saturating_add(KILL_LIMIT_MS) };
                Action::Nothing
            }
            (_, Event::RootExited | Event::Shutdown | Event::Progress) => Action::Nothing,

            (_, Event::Tick) if self.wake_at().is_none_or(|at| now < at) => Action::Nothing,
            (Phase::Running | Phase::Lingering, Event::Tick) => {
                let signal = self.deadline.map_or(SIGTERM, |(_, signal)| signal);
                self.end(Cause::OverallTimeout, signal, self.rules.grace_ms, now)
            }
            (Phase::Terminating { .. }, Event::Tick) => self.kill(now),
            (Phase::Killing { .. }, Event::Tick) => {
                self.phase = Phase::Over;
                Action::Finish
            }
        }
    }

    fn end(&mut self, cause: Cause, signal: i32, grace_ms: u64, now: u64) -> Action {
        self.cause.get_or_insert(cause);
        if signal == SIGKILL {
            return self.kill(now);
        }
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
        self.phase = Phase::Killing { give_up_at: now.saturating_add(KILL_LIMIT_MS) };
        Action::Kill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { on_owner_exit: Policy::Kill, on_leader_exit: Policy::Kill, grace_ms: 5_000 };
    const ARM: Event = Event::Arm(Timeout { after_ms: 500, signal: 2 });
    const CANCEL: Event = Event::Cancel { signal: SIGTERM, grace_ms: 100 };

    /// Plays `(time, event, expected action)` and returns the machine.
    fn play(rules: Rules, script: &[(u64, Event, Action)]) -> Lifecycle {
        let mut run = Lifecycle::new(rules);
        for (index, (now, event, expected)) in script.iter().enumerate() {
            assert_eq!(run.on(*event, *now), *expected, "step {index}: {event:?} at {now}");
        }
        run
    }

    #[test]
    fn a_lone_root_that_exits_is_over_at_once() {
        let run = play(RULES, &[(1_001, Event::Empty, Action::Finish)]);
        assert_eq!((run.cause(), run.is_over(), run.wake_at()), (Some(Cause::RootExit), true, None));
    }

    #[test]
    fn a_root_that_exits_takes_the_rest_with_it() {
        let run = play(
            RULES,
            &[
                (1_001, Event::RootExited, Action::Terminate(SIGTERM)),
                (6_000, Event::Tick, Action::Nothing),
                (6_001, Event::Tick, Action::Kill),
                (6_002, Event::Empty, Action::Finish),
            ],
        );
        assert_eq!(run.cause(), Some(Cause::RootExit));
    }

    #[test]
    fn declared_descendants_stay_until_they_are_cancelled() {
        let keep = Rules { on_leader_exit: Policy::Keep, ..RULES };
        let run = play(
            keep,
            &[
                (1_001, Event::RootExited, Action::Nothing),
                (9_999_999, Event::Tick, Action::Nothing),
                (10_000_000, CANCEL, Action::Terminate(SIGTERM)),
                (10_000_001, Event::Empty, Action::Finish),
            ],
        );
        assert_eq!(run.cause(), Some(Cause::Cancel));
    }

    #[test]
    fn the_grace_is_not_waited_out_when_the_tree_is_gone() {
        let forever = Event::Cancel { signal: SIGTERM, grace_ms: u64::MAX };
        play(RULES, &[(2_000, forever, Action::Terminate(SIGTERM)), (2_001, Event::Empty, Action::Finish)]);
    }

    #[test]
    fn a_duplicate_cancel_changes_nothing_but_may_shorten_the_grace() {
        let mut run =
            play(RULES, &[(2_000, CANCEL, Action::Terminate(SIGTERM)), (2_050, CANCEL, Action::Nothing)]);
        assert_eq!(run.wake_at(), Some(2_100), "the second never prolongs the first");
        assert_eq!(run.on(Event::Cancel { signal: SIGTERM, grace_ms: 10 }, 2_060), Action::Nothing);
        assert_eq!(run.wake_at(), Some(2_070));
        assert_eq!(run.on(Event::Cancel { signal: SIGKILL, grace_ms: 10 }, 2_061), Action::Kill);
        assert_eq!(run.on(CANCEL, 2_062), Action::Nothing, "already killing");
    }

    #[test]
    fn a_cancel_that_comes_after_the_exit_does_not_rewrite_the_reason() {
        let run = play(
            RULES,
            &[(2_000, Event::RootExited, Action::Terminate(SIGTERM)), (2_001, CANCEL, Action::Nothing)],
        );
        assert_eq!((run.cause(), run.wake_at()), (Some(Cause::RootExit), Some(2_101)));
    }

    #[test]
    fn a_cancel_by_sigkill_skips_the_grace() {
        let kill = Event::Cancel { signal: SIGKILL, grace_ms: 5_000 };
        let run = play(RULES, &[(2_000, kill, Action::Kill)]);
        assert_eq!(run.wake_at(), Some(2_000 + KILL_LIMIT_MS));
    }

    #[test]
    fn the_owners_death_ends_the_tree_and_cuts_a_long_grace() {
        let run = play(RULES, &[(2_000, Event::OwnerGone, Action::Terminate(SIGTERM))]);
        assert_eq!((run.cause(), run.wake_at()), (Some(Cause::OwnerExit), Some(2_000 + ORPHAN_GRACE_MS)));
        let slow = Event::Cancel { signal: SIGTERM, grace_ms: 60_000 };
        let run = play(
            RULES,
            &[(2_000, slow, Action::Terminate(SIGTERM)), (3_000, Event::OwnerGone, Action::Nothing)],
        );
        assert_eq!((run.cause(), run.wake_at()), (Some(Cause::Cancel), Some(3_000 + ORPHAN_GRACE_MS)));
    }

    #[test]
    fn a_kept_run_outlives_its_owner_and_keeps_its_deadline() {
        let keep = Rules { on_owner_exit: Policy::Keep, ..RULES };
        let run = play(
            keep,
            &[
                (1_000, ARM, Action::Nothing),
                (1_100, Event::OwnerGone, Action::Nothing),
                (1_499, Event::Tick, Action::Nothing),
                (1_500, Event::Tick, Action::Terminate(2)),
            ],
        );
        assert_eq!(run.cause(), Some(Cause::OverallTimeout));
    }

    #[test]
    fn an_exit_that_beats_the_deadline_is_an_exit() {
        let run = play(
            RULES,
            &[
                (1_000, ARM, Action::Nothing),
                (1_499, Event::RootExited, Action::Terminate(SIGTERM)),
                (1_500, Event::Tick, Action::Nothing),
            ],
        );
        assert_eq!(run.cause(), Some(Cause::RootExit));
    }

    #[test]
    fn what_cannot_be_killed_is_not_waited_for_for_ever() {
        play(
            RULES,
            &[
                (2_000, CANCEL, Action::Terminate(SIGTERM)),
                (2_100, Event::Tick, Action::Kill),
                (2_100 + KILL_LIMIT_MS - 1, Event::Tick, Action::Nothing),
                (2_100 + KILL_LIMIT_MS, Event::Tick, Action::Finish),
            ],
        );
    }

    #[test]
    fn as_long_as_members_die_nobody_is_given_up() {
        let kill = Event::Cancel { signal: SIGKILL, grace_ms: 0 };
        let run = play(
            RULES,
            &[
                (2_000, Event::Progress, Action::Nothing),
                (2_000, kill, Action::Kill),
                (6_000, Event::Progress, Action::Nothing),
                (2_000 + KILL_LIMIT_MS, Event::Tick, Action::Nothing),
            ],
        );
        assert_eq!(run.wake_at(), Some(6_000 + KILL_LIMIT_MS));
    }

    #[test]
    fn a_signal_to_the_keeper_ends_the_tree_and_is_no_cancel() {
        let run = play(
            RULES,
            &[
                (2_000, Event::Shutdown, Action::Terminate(SIGTERM)),
                (2_001, Event::Shutdown, Action::Nothing),
            ],
        );
        assert_eq!((run.cause(), run.wake_at()), (Some(Cause::Shutdown), Some(7_000)));
    }

    #[test]
    fn over_is_terminal_for_every_event() {
        for event in [
            ARM,
            Event::RootExited,
            Event::Empty,
            CANCEL,
            Event::OwnerGone,
            Event::Shutdown,
            Event::Progress,
            Event::Tick,
        ] {
            play(RULES, &[(1_001, Event::Empty, Action::Finish), (1_002, event, Action::Nothing)]);
        }
    }
}
