use super::*;

const KEEPER: i32 = 10;
const ROOT: i32 = 20;

/// A process in the session of its own number's choosing: `(pid, ppid, session, start)`.
fn seen(rows: &[(i32, i32, i32, u64)]) -> Seen {
    let stat = |&(pid, ppid, session, start)| Stat {
        pid,
        comm: "x".into(),
        state: 'S',
        ppid,
        pgrp: session,
        session,
        threads: 1,
        start,
        ..Stat::default()
    };
    rows.iter().map(|row| (row.0, stat(row))).collect()
}

fn dead(mut look: Seen, pid: i32) -> Seen {
    if let Some(stat) = look.get_mut(&pid) {
        (stat.state, stat.session) = ('Z', 0);
    }
    look
}

/// A tree of which these were seen before, each at its start.
fn tree(known: &[(i32, u64)]) -> Members {
    let mut members = Members::new(KEEPER, &seen(&[(ROOT, KEEPER, ROOT, 5)])[&ROOT]);
    for &(pid, start) in known {
        members.known.insert(pid, Known { start, session: pid });
    }
    members
}

fn nobody(_: &Stat) -> bool {
    false
}

/// Who joins by this look, sorted.
fn join(members: &Members, look: &Seen) -> Vec<i32> {
    let mut pids: Vec<_> = members.claims(look, true, nobody).iter().map(|claim| claim.stat.pid).collect();
    pids.sort_unstable();
    pids
}

const US: [(i32, i32, i32, u64); 2] = [(KEEPER, 9, 9, 4), (ROOT, KEEPER, ROOT, 5)];

fn with_us(rows: &[(i32, i32, i32, u64)]) -> Seen {
    seen(&[&US[..], rows].concat())
}

#[test]
fn children_and_grandchildren_join_in_one_look_wherever_they_went() {
    let look = with_us(&[(30, ROOT, 30, 6), (40, 30, 40, 7), (50, 40, 50, 8), (60, 1, 60, 8)]);
    assert_eq!(join(&tree(&[]), &look), [30, 40, 50]);
}

#[test]
fn an_orphan_that_was_seen_before_stays_and_so_does_what_it_starts() {
    let mut members = tree(&[(40, 7)]);
    let look = with_us(&[(40, 1, 40, 7), (41, 40, 41, 9)]);
    assert_eq!(members.forget_the_gone(&look, true), [0; 0]);
    assert_eq!(join(&members, &look), [41]);
}

#[test]
fn an_orphan_that_was_never_seen_is_found_by_the_session_it_kept() {
    assert_eq!(join(&tree(&[]), &with_us(&[(40, 1, ROOT, 7)])), [40], "the root's");
    let look = with_us(&[(30, 1, 30, 6), (40, 1, 30, 7)]);
    assert_eq!(join(&tree(&[(30, 6)]), &look), [40], "a member's");
    let look = with_us(&[(40, 1, 30, 7), (41, 1, 30, 8)]);
    assert_eq!(join(&tree(&[(40, 7)]), &look), [41], "one whose leader is gone");
}

#[test]
fn the_session_of_a_dead_root_is_its_own_while_its_zombie_is_held() {
    let look = dead(with_us(&[(40, 1, ROOT, 7)]), ROOT);
    let members = tree(&[]);
    assert_eq!(members.claims(&look, true, nobody).len(), 1);
    assert_eq!(members.claims(&look, false, nobody), [], "the number may be anybody's");
}

#[test]
fn an_orphan_that_left_its_session_unseen_is_found_by_its_cookie_or_not_at_all() {
    let look = with_us(&[(40, 1, 40, 7)]);
    assert_eq!(join(&tree(&[]), &look), [0; 0]);
    let members = tree(&[]);
    let claims = members.claims(&look, true, |stat| stat.pid == 40);
    assert_eq!(claims, [Claim { stat: &look[&40], proof: Proof::Cookie }]);
}

#[test]
fn a_recycled_number_vouches_for_nobody() {
    // 30 was a member that started at 6. Somebody else has the number now, with a session and a child.
    let look = with_us(&[(30, 1, 30, 9), (31, 30, 30, 10)]);
    let mut members = tree(&[(30, 6)]);
    assert_eq!(join(&members, &look), [0; 0]);
    assert_eq!(members.forget_the_gone(&look, true), [30]);
    assert!(members.living(&look).iter().all(|stat| stat.pid == ROOT));
}

#[test]
fn a_daemon_whose_parent_was_seen_and_is_gone_is_found_by_the_session_that_one_began() {
    // 30 was seen in the root's session. Since then it has begun its own, forked 40, and exited.
    let begun_since = with_us(&[(40, 1, 30, 8)]);
    let mut members = tree(&[]);
    members.known.insert(30, Known { start: 6, session: ROOT });
    assert_eq!(members.forget_the_gone(&begun_since, true), [30]);
    assert_eq!(join(&members, &begun_since), [40]);
    // Or it was in a third one's, of which nobody is left.
    let left_behind = with_us(&[(40, 1, 25, 8)]);
    members.known.insert(30, Known { start: 6, session: 25 });
    members.forget_the_gone(&left_behind, true);
    assert_eq!(join(&members, &left_behind), [40]);
    // That is forgotten with the next look.
    members.forget_the_gone(&left_behind, true);
    assert_eq!(join(&members, &left_behind), [0; 0]);
}

#[test]
fn what_was_long_ago_vouches_for_nobody() {
    let look = with_us(&[(40, 1, 30, 8)]);
    let mut members = tree(&[(30, 6)]);
    assert_eq!(members.forget_the_gone(&look, false), [30]);
    assert_eq!(join(&members, &look), [0; 0]);
}

#[test]
fn a_session_that_was_never_known_does_not_fade_into_one() {
    let mut look = with_us(&[(40, 1, 0, 8)]);
    look.get_mut(&40).unwrap().pgrp = 40;
    let mut members = tree(&[]);
    members.known.insert(30, Known { start: 6, session: 0 });
    members.forget_the_gone(&look, true);
    assert_eq!(join(&members, &look), [0; 0]);
}

#[test]
fn nobody_is_the_child_of_somebody_younger() {
    let look = with_us(&[(30, ROOT, 30, 4)]);
    assert_eq!(join(&tree(&[]), &look), [0; 0]);
}

#[test]
fn a_zombie_is_no_member_and_no_witness_but_its_children_are_its_own() {
    let look = dead(with_us(&[(30, ROOT, 30, 6), (40, 30, 40, 7), (50, 1, 0, 8)]), 30);
    assert_eq!(join(&tree(&[(30, 6)]), &look), [40], "read a moment before 30 ended");
    assert_eq!(join(&tree(&[]), &look), [0; 0], "30 was never seen to be ours");
}

#[test]
fn neither_the_keeper_nor_launchd_nor_the_kernel_ever_joins() {
    // In the root's session, by some mistake of the system's.
    let look = seen(&[(0, 0, ROOT, 1), (1, 0, ROOT, 1), (KEEPER, ROOT, ROOT, 6), (ROOT, KEEPER, ROOT, 5)]);
    assert_eq!(join(&tree(&[]), &look), [0; 0]);
}

#[test]
fn a_session_that_is_not_known_is_nobodys() {
    let mut look = with_us(&[(30, ROOT, 0, 6), (60, 1, 0, 7)]);
    look.get_mut(&30).unwrap().session = 0;
    assert_eq!(join(&tree(&[(30, 6)]), &look), [0; 0]);
}

/// A small system: numbers come again soon, orphans go to launchd, and somebody notes down who really descends from the root.
struct System {
    processes: Seen,
    ours: HashSet<(i32, u64)>,
    clock: u64,
    random: u64,
}

const NUMBERS: u64 = 40;

impl System {
    fn new(random: u64) -> Self {
        let processes = seen(&[(KEEPER, 1, 9, 4), (ROOT, KEEPER, ROOT, 5), (30, 1, 30, 5), (31, 1, 31, 5)]);
        Self { processes, ours: HashSet::from([(ROOT, 5)]), clock: 10, random }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn somebody(&mut self) -> Stat {
        let mut pids: Vec<_> = self.processes.keys().copied().filter(|&pid| pid != KEEPER).collect();
        pids.sort_unstable();
        let index = usize::try_from(self.random(pids.len() as u64)).unwrap();
        self.processes[&pids[index]].clone()
    }

    /// As the kernel chooses one: nobody has it, and no session does.
    fn free_number(&mut self) -> Option<i32> {
        let pid = 50 + i32::try_from(self.random(NUMBERS)).unwrap();
        let taken = |stat: &Stat| [stat.pid, stat.session, stat.pgrp].contains(&pid);
        (!self.processes.values().any(taken)).then_some(pid)
    }

    fn step(&mut self) {
        self.clock += 1;
        let one = self.somebody();
        match self.random(10) {
            0..5 => {
                if let Some(pid) = self.free_number() {
                    let child = Stat { pid, ppid: one.pid, start: self.clock, ..one.clone() };
                    if self.ours.contains(&(one.pid, one.start)) {
                        self.ours.insert((pid, self.clock));
                    }
                    self.processes.insert(pid, child);
                }
            }
            5..8 if one.pid > 31 => {
                self.processes.remove(&one.pid);
                for child in self.processes.values_mut().filter(|stat| stat.ppid == one.pid) {
                    child.ppid = 1;
                }
            }
            _ if !self.processes.values().any(|stat| stat.pgrp == one.pid) => {
                if let Some(stat) = self.processes.get_mut(&one.pid) {
                    (stat.session, stat.pgrp) = (one.pid, one.pid);
                }
            }
            _ => {}
        }
    }

    fn living_ours(&self) -> HashSet<(i32, u64)> {
        let all = self.processes.values().map(|stat| (stat.pid, stat.start));
        all.filter(|process| self.ours.contains(process)).collect()
    }
}

fn look(members: &mut Members, system: &System, is_recent: bool) -> HashSet<(i32, u64)> {
    members.forget_the_gone(&system.processes, is_recent);
    let claims = members.claims(&system.processes, true, nobody);
    let newcomers: Vec<Stat> = claims.into_iter().map(|claim| claim.stat.clone()).collect();
    for newcomer in &newcomers {
        members.admit(newcomer);
    }
    members.living(&system.processes).iter().map(|stat| (stat.pid, stat.start)).collect()
}

#[test]
fn whoever_looks_often_enough_misses_nobody_and_takes_nobody_elses() {
    for seed in 1..40 {
        let mut system = System::new(seed * 0x9e37_79b9);
        let mut members = tree(&[]);
        for step in 0..300 {
            system.step();
            assert_eq!(look(&mut members, &system, true), system.living_ours(), "seed {seed}, step {step}");
        }
    }
}

#[test]
fn whoever_looks_seldom_still_takes_nobody_elses_and_forgets_nobody() {
    let mut missed = 0;
    for seed in 1..40 {
        let mut system = System::new(seed * 0x9e37_79b9);
        let mut members = tree(&[]);
        let mut known = HashSet::new();
        for step in 0..100 {
            for _ in 0..system.random(20) {
                system.step();
            }
            let (found, ours) = (look(&mut members, &system, false), system.living_ours());
            assert!(found.is_subset(&ours), "seed {seed}, step {step}: {:?}", found.difference(&ours));
            known.retain(|process| ours.contains(process));
            assert!(known.is_subset(&found), "seed {seed}, step {step}: one that was known is not any more");
            missed += ours.difference(&found).count();
            known = found;
        }
    }
    assert!(missed > 0, "the system was too tame to show what looking seldom costs");
}
