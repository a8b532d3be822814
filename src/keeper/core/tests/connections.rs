//! What owner, control clients and registry get, and what they may ask.

use super::*;

#[test]
fn without_an_owner_the_registry_has_the_end_before_control_clients_get_it() {
    check(
        "the owner dies",
        KILLED,
        &[OwnerGone, gone()],
        &[
            "clients: Ending OwnerExit ''",
            "terminate 15",
            "close",
            "record OwnerExit Some(Code(3))",
            "clients: RootExited Code(3), Extinct OwnerExit '' Signal [] [] []",
        ],
    );
    check(
        "a run that outlives its owner",
        KEPT,
        &[OwnerGone, gone()],
        &[
            "close",
            "record RootExit Some(Code(3))",
            "clients: RootExited Code(3), Extinct RootExit '' Nothing [] [] []",
        ],
    );
}

#[test]
fn owner_gone_returns_whether_the_run_continues() {
    for (rules, before, expected) in [
        (KILLED, None, false),
        (KEPT, None, true),
        (KEPT, Some(Owner(cancel(15, ""))), false),
        (KEPT, Some(gone()), false),
    ] {
        let (mut core, _) = core(rules);
        if let Some(event) = before {
            apply(&mut core, &event);
        }
        assert_eq!(core.owner_gone(), expected, "{rules:?}");
        assert!(!core.platform.has_owner);
    }
}

#[test]
fn an_end_that_could_not_be_recorded_is_recorded_later() {
    let (mut core, log) = core(KEPT);
    core.platform.can_record = false;
    core.record_end();
    assert!(log.take().is_empty(), "a run that is not over has no end");
    apply(&mut core, &OwnerGone);
    apply(&mut core, &gone());
    assert!(core.is_over() && !core.is_end_known());
    core.platform.can_record = true;
    core.record_end();
    assert!(core.is_end_known());
}

#[test]
fn a_control_client_adopts_a_run_only_if_the_owner_is_gone() {
    let adopt = || Client(ControlRequest::Adopt);
    check("the owner is there", KEPT, &[adopt()], &["client 1: Adopted false"]);
    check(
        "the owner is gone, so the next owner gets all later reports",
        KEPT,
        &[OwnerGone, adopt(), gone()],
        &[
            "owner: Adopted true",
            "close",
            "owner: RootExited Code(3), Extinct RootExit '' Nothing [] [] []",
            "clients: RootExited Code(3), Extinct RootExit '' Nothing [] [] []",
        ],
    );
    check(
        "a run that ends with its owner is ended, also if a client adopts it",
        KILLED,
        &[OwnerGone, adopt()],
        &["clients: Ending OwnerExit ''", "terminate 15", "owner: Adopted true"],
    );
}

#[test]
fn each_request_is_answered_to_its_sender() {
    check(
        "usage and signals",
        KILLED,
        &[
            Owner(Request::Usage),
            Client(ControlRequest::Usage),
            Owner(Request::Signal { signal: 10 }),
            Scan(Population::Exiting, EXITED),
            Owner(Request::Signal { signal: 10 }),
        ],
        &[
            "owner: Usage 7",
            "client 1: Usage 7",
            "signal root 10",
            "owner: RootExited Code(3)",
            "clients: RootExited Code(3)",
            "signal root 10",
            "owner: SignalFailed",
        ],
    );
    let (mut core, log) = core(KILLED);
    assert!(!core.serve_owner(&Request::Adopt) && !core.serve_owner(&Request::ControlClient { key: "" }));
    assert!(log.take().is_empty());
}

#[test]
fn a_new_control_client_gets_what_it_has_missed() {
    for (events, expected) in [
        (vec![], vec!["Adopted true"]),
        (vec![client_cancel(15, "x")], vec!["Adopted true", "Ending Cancel 'x'"]),
        (vec![Scan(Population::Living, EXITED)], vec!["Adopted true", "RootExited Code(3)"]),
        (
            vec![client_cancel(15, "x"), Scan(Population::Living, EXITED)],
            vec!["Adopted true", "Ending Cancel 'x'", "RootExited Code(3)"],
        ),
        (
            vec![client_cancel(15, "x"), gone()],
            vec!["Adopted true", "RootExited Code(3)", "Extinct Cancel 'x' Signal [] [] []"],
        ),
    ] {
        let (mut core, _) = core(KILLED);
        for event in &events {
            apply(&mut core, event);
        }
        let missed: Vec<_> = core.missed_reports().iter().map(text).collect();
        assert_eq!(missed, expected);
    }
}
