//! The rules of `classify` as tables: what must happen, and what must not.

use super::*;
use crate::registry::State;
use std::collections::BTreeSet;

/// A run whose bot and keeper have crashed, seen from the next bot on the same machine.
const CRASHED: Facts = Facts {
    owner: Owner::Dead,
    lease: Lease::Valid,
    steal_from_live: false,
    boot: Boot::Same,
    namespace: Namespace::Same,
    root: Root::Alive,
    group: Group::Ours,
    keeper: Keeper::Dead,
    carriers: true,
    keyless: false,
    service: false,
    state: State::Running,
    protected: None,
};
/// A service whose bot has ended, which is normal.
const SERVICE: Facts = Facts { service: true, keeper: Keeper::Alive, ..CRASHED };
/// A run of which no process is alive.
const GONE: Facts = Facts { root: Root::Exited, group: Group::Empty, carriers: false, ..CRASHED };
/// An entry of an old format.
const OLD: Facts = Facts {
    lease: Lease::None,
    boot: Boot::Unknown,
    namespace: Namespace::Unknown,
    group: Group::NotLed,
    keeper: Keeper::None,
    carriers: false,
    ..CRASHED
};

const DROP: Action = Action::Drop;
const DROP_REUSED: Action = Action::DropReused;
const END: Action = Action::End(Via::Outside);
const END_BY_KEEPER: Action = Action::End(Via::Keeper);

#[test]
fn each_named_case_gets_its_decision() {
    #[rustfmt::skip]
    let cases = [
        ("the owner is dead", CRASHED, END, "root-alive"),
        ("the owner is alive", Facts { owner: Owner::Alive, ..CRASHED }, Action::Leave, "owner-alive"),
        ("the owner is this bot", Facts { owner: Owner::Me, lease: Lease::Expired, steal_from_live: true, ..CRASHED }, Action::Leave, "own-run"),
        // The process with the owner's PID is this one, so the recorded owner counts as dead.
        ("container restart: our own PID, another start token", Facts { owner: Owner::Dead, keeper: Keeper::Alive, ..CRASHED }, END_BY_KEEPER, "keeper-alive"),
        ("container restart: this process has the root's PID now", Facts { root: Root::Recycled, protected: Some(Protected::Ourselves), ..GONE }, DROP_REUSED, "pid-reused"),
        ("lease expired, owner alive (a laptop slept)", Facts { owner: Owner::Alive, lease: Lease::Expired, ..CRASHED }, Action::Leave, "lease-expired-owner-alive"),
        ("lease expired, owner alive, stealFromLive", Facts { owner: Owner::Alive, lease: Lease::Expired, steal_from_live: true, ..CRASHED }, END, "root-alive"),
        ("lease valid, stealFromLive", Facts { owner: Owner::Alive, steal_from_live: true, ..CRASHED }, Action::Leave, "owner-alive"),
        ("owner unknown", Facts { owner: Owner::Unknown, ..CRASHED }, Action::Leave, "owner-unknown"),
        ("owner unknown, lease expired", Facts { owner: Owner::Unknown, lease: Lease::Expired, ..CRASHED }, END, "root-alive"),
        ("other boot", Facts { boot: Boot::Other, ..CRASHED }, DROP, "other-boot"),
        ("other boot, as another namespace", Facts { boot: Boot::Other, namespace: Namespace::Other, ..CRASHED }, DROP, "other-boot"),
        ("other PID namespace", Facts { namespace: Namespace::Other, ..CRASHED }, Action::Skip, "other-namespace"),
        ("root dead, group alive", Facts { root: Root::Exited, carriers: false, ..CRASHED }, END, "detached-orphaned"),
        ("root dead, a child left the group", Facts { carriers: true, ..GONE }, END, "detached-orphaned"),
        ("root dead, its group unproven", Facts { group: Group::Unproven, ..GONE }, Action::Skip, "group-unproven"),
        ("root's PID reused by a process", Facts { root: Root::Recycled, ..GONE }, DROP_REUSED, "pid-reused"),
        ("root's PID reused by a process with a new group", Facts { root: Root::Recycled, group: Group::Unproven, ..GONE }, DROP_REUSED, "pid-reused"),
        ("root's PID reused, but carriers are alive", Facts { root: Root::Recycled, carriers: true, ..GONE }, END, "detached-orphaned"),
        ("keeper alive", Facts { keeper: Keeper::Alive, ..CRASHED }, END_BY_KEEPER, "keeper-alive"),
        ("keeper alive, root gone", Facts { keeper: Keeper::Alive, ..GONE }, END_BY_KEEPER, "keeper-alive"),
        ("zombie, or already gone", GONE, DROP, "already-gone"),
        ("already gone, entry of an older version", Facts { keyless: true, ..GONE }, DROP, "gone-without-key"),
        ("root alive, entry of an older version", Facts { keyless: true, ..CRASHED }, END, "root-alive"),
        ("a kept run whose end is recorded", Facts { state: State::Exited, ..GONE }, DROP, "end-recorded"),
        ("registered process in another process's group, gone", Facts { group: Group::NotLed, keeper: Keeper::None, ..GONE }, DROP, "already-gone"),
        ("root unreadable", Facts { root: Root::Unknown, group: Group::Unproven, ..GONE }, Action::Skip, "identity-unknown"),
        ("root unreadable, although a group and a carrier seem to be the run's", Facts { root: Root::Unknown, ..CRASHED }, Action::Skip, "identity-unknown"),
        ("a service whose bot has ended", SERVICE, Action::Leave, "service"),
        ("a service that this bot started", Facts { owner: Owner::Me, ..SERVICE }, Action::Leave, "own-run"),
        ("a service, stealFromLive", Facts { owner: Owner::Alive, lease: Lease::Expired, steal_from_live: true, ..SERVICE }, Action::Leave, "service"),
        ("a service on Windows, where its bot was its keeper", Facts { keeper: Keeper::Dead, ..SERVICE }, Action::Leave, "service"),
        ("a service that contains this process", Facts { protected: Some(Protected::Ancestor), ..SERVICE }, Action::Leave, "service"),
        ("a service whose root is unknown", Facts { root: Root::Unknown, ..SERVICE }, Action::Leave, "service"),
        ("a service whose root is gone", Facts { root: Root::Exited, keeper: Keeper::Dead, ..SERVICE }, END, "detached-orphaned"),
        ("a service without live processes", Facts { service: true, ..GONE }, DROP, "already-gone"),
        ("a service whose PID was reused", Facts { service: true, root: Root::Recycled, ..GONE }, DROP_REUSED, "pid-reused"),
        ("a service whose end is recorded", Facts { state: State::Exited, ..SERVICE }, DROP, "end-recorded"),
        ("a service of another boot", Facts { boot: Boot::Other, ..SERVICE }, DROP, "other-boot"),
        ("a service of another namespace", Facts { namespace: Namespace::Other, ..SERVICE }, Action::Skip, "other-namespace"),
        ("PID 1", Facts { protected: Some(Protected::PidOne), ..CRASHED }, Action::Skip, "refused-pid-1"),
        ("PID below 100", Facts { protected: Some(Protected::Low), ..CRASHED }, Action::Skip, "refused-low-pid"),
        ("this process itself", Facts { protected: Some(Protected::Ourselves), ..CRASHED }, Action::Skip, "refused-ourselves"),
        ("an ancestor of this process", Facts { protected: Some(Protected::Ancestor), ..CRASHED }, Action::Skip, "refused-ancestor"),
        ("PID below 100, already gone", Facts { protected: Some(Protected::Low), ..GONE }, DROP, "already-gone"),
        ("old entry, its start time matches, bot dead", OLD, END, "root-alive"),
        ("old entry, its start time does not match", Facts { root: Root::Unknown, ..OLD }, Action::Skip, "identity-unknown"),
        ("old entry, bot alive", Facts { owner: Owner::Alive, ..OLD }, Action::Leave, "owner-alive"),
        ("old entry that names no bot", Facts { owner: Owner::Unknown, ..OLD }, Action::Leave, "owner-unknown"),
        ("old entry, gone", Facts { root: Root::Exited, ..OLD }, DROP, "already-gone"),
    ];
    for (name, facts, action, word) in cases {
        let decision = classify(&facts);
        assert_eq!((decision.action, decision.reason.word()), (action, word), "{name}");
    }
}

/// The event log and the report contain these words, and users search for them.
#[test]
fn facts_serialize_as_words_and_false_flags_are_left_out() {
    let serialized = |facts: Facts| serde_json::to_string(&facts).unwrap();
    let usual = r#""lease":"valid","boot":"same","namespace":"same","root":"alive","group":"ours","keeper""#;
    for (facts, expected) in [
        (CRASHED, format!(r#"{{"owner":"dead",{usual}:"dead","carriers":"true","state":"running"}}"#)),
        (
            Facts { carriers: false, steal_from_live: true, ..SERVICE },
            format!(
                r#"{{"owner":"dead",{usual}:"alive","carriers":"false","service":"true","state":"running"}}"#
            ),
        ),
        (
            Facts { owner: Owner::Me, keeper: Keeper::None, protected: Some(Protected::PidOne), ..CRASHED },
            format!(
                r#"{{"owner":"me",{usual}:"none","carriers":"true","state":"running","protected":"pid-one"}}"#
            ),
        ),
    ] {
        assert_eq!(serialized(facts), expected);
    }
}

const OWNERS: [Owner; 4] = [Owner::Me, Owner::Alive, Owner::Dead, Owner::Unknown];
const LEASES: [Lease; 3] = [Lease::Valid, Lease::Expired, Lease::None];
const BOOTS: [Boot; 3] = [Boot::Same, Boot::Other, Boot::Unknown];
const NAMESPACES: [Namespace; 3] = [Namespace::Same, Namespace::Other, Namespace::Unknown];
const ROOTS: [Root; 4] = [Root::Alive, Root::Exited, Root::Recycled, Root::Unknown];
const GROUPS: [Group; 4] = [Group::Empty, Group::Ours, Group::Unproven, Group::NotLed];
const KEEPERS: [Keeper; 3] = [Keeper::None, Keeper::Alive, Keeper::Dead];
const STATES: [State; 4] = [State::Starting, State::Running, State::Exiting, State::Exited];
const PROTECTED: [Option<Protected>; 5] = [
    None,
    Some(Protected::PidOne),
    Some(Protected::Low),
    Some(Protected::Ourselves),
    Some(Protected::Ancestor),
];
const BOOLS: [bool; 2] = [false, true];
const COMBINATIONS: usize = 4 * 3 * 3 * 3 * 4 * 4 * 3 * 4 * 5 * 2 * 2 * 2 * 2;

/// Takes the next digit of a mixed-radix number. The radix is the length of the list.
fn pick<T: Copy>(list: &[T], index: &mut usize) -> T {
    let choice = list[*index % list.len()];
    *index /= list.len();
    choice
}

fn every_combination() -> impl Iterator<Item = Facts> {
    (0..COMBINATIONS).map(|mut index| {
        let index = &mut index;
        Facts {
            owner: pick(&OWNERS, index),
            lease: pick(&LEASES, index),
            boot: pick(&BOOTS, index),
            namespace: pick(&NAMESPACES, index),
            root: pick(&ROOTS, index),
            group: pick(&GROUPS, index),
            keeper: pick(&KEEPERS, index),
            state: pick(&STATES, index),
            protected: pick(&PROTECTED, index),
            carriers: pick(&BOOLS, index),
            steal_from_live: pick(&BOOLS, index),
            service: pick(&BOOLS, index),
            keyless: pick(&BOOLS, index),
        }
    })
}

/// The run has an owner, or may have one.
fn is_owned(facts: &Facts) -> bool {
    match facts.owner {
        Owner::Me => true,
        Owner::Dead => false,
        Owner::Alive => facts.lease != Lease::Expired || !facts.steal_from_live,
        Owner::Unknown => facts.lease != Lease::Expired,
    }
}

/// A live process is proven to belong to the run.
fn is_proven(facts: &Facts) -> bool {
    let has_member = facts.root != Root::Unknown && (facts.group == Group::Ours || facts.carriers);
    facts.root == Root::Alive || facts.keeper == Keeper::Alive || has_member
}

/// The run started in this boot and namespace, as far as known, and no end is recorded.
fn is_visible(facts: &Facts) -> bool {
    facts.boot != Boot::Other && facts.namespace != Namespace::Other && facts.state != State::Exited
}

fn is_running_service(facts: &Facts) -> bool {
    facts.service && matches!(facts.root, Root::Alive | Root::Unknown)
}

/// Asserts `rule` for all combinations that `applies` selects, and that there is at least one.
fn always(applies: impl Fn(&Facts) -> bool, rule: impl Fn(&Facts, Decision) -> bool) {
    let mut seen = 0;
    for facts in every_combination().filter(|facts| applies(facts)) {
        let decision = classify(&facts);
        assert!(rule(&facts, decision), "{facts:?} → {decision:?}");
        seen += 1;
    }
    assert!(seen > 0, "the rule applies to no combination");
}

fn ends(decision: Decision) -> bool {
    matches!(decision.action, Action::End(_))
}

fn drops(decision: Decision) -> bool {
    matches!(decision.action, Action::Drop | Action::DropReused)
}

#[test]
fn a_run_with_an_owner_is_always_left_alone() {
    always(is_owned, |_, decision| decision.action == Action::Leave);
    always(
        |facts| facts.owner == Owner::Alive && facts.lease == Lease::Valid,
        |_, it| it.action == Action::Leave,
    );
    always(|facts| facts.owner == Owner::Me, |_, it| it.action == Action::Leave);
}

#[test]
fn an_orphan_is_never_left_out_of_the_report() {
    always(
        |facts| !is_owned(facts) && !is_running_service(facts),
        |_, decision| decision.action != Action::Leave,
    );
}

#[test]
fn a_running_service_is_never_ended() {
    always(is_running_service, |_, decision| !ends(decision));
}

#[test]
fn the_rest_of_an_ended_service_is_treated_like_any_run() {
    always(
        |facts| facts.service && !is_running_service(facts),
        |facts, decision| decision == classify(&Facts { service: false, ..*facts }),
    );
}

#[test]
fn an_unproven_run_is_never_ended() {
    always(|facts| !is_proven(facts), |_, decision| !ends(decision));
}

#[test]
fn a_run_of_another_boot_or_namespace_or_with_a_recorded_end_is_never_ended() {
    always(|facts| !is_visible(facts), |_, decision| !ends(decision));
}

#[test]
fn a_protected_pid_is_never_ended() {
    always(|facts| facts.protected.is_some(), |_, decision| !ends(decision));
}

#[test]
fn every_proven_orphan_is_ended() {
    let orphan = |facts: &Facts| {
        !is_owned(facts) && is_visible(facts) && facts.protected.is_none() && !is_running_service(facts)
    };
    always(|facts| orphan(facts) && is_proven(facts), |_, decision| ends(decision));
}

#[test]
fn the_keeper_ends_the_run_if_and_only_if_it_is_alive() {
    always(
        |facts| ends(classify(facts)),
        |facts, decision| (decision.action == END_BY_KEEPER) == (facts.keeper == Keeper::Alive),
    );
}

#[test]
fn an_entry_that_may_have_live_processes_here_is_never_dropped() {
    always(
        |facts| is_visible(facts) && (is_proven(facts) || facts.root == Root::Unknown),
        |_, it| !drops(it),
    );
    always(
        |facts| is_visible(facts) && facts.root == Root::Exited && facts.group == Group::Unproven,
        |_, it| !drops(it),
    );
}

#[test]
fn an_entry_of_another_namespace_is_never_dropped() {
    let alive_there = |facts: &Facts| {
        facts.namespace == Namespace::Other && facts.boot != Boot::Other && facts.state != State::Exited
    };
    always(alive_there, |_, decision| !drops(decision));
}

#[test]
fn an_orphan_without_live_processes_is_always_dropped() {
    let gone = |facts: &Facts| {
        let dead = match facts.root {
            Root::Exited => facts.group != Group::Unproven,
            Root::Recycled => true,
            Root::Alive | Root::Unknown => false,
        };
        !is_owned(facts) && is_visible(facts) && dead && !is_proven(facts)
    };
    always(gone, |_, decision| drops(decision));
    always(|facts| !is_owned(facts) && facts.boot == Boot::Other, |_, decision| drops(decision));
    always(|facts| !is_owned(facts) && facts.state == State::Exited, |_, decision| drops(decision));
}

#[test]
fn a_reused_pid_is_reported_if_and_only_if_it_was_reused() {
    always(
        |facts| drops(classify(facts)),
        |facts, decision| {
            let reused = is_visible(facts) && facts.root == Root::Recycled;
            (decision.action == DROP_REUSED) == reused && (decision.reason == Reason::PidReused) == reused
        },
    );
}

#[test]
fn processes_that_reuse_pids_do_not_change_the_decision_for_another_boot() {
    always(
        |facts| !is_owned(facts) && !is_visible(facts),
        |facts, decision| {
            let nothing_alive = Facts {
                root: Root::Exited,
                group: Group::Empty,
                keeper: Keeper::None,
                carriers: false,
                ..*facts
            };
            decision == classify(&Facts { protected: None, ..nothing_alive })
        },
    );
}

#[test]
fn every_reason_has_a_unique_word_and_a_unique_sentence() {
    let reasons: Vec<_> = every_combination().map(|facts| classify(&facts).reason).collect();
    let words: BTreeSet<_> = reasons.iter().map(|reason| reason.word()).collect();
    assert_eq!(words.len(), 20, "all of them can happen: {words:?}");
    assert!(
        words
            .iter()
            .all(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'))
    );
    let mut distinct = Vec::new();
    for reason in reasons {
        if !distinct.contains(&reason) {
            distinct.push(reason);
        }
    }
    assert_eq!(distinct.iter().map(ToString::to_string).collect::<BTreeSet<_>>().len(), words.len());
}
