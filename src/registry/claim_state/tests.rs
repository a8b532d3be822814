//! A table of every event in every state.

use super::*;

/// The checkpoint that runs. A claim at an earlier number was written before it began.
const NOW: CheckpointNumber = 5;
const EARLIER: CheckpointNumber = NOW - 1;

const FORMER: &str = "former";
const OTHER: &str = "other";

fn pending(since: CheckpointNumber) -> PendingClaim {
    PendingClaim { from: Some(FORMER.into()), since }
}

/// A record that only its run id tells apart from others.
fn record(run_id: &str) -> Box<Record> {
    Box::new(Record { run_id: run_id.into(), ..Record::empty() })
}

/// The state that a letter of the table stands for. `since`: when the pending claim was made, or
/// the entry became unsettled.
fn state(letter: char, since: CheckpointNumber) -> ClaimState {
    let former = || record(FORMER);
    match letter {
        'U' => ClaimState::Unclaimed,
        'c' => ClaimState::Claiming { pending: Some(pending(since)), before: Box::default() },
        'C' => ClaimState::Claiming { pending: None, before: Box::default() },
        'a' => ClaimState::Adopted { former: former(), pending: Some(pending(since)) },
        'A' => ClaimState::Adopted { former: former(), pending: None },
        'o' => ClaimState::Own { pending: Some(pending(since)) },
        'O' => ClaimState::Own { pending: None },
        'x' => ClaimState::Unsettled { since, is_with_other: false },
        'X' => ClaimState::Unsettled { since, is_with_other: true },
        'k' => ClaimState::Abandoned { was_seen: false },
        'K' => ClaimState::Abandoned { was_seen: true },
        _ => panic!("unknown letter {letter}"),
    }
}

/// The states before the event, as in the columns of the tables.
const COLUMNS: &str = "U c C a A o O x X k K";

fn check(rows: &[(Event, &str)], since: CheckpointNumber, since_after: CheckpointNumber) {
    for (event, results) in rows {
        let letters = |text: &str| text.split(' ').map(|it| it.chars().next().unwrap()).collect::<Vec<_>>();
        let (before, after) = (letters(COLUMNS), letters(results));
        assert_eq!(before.len(), after.len(), "{event:?}");
        for (before, after) in before.into_iter().zip(after) {
            // An event that leaves the state unchanged leaves its time unchanged, too.
            let since_after = if before == after { since } else { since_after };
            let result = state(before, since).after(event.clone());
            assert_eq!(result, state(after, since_after), "{event:?} in {before}");
        }
    }
}

/// Small letters: the claim is pending (c, a, o), the entry may be ours on disk (x), or no
/// checkpoint has contained the entry (k).
#[test]
fn every_event_has_the_expected_effect_in_every_state() {
    #[rustfmt::skip]
    let rows = [
        //                                                   U c C a A o O x X k K
        (Event::Remember,                                   "O o O a A o O O O O O"),
        (Event::Release,                                    "U U U a A o O x X k K"),
        (Event::LoseClaim,                                  "U U U a A o O x X k K"),
        (Event::Adopt { former: record(FORMER) },           "A a A a A a A A A A A"),
        (Event::Take,                                       "U c C o O o O x X k K"),
        (Event::Forget,                                     "U c C U U U U x X k K"),
        (Event::Abandon,                                    "k c C k k k k x X k K"),
    ];
    check(&rows, EARLIER, EARLIER);
    #[rustfmt::skip]
    let rows = [
        //                                                   U c C a A o O x X k K
        (Event::ClaimFailed { at: NOW },                    "x x x a A o O x x x x"),
    ];
    // A second failure makes the entry unsettled again, from now on.
    check(&rows, NOW, NOW);
    assert_eq!(state('x', EARLIER).after(Event::ClaimFailed { at: NOW }), state('x', NOW));
    for before in COLUMNS.split(' ').filter_map(|letter| letter.chars().next()) {
        assert_eq!(state(before, EARLIER).after(Event::Return { at: NOW }), state('x', NOW), "in {before}");
    }
}

#[test]
fn a_lost_claim_restores_the_state_before_it() {
    for before in COLUMNS.split(' ').filter_map(|letter| letter.chars().next()) {
        let before = state(before, EARLIER);
        let claim = Event::Claim { from: Some(FORMER.to_owned()), at: NOW };
        let claiming = before.clone().after(claim);
        if before.is_claimable() {
            let pending = Some(pending(NOW));
            assert_eq!(claiming, ClaimState::Claiming { pending, before: Box::new(before.clone()) });
            assert_eq!(claiming.clone().after(Event::Release), ClaimState::Unclaimed);
            assert_eq!(claiming.after(Event::LoseClaim), before);
        } else {
            assert_eq!(claiming, before, "no second claim");
        }
    }
}

#[test]
fn a_checkpoint_judges_only_claims_that_were_written_before_it_began() {
    let checkpoint = |content| Event::Checkpoint { number: NOW, content };
    let (former, other) = (Content::Others(Some(FORMER)), Content::Others(Some(OTHER)));
    #[rustfmt::skip]
    let later_than_the_claim = [
        //                                                   U c C a A o O x X k K
        (checkpoint(Content::Missing),                      "U c C A A O O U U k U"),
        (checkpoint(Content::Ours(State::Running)),         "U C C A A O O x x K K"),
        (checkpoint(Content::Ours(State::Exited)),          "U C C A A O O x x U U"),
        (checkpoint(former),                                "U c C a U o U X X K K"),
        (checkpoint(other),                                 "U c C U U U U X X K K"),
        (checkpoint(Content::Others(None)),                 "U c C U U U U X X K K"),
    ];
    check(&later_than_the_claim, EARLIER, EARLIER);
    #[rustfmt::skip]
    let earlier_than_the_claim = [
        //                                                   U c C a A o O x X k K
        (checkpoint(Content::Missing),                      "U c C a A o O x X k U"),
        (checkpoint(Content::Ours(State::Running)),         "U c C a A o O x x K K"),
        (checkpoint(Content::Ours(State::Exited)),          "U c C a A o O x x U U"),
        (checkpoint(former),                                "U c C a U o U x X K K"),
        (checkpoint(other),                                 "U c C a U o U x X K K"),
        (checkpoint(Content::Others(None)),                 "U c C a U o U x X K K"),
    ];
    check(&earlier_than_the_claim, NOW, NOW);
}

#[test]
fn adopt_replaces_the_former_entry() {
    let adopted = state('a', NOW).after(Event::Adopt { former: record("later") });
    assert_eq!(adopted, ClaimState::Adopted { former: record("later"), pending: Some(pending(NOW)) });
}

/// The questions that the rest of the registry asks, for each state.
#[test]
fn each_state_has_the_expected_properties() {
    let shown = |letter| {
        let state = state(letter, NOW);
        let keeps = [State::Running, State::Exited].map(|it| state.keeps_entry(it));
        (state.is_live(), state.is_claimable(), state.needs_memory(), keeps)
    };
    for (letters, expected) in [
        ("U", (false, true, false, [false, false])),
        ("c C", (false, false, true, [true, true])),
        ("a A o O", (true, false, true, [true, true])),
        ("x", (false, true, true, [true, true])),
        ("X", (false, true, false, [true, true])),
        ("k K", (false, true, false, [true, false])),
    ] {
        for letter in letters.split(' ').filter_map(|letter| letter.chars().next()) {
            assert_eq!(shown(letter), expected, "{letter}");
        }
    }
}
