//! What lines do to a table, in any order in which they can be written, and repeated.

use super::super::import::tests::{Random, ours, process};
use super::super::record::Claim;
use super::super::record::{Keeper, Owner};
use super::*;

fn starting(pid: i32) -> Record {
    Record { state: State::Starting, ..ours(pid) }
}

fn intent(pid: i32) -> Line {
    Line::Intent { entry: Box::new(starting(pid)) }
}

fn key(pid: i32) -> String {
    starting(pid).key()
}

fn started(pid: i32, at: u64) -> Line {
    Line::Started { key: key(pid), at }
}

fn exiting(pid: i32, at: u64) -> Line {
    Line::Exiting { key: key(pid), at }
}

fn ended(pid: i32, at_ms: u64) -> Line {
    let exit = Exit {
        at_ms,
        reason: "owner-exit".into(),
        ending: "owner-exit".into(),
        limit_ms: 0,
        exit_code: None,
        signal: Some(15),
        survivors: 0,
    };
    Line::Ended { key: key(pid), exit }
}

fn dropped(pid: i32) -> Line {
    Line::Dropped { keys: vec![key(pid)] }
}

fn lease(instance: &str, until: u64) -> Line {
    Line::Lease { instance: instance.into(), until }
}

fn claimed(pid: i32, from: &str, by: &str, at: u64) -> Line {
    let by = Owner { instance: by.into(), process: process(800), lease_until: at + LEASE };
    Line::Claimed { claims: vec![Claim { key: key(pid), from: Some(from.into()) }], by, at }
}

fn members(pid: i32, member: i32, at: u64) -> Line {
    Line::Members { key: key(pid), members: vec![process(member)], at }
}

const LEASE: u64 = 30_000;
/// Later than all times of [`ours`].
const LATER: u64 = 1_800_000_000_000;

fn play(table: &mut Table, lines: &[Line]) {
    lines.iter().cloned().for_each(|line| table.apply(line));
}

fn after(lines: &[Line]) -> Table {
    let mut table = Table::default();
    play(&mut table, lines);
    table
}

fn entry(lines: &[Line]) -> Record {
    after(lines).get(&key(4242)).unwrap().clone()
}

#[test]
fn the_state_never_moves_backwards() {
    #[rustfmt::skip]
    let cases = [
        (vec![intent(4242)], State::Starting),
        (vec![intent(4242), started(4242, 1)], State::Running),
        (vec![intent(4242), started(4242, 1), intent(4242)], State::Running),
        (vec![intent(4242), started(4242, 1), exiting(4242, 2), intent(4242), started(4242, 1)], State::Exiting),
        (vec![intent(4242), exiting(4242, 2)], State::Exiting),
        (vec![intent(4242), started(4242, 1), ended(4242, 3), exiting(4242, 2), started(4242, 1), intent(4242)], State::Exited),
    ];
    for (lines, expected) in cases {
        assert_eq!(entry(&lines).state, expected, "{lines:?}");
    }
}

#[test]
fn an_ended_entry_stays_until_it_is_dropped() {
    let mut lines = vec![intent(4242), started(4242, 1), ended(4242, LATER)];
    let kept = entry(&lines);
    assert_eq!((kept.exit.unwrap().at_ms, kept.updated_at_ms), (LATER, LATER));
    lines.push(dropped(4242));
    assert!(after(&lines).is_empty());
}

#[test]
fn an_entry_that_ended_during_a_claim_is_still_ended_after_it_is_returned() {
    let mut lines = vec![intent(4242), started(4242, 1)];
    let former = entry(&lines);
    lines.push(claimed(4242, "supervisor-1", "b", LATER));
    lines.push(ended(4242, LATER));
    lines.push(Line::Returned { entry: Box::new(former), by: "b".to_owned() });
    let back = entry(&lines);
    assert_eq!((back.state, back.owner_instance_id.as_deref()), (State::Exited, Some("supervisor-1")));
    assert_eq!(back.exit.unwrap().at_ms, LATER);
}

#[test]
fn a_line_about_an_unknown_entry_changes_nothing() {
    let about = |pid| {
        let claim = claimed(pid, "supervisor-1", "b", LATER);
        [started(pid, 1), exiting(pid, 2), ended(pid, 3), dropped(pid), claim, members(pid, 5, 6)]
    };
    assert!(after(&about(1)).is_empty());
    let mut table = after(&[intent(4242)]);
    play(&mut table, &about(1));
    table.apply(lease("unknown", LATER));
    assert_eq!(table, after(&[intent(4242)]));
}

#[test]
fn the_first_claim_wins_and_the_second_has_no_effect() {
    let won = entry(&[intent(4242), claimed(4242, "supervisor-1", "b", LATER)]);
    assert_eq!((won.owner_instance_id.as_deref(), won.bot_pid), (Some("b"), 800));
    assert_eq!((won.bot_start_token, won.lease_expires_at_ms), (Some(process(800)), Some(LATER + LEASE)));
    let lines =
        [intent(4242), claimed(4242, "supervisor-1", "b", LATER), claimed(4242, "supervisor-1", "c", LATER)];
    assert_eq!(entry(&lines).owner_instance_id.as_deref(), Some("b"));
    assert_eq!(after(&lines), after(&lines[..2]));
}

#[test]
fn only_the_present_owner_can_return_an_entry() {
    let returned = |by: &str| Line::Returned { entry: Box::new(starting(4242)), by: by.into() };
    let stolen = [intent(4242), claimed(4242, "supervisor-1", "b", LATER)];
    let given_back = after(&[&stolen[..], &[returned("b")]].concat());
    assert_eq!(given_back, after(&[intent(4242)]), "the entry is as before the claim");
    // The claim was lost to a third process. Or the line appears twice, and another process
    // claimed the entry in between.
    assert_eq!(after(&[&stolen[..], &[returned("c")]].concat()), after(&stolen));
    let again = claimed(4242, "supervisor-1", "c", LATER);
    let lines = [&stolen[..], &[returned("b"), again, returned("b")]].concat();
    assert_eq!(after(&lines).get(&key(4242)).unwrap().owner_instance_id.as_deref(), Some("c"));
    // A dropped entry does not come back.
    assert!(after(&[&stolen[..], &[dropped(4242), returned("b")]].concat()).is_empty());
}

#[test]
fn a_survivor_that_is_registered_after_the_end_of_its_run_counts_as_running() {
    let survived = |at_ms, survivors| {
        let Line::Ended { key, exit } = ended(4242, at_ms) else { unreachable!() };
        Line::Ended { key, exit: Exit { survivors, ..exit } }
    };
    let registered = |created_at_ms| {
        let owner_instance_id = Some("b".to_owned());
        let entry = Record { state: State::Running, created_at_ms, owner_instance_id, ..starting(4242) };
        Line::Returned { entry: Box::new(entry), by: "b".into() }
    };
    let claim = claimed(4242, "supervisor-1", "b", LATER);
    for (ended, created_at_ms, expected) in [
        (survived(LATER, 1), LATER + 1, State::Running),
        // The run ended after the registration, or left no survivors.
        (survived(LATER, 1), LATER, State::Exited),
        (survived(LATER, 0), LATER + 1, State::Exited),
    ] {
        let lines = [intent(4242), ended, claim.clone(), registered(created_at_ms)];
        let now = after(&lines);
        assert_eq!(now.get(&key(4242)).unwrap().state, expected, "{created_at_ms}");
        let mut again = now.clone();
        play(&mut again, &lines);
        assert_eq!(again, now, "applying the journal again changes nothing");
    }
}

#[test]
fn an_old_entry_without_an_owner_can_be_claimed_once() {
    let old = Record { owner_instance_id: None, start_token: None, ..starting(4242) };
    let claim = |instance: &str| Line::Claimed {
        claims: vec![Claim { key: old.key(), from: None }],
        by: Owner { instance: instance.into(), process: process(800), lease_until: LATER },
        at: LATER,
    };
    let table = after(&[Line::Intent { entry: Box::new(old.clone()) }, claim("b"), claim("c")]);
    assert_eq!(table.get(&old.key()).unwrap().owner_instance_id.as_deref(), Some("b"));
}

#[test]
fn only_the_owner_can_extend_a_lease_and_never_shorten_it() {
    let before = starting(4242).lease_expires_at_ms;
    let until = |lines: &[Line]| entry(&[&[intent(4242)], lines].concat()).lease_expires_at_ms;
    assert_eq!(until(&[lease("supervisor-1", LATER)]), Some(LATER));
    assert_eq!(until(&[lease("supervisor-1", LATER), lease("supervisor-1", LATER - 1)]), Some(LATER));
    assert_eq!(until(&[lease("supervisor-1", 1)]), before);
    assert_eq!(until(&[lease("b", LATER)]), before);
    // A heartbeat of the former owner has no effect after another process claimed the run.
    let stolen = [claimed(4242, "supervisor-1", "b", LATER), lease("supervisor-1", LATER + 9 * LEASE)];
    assert_eq!(until(&stolen), Some(LATER + LEASE));
}

#[test]
fn the_owner_is_never_a_member_or_the_keeper_of_its_run() {
    let owner = entry(&[intent(4242)]).bot_start_token.unwrap().pid;
    assert_eq!(entry(&[intent(4242), members(4242, owner, LATER)]).members, []);
    let claim = claimed(4242, "supervisor-1", "b", LATER);
    let by_a_member = entry(&[intent(4242), members(4242, 800, LATER), claim.clone()]);
    assert_eq!((by_a_member.owner_instance_id.as_deref(), by_a_member.members), (Some("b"), vec![]));
    let keeper = Some(Keeper { start_token: process(800), address: "00000".into() });
    let kept = Line::Intent { entry: Box::new(Record { keeper, ..starting(4242) }) };
    let by_the_keeper = entry(&[kept, claim]);
    assert_eq!((by_the_keeper.bot_pid, by_the_keeper.keeper), (800, None));
}

#[test]
fn a_members_line_replaces_the_members() {
    let table = entry(&[intent(4242), members(4242, 5, LATER), members(4242, 6, LATER + 1)]);
    assert_eq!((table.members, table.updated_at_ms), (vec![process(6)], LATER + 1));
}

/// An Intent after its Dropped makes a new entry, because the key is the identity of the
/// process. Registering a process again looks like that.
///
/// A delayed Intent would therefore bring an ended run back. It cannot be delayed:
///
/// - The process that drops an entry has read its Intent, or has written it. Appends keep their
///   order.
/// - A writer that repeats a line in a new journal does so before it writes the next line.
/// - Another process drops only entries of dead writers, and those repeat nothing.
///
/// One case remains: the writer was stopped between the write and its repetition, and another
/// bot took the run (`stealFromLive`). Then an entry of a dead process comes back. Its identity
/// shows that the process is dead, so the entry is dropped again, and no process is signalled.
#[test]
fn only_an_intent_restores_a_dropped_entry() {
    let over = [intent(4242), started(4242, 1), dropped(4242)];
    let late = [started(4242, 1), exiting(4242, 2), members(4242, 5, 6), ended(4242, 3)];
    assert!(after(&[&over[..], &late].concat()).is_empty());
    assert_eq!(after(&[&over[..], &[intent(4242)]].concat()), after(&[intent(4242)]));
}

/// Lines that a bot, a reaper and stealing bots may write about some runs, in a possible order,
/// at increasing times.
///
/// No instance takes a run back that it has lost. Otherwise a failed claim of a third instance
/// could succeed later: in a journal that a crash left beside its own checkpoint, the claim
/// would find the owner that it expects.
fn history(random: &mut Random) -> Vec<Line> {
    let mut now = LATER;
    let mut table = Table::default();
    let mut lines = Vec::new();
    for _ in 0..random.below(40) {
        now += 1;
        let pid = 4242 + i32::try_from(random.below(5)).unwrap();
        let next = match (table.get(&key(pid)), random.below(7)) {
            // A first registration, or a new one of a dropped process. An owner never shortens
            // its lease: with an earlier lease, old heartbeats would count again.
            (None, _) => {
                let entry = Record { lease_expires_at_ms: Some(now + LEASE), ..starting(pid) };
                vec![Line::Intent { entry: Box::new(entry) }]
            }
            (Some(_), 0) => vec![started(pid, now)],
            (Some(_), 1) => vec![exiting(pid, now)],
            (Some(_), 2) => vec![ended(pid, now)],
            (Some(_), 3) => vec![dropped(pid)],
            (Some(_), 4) => vec![members(pid, 5000 + i32::try_from(random.below(9)).unwrap(), now)],
            (Some(entry), 5) => vec![lease(entry.owner_instance_id.as_deref().unwrap(), now + LEASE)],
            // Two bots claim what both have read.
            (Some(entry), _) => {
                let claim = |by: &str| claimed(pid, entry.owner_instance_id.as_deref().unwrap(), by, now);
                vec![claim(&format!("first-{now}")), claim(&format!("second-{now}"))]
            }
        };
        play(&mut table, &next);
        lines.extend(next);
    }
    lines
}

/// A crash may leave a checkpoint that contains the first lines of the journal, up to any line,
/// and the whole journal beside it.
#[test]
fn applying_a_journal_again_after_a_crash_changes_nothing() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut lines_in_all, mut left) = (0, 0);
    for _ in 0..400 {
        let lines = history(&mut random);
        let expected = after(&lines);
        for end in 0..=lines.len() {
            let mut table = after(&lines[..end]);
            play(&mut table, &lines);
            assert_eq!(table, expected, "{lines:?} up to {end}");
        }
        // Several checkpoints in sequence, and the journal is left behind every time.
        let mut table = expected.clone();
        (0..3).for_each(|_| play(&mut table, &lines));
        assert_eq!(table, expected);
        // The same for a later journal, when the earlier lines are only in the checkpoint.
        let (first, second) = lines.split_at(random.below(lines.len() + 1));
        for end in 0..=second.len() {
            let mut table = after(&lines[..first.len() + end]);
            play(&mut table, second);
            assert_eq!(table, expected, "{lines:?} from {} up to {end}", first.len());
        }
        lines_in_all += lines.len();
        left += expected.len();
    }
    assert!(lines_in_all > 5_000 && left > 400, "{lines_in_all} lines, {left} entries left");
}

/// A writer repeats a line immediately if the journal was replaced. The line counts once.
#[test]
fn a_line_that_a_writer_repeats_counts_once() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..1_000 {
        let lines = history(&mut random);
        let repeated: Vec<_> =
            lines.iter().flat_map(|line| std::iter::repeat_n(line.clone(), 1 + random.below(2))).collect();
        assert_eq!(after(&repeated), after(&lines), "{lines:?}");
    }
}

#[test]
fn sorted_returns_the_oldest_entries_first() {
    let at = |pid, started_at| Record { started_at, ..ours(pid) };
    let table = Table::new([at(4, 30), at(3, 10), at(2, 20), at(1, 20)]);
    assert_eq!(table.sorted().iter().map(|entry| entry.pid).collect::<Vec<_>>(), [3, 1, 2, 4]);
}
