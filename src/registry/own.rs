//! This process's own entries, as it knows them. Pure: no disk, no clock.
//!
//! As long as a bot lives nobody knows better than it which runs are its own. So its memory decides which entries of its own
//! a checkpoint has ([`Own::settle`]), whatever has become of the files meanwhile.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::record::{Claim, Line, Record, State};
use super::table::Table;
use crate::identity::ProcessRef;

#[derive(Debug, Clone)]
pub struct Own {
    me: ProcessRef,
    /// This process's entries, and where to find them.
    pub live: Table,
    by_run_id: HashMap<String, String>,
    by_pid: HashMap<i32, String>,
    /// Entries of this process that it has let go of: their keepers have the last word. With it, whether a checkpoint has seen them: one
    /// that was begun before they were written does not have them, and they are not gone for that.
    abandoned: HashMap<String, bool>,
    /// Entries that this process is about to take over.
    claiming: HashSet<String>,
    /// Of these, and of those that it has taken over: whose they were, and since when. A checkpoint that was begun before the claim was
    /// written still says so, which is no theft. Forgotten when one has seen the claim: from then on it would be.
    taken_from: HashMap<String, (Option<String>, Moment)>,
    /// Entries that are ours on paper only: a claim that came to nothing, or that could not be given back. They stay, and may be
    /// claimed again. Not ours even on paper is what a checkpoint says of one whose claim it has not seen, too; only one that was begun
    /// later knows.
    loose: HashMap<String, Moment>,
    /// How many checkpoints were begun. They are made one after the other.
    begun: Moment,
    /// Entries that it has taken over and that nobody looks after yet, each as it was before.
    adopted: HashMap<String, Record>,
    /// The instances whose entries these are. A process may have others: another copy of this library has its own memory.
    instances: HashSet<String>,
    leases: HashMap<String, Lease>,
}

/// When something was noted, in checkpoints. Whatever is written before a checkpoint is begun is seen by it, and what is written while it is
/// made may not be: the one that is being made cannot judge what was noted at this moment or later.
type Moment = u64;

#[derive(Debug, Clone)]
struct Lease {
    length: Duration,
    renew_at: Instant,
}

impl Own {
    pub fn new(me: ProcessRef) -> Self {
        Self {
            me,
            live: Table::default(),
            by_run_id: HashMap::new(),
            by_pid: HashMap::new(),
            abandoned: HashMap::new(),
            claiming: HashSet::new(),
            taken_from: HashMap::new(),
            loose: HashMap::new(),
            begun: 0,
            adopted: HashMap::new(),
            instances: HashSet::new(),
            leases: HashMap::new(),
        }
    }

    pub fn has_run(&self, run_id: &str) -> bool {
        self.by_run_id.contains_key(run_id)
    }

    /// The entry with that run id, or that PID, or all.
    pub fn find(&self, run_id: Option<&str>, pid: Option<i32>) -> Vec<Record> {
        let one =
            |key: Option<&String>| key.and_then(|key| self.live.get(key)).cloned().into_iter().collect();
        match (run_id, pid) {
            (Some(run_id), _) => one(self.by_run_id.get(run_id)),
            (None, Some(pid)) => one(self.by_pid.get(&pid)),
            (None, None) => self.live.records().cloned().collect(),
        }
    }

    /// An entry of ours from here on.
    pub fn remember(&mut self, record: Record) {
        let key = record.key();
        self.instances.extend(record.owner_instance_id.clone());
        self.by_run_id.insert(record.run_id.clone(), key.clone());
        self.by_pid.insert(record.pid, key);
        self.live.insert(record);
    }

    /// It is over, or somebody else's.
    pub fn forget(&mut self, key: &str) {
        self.adopted.remove(key);
        self.taken_from.remove(key);
        if let Some(record) = self.live.remove(key) {
            // Name and number may have gone to the next one meanwhile.
            if self.by_run_id.get(&record.run_id).is_some_and(|present| present == key) {
                self.by_run_id.remove(&record.run_id);
            }
            if self.by_pid.get(&record.pid).is_some_and(|present| present == key) {
                self.by_pid.remove(&record.pid);
            }
        }
    }

    /// It is its keeper's.
    pub fn abandon(&mut self, key: &str) {
        self.forget(key);
        self.abandoned.insert(key.to_owned(), false);
    }

    /// About to be taken over: until that is settled, a checkpoint leaves them alone. False if somebody here is at it already.
    pub fn claim(&mut self, claim: &Claim, instance: &str) -> bool {
        let Claim { key, from } = claim;
        self.instances.insert(instance.to_owned());
        self.loose.remove(key);
        let is_first = !self.live.contains(key) && self.claiming.insert(key.clone());
        if is_first {
            self.taken_from.insert(key.clone(), (from.clone(), self.begun));
        }
        is_first
    }

    /// The claims are settled: what is not ours by now is not going to be.
    pub fn unclaim(&mut self, keys: &[String]) {
        for key in keys {
            self.claiming.remove(key);
            if !self.live.contains(key) {
                self.taken_from.remove(key);
            }
        }
    }

    /// Claims of which nothing came, or of which that is not known. On disk they may be ours for a while, or for good.
    pub fn loosen(&mut self, keys: &[String]) {
        self.unclaim(keys);
        self.loose.extend(keys.iter().map(|key| (key.clone(), self.begun)));
    }

    pub fn is_loose(&self, key: &str) -> bool {
        self.loose.contains_key(key)
    }

    /// Whether an entry is loose, and whether it was taken from somebody; with it, whether the checkpoint that is being made can judge that.
    pub fn marks(&self, key: &str) -> [Option<bool>; 2] {
        let taken = self.taken_from.get(key).map(|(_, since)| since);
        [self.loose.get(key), taken].map(|since| since.map(|&since| self.can_judge(since)))
    }

    fn can_judge(&self, since: Moment) -> bool {
        since < self.begun
    }

    /// A claimed entry that is ours now, and that nobody looks after yet.
    pub fn adopt(&mut self, record: Record, former: Record) {
        let key = record.key();
        self.claiming.remove(&key);
        self.remember(record);
        self.adopted.insert(key, former);
    }

    /// If it was one of those: as it was before. Somebody looks after it from here on.
    pub fn take_adopted(&mut self, key: &str) -> Option<Record> {
        self.adopted.remove(key)
    }

    // ---- leases ----------------------------------------------------------------------------------------------------

    /// An instance has a run: its lease is to be renewed.
    pub fn lease(&mut self, instance: Option<&str>, length: Duration, now: Instant) {
        if let Some(instance) = instance
            && !self.leases.contains_key(instance)
        {
            self.leases.insert(instance.to_owned(), Lease { length, renew_at: now + length / 3 });
        }
    }

    pub fn renew_at(&self) -> Option<Instant> {
        self.leases.values().map(|lease| lease.renew_at).min()
    }

    /// The heartbeats that are due, applied already. An owner without runs has nothing to hold.
    pub fn renew(&mut self, now: Instant, now_ms: u64) -> Vec<Line> {
        let holders: HashSet<String> =
            self.live.records().filter_map(|record| record.owner_instance_id.clone()).collect();
        self.leases.retain(|instance, lease| lease.renew_at > now || holders.contains(instance));
        let due = self.leases.iter_mut().filter(|(_, lease)| lease.renew_at <= now);
        let lines: Vec<_> = due
            .map(|(instance, lease)| {
                lease.renew_at = now + lease.length / 3;
                Line::Lease { instance: instance.clone(), until: now_ms.saturating_add(millis(lease.length)) }
            })
            .collect();
        for line in &lines {
            self.live.apply(line.clone());
        }
        lines
    }

    // ---- what everybody has written, and what we know better -------------------------------------------------------

    /// To be called before a checkpoint reads anything. It ends with [`Own::settle`], or comes to nothing.
    pub fn begin_checkpoint(&mut self) {
        self.begun += 1;
    }

    /// Makes a table that is to be shown agree with what we know.
    pub fn correct(&self, table: &mut Table) -> bool {
        let (stale, missing) = (self.stale(table), self.missing(table));
        let changed = !stale.is_empty() || !missing.is_empty();
        for key in &stale {
            table.remove(key);
        }
        for record in missing {
            table.insert(record);
        }
        // Nobody writes a line for that, and it alone is no reason to write a table.
        for (key, record) in self.live.iter() {
            if let Some(at) = record.last_output_at_ms {
                table.heard(key, at);
            }
        }
        changed
    }

    /// The same for a table that is to be written. Returns whether it was wrong, and the runs that another owner has taken.
    pub fn settle(&mut self, table: &mut Table) -> (bool, Vec<String>) {
        let is_from_before = |key: &String, record: &Record| {
            let was_taken = |(from, since): &(Option<String>, Moment)| {
                *from == record.owner_instance_id || !self.can_judge(*since)
            };
            self.taken_from.get(key).is_some_and(was_taken)
        };
        let is_stolen = |key: &String| {
            table.get(key).is_some_and(|record| !self.is_mine(record) && !is_from_before(key, record))
        };
        let stolen: Vec<(String, String)> = self
            .live
            .iter()
            .filter(|(key, _)| is_stolen(key))
            .map(|(key, record)| (key.clone(), record.run_id.clone()))
            .collect();
        for (key, _) in &stolen {
            self.forget(key);
        }
        let changed = self.correct(table);
        self.abandoned.retain(|key, was_seen| {
            let is_there = table.contains(key);
            let is_over = *was_seen && !is_there;
            *was_seen |= is_there;
            !is_over
        });
        let is_ours_there = |key: &String| table.get(key).is_some_and(|record| self.is_mine(record));
        let settled: Vec<_> = self
            .loose
            .iter()
            .filter(|&(key, &since)| self.can_judge(since) && !is_ours_there(key))
            .map(|(key, _)| key.clone())
            .collect();
        let taken: Vec<_> = self
            .taken_from
            .iter()
            .filter(|(key, (_, since))| self.can_judge(*since) && is_ours_there(key))
            .map(|(key, _)| key.clone())
            .collect();
        for key in settled {
            self.loose.remove(&key);
        }
        for key in taken {
            self.taken_from.remove(&key);
        }
        (changed, stolen.into_iter().map(|(_, run_id)| run_id).collect())
    }

    /// Whether an entry is one of this process, as far as this memory goes.
    pub fn is_mine(&self, record: &Record) -> bool {
        let is_of = |instance: &String| self.instances.contains(instance);
        record.bot_start_token.as_ref() == Some(&self.me)
            && record.owner_instance_id.as_ref().is_some_and(is_of)
    }

    /// Entries of ours that we know to be over.
    fn stale(&self, table: &Table) -> Vec<String> {
        table
            .iter()
            .filter(|(key, record)| {
                self.is_mine(record) && !self.live.contains(key) && !self.claiming.contains(*key)
            })
            .filter(|(key, _)| !self.loose.contains_key(*key))
            .filter(|(key, record)| !self.abandoned.contains_key(*key) || record.state == State::Exited)
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Entries of ours that the table lacks.
    fn missing(&self, table: &Table) -> Vec<Record> {
        self.live.iter().filter(|(key, _)| !table.contains(key)).map(|(_, record)| record.clone()).collect()
    }
}

pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::import::tests::ours;

    fn process(pid: i32) -> ProcessRef {
        ProcessRef { pid, start: 1, boot: "boot".into(), ns: 1 }
    }

    /// An entry whose owner is that process.
    fn entry(pid: i32, owner: i32) -> Record {
        let instance = Some(format!("instance-{owner}"));
        Record {
            bot_pid: owner,
            bot_start_token: Some(process(owner)),
            owner_instance_id: instance,
            ..ours(pid)
        }
    }

    const ME: i32 = 900;
    const OTHER: i32 = 901;

    fn own(entries: &[&Record]) -> Own {
        let mut own = Own::new(process(ME));
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
    fn an_entry_is_found_by_name_and_number_until_they_are_those_of_the_next() {
        let (first, other) = (entry(4242, ME), entry(4243, ME));
        let next = Record { start_token: Some(process(4242)), ..first.clone() };
        let mut own = own(&[&first, &other]);
        let found = |own: &Own, run_id, pid| -> Vec<String> {
            own.find(run_id, pid).iter().map(Record::key).collect()
        };
        for (run_id, pid, expected) in [
            (Some(&*first.run_id), None, vec![first.key()]),
            (None, Some(4243), vec![other.key()]),
            // The name counts.
            (Some(&*first.run_id), Some(4243), vec![first.key()]),
            (Some("nobody"), None, vec![]),
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
    fn what_was_deleted_or_overwritten_comes_back() {
        let run = entry(4242, ME);
        let mut table = Table::default();
        assert_eq!(own(&[&run]).settle(&mut table), (true, Vec::new()));
        assert_eq!(keys(&table), [run.key()]);
        assert_eq!(own(&[&run]).settle(&mut table), (false, Vec::new()), "and is left alone then");
    }

    #[test]
    fn what_was_heard_of_a_run_is_shown_but_is_no_reason_to_write() {
        let run = entry(4242, ME);
        let mut own = own(&[&run]);
        let mut table = Table::new([run.clone()]);
        own.live.heard(&run.key(), run.updated_at_ms + 5);
        assert_eq!(own.settle(&mut table), (false, Vec::new()));
        let shown = table.get(&run.key()).unwrap();
        assert_eq!(shown.last_output_at_ms, Some(run.updated_at_ms + 5));
        assert_eq!(shown.updated_at_ms, run.updated_at_ms + 5);
    }

    #[test]
    fn what_is_over_goes_even_if_nobody_could_write_that_down() {
        let mut table = Table::new([entry(4242, ME), entry(4243, OTHER)]);
        assert_eq!(own(&[]).settle(&mut table), (true, Vec::new()));
        assert_eq!(keys(&table), [entry(4243, OTHER).key()], "another bot's is not ours to judge");
    }

    #[test]
    fn what_another_copy_of_us_in_this_process_has_is_left_alone() {
        let theirs = Record { owner_instance_id: Some("copy".into()), ..entry(4242, ME) };
        let mut table = Table::new([theirs.clone()]);
        assert_eq!(own(&[]).settle(&mut table), (false, Vec::new()));
        assert_eq!(keys(&table), [theirs.key()]);
    }

    #[test]
    fn what_another_has_taken_is_not_taken_back() {
        let stolen = Record { run_id: "stolen".into(), ..entry(4242, OTHER) };
        let mut own = own(&[&Record { run_id: "stolen".into(), ..entry(4242, ME) }]);
        let mut table = Table::new([stolen.clone()]);
        assert_eq!(own.settle(&mut table), (false, vec!["stolen".to_owned()]));
        assert_eq!(table.get(&stolen.key()), Some(&stolen));
        assert!(!own.has_run("stolen"));
        assert_eq!(own.settle(&mut table), (false, Vec::new()), "told once");
    }

    fn claim(key: String) -> Claim {
        Claim { key, from: Some(format!("instance-{OTHER}")) }
    }

    #[test]
    fn a_checkpoint_begun_before_our_claim_does_not_make_us_give_up_what_we_have_taken_over() {
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
        assert_eq!(table.get(&ours.key()), Some(&ours), "it is ours, and stays");
        // Whoever it was taken from may take it back later, and then it is gone.
        assert_eq!(own.settle(&mut Table::new([before])), (false, vec![ours.run_id]));
    }

    #[test]
    fn a_claim_that_was_lost_leaves_nothing_behind() {
        let (theirs, ours) = (entry(4242, OTHER), entry(4242, ME));
        let mut own = own(&[]);
        own.claim(&claim(ours.key()), &format!("instance-{ME}"));
        own.unclaim(&[ours.key()]);
        own.remember(ours.clone());
        assert_eq!(own.settle(&mut Table::new([theirs])), (false, vec![ours.run_id]));
    }

    #[test]
    fn what_is_being_taken_over_is_not_thrown_out_meanwhile() {
        let claimed = entry(4242, ME);
        let mut own = own(&[]);
        let claim = claim(claimed.key());
        assert!(own.claim(&claim, "i") && !own.claim(&claim, "i"), "one at a time");
        let mut table = Table::new([claimed.clone()]);
        assert_eq!(own.settle(&mut table), (false, Vec::new()));
        own.adopt(claimed.clone(), entry(4242, OTHER));
        assert_eq!(own.settle(&mut table), (false, Vec::new()));
        assert_eq!(own.take_adopted(&claimed.key()), Some(entry(4242, OTHER)));
        assert_eq!(own.take_adopted(&claimed.key()), None);
    }

    #[test]
    fn a_claim_that_came_to_nothing_leaves_the_entry_for_another_try() {
        let claimed = entry(4242, ME);
        let mut own = own(&[]);
        let claim = claim(claimed.key());
        own.claim(&claim, "i");
        own.loosen(&[claimed.key()]);
        let mut table = Table::new([claimed.clone()]);
        assert_eq!(own.settle(&mut table), (false, Vec::new()));
        assert!(own.is_loose(&claimed.key()) && own.claim(&claim, "i"));
        own.loosen(&[claimed.key()]);
        own.begin_checkpoint();
        own.settle(&mut Table::new([entry(4242, OTHER)]));
        assert!(!own.is_loose(&claimed.key()), "it was given back after all");
    }

    #[test]
    fn a_checkpoint_begun_before_our_claim_does_not_say_what_came_of_it() {
        let (before, claimed) = (entry(4242, OTHER), entry(4242, ME));
        let mut own = own(&[]);
        own.begin_checkpoint();
        own.claim(&claim(claimed.key()), &format!("instance-{ME}"));
        // Written, but it could not be read who has won.
        own.loosen(&[claimed.key()]);
        own.settle(&mut Table::new([before]));
        own.begin_checkpoint();
        let mut table = Table::new([claimed.clone()]);
        assert_eq!(own.settle(&mut table), (false, Vec::new()));
        assert_eq!(keys(&table), [claimed.key()], "nobody has ended it, and nothing else leads to it");
        assert!(own.is_loose(&claimed.key()));
    }

    #[test]
    fn what_was_claimed_a_second_time_is_not_stolen_because_a_checkpoint_has_not_seen_the_first() {
        let (before, ours) = (entry(4242, OTHER), entry(4242, ME));
        let mut own = own(&[]);
        own.begin_checkpoint();
        own.claim(&claim(ours.key()), &format!("instance-{ME}"));
        own.loosen(&[ours.key()]);
        let again = Claim { key: ours.key(), from: ours.owner_instance_id.clone() };
        assert!(own.claim(&again, &format!("instance-{ME}")));
        own.adopt(ours.clone(), before.clone());
        assert_eq!(own.settle(&mut Table::new([before])), (false, Vec::new()));
        assert!(own.live.contains(&ours.key()));
    }

    #[test]
    fn what_was_let_go_stays_until_its_keeper_has_recorded_its_end() {
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
    fn a_number_that_is_used_again_leads_to_the_later_entry() {
        let (first, mut second) = (entry(4242, ME), entry(4242, ME));
        second.run_id = "later".into();
        second.start_token = Some(ProcessRef { start: 99, ..process(4242) });
        let mut own = own(&[&first, &second]);
        own.forget(&first.key());
        assert_eq!(own.find(None, Some(4242)), [second]);
    }

    #[test]
    fn only_owners_with_runs_have_a_heartbeat() {
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
}
