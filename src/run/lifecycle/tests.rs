//! A table of every event in every phase, and tests of single races.

use super::*;

const RULES: Rules = Rules {
    on_owner_exit: Policy::Kill,
    on_leader_exit: Policy::Kill,
    grace_ms: 5_000,
    timeout: Some(Timeout { after_ms: 500, signal: 2 }),
    kill_limit_ms: KILL_LIMIT_MS,
};
const CANCEL: Event = Event::Cancel { signal: SIGTERM, grace_ms: 100 };

/// Applies each `(time, event, expected action)`, and returns the state machine.
fn play(rules: Rules, script: &[(u64, Event, Action)]) -> Lifecycle {
    let mut run = Lifecycle::new(rules);
    for (index, (now, event, expected)) in script.iter().enumerate() {
        assert_eq!(run.on(*event, *now), *expected, "step {index}: {event:?} at {now}");
    }
    run
}

#[test]
fn a_run_without_descendants_is_over_when_its_root_exits() {
    let run = play(RULES, &[(1_001, Event::Empty, Action::Finish)]);
    assert_eq!((run.cause(), run.is_over(), run.wake_at()), (Some(Cause::RootExit), true, None));
}

#[test]
fn the_exit_of_the_root_ends_its_descendants() {
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
fn descendants_have_a_deadline_even_if_the_root_exits_before_started() {
    let keep = Rules { on_leader_exit: Policy::Keep, ..RULES };
    for order in [[Event::RootExited, Event::Started], [Event::Started, Event::RootExited]] {
        let run = play(keep, &[(1_000, order[0], Action::Nothing), (1_001, order[1], Action::Nothing)]);
        assert_eq!((run.state(), run.wake_at()), (State::Running, Some(1_400)), "{order:?}");
    }
}

#[test]
fn kept_descendants_run_until_they_are_cancelled() {
    let keep = Rules { on_leader_exit: Policy::Keep, timeout: None, ..RULES };
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
fn the_run_is_over_before_the_grace_if_the_tree_is_empty() {
    let forever = Event::Cancel { signal: SIGTERM, grace_ms: u64::MAX };
    play(RULES, &[(2_000, forever, Action::Terminate(SIGTERM)), (2_001, Event::Empty, Action::Finish)]);
}

#[test]
fn a_second_cancel_can_only_shorten_the_grace() {
    let mut run =
        play(RULES, &[(2_000, CANCEL, Action::Terminate(SIGTERM)), (2_050, CANCEL, Action::Nothing)]);
    assert_eq!(run.wake_at(), Some(2_100), "the second cancel never extends the grace");
    assert_eq!(run.on(Event::Cancel { signal: SIGTERM, grace_ms: 10 }, 2_060), Action::Nothing);
    assert_eq!(run.wake_at(), Some(2_070));
    assert_eq!(run.on(Event::Cancel { signal: SIGKILL, grace_ms: 10 }, 2_061), Action::Kill);
    assert_eq!(run.on(CANCEL, 2_062), Action::Nothing, "already killing");
}

#[test]
fn a_cancel_after_the_exit_does_not_change_the_cause() {
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
fn the_death_of_the_owner_ends_the_tree_and_shortens_a_long_grace() {
    let run = play(RULES, &[(2_000, Event::OwnerGone, Action::Terminate(SIGTERM))]);
    assert_eq!((run.cause(), run.wake_at()), (Some(Cause::OwnerExit), Some(2_000 + ORPHAN_GRACE_MS)));
    let slow = Event::Cancel { signal: SIGTERM, grace_ms: 60_000 };
    let run =
        play(RULES, &[(2_000, slow, Action::Terminate(SIGTERM)), (3_000, Event::OwnerGone, Action::Nothing)]);
    assert_eq!((run.cause(), run.wake_at()), (Some(Cause::Cancel), Some(3_000 + ORPHAN_GRACE_MS)));
}

#[test]
fn a_kept_run_outlives_its_owner_and_keeps_its_deadline() {
    let keep = Rules { on_owner_exit: Policy::Keep, ..RULES };
    let run = play(
        keep,
        &[
            (1_000, Event::Started, Action::Nothing),
            (1_100, Event::OwnerGone, Action::Nothing),
            (1_399, Event::Tick, Action::Nothing),
            (1_400, Event::Tick, Action::Warn { limit_ms: 500, remaining_ms: 100 }),
            (1_499, Event::Tick, Action::Nothing),
            (1_500, Event::Tick, Action::Terminate(2)),
        ],
    );
    assert_eq!(run.cause(), Some(Cause::OverallTimeout));
}

#[test]
fn an_exit_before_the_deadline_is_an_exit() {
    let run = play(
        RULES,
        &[
            (1_000, Event::Started, Action::Nothing),
            (1_499, Event::RootExited, Action::Terminate(SIGTERM)),
            (1_500, Event::Tick, Action::Nothing),
        ],
    );
    assert_eq!(run.cause(), Some(Cause::RootExit));
}

#[test]
fn the_run_ends_although_a_member_cannot_be_killed() {
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
fn killing_continues_as_long_as_members_die() {
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
fn a_signal_to_the_keeper_ends_the_tree_as_a_shutdown() {
    let run = play(
        RULES,
        &[(2_000, Event::Shutdown, Action::Terminate(SIGTERM)), (2_001, Event::Shutdown, Action::Nothing)],
    );
    assert_eq!((run.cause(), run.wake_at()), (Some(Cause::Shutdown), Some(7_000)));
}

#[test]
fn no_event_changes_a_run_that_is_over() {
    for event in [
        Event::Started,
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

#[test]
fn no_deadline_counts_before_the_command_runs() {
    let run = play(RULES, &[(9_999_999, Event::Tick, Action::Nothing)]);
    assert_eq!((run.state(), run.wake_at()), (State::Starting, None));
}

#[test]
fn a_kept_run_has_its_deadline_even_if_its_owner_dies_before_started() {
    let keep = Rules { on_owner_exit: Policy::Keep, ..RULES };
    let run = play(keep, &[(1_000, Event::OwnerGone, Action::Nothing)]);
    assert_eq!((run.state(), run.wake_at()), (State::Running, Some(1_400)));
}

#[test]
fn a_deadline_is_warned_of_once_and_its_limit_is_reported_at_the_end() {
    let run = play(
        RULES,
        &[
            (1_000, Event::Started, Action::Nothing),
            (1_400, Event::Tick, Action::Warn { limit_ms: 500, remaining_ms: 100 }),
            (1_401, Event::Tick, Action::Nothing),
            (1_500, Event::Tick, Action::Terminate(2)),
        ],
    );
    assert_eq!((run.cause(), run.limit_ms()), (Some(Cause::OverallTimeout), 500));
}

#[test]
fn a_late_tick_does_not_warn_of_a_deadline_that_has_passed() {
    play(RULES, &[(1_000, Event::Started, Action::Nothing), (9_000, Event::Tick, Action::Terminate(2))]);
}

#[test]
fn an_extended_deadline_comes_later_with_a_new_warning() {
    let run = play(
        RULES,
        &[
            (1_000, Event::Started, Action::Nothing),
            (1_400, Event::Tick, Action::Warn { limit_ms: 500, remaining_ms: 100 }),
            (1_450, Event::Extend { ms: 500 }, Action::Nothing),
            (1_500, Event::Tick, Action::Nothing),
            (1_800, Event::Tick, Action::Warn { limit_ms: 1_000, remaining_ms: 200 }),
            (2_000, Event::Tick, Action::Terminate(2)),
            (2_001, Event::Extend { ms: 9_999 }, Action::Nothing),
        ],
    );
    assert_eq!((run.limit_ms(), run.wake_at()), (1_000, Some(7_000)), "too late to extend");
}

#[test]
fn extend_works_before_the_deadline_counts_and_does_nothing_without_one() {
    let run =
        play(RULES, &[(1, Event::Extend { ms: 500 }, Action::Nothing), (2, Event::Started, Action::Nothing)]);
    assert_eq!(run.wake_at(), Some(802));
    let none = Rules { timeout: None, ..RULES };
    let run =
        play(none, &[(1, Event::Started, Action::Nothing), (2, Event::Extend { ms: 500 }, Action::Nothing)]);
    assert_eq!(run.wake_at(), None);
}

#[test]
fn a_timeout_that_is_set_later_counts_from_then_and_replaces_the_former() {
    let set = |after_ms| Event::SetTimeout { timeout: Some(Timeout { after_ms, signal: 3 }) };
    let none = Rules { timeout: None, ..RULES };
    for rules in [RULES, none] {
        let run = play(
            rules,
            &[
                (1_000, Event::Started, Action::Nothing),
                (1_300, set(1_000), Action::Nothing),
                (1_500, Event::Tick, Action::Nothing),
                (2_100, Event::Tick, Action::Warn { limit_ms: 1_000, remaining_ms: 200 }),
                (2_300, Event::Tick, Action::Terminate(3)),
            ],
        );
        assert_eq!((run.cause(), run.limit_ms()), (Some(Cause::OverallTimeout), 1_000));
        let run = play(rules, &[(1, set(1_000), Action::Nothing), (500, Event::Started, Action::Nothing)]);
        assert_eq!(run.wake_at(), Some(1_300), "before the start it does not count");
    }
    let removed = Event::SetTimeout { timeout: None };
    for script in [[Event::Started, removed], [removed, Event::Started]] {
        let run = play(RULES, &[(1, script[0], Action::Nothing), (2, script[1], Action::Nothing)]);
        assert_eq!(run.wake_at(), None, "{script:?}");
    }
}

#[test]
fn a_timeout_that_is_set_during_a_cancel_does_not_become_the_cause() {
    let at_once = Event::SetTimeout { timeout: Some(Timeout { after_ms: 1, signal: 3 }) };
    let run = play(
        RULES,
        &[
            (1_000, Event::Started, Action::Nothing),
            (1_001, CANCEL, Action::Terminate(SIGTERM)),
            (1_002, at_once, Action::Nothing),
            (1_050, Event::Tick, Action::Nothing),
            (1_101, Event::Tick, Action::Kill),
            (1_102, at_once, Action::Nothing),
            (1_103, Event::Empty, Action::Finish),
        ],
    );
    assert_eq!((run.cause(), run.limit_ms()), (Some(Cause::Cancel), 0));
}

#[test]
fn the_idle_timeout_ends_a_run_that_has_not_exited_by_itself() {
    let silent = Event::IdleTimeout { limit_ms: 700 };
    let run =
        play(RULES, &[(1_000, Event::Started, Action::Nothing), (1_100, silent, Action::Terminate(SIGTERM))]);
    assert_eq!((run.cause(), run.limit_ms()), (Some(Cause::NoOutputTimeout), 700));
    let run = play(
        RULES,
        &[(1_000, Event::RootExited, Action::Terminate(SIGTERM)), (1_001, silent, Action::Nothing)],
    );
    assert_eq!((run.cause(), run.limit_ms()), (Some(Cause::RootExit), 0));
}

/// The grace of the idle timeout is shorter than that of the cancel.
#[test]
fn the_idle_timeout_does_not_shorten_the_grace_of_a_cancel() {
    let long_grace = Event::Cancel { signal: SIGTERM, grace_ms: 60_000 };
    let run = play(
        RULES,
        &[
            (1_000, long_grace, Action::Terminate(SIGTERM)),
            (1_100, Event::IdleTimeout { limit_ms: 700 }, Action::Nothing),
        ],
    );
    assert!(run.rules().grace_ms < 60_000);
    assert_eq!((run.cause(), run.limit_ms(), run.wake_at()), (Some(Cause::Cancel), 0, Some(61_000)));
}

#[test]
fn force_returns_the_strongest_means_that_was_used() {
    let force = |script: &[(u64, Event, Action)]| play(RULES, script).force();
    assert_eq!(force(&[(1, Event::Empty, Action::Finish)]), Force::Nothing);
    let cancelled = (1, CANCEL, Action::Terminate(SIGTERM));
    assert_eq!(force(&[cancelled, (2, Event::Empty, Action::Finish)]), Force::Signal);
    let killed = (101, Event::Tick, Action::Kill);
    assert_eq!(force(&[cancelled, killed, (102, Event::Empty, Action::Finish)]), Force::Kill);
}

/// What each event does in each phase. The deadline is at 1,500 and was warned of; the grace ends
/// at 2,000; killing is given up at 3,000.
#[test]
fn every_event_has_the_expected_effect_in_every_phase() {
    use Phase::{Killing, Lingering, Over, Running, Starting, Terminating};
    const NOW: u64 = 1_200;
    let (starting, running, lingering) = (State::Starting, State::Running, State::Running);
    let (exiting, exited) = (State::Exiting, State::Exited);
    let phases =
        [Starting, Running, Lingering, Terminating { kill_at: 2_000 }, Killing { give_up_at: 3_000 }, Over];
    let nothing = Action::Nothing;
    let term = Action::Terminate(SIGTERM);
    let (kill, finish) = (Action::Kill, Action::Finish);
    let all_over = [(exited, finish); 5];
    let ended = |action| [(exiting, action), (exiting, action), (exiting, action)];
    let unmoved = [(starting, nothing), (running, nothing), (lingering, nothing)];
    let ending_unmoved = [(exiting, nothing), (exiting, nothing)];
    let sigkill = Event::Cancel { signal: SIGKILL, grace_ms: 5 };
    let table: [(Event, Vec<(State, Action)>); 12] = [
        (Event::Started, [&[(running, nothing); 3][..], &ending_unmoved].concat()),
        (
            Event::RootExited,
            [&[(exiting, term), (exiting, term), (lingering, nothing)][..], &ending_unmoved].concat(),
        ),
        (Event::Empty, all_over.to_vec()),
        (CANCEL, [&ended(term)[..], &ending_unmoved].concat()),
        (sigkill, [&ended(kill)[..], &[(exiting, kill), (exiting, nothing)]].concat()),
        (Event::IdleTimeout { limit_ms: 9 }, [&ended(term)[..], &ending_unmoved].concat()),
        (Event::Extend { ms: 9 }, [&unmoved[..], &ending_unmoved].concat()),
        (Event::SetTimeout { timeout: None }, [&unmoved[..], &ending_unmoved].concat()),
        (Event::OwnerGone, [&ended(term)[..], &ending_unmoved].concat()),
        (Event::Shutdown, [&ended(term)[..], &ending_unmoved].concat()),
        (Event::Progress, [&unmoved[..], &ending_unmoved].concat()),
        (Event::Tick, [&unmoved[..], &ending_unmoved].concat()),
    ];
    for (event, expected) in table {
        for (phase, expected) in phases.into_iter().zip(expected.into_iter().chain([(exited, nothing)])) {
            let deadline = Some(ActiveDeadline { since: 1_000, limit_ms: 500, signal: 2, warned: true });
            let mut run = Lifecycle { phase, deadline, ..Lifecycle::new(RULES) };
            let before = run.state();
            let action = run.on(event, NOW);
            assert_eq!((run.state(), action), expected, "{event:?} in {phase:?}");
            assert!(run.state() >= before, "{event:?} in {phase:?}: the state moved backwards");
        }
    }
}
