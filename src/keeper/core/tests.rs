//! Tables of events and of the actions that follow, in order.

mod connections;
mod fakes;

use fakes::On::{At, Client, Owner, OwnerGone, PassIsDue, Scan, Shutdown};
use fakes::*;

use super::*;
use crate::run::Force;
use crate::run::lifecycle::{KILL_LIMIT_MS, Timeout};

#[test]
fn the_exit_of_the_root_is_reported_and_ends_the_members_that_it_leaves() {
    check(
        "a command without children: both reports in one write",
        KILLED,
        &[living(), gone(), At(1), gone()],
        &[
            "close",
            "owner: RootExited Code(3), Extinct RootExit '' Nothing [] [] []",
            "clients: RootExited Code(3), Extinct RootExit '' Nothing [] [] []",
        ],
    );
    check(
        "a command that leaves members: each is a leftover, also one that a later pass finds",
        KILLED,
        &[Scan(Population::Living, EXITED), PassIsDue, gone()],
        &[
            "owner: RootExited Code(3)",
            "clients: RootExited Code(3)",
            "list leftovers",
            "terminate 15",
            "pass",
            "close",
            "owner: Extinct RootExit '' Signal [1, 2, 3] [] []",
            "clients: Extinct RootExit '' Signal [1, 2, 3] [] []",
        ],
    );
    check(
        "members that may stay: they are no leftovers",
        LINGERING,
        &[Scan(Population::Living, EXITED), At(1), gone()],
        &[
            "owner: RootExited Code(3)",
            "clients: RootExited Code(3)",
            "close",
            "owner: Extinct RootExit '' Nothing [] [] []",
            "clients: Extinct RootExit '' Nothing [] [] []",
        ],
    );
    check(
        "members whose exit is not complete: no signal, and no end before it is",
        KILLED,
        &[Scan(Population::Exiting, EXITED), Scan(Population::Gone(vec![process(9)]), EXITED)],
        &[
            "owner: RootExited Code(3)",
            "clients: RootExited Code(3)",
            "close",
            "owner: Extinct RootExit '' Nothing [] [] [9]",
            "clients: Extinct RootExit '' Nothing [] [] [9]",
        ],
    );
}

#[test]
fn the_first_request_names_the_reason_and_a_later_one_can_only_be_faster() {
    check(
        "Ending comes before the signal, and the reason of the first cancel stays",
        KILLED,
        &[Owner(cancel(2, "shutdown")), client_cancel(15, "manual-cancel"), PassIsDue, gone()],
        &[
            "owner: Ending Cancel 'shutdown'",
            "clients: Ending Cancel 'shutdown'",
            "terminate 2",
            "pass",
            "close",
            "owner: RootExited Code(3), Extinct Cancel 'shutdown' Signal [] [] []",
            "clients: RootExited Code(3), Extinct Cancel 'shutdown' Signal [] [] []",
        ],
    );
    check(
        "SIGKILL ends the grace of the first request",
        KILLED,
        &[client_cancel(15, "shutdown"), client_cancel(9, "manual-cancel"), gone()],
        &[
            "owner: Ending Cancel 'shutdown'",
            "clients: Ending Cancel 'shutdown'",
            "terminate 15",
            "kill",
            "kill",
            "close",
            "owner: RootExited Code(3), Extinct Cancel 'shutdown' Kill [] [1, 2, 4] []",
            "clients: RootExited Code(3), Extinct Cancel 'shutdown' Kill [] [1, 2, 4] []",
        ],
    );
    check(
        "a cancel after the root's exit is not the cause",
        KILLED,
        &[Scan(Population::Living, EXITED), Owner(cancel(9, "shutdown")), gone()],
        &[
            "owner: RootExited Code(3)",
            "clients: RootExited Code(3)",
            "list leftovers",
            "terminate 15",
            "kill",
            "kill",
            "close",
            "owner: Extinct RootExit '' Kill [1, 2] [1, 2, 4] []",
            "clients: Extinct RootExit '' Kill [1, 2] [1, 2, 4] []",
        ],
    );
    check(
        "a root that exits because of a cancel leaves no leftovers",
        KILLED,
        &[Owner(cancel(15, "")), Scan(Population::Living, EXITED), gone()],
        &[
            "owner: Ending Cancel ''",
            "clients: Ending Cancel ''",
            "terminate 15",
            "owner: RootExited Code(3)",
            "clients: RootExited Code(3)",
            "close",
            "owner: Extinct Cancel '' Signal [] [] []",
            "clients: Extinct Cancel '' Signal [] [] []",
        ],
    );
    check(
        "a termination signal to the keeper ends the tree",
        KILLED,
        &[Shutdown],
        &["owner: Ending Shutdown ''", "clients: Ending Shutdown ''", "terminate 15"],
    );
}

#[test]
fn the_grace_is_followed_by_kills_and_then_by_survivors() {
    check(
        "no member dies",
        KILLED,
        &[
            Owner(cancel(15, "")),
            At(GRACE_MS - 1),
            At(GRACE_MS),
            living(),
            At(GRACE_MS + KILL_LIMIT_MS),
            living(),
        ],
        &[
            "owner: Ending Cancel ''",
            "clients: Ending Cancel ''",
            "terminate 15",
            "kill",
            "kill",
            "list survivors",
            "close",
            "owner: Extinct Cancel '' Kill [] [2, 4] [1]",
            "clients: Extinct Cancel '' Kill [] [2, 4] [1]",
        ],
    );
    check(
        "a survivor is not listed as a leftover",
        KILLED,
        &[Scan(Population::Living, EXITED), At(GRACE_MS), At(GRACE_MS + KILL_LIMIT_MS)],
        &[
            "owner: RootExited Code(3)",
            "clients: RootExited Code(3)",
            "list leftovers",
            "terminate 15",
            "kill",
            "list survivors",
            "close",
            "owner: Extinct RootExit '' Kill [2] [2, 4] [1]",
            "clients: Extinct RootExit '' Kill [2] [2, 4] [1]",
        ],
    );
}

#[test]
fn without_a_grace_every_member_that_got_the_signal_counts_as_forced() {
    let at_once = || Owner(Request::Cancel { signal: 15, grace_ms: 0, reason: "" });
    let begins = ["owner: Ending Cancel ''", "clients: Ending Cancel ''", "terminate 15"];
    let ends = |kills: &[&'static str], how: &'static [&'static str; 2]| {
        [&begins[..], kills, &["close"], how].concat()
    };
    check(
        "they die before SIGKILL",
        KILLED,
        &[at_once(), gone()],
        &ends(
            &[],
            &[
                "owner: RootExited Code(3), Extinct Cancel '' Signal [] [1, 2] []",
                "clients: RootExited Code(3), Extinct Cancel '' Signal [] [1, 2] []",
            ],
        ),
    );
    check(
        "they are listed once",
        KILLED,
        &[at_once(), At(0), gone()],
        &ends(
            &["kill", "kill"],
            &[
                "owner: RootExited Code(3), Extinct Cancel '' Kill [] [1, 2, 4] []",
                "clients: RootExited Code(3), Extinct Cancel '' Kill [] [1, 2, 4] []",
            ],
        ),
    );
}

#[test]
fn members_are_killed_before_each_scan() {
    let (mut core, log) = core(KILLED);
    apply(&mut core, &Owner(cancel(SIGKILL, "")));
    log.take();
    apply(&mut core, &living());
    assert_eq!(log.take(), ["kill", "scan"]);
}

#[test]
fn a_death_during_the_kills_postpones_the_end_of_the_attempts() {
    let (mut core, _) = core(KILLED);
    apply(&mut core, &Owner(cancel(9, "")));
    core.platform.now = KILL_LIMIT_MS - 1;
    core.tree.has_shrunk = true;
    apply(&mut core, &living());
    apply(&mut core, &At(KILL_LIMIT_MS));
    assert!(!core.is_over());
    apply(&mut core, &At(2 * KILL_LIMIT_MS - 1));
    assert!(core.is_over() && core.has_survivors());
}

#[test]
fn a_tree_that_no_request_reaches_is_killed_without_a_grace() {
    let ended = [
        "owner: Ending Cancel ''",
        "clients: Ending Cancel ''",
        "terminate 15",
        "kill",
        "kill",
        "close",
        "owner: RootExited Code(3), Extinct Cancel '' Kill [] [1, 2, 4] []",
        "clients: RootExited Code(3), Extinct Cancel '' Kill [] [1, 2, 4] []",
    ];
    check("at the first signal", KILLED, &[On::Unreachable, Owner(cancel(15, "")), gone()], &ended);
    check(
        "during the grace",
        KILLED,
        &[Owner(cancel(15, "")), Scan(Population::Unreachable, None), gone()],
        &ended,
    );
}

#[test]
fn timeouts_are_reported_and_end_the_tree() {
    let timeout = Some(Timeout { after_ms: 1_000, signal: 2 });
    check(
        "the overall timeout counts from the start, and can be extended",
        Rules { timeout, ..KILLED },
        &[At(500), Owner(Request::Started), At(1_300), Owner(Request::Extend { ms: 1_000 }), At(2_500)],
        &[
            "owner: Warning 1000 200",
            "clients: Warning 1000 200",
            "owner: Ending OverallTimeout ''",
            "clients: Ending OverallTimeout ''",
            "terminate 2",
        ],
    );
    check(
        "the idle timeout",
        KILLED,
        &[Owner(Request::IdleTimeout { limit_ms: 7 })],
        &["owner: Ending NoOutputTimeout ''", "clients: Ending NoOutputTimeout ''", "terminate 15"],
    );
}

#[test]
fn rules_that_arrive_late_do_not_change_an_end() {
    let (mut core, _) = core(KILLED);
    core.set_rules(KEPT);
    assert_eq!(core.rules().on_owner_exit, Policy::Keep);
    apply(&mut core, &client_cancel(15, ""));
    core.set_rules(KILLED);
    assert_eq!(core.rules().on_owner_exit, Policy::Keep);
    assert!(core.is_ending());
}

#[test]
fn a_change_during_an_unfinished_scan_causes_a_second_scan() {
    for (was_unfinished, has_changed, is_unfinished, scans) in [
        (false, true, false, 1),
        (true, false, false, 1),
        (true, true, false, 2),
        // The scan goes on, and repeats when it is finished.
        (true, true, true, 1),
    ] {
        let (mut core, log) = core(KILLED);
        core.tree.is_unfinished = was_unfinished;
        if has_changed {
            core.tree_changed();
        }
        core.tree.is_unfinished = is_unfinished;
        core.check_tree();
        assert_eq!(log.take().len(), scans, "{was_unfinished} {has_changed} {is_unfinished}");
        core.tree.is_unfinished = false;
        core.check_tree();
        assert_eq!(log.take().len(), if is_unfinished { 2 } else { 1 });
    }
    // The second scan decides.
    let (mut core, _) = core(KILLED);
    core.tree.is_unfinished = true;
    core.tree_changed();
    core.tree.is_unfinished = false;
    core.tree.found = [Population::Living, Population::Gone(Vec::new())].into();
    core.check_tree();
    assert!(core.is_over());
}

#[test]
fn the_keeper_wakes_for_the_next_deadline_or_check() {
    for (event, now, next_check_in, is_unfinished, expected) in [
        (None, 0, None, false, None),
        (None, 0, Some(70), false, Some(70)),
        (None, 0, Some(70), true, Some(UNFINISHED_MS)),
        (Some(Owner(cancel(15, ""))), 30, None, false, Some(70)),
        (Some(Owner(cancel(15, ""))), 30, Some(20), false, Some(20)),
        (Some(Owner(cancel(15, ""))), 30, Some(90), false, Some(70)),
        (Some(Owner(cancel(9, ""))), 0, Some(90), false, Some(FakeTree::KILL_PASS_MS)),
        (Some(Owner(cancel(9, ""))), 0, None, true, Some(UNFINISHED_MS)),
        (Some(Owner(cancel(9, ""))), KILL_LIMIT_MS - 1, None, false, Some(1)),
    ] {
        let (mut core, _) = core(KILLED);
        if let Some(event) = &event {
            apply(&mut core, event);
        }
        core.platform.now = now;
        (core.tree.next_check_in, core.tree.is_unfinished) = (next_check_in, is_unfinished);
        assert_eq!(core.wake_in(), expected, "{now} {next_check_in:?} {is_unfinished}");
        let is_killing = core.life.is_killing();
        assert_eq!(core.must_scan(), is_unfinished || is_killing);
    }
}

#[test]
fn the_end_reports_the_strongest_means_that_was_used() {
    for (events, expected) in [
        (vec![gone()], Force::Nothing),
        (vec![Owner(cancel(15, "")), gone()], Force::Signal),
        (vec![Owner(cancel(15, "")), At(GRACE_MS), gone()], Force::Kill),
    ] {
        let (mut core, _) = core(KILLED);
        for event in &events {
            apply(&mut core, event);
        }
        assert_eq!(core.end.unwrap().force, expected);
    }
}
