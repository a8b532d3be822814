//! Every event in every phase, and the races by name.

use super::*;

const RULES: Rules = Rules {
    on_owner_exit: Policy::Kill,
    on_leader_exit: Policy::Kill,
    grace_ms: 5_000,
    timeout: Some(Timeout { after_ms: 500, signal: 2 }),
    kill_limit_ms: KILL_LIMIT_MS,
};
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
fn a_root_that_exits_before_its_bot_has_said_that_it_runs_has_a_deadline_for_those_it_leaves() {
    let keep = Rules { on_leader_exit: Policy::Keep, ..RULES };
    for order in [[Event::RootExited, Event::Started], [Event::Started, Event::RootExited]] {
        let run = play(keep, &[(1_000, order[0], Action::Nothing), (1_001, order[1], Action::Nothing)]);
        assert_eq!((run.state(), run.wake_at()), (State::Running, Some(1_400)), "{order:?}");
    }
}

#[test]
fn declared_descendants_stay_until_they_are_cancelled() {
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
fn an_exit_that_beats_the_deadline_is_an_exit() {
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
        &[(2_000, Event::Shutdown, Action::Terminate(SIGTERM)), (2_001, Event::Shutdown, Action::Nothing)],
    );
    assert_eq!((run.cause(), run.wake_at()), (Some(Cause::Shutdown), Some(7_000)));
}

#[test]
fn over_is_terminal_for_every_event() {
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
fn nothing_counts_before_the_command_runs() {
    let run = play(RULES, &[(9_999_999, Event::Tick, Action::Nothing)]);
    assert_eq!((run.state(), run.wake_at()), (State::Starting, None));
}

#[test]
fn a_kept_run_whose_owner_has_not_lived_to_say_that_it_runs_has_its_deadline_all_the_same() {
    let keep = Rules { on_owner_exit: Policy::Keep, ..RULES };
    let run = play(keep, &[(1_000, Event::OwnerGone, Action::Nothing)]);
    assert_eq!((run.state(), run.wake_at()), (State::Running, Some(1_400)));
}

#[test]
fn a_deadline_is_warned_of_once_and_its_limit_is_told_with_the_end() {
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
fn a_keeper_that_wakes_late_does_not_warn_of_what_has_passed() {
    play(RULES, &[(1_000, Event::Started, Action::Nothing), (9_000, Event::Tick, Action::Terminate(2))]);
}

#[test]
fn an_extended_deadline_comes_later_and_is_warned_of_again() {
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
fn a_deadline_can_be_extended_before_it_counts_and_without_one_nothing_is() {
    let run =
        play(RULES, &[(1, Event::Extend { ms: 500 }, Action::Nothing), (2, Event::Started, Action::Nothing)]);
    assert_eq!(run.wake_at(), Some(802));
    let none = Rules { timeout: None, ..RULES };
    let run =
        play(none, &[(1, Event::Started, Action::Nothing), (2, Event::Extend { ms: 500 }, Action::Nothing)]);
    assert_eq!(run.wake_at(), None);
}

#[test]
fn silence_ends_a_run_but_not_one_that_has_ended_by_itself() {
    let silent = Event::Silent { limit_ms: 700 };
    let run =
        play(RULES, &[(1_000, Event::Started, Action::Nothing), (1_100, silent, Action::Terminate(SIGTERM))]);
    assert_eq!((run.cause(), run.limit_ms()), (Some(Cause::NoOutputTimeout), 700));
    let run = play(
        RULES,
        &[(1_000, Event::RootExited, Action::Terminate(SIGTERM)), (1_001, silent, Action::Nothing)],
    );
    assert_eq!((run.cause(), run.limit_ms()), (Some(Cause::RootExit), 0));
}

/// Its own grace is shorter than that of the cancel.
#[test]
fn a_silence_does_not_shorten_the_grace_of_a_cancel() {
    let patient = Event::Cancel { signal: SIGTERM, grace_ms: 60_000 };
    let run = play(
        RULES,
        &[
            (1_000, patient, Action::Terminate(SIGTERM)),
            (1_100, Event::Silent { limit_ms: 700 }, Action::Nothing),
        ],
    );
    assert!(run.rules().grace_ms < 60_000);
    assert_eq!((run.cause(), run.limit_ms(), run.wake_at()), (Some(Cause::Cancel), 0, Some(61_000)));
}

#[test]
fn what_it_has_taken_is_known_afterwards() {
    let force = |script: &[(u64, Event, Action)]| play(RULES, script).force();
    assert_eq!(force(&[(1, Event::Empty, Action::Finish)]), Force::Nothing);
    let asked = (1, CANCEL, Action::Terminate(SIGTERM));
    assert_eq!(force(&[asked, (2, Event::Empty, Action::Finish)]), Force::Signal);
    let killed = (101, Event::Tick, Action::Kill);
    assert_eq!(force(&[asked, killed, (102, Event::Empty, Action::Finish)]), Force::Kill);
}

/// What each event does in each phase, with the deadline at 1,500 and warned of, the grace until 2,000 and giving up at 3,000.
#[test]
fn every_event_in_every_phase() {
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
    let table: [(Event, Vec<(State, Action)>); 11] = [
        (Event::Started, [&[(running, nothing); 3][..], &ending_unmoved].concat()),
        (
            Event::RootExited,
            [&[(exiting, term), (exiting, term), (lingering, nothing)][..], &ending_unmoved].concat(),
        ),
        (Event::Empty, all_over.to_vec()),
        (CANCEL, [&ended(term)[..], &ending_unmoved].concat()),
        (sigkill, [&ended(kill)[..], &[(exiting, kill), (exiting, nothing)]].concat()),
        (Event::Silent { limit_ms: 9 }, [&ended(term)[..], &ending_unmoved].concat()),
        (Event::Extend { ms: 9 }, [&unmoved[..], &ending_unmoved].concat()),
        (Event::OwnerGone, [&ended(term)[..], &ending_unmoved].concat()),
        (Event::Shutdown, [&ended(term)[..], &ending_unmoved].concat()),
        (Event::Progress, [&unmoved[..], &ending_unmoved].concat()),
        (Event::Tick, [&unmoved[..], &ending_unmoved].concat()),
    ];
    for (event, expected) in table {
        for (phase, expected) in phases.into_iter().zip(expected.into_iter().chain([(exited, nothing)])) {
            let deadline = Some(Armed { since: 1_000, limit_ms: 500, signal: 2, warned: true });
            let mut run = Lifecycle { phase, deadline, ..Lifecycle::new(RULES) };
            let before = run.state();
            let action = run.on(event, NOW);
            assert_eq!((run.state(), action), expected, "{event:?} in {phase:?}");
            assert!(run.state() >= before, "{event:?} in {phase:?}: no way back");
        }
    }
}
