//! What memory does to the files, and what the files do to memory.

use super::*;
use crate::registry::import::tests::ours;
use crate::registry::record::State;

fn process(pid: i32) -> ProcessRef {
    ProcessRef { pid, start: 1, boot: "boot".into(), ns: 1 }
}

/// An entry that the process `owner` owns.
fn entry(pid: i32, owner: i32) -> Record {
    let instance = Some(format!("instance-{owner}"));
    Record { bot_pid: owner, bot_start_token: Some(process(owner)), owner_instance_id: instance, ..ours(pid) }
}

const ME: i32 = 900;
const OTHER: i32 = 901;

fn own(entries: &[&Record]) -> LocalEntries {
    let mut own = LocalEntries::new(process(ME));
    own.instances.insert(format!("instance-{ME}"));
    for entry in entries {
        own.remember((*entry).clone());
    }
    own
}

fn keys(table: &Table) -> Vec<String> {
    table.sorted().into_iter().map(|entry| entry.key()).collect()
}

#[test]
fn find_returns_the_latest_entry_with_a_run_id_or_a_pid() {
    let (first, other) = (entry(4242, ME), entry(4243, ME));
    let next = Record { start_token: Some(process(4242)), ..first.clone() };
    let mut own = own(&[&first, &other]);
    let found = |own: &LocalEntries, run_id, pid| -> Vec<String> {
        own.find(run_id, pid).iter().map(Record::key).collect()
    };
    for (run_id, pid, expected) in [
        (Some(&*first.run_id), None, vec![first.key()]),
        (None, Some(4243), vec![other.key()]),
        // The run id decides.
        (Some(&*first.run_id), Some(4243), vec![first.key()]),
        (Some("unknown"), None, vec![]),
        (None, Some(1), vec![]),
    ] {
        assert_eq!(found(&own, run_id, pid), expected, "{run_id:?} {pid:?}");
    }
    assert_eq!(own.find(None, None).len(), 2);
    own.remember(next.clone());
    own.forget(&first.key());
    assert_eq!(found(&own, Some(&first.run_id), None), [next.key()]);
    assert_eq!(found(&own, None, Some(4242)), [next.key()]);
    own.forget(&next.key());
    assert_eq!(found(&own, Some(&first.run_id), Some(4242)), [""; 0]);
}

#[test]
fn settle_restores_an_entry_that_the_file_lacks() {
    let run = entry(4242, ME);
    let mut table = Table::default();
    assert_eq!(own(&[&run]).settle(&mut table), (true, Vec::new()));
    assert_eq!(keys(&table), [run.key()]);
    assert_eq!(own(&[&run]).settle(&mut table), (false, Vec::new()), "the second settle changes nothing");
}

#[test]
fn an_output_time_is_shown_but_is_no_reason_to_write_the_file() {
    let run = entry(4242, ME);
    let mut own = own(&[&run]);
    let mut table = Table::new([run.clone()]);
    own.live.note_output(&run.key(), run.updated_at_ms + 5);
    assert_eq!(own.settle(&mut table), (false, Vec::new()));
    let shown = table.get(&run.key()).unwrap();
    assert_eq!(shown.last_output_at_ms, Some(run.updated_at_ms + 5));
    assert_eq!(shown.updated_at_ms, run.updated_at_ms + 5);
}

#[test]
fn settle_removes_an_ended_entry_even_if_its_drop_was_not_written() {
    let mut table = Table::new([entry(4242, ME), entry(4243, OTHER)]);
    assert_eq!(own(&[]).settle(&mut table), (true, Vec::new()));
    assert_eq!(keys(&table), [entry(4243, OTHER).key()], "the entry of another bot stays");
}

#[test]
fn settle_keeps_entries_of_another_copy_of_the_library_in_this_process() {
    let theirs = Record { owner_instance_id: Some("copy".into()), ..entry(4242, ME) };
    let mut table = Table::new([theirs.clone()]);
    assert_eq!(own(&[]).settle(&mut table), (false, Vec::new()));
    assert_eq!(keys(&table), [theirs.key()]);
}

#[test]
fn settle_reports_once_an_entry_that_another_owner_has_taken() {
    let stolen = Record { run_id: "stolen".into(), ..entry(4242, OTHER) };
    let mut own = own(&[&Record { run_id: "stolen".into(), ..entry(4242, ME) }]);
    let mut table = Table::new([stolen.clone()]);
    assert_eq!(own.settle(&mut table), (false, vec!["stolen".to_owned()]));
    assert_eq!(table.get(&stolen.key()), Some(&stolen));
    assert!(!own.has_run("stolen"));
    assert_eq!(own.settle(&mut table), (false, Vec::new()), "reported once");
}

fn claim(key: String) -> Claim {
    Claim { key, from: Some(format!("instance-{OTHER}")) }
}

#[test]
fn a_checkpoint_that_began_before_our_claim_does_not_cancel_the_claim() {
    let (before, ours) = (entry(4242, OTHER), entry(4242, ME));
    let mut own = own(&[]);
    own.begin_checkpoint();
    own.claim(&claim(ours.key()), &format!("instance-{ME}"));
    own.adopt(ours.clone(), before.clone());
    own.take_adopted(&ours.key());
    let mut table = Table::new([before.clone()]);
    assert_eq!(own.settle(&mut table), (false, Vec::new()));
    assert_eq!(table.get(&ours.key()), Some(&before), "the claim is in the next journal");
    own.begin_checkpoint();
    let mut table = Table::new([ours.clone()]);
    assert_eq!(own.settle(&mut table), (false, Vec::new()));
    assert_eq!(table.get(&ours.key()), Some(&ours), "the entry is ours and stays");
    // The former owner may take the entry back later. Then it is no longer ours.
    assert_eq!(own.settle(&mut Table::new([before])), (false, vec![ours.run_id]));
}

#[test]
fn a_released_claim_does_not_hide_that_another_owner_has_the_entry() {
    let (theirs, ours) = (entry(4242, OTHER), entry(4242, ME));
    let mut own = own(&[]);
    own.claim(&claim(ours.key()), &format!("instance-{ME}"));
    own.release(&[ours.key()]);
    own.remember(ours.clone());
    assert_eq!(own.settle(&mut Table::new([theirs])), (false, vec![ours.run_id]));
}

#[test]
fn settle_keeps_an_entry_while_it_is_claimed() {
    let claimed = entry(4242, ME);
    let mut own = own(&[]);
    let claim = claim(claimed.key());
    assert!(own.claim(&claim, "i") && !own.claim(&claim, "i"), "the second claim is refused");
    let mut table = Table::new([claimed.clone()]);
    assert_eq!(own.settle(&mut table), (false, Vec::new()));
    own.adopt(claimed.clone(), entry(4242, OTHER));
    assert_eq!(own.settle(&mut table), (false, Vec::new()));
    assert_eq!(own.take_adopted(&claimed.key()), Some(entry(4242, OTHER)));
    assert_eq!(own.take_adopted(&claimed.key()), None);
}

#[test]
fn an_unsettled_entry_can_be_claimed_again() {
    let claimed = entry(4242, ME);
    let mut own = own(&[]);
    let claim = claim(claimed.key());
    own.claim(&claim, "i");
    own.claim_failed(&[claimed.key()]);
    let mut table = Table::new([claimed.clone()]);
    assert_eq!(own.settle(&mut table), (false, Vec::new()));
    assert!(own.is_unsettled(&claimed.key()) && own.claim(&claim, "i"));
    own.claim_failed(&[claimed.key()]);
    own.begin_checkpoint();
    own.settle(&mut Table::new([entry(4242, OTHER)]));
    assert!(own.is_idle(), "the entry has its former owner again, and needs no memory");
}

/// Another bot was first. It can return the entry to this process, if it cannot end the run.
#[test]
fn settle_keeps_an_abandoned_entry_that_the_winner_of_a_claim_returns() {
    let run = entry(4242, ME);
    let mut own = own(&[&run]);
    own.abandon(&run.key());
    own.claim(&claim(run.key()), "i");
    own.lose_claim(&run.key());
    let mut table = Table::new([entry(4242, OTHER)]);
    own.begin_checkpoint();
    assert_eq!(own.settle(&mut table), (false, Vec::new()));
    let mut table = Table::new([run.clone()]);
    own.begin_checkpoint();
    assert_eq!(own.settle(&mut table), (false, Vec::new()));
    assert_eq!(keys(&table), [run.key()], "its run is alive, and only this entry names it");
}

#[test]
fn settle_keeps_an_unsettled_entry_that_another_bot_claims_and_returns() {
    let run = entry(4242, ME);
    let mut own = own(&[]);
    own.claim(&claim(run.key()), &format!("instance-{ME}"));
    // The claim is written, but its result could not be read.
    own.claim_failed(&[run.key()]);
    own.begin_checkpoint();
    assert_eq!(own.settle(&mut Table::new([entry(4242, OTHER)])), (false, Vec::new()));
    let mut table = Table::new([run.clone()]);
    own.begin_checkpoint();
    assert_eq!(own.settle(&mut table), (false, Vec::new()));
    assert_eq!(keys(&table), [run.key()], "its run is alive, and only this entry names it");
    assert!(own.is_unsettled(&run.key()) && !own.is_idle(), "this process may claim it again");
}

#[test]
fn a_checkpoint_that_began_before_our_claim_does_not_settle_it() {
    let (before, claimed) = (entry(4242, OTHER), entry(4242, ME));
    let mut own = own(&[]);
    own.begin_checkpoint();
    own.claim(&claim(claimed.key()), &format!("instance-{ME}"));
    // The claim is written, but its result could not be read.
    own.claim_failed(&[claimed.key()]);
    own.settle(&mut Table::new([before]));
    own.begin_checkpoint();
    let mut table = Table::new([claimed.clone()]);
    assert_eq!(own.settle(&mut table), (false, Vec::new()));
    assert_eq!(keys(&table), [claimed.key()], "its run is alive, and only this entry names it");
    assert!(own.is_unsettled(&claimed.key()));
}

#[test]
fn an_entry_claimed_twice_is_not_lost_to_a_checkpoint_that_began_before_the_first_claim() {
    let (before, ours) = (entry(4242, OTHER), entry(4242, ME));
    let mut own = own(&[]);
    own.begin_checkpoint();
    own.claim(&claim(ours.key()), &format!("instance-{ME}"));
    own.claim_failed(&[ours.key()]);
    let again = Claim { key: ours.key(), from: ours.owner_instance_id.clone() };
    assert!(own.claim(&again, &format!("instance-{ME}")));
    own.adopt(ours.clone(), before.clone());
    assert_eq!(own.settle(&mut Table::new([before])), (false, Vec::new()));
    assert!(own.live.contains(&ours.key()));
}

#[test]
fn an_abandoned_entry_stays_until_its_keeper_has_recorded_its_end() {
    let run = entry(4242, ME);
    let mut own = own(&[&run]);
    own.abandon(&run.key());
    own.settle(&mut Table::default());
    let mut table = Table::new([run.clone()]);
    assert_eq!(own.settle(&mut table), (false, Vec::new()));
    let mut table = Table::new([Record { state: State::Exited, ..run }]);
    assert_eq!(own.settle(&mut table), (true, Vec::new()));
    assert!(table.is_empty());
}

#[test]
fn a_reused_pid_finds_the_later_entry() {
    let (first, mut second) = (entry(4242, ME), entry(4242, ME));
    second.run_id = "later".into();
    second.start_token = Some(ProcessRef { start: 99, ..process(4242) });
    let mut own = own(&[&first, &second]);
    own.forget(&first.key());
    assert_eq!(own.find(None, Some(4242)), [second]);
}

#[test]
fn only_instances_with_entries_renew_their_lease() {
    let run = Record { owner_instance_id: Some("i".into()), ..entry(4242, ME) };
    let mut own = own(&[&run]);
    let (now, length) = (Instant::now(), Duration::from_secs(30));
    own.lease(Some("i"), length, now);
    own.lease(Some("idle"), length, now);
    let due = now + length / 3;
    assert_eq!(own.renew_at(), Some(due));
    assert_eq!(own.renew(due, 5), [Line::Lease { instance: "i".into(), until: 30_005 }]);
    assert_eq!(own.renew(due, 5), []);
    own.forget(&run.key());
    assert_eq!((own.renew(due + length, 9), own.renew_at()), (Vec::new(), None));
}
