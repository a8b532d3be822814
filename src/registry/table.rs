//! What all lines together say. Pure: lines in, entries out.

use std::collections::HashMap;
use std::sync::Arc;

use super::kept::Kept;
use super::record::{Exit, Line, Record, State};

/// The entries of a registry, by [`Record::key`]. Copies share them until they change: there may be many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    entries: HashMap<String, Arc<Kept>>,
}

impl Table {
    pub fn new(entries: impl IntoIterator<Item = Record>) -> Self {
        Self { entries: entries.into_iter().map(|entry| (entry.key(), Arc::new(Kept::new(entry)))).collect() }
    }

    pub fn get(&self, key: &str) -> Option<&Record> {
        self.entries.get(key).map(|entry| &***entry)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Record)> {
        self.entries.iter().map(|(key, entry)| (key, &***entry))
    }

    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.entries.values().map(|entry| &***entry)
    }

    pub fn remove(&mut self, key: &str) -> Option<Record> {
        self.entries.remove(key).map(Kept::into_record)
    }

    pub fn retain(&mut self, wanted: impl Fn(&Record) -> bool) {
        self.entries.retain(|_, entry| wanted(entry));
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn insert(&mut self, entry: Record) {
        self.entries.insert(entry.key(), Arc::new(Kept::new(entry)));
    }

    /// Oldest first, as people read them.
    pub fn sorted(&self) -> Vec<&Arc<Kept>> {
        let mut entries: Vec<_> = self.entries.values().collect();
        entries.sort_by(|a, b| (a.started_at, a.pid, &a.run_id).cmp(&(b.started_at, b.pid, &b.run_id)));
        entries
    }

    /// Applying the same lines again, from their beginning, changes nothing: a crash may leave a journal that its
    /// checkpoint already contains.
    pub fn apply(&mut self, line: Line) {
        match line {
            Line::Intent { entry } => {
                // A line that was written twice, because the journal was replaced just then, must not undo what came after.
                self.entries.entry(entry.key()).or_insert_with(|| Arc::new(Kept::new(*entry)));
            }
            Line::Started { key, at } => self.change(&key, at, |entry| {
                if entry.state == State::Starting {
                    entry.state = State::Running;
                }
            }),
            Line::Exiting { key, at } => self.change(&key, at, |entry| {
                if entry.state != State::Exited {
                    entry.state = State::Exiting;
                }
            }),
            Line::Ended { key, exit } => self.change(&key, exit.at_ms, |entry| {
                entry.state = State::Exited;
                entry.exit = Some(exit.clone());
            }),
            Line::Dropped { keys } => {
                for key in &keys {
                    self.entries.remove(key);
                }
            }
            Line::Claimed { claims, by, at } => {
                for claim in claims {
                    self.change(&claim.key, at, |entry| {
                        // Whoever comes second finds another owner than it expected, and has no claim.
                        if entry.owner_instance_id == claim.from {
                            entry.bot_pid = by.process.pid;
                            entry.bot_start_token = Some(by.process.clone());
                            entry.owner_instance_id = Some(by.instance.clone());
                            entry.lease_expires_at_ms = Some(by.lease_until);
                            entry.leave_out(&by.process);
                        }
                    });
                }
            }
            Line::Returned { entry, by } => {
                // Written twice, the second may come after somebody else's claim.
                let claimed = |present: &&Record| present.owner_instance_id.as_ref() == Some(&by);
                if let Some(present) = self.get(&entry.key()).filter(claimed) {
                    let mut entry = *entry;
                    // It may have ended while it was claimed, and nobody else knows how. But not before there was such an entry: somebody
                    // has seen what an earlier end had left, alive, and answers for it.
                    let is_earlier = |exit: &Exit| exit.survivors > 0 && exit.at_ms < entry.created_at_ms;
                    if present.state == State::Exited && !present.exit.as_ref().is_some_and(is_earlier) {
                        (entry.state, entry.exit) = (State::Exited, present.exit.clone());
                        entry.updated_at_ms = present.updated_at_ms;
                    }
                    self.insert(entry);
                }
            }
            Line::Lease { instance, until } => {
                for entry in self.entries.values_mut() {
                    if entry.owner_instance_id.as_ref() == Some(&instance) {
                        let entry = Kept::change(entry);
                        entry.lease_expires_at_ms = entry.lease_expires_at_ms.max(Some(until));
                    }
                }
            }
            Line::Members { key, members, at } => {
                self.change(&key, at, |entry| {
                    entry.members.clone_from(&members);
                    if let Some(owner) = entry.bot_start_token.clone() {
                        entry.leave_out(&owner);
                    }
                });
            }
        }
    }

    /// Something was heard of it.
    pub fn heard(&mut self, key: &str, at: u64) {
        if self.get(key).is_some_and(|entry| entry.last_output_at_ms < Some(at)) {
            self.change(key, at, |entry| entry.last_output_at_ms = Some(at));
        }
    }

    fn change(&mut self, key: &str, at: u64, change: impl FnOnce(&mut Record)) {
        if let Some(entry) = self.entries.get_mut(key) {
            let entry = Kept::change(entry);
            change(entry);
            entry.updated_at_ms = entry.updated_at_ms.max(at);
        }
    }
}

#[cfg(test)]
mod tests {
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
    /// Later than everything that [`ours`] says.
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
    fn the_state_never_goes_back() {
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
    fn an_end_keeps_the_entry_and_only_a_drop_removes_it() {
        let mut lines = vec![intent(4242), started(4242, 1), ended(4242, LATER)];
        let kept = entry(&lines);
        assert_eq!((kept.exit.unwrap().at_ms, kept.updated_at_ms), (LATER, LATER));
        lines.push(dropped(4242));
        assert!(after(&lines).is_empty());
    }

    #[test]
    fn what_is_given_back_after_its_end_has_ended() {
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
    fn a_line_about_nobody_changes_nothing() {
        let about = |pid| {
            let claim = claimed(pid, "supervisor-1", "b", LATER);
            [started(pid, 1), exiting(pid, 2), ended(pid, 3), dropped(pid), claim, members(pid, 5, 6)]
        };
        assert!(after(&about(1)).is_empty());
        let mut table = after(&[intent(4242)]);
        play(&mut table, &about(1));
        table.apply(lease("nobody", LATER));
        assert_eq!(table, after(&[intent(4242)]));
    }

    #[test]
    fn the_first_claim_wins_and_the_second_is_void() {
        let won = entry(&[intent(4242), claimed(4242, "supervisor-1", "b", LATER)]);
        assert_eq!((won.owner_instance_id.as_deref(), won.bot_pid), (Some("b"), 800));
        assert_eq!((won.bot_start_token, won.lease_expires_at_ms), (Some(process(800)), Some(LATER + LEASE)));
        let lines = [
            intent(4242),
            claimed(4242, "supervisor-1", "b", LATER),
            claimed(4242, "supervisor-1", "c", LATER),
        ];
        assert_eq!(entry(&lines).owner_instance_id.as_deref(), Some("b"));
        assert_eq!(after(&lines), after(&lines[..2]));
    }

    #[test]
    fn nobody_gives_back_what_has_become_anothers() {
        let returned = |by: &str| Line::Returned { entry: Box::new(starting(4242)), by: by.into() };
        let stolen = [intent(4242), claimed(4242, "supervisor-1", "b", LATER)];
        let given_back = after(&[&stolen[..], &[returned("b")]].concat());
        assert_eq!(given_back, after(&[intent(4242)]), "as it was");
        // The claim was lost to somebody third; or the line is there twice, and the entry was claimed in between.
        assert_eq!(after(&[&stolen[..], &[returned("c")]].concat()), after(&stolen));
        let again = claimed(4242, "supervisor-1", "c", LATER);
        let lines = [&stolen[..], &[returned("b"), again, returned("b")]].concat();
        assert_eq!(after(&lines).get(&key(4242)).unwrap().owner_instance_id.as_deref(), Some("c"));
        // What was dropped meanwhile does not come back.
        assert!(after(&[&stolen[..], &[dropped(4242), returned("b")]].concat()).is_empty());
    }

    #[test]
    fn a_survivor_that_is_registered_is_not_over_because_its_run_is() {
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
            // It has ended after that, or nothing of it was left.
            (survived(LATER, 1), LATER, State::Exited),
            (survived(LATER, 0), LATER + 1, State::Exited),
        ] {
            let lines = [intent(4242), ended, claim.clone(), registered(created_at_ms)];
            let now = after(&lines);
            assert_eq!(now.get(&key(4242)).unwrap().state, expected, "{created_at_ms}");
            let mut again = now.clone();
            play(&mut again, &lines);
            assert_eq!(again, now, "and a journal that counts again changes nothing");
        }
    }

    #[test]
    fn an_old_entry_can_be_claimed_once() {
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
    fn a_lease_is_only_ever_raised_and_only_its_owners() {
        let before = starting(4242).lease_expires_at_ms;
        let until = |lines: &[Line]| entry(&[&[intent(4242)], lines].concat()).lease_expires_at_ms;
        assert_eq!(until(&[lease("supervisor-1", LATER)]), Some(LATER));
        assert_eq!(until(&[lease("supervisor-1", LATER), lease("supervisor-1", LATER - 1)]), Some(LATER));
        assert_eq!(until(&[lease("supervisor-1", 1)]), before);
        assert_eq!(until(&[lease("b", LATER)]), before);
        // The former owner's heartbeat, when it has lost the run, is nobody's.
        let stolen = [claimed(4242, "supervisor-1", "b", LATER), lease("supervisor-1", LATER + 9 * LEASE)];
        assert_eq!(until(&stolen), Some(LATER + LEASE));
    }

    #[test]
    fn nobody_is_both_the_owner_and_a_part_of_the_run() {
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
    fn the_newest_members_vouch() {
        let table = entry(&[intent(4242), members(4242, 5, LATER), members(4242, 6, LATER + 1)]);
        assert_eq!((table.members, table.updated_at_ms), (vec![process(6)], LATER + 1));
    }

    /// An Intent after its Dropped makes a new entry: that is what registering a process again looks like, its key being its
    /// identity. So an Intent that came *late* would bring back the dead. It cannot: whoever drops an entry has read its
    /// Intent, or has written it; appends keep their order; and a writer repeats a line (in a journal that has replaced the
    /// one it wrote to) before it writes the next. Another than the writer drops only what the dead have left, and the dead repeat
    /// nothing. If the writer was merely stopped between the two, and robbed (`stealFromLive`), then an entry of a dead process
    /// is back: identity says so, it is dropped again, and nobody is signalled.
    #[test]
    fn only_an_intent_brings_an_entry_back() {
        let over = [intent(4242), started(4242, 1), dropped(4242)];
        let late = [started(4242, 1), exiting(4242, 2), members(4242, 5, 6), ended(4242, 3)];
        assert!(after(&[&over[..], &late].concat()).is_empty());
        assert_eq!(after(&[&over[..], &[intent(4242)]].concat()), after(&[intent(4242)]));
    }

    /// What a bot, a reaper and thieves may write about some runs, each in a possible order, at growing times.
    ///
    /// Nobody takes back what it has lost, under the same instance id. If it did, a void claim of somebody third, first in a
    /// journal that a crash has left beside its own checkpoint, would find the owner it expected, and count after all.
    fn history(random: &mut Random) -> Vec<Line> {
        let mut now = LATER;
        let mut table = Table::default();
        let mut lines = Vec::new();
        for _ in 0..random.below(40) {
            now += 1;
            let pid = 4242 + i32::try_from(random.below(5)).unwrap();
            let next = match (table.get(&key(pid)), random.below(7)) {
                // The first time, or a process that was dropped is registered again. An owner never promises less than before:
                // with an older lease, its heartbeats would count again.
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
                // Two thieves who have read the same.
                (Some(entry), _) => {
                    let claim = |by: &str| claimed(pid, entry.owner_instance_id.as_deref().unwrap(), by, now);
                    vec![claim(&format!("thief-{now}")), claim(&format!("late-{now}"))]
                }
            };
            play(&mut table, &next);
            lines.extend(next);
        }
        lines
    }

    /// A crash may leave a checkpoint that contains the journal's beginning, up to any line, and the whole journal beside it.
    #[test]
    fn no_crash_makes_a_line_count_twice() {
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
            // Checkpoint after checkpoint, and every time the journal was left behind.
            let mut table = expected.clone();
            (0..3).for_each(|_| play(&mut table, &lines));
            assert_eq!(table, expected);
            // The same for a journal that is not the first: its beginning is in the checkpoint only.
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

    /// Within a journal, a line that was repeated at once, because the journal was replaced, counts once.
    #[test]
    fn no_stutter_makes_a_line_count_twice() {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        for _ in 0..1_000 {
            let lines = history(&mut random);
            let stuttered: Vec<_> = lines
                .iter()
                .flat_map(|line| std::iter::repeat_n(line.clone(), 1 + random.below(2)))
                .collect();
            assert_eq!(after(&stuttered), after(&lines), "{lines:?}");
        }
    }

    #[test]
    fn people_read_the_oldest_first() {
        let at = |pid, started_at| Record { started_at, ..ours(pid) };
        let table = Table::new([at(4, 30), at(3, 10), at(2, 20), at(1, 20)]);
        assert_eq!(table.sorted().iter().map(|entry| entry.pid).collect::<Vec<_>>(), [3, 1, 2, 4]);
    }
}
