//! What must (not) happen, as tables.

use super::*;
use crate::registry::State;
use std::collections::BTreeSet;

/// A run whose bot has crashed together with its keeper, seen from the next bot on the same machine.
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
    service: false,
    state: State::Running,
    protected: None,
};
/// A service whose bot is gone, as it should be.
const SERVICE: Facts = Facts { service: true, keeper: Keeper::Alive, ..CRASHED };
/// Nothing of it is alive.
const GONE: Facts = Facts { root: Root::Exited, group: Group::Empty, carriers: false, ..CRASHED };
/// An entry of one of the old files.
const OLD: Facts = Facts {
    lease: Lease::None,
    boot: Boot::Unknown,
    namespace: Namespace::Unknown,
    group: Group::NotLed,
    keeper: Keeper::None,
    carriers: false,
    ..CRASHED
};

const DROP: Action = Action::Drop { report: Report::AlreadyDead };
const DROP_SAYING_SO: Action = Action::Drop { report: Report::Skipped };
const END: Action = Action::End(Via::Outside);
const ASK: Action = Action::End(Via::Keeper);

#[test]
fn decides_the_named_cases() {
    #[rustfmt::skip]
    let cases = [
        ("other bot dead", CRASHED, END, "root-alive"),
        ("other bot alive", Facts { owner: Owner::Alive, ..CRASHED }, Action::Leave, "owner-alive"),
        ("this bot", Facts { owner: Owner::Me, lease: Lease::Expired, steal_from_live: true, ..CRASHED }, Action::Leave, "own-run"),
        // The reader finds the recorded owner's number taken by another process (us), hence the owner dead.
        ("container restart: our own PID, another start token", Facts { owner: Owner::Dead, keeper: Keeper::Alive, ..CRASHED }, ASK, "keeper-alive"),
        ("container restart, and the root's number is ours now", Facts { root: Root::Recycled, protected: Some(Protected::Ourselves), ..GONE }, DROP_SAYING_SO, "pid-reused"),
        ("lease expired, owner alive (a laptop slept)", Facts { owner: Owner::Alive, lease: Lease::Expired, ..CRASHED }, Action::Leave, "lease-expired-owner-alive"),
        ("the same, stolen", Facts { owner: Owner::Alive, lease: Lease::Expired, steal_from_live: true, ..CRASHED }, END, "root-alive"),
        ("lease valid, theft wanted", Facts { owner: Owner::Alive, steal_from_live: true, ..CRASHED }, Action::Leave, "owner-alive"),
        ("owner cannot be judged", Facts { owner: Owner::Unknown, ..CRASHED }, Action::Leave, "owner-unknown"),
        ("owner cannot be judged, lease expired", Facts { owner: Owner::Unknown, lease: Lease::Expired, ..CRASHED }, END, "root-alive"),
        ("other boot", Facts { boot: Boot::Other, ..CRASHED }, DROP, "other-boot"),
        ("other boot, as another namespace", Facts { boot: Boot::Other, namespace: Namespace::Other, ..CRASHED }, DROP, "other-boot"),
        ("other PID namespace", Facts { namespace: Namespace::Other, ..CRASHED }, Action::Skip, "other-namespace"),
        ("root dead, group alive", Facts { root: Root::Exited, carriers: false, ..CRASHED }, END, "detached-orphaned"),
        ("root dead, a child left the group", Facts { carriers: true, ..GONE }, END, "detached-orphaned"),
        ("root dead, its number in use as a group", Facts { group: Group::Unproven, ..GONE }, Action::Skip, "group-unproven"),
        ("root's number reused as a process", Facts { root: Root::Recycled, ..GONE }, DROP_SAYING_SO, "pid-reused"),
        ("root's number reused as a new group", Facts { root: Root::Recycled, group: Group::Unproven, ..GONE }, DROP_SAYING_SO, "pid-reused"),
        ("root's number reused, but carriers are left", Facts { root: Root::Recycled, carriers: true, ..GONE }, END, "detached-orphaned"),
        ("keeper alive", Facts { keeper: Keeper::Alive, ..CRASHED }, ASK, "keeper-alive"),
        ("keeper alive, root gone", Facts { keeper: Keeper::Alive, ..GONE }, ASK, "keeper-alive"),
        ("zombie, or already gone", GONE, DROP, "already-gone"),
        ("a kept run that has ended since", Facts { state: State::Exited, ..GONE }, DROP, "end-recorded"),
        ("registered, in somebody else's group, gone", Facts { group: Group::NotLed, keeper: Keeper::None, ..GONE }, DROP, "already-gone"),
        ("unreadable", Facts { root: Root::Unknown, group: Group::Unproven, ..GONE }, Action::Skip, "identity-unknown"),
        ("unreadable, but its tree is known", Facts { root: Root::Unknown, ..CRASHED }, END, "members-alive"),
        ("a service, its bot gone", SERVICE, Action::Leave, "service"),
        ("a service, its starter being this bot", Facts { owner: Owner::Me, ..SERVICE }, Action::Leave, "own-run"),
        ("a service, theft wanted", Facts { owner: Owner::Alive, lease: Lease::Expired, steal_from_live: true, ..SERVICE }, Action::Leave, "service"),
        ("a service on Windows, where its bot was its keeper", Facts { keeper: Keeper::Dead, ..SERVICE }, Action::Leave, "service"),
        ("a service that we are a part of", Facts { protected: Some(Protected::Ancestor), ..SERVICE }, Action::Leave, "service"),
        ("a service whose root cannot be judged", Facts { root: Root::Unknown, ..SERVICE }, Action::Leave, "service"),
        ("a service whose root is gone", Facts { root: Root::Exited, keeper: Keeper::Dead, ..SERVICE }, END, "detached-orphaned"),
        ("a service of which nothing is left", Facts { service: true, ..GONE }, DROP, "already-gone"),
        ("a service whose number is somebody else's", Facts { service: true, root: Root::Recycled, ..GONE }, DROP_SAYING_SO, "pid-reused"),
        ("a service that has ended", Facts { state: State::Exited, ..SERVICE }, DROP, "end-recorded"),
        ("a service of another boot", Facts { boot: Boot::Other, ..SERVICE }, DROP, "other-boot"),
        ("a service of another namespace", Facts { namespace: Namespace::Other, ..SERVICE }, Action::Skip, "other-namespace"),
        ("PID 1", Facts { protected: Some(Protected::PidOne), ..CRASHED }, Action::Skip, "refused-pid-1"),
        ("PID below 100", Facts { protected: Some(Protected::Low), ..CRASHED }, Action::Skip, "refused-low-pid"),
        ("ourselves", Facts { protected: Some(Protected::Ourselves), ..CRASHED }, Action::Skip, "refused-ourselves"),
        ("an ancestor", Facts { protected: Some(Protected::Ancestor), ..CRASHED }, Action::Skip, "refused-ancestor"),
        ("PID below 100, long gone", Facts { protected: Some(Protected::Low), ..GONE }, DROP, "already-gone"),
        ("old entry, its age agrees, bot dead", OLD, END, "root-alive"),
        ("old entry, its age does not agree", Facts { root: Root::Unknown, ..OLD }, Action::Skip, "identity-unknown"),
        ("old entry, bot alive", Facts { owner: Owner::Alive, ..OLD }, Action::Leave, "owner-alive"),
        ("old entry that names no bot", Facts { owner: Owner::Unknown, ..OLD }, Action::Leave, "owner-unknown"),
        ("old entry, gone", Facts { root: Root::Exited, ..OLD }, DROP, "already-gone"),
    ];
    for (name, facts, action, word) in cases {
        let decision = classify(&facts);
        assert_eq!((decision.action, decision.reason.word()), (action, word), "{name}");
    }
}

/// The event log and the report have them like this, and people search for them.
#[test]
fn facts_are_told_in_words_and_only_those_that_are_facts() {
    let told = |facts: Facts| serde_json::to_string(&facts).unwrap();
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
        assert_eq!(told(facts), expected);
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
const COMBINATIONS: usize = 4 * 3 * 3 * 3 * 4 * 4 * 3 * 4 * 5 * 2 * 2 * 2;

/// Takes the next digit of a number whose bases are the lengths of the lists.
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
        }
    })
}

/// Somebody answers for it, or might.
fn is_owned(facts: &Facts) -> bool {
    match facts.owner {
        Owner::Me => true,
        Owner::Dead => false,
        Owner::Alive => facts.lease != Lease::Expired || !facts.steal_from_live,
        Owner::Unknown => facts.lease != Lease::Expired,
    }
}

/// Something that is alive is proven to be the run, or a part of it.
fn is_proven(facts: &Facts) -> bool {
    facts.root == Root::Alive || facts.group == Group::Ours || facts.keeper == Keeper::Alive || facts.carriers
}

/// What the facts are about was started here, in this boot, as far as anybody knows, and is not known to be over.
fn is_visible(facts: &Facts) -> bool {
    facts.boot != Boot::Other && facts.namespace != Namespace::Other && facts.state != State::Exited
}

fn is_running_service(facts: &Facts) -> bool {
    facts.service && matches!(facts.root, Root::Alive | Root::Unknown)
}

/// Asserts `rule` for all combinations that `applies` to, and that there are some.
fn always(applies: impl Fn(&Facts) -> bool, rule: impl Fn(&Facts, Decision) -> bool) {
    let mut seen = 0;
    for facts in every_combination().filter(|facts| applies(facts)) {
        let decision = classify(&facts);
        assert!(rule(&facts, decision), "{facts:?} → {decision:?}");
        seen += 1;
    }
    assert!(seen > 0, "the rule is about nothing");
}

fn ends(decision: Decision) -> bool {
    matches!(decision.action, Action::End(_))
}

fn drops(decision: Decision) -> bool {
    matches!(decision.action, Action::Drop { .. })
}

#[test]
fn never_touches_what_somebody_answers_for() {
    always(is_owned, |_, decision| decision.action == Action::Leave);
    always(
        |facts| facts.owner == Owner::Alive && facts.lease == Lease::Valid,
        |_, it| it.action == Action::Leave,
    );
    always(|facts| facts.owner == Owner::Me, |_, it| it.action == Action::Leave);
}

#[test]
fn never_leaves_an_orphan_without_a_word() {
    always(
        |facts| !is_owned(facts) && !is_running_service(facts),
        |_, decision| decision.action != Action::Leave,
    );
}

#[test]
fn never_ends_a_service_that_runs() {
    always(is_running_service, |_, decision| !ends(decision));
}

#[test]
fn what_is_left_of_a_service_is_treated_like_anything_else() {
    always(
        |facts| facts.service && !is_running_service(facts),
        |facts, decision| decision == classify(&Facts { service: false, ..*facts }),
    );
}

#[test]
fn never_ends_what_nobody_has_proven() {
    always(|facts| !is_proven(facts), |_, decision| !ends(decision));
}

#[test]
fn never_ends_across_boots_or_namespaces_or_after_the_end() {
    always(|facts| !is_visible(facts), |_, decision| !ends(decision));
}

#[test]
fn never_ends_a_protected_number() {
    always(|facts| facts.protected.is_some(), |_, decision| !ends(decision));
}

#[test]
fn ends_every_orphan_that_is_proven() {
    let orphan = |facts: &Facts| {
        !is_owned(facts) && is_visible(facts) && facts.protected.is_none() && !is_running_service(facts)
    };
    always(|facts| orphan(facts) && is_proven(facts), |_, decision| ends(decision));
}

#[test]
fn asks_the_keeper_if_and_only_if_it_lives() {
    always(
        |facts| ends(classify(facts)),
        |facts, decision| (decision.action == ASK) == (facts.keeper == Keeper::Alive),
    );
}

#[test]
fn never_forgets_an_entry_of_which_something_may_be_alive_here() {
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
fn never_forgets_an_entry_of_another_namespace() {
    let alive_there = |facts: &Facts| {
        facts.namespace == Namespace::Other && facts.boot != Boot::Other && facts.state != State::Exited
    };
    always(alive_there, |_, decision| !drops(decision));
}

#[test]
fn forgets_every_orphan_of_which_nothing_is_left() {
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
fn says_that_a_number_was_reused_and_only_then() {
    always(
        |facts| drops(classify(facts)),
        |facts, decision| {
            let reused = is_visible(facts) && facts.root == Root::Recycled;
            (decision.action == DROP_SAYING_SO) == reused && (decision.reason == Reason::PidReused) == reused
        },
    );
}

#[test]
fn a_stranger_in_the_numbers_changes_nothing_for_a_dead_boot() {
    always(
        |facts| !is_owned(facts) && !is_visible(facts),
        |facts, decision| {
            let calm = Facts {
                root: Root::Exited,
                group: Group::Empty,
                keeper: Keeper::None,
                carriers: false,
                ..*facts
            };
            decision == classify(&Facts { protected: None, ..calm })
        },
    );
}

#[test]
fn every_reason_has_a_word_and_a_sentence_of_its_own() {
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
