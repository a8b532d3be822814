use super::*;

const KEEPER: i32 = 10;
const ROOT: i32 = 20;

/// A scan with these processes: `(pid, ppid, session, start)`.
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

/// A tree whose root and these members, `(pid, start)`, were seen before.
fn tree(known: &[(i32, u64)]) -> Members {
    let mut members = Members::new(KEEPER, &seen(&[(ROOT, KEEPER, ROOT, 5)])[&ROOT]);
    for &(pid, start) in known {
        members.known.insert(pid, Known { start, session: pid });
    }
    members
}

fn no_carrier(_: &Stat) -> bool {
    false
}

/// The PIDs of the new members in this scan, sorted.
fn join(members: &Members, look: &Seen) -> Vec<i32> {
    let mut pids: Vec<_> =
        members.claims(look, true, no_carrier).iter().map(|claim| claim.stat.pid).collect();
    pids.sort_unstable();
    pids
}

const US: [(i32, i32, i32, u64); 2] = [(KEEPER, 9, 9, 4), (ROOT, KEEPER, ROOT, 5)];

fn with_us(rows: &[(i32, i32, i32, u64)]) -> Seen {
    seen(&[&US[..], rows].concat())
}

#[test]
fn children_and_grandchildren_join_in_one_scan_whatever_their_session() {
    let look = with_us(&[(30, ROOT, 30, 6), (40, 30, 40, 7), (50, 40, 50, 8), (60, 1, 60, 8)]);
    assert_eq!(join(&tree(&[]), &look), [30, 40, 50]);
}

#[test]
fn an_orphan_that_was_seen_before_stays_a_member_and_its_children_join() {
    let mut members = tree(&[(40, 7)]);
    let look = with_us(&[(40, 1, 40, 7), (41, 40, 41, 9)]);
    assert_eq!(members.remove_gone(&look, true), [0; 0]);
    assert_eq!(join(&members, &look), [41]);
}

#[test]
fn an_orphan_that_was_never_seen_is_found_by_its_session() {
    assert_eq!(join(&tree(&[]), &with_us(&[(40, 1, ROOT, 7)])), [40], "the root's session");
    let look = with_us(&[(30, 1, 30, 6), (40, 1, 30, 7)]);
    assert_eq!(join(&tree(&[(30, 6)]), &look), [40], "a member's session");
    let look = with_us(&[(40, 1, 30, 7), (41, 1, 30, 8)]);
    assert_eq!(join(&tree(&[(40, 7)]), &look), [41], "a session whose leader is gone");
}

#[test]
fn the_session_of_a_dead_root_proves_members_while_its_zombie_is_held() {
    let look = dead(with_us(&[(40, 1, ROOT, 7)]), ROOT);
    let members = tree(&[]);
    assert_eq!(members.claims(&look, true, no_carrier).len(), 1);
    assert_eq!(members.claims(&look, false, no_carrier), [], "another process may have the PID");
}

#[test]
fn an_orphan_that_left_its_session_unseen_is_found_only_by_its_cookie() {
    let look = with_us(&[(40, 1, 40, 7)]);
    assert_eq!(join(&tree(&[]), &look), [0; 0]);
    let members = tree(&[]);
    let claims = members.claims(&look, true, |stat| stat.pid == 40);
    assert_eq!(claims, [Claim { stat: &look[&40], proof: Proof::Cookie }]);
}

#[test]
fn a_recycled_pid_proves_nothing() {
    // 30 was a member that started at 6. Another process has the PID now, with a session and a
    // child.
    let look = with_us(&[(30, 1, 30, 9), (31, 30, 30, 10)]);
    let mut members = tree(&[(30, 6)]);
    assert_eq!(join(&members, &look), [0; 0]);
    assert_eq!(members.remove_gone(&look, true), [30]);
    assert!(members.living(&look).iter().all(|stat| stat.pid == ROOT));
}

#[test]
fn a_daemon_whose_parent_is_gone_is_found_by_the_session_that_the_parent_started() {
    // 30 was seen in the root's session. Since then it has started its own session, forked 40, and
    // exited.
    let begun_since = with_us(&[(40, 1, 30, 8)]);
    let mut members = tree(&[]);
    members.known.insert(30, Known { start: 6, session: ROOT });
    assert_eq!(members.remove_gone(&begun_since, true), [30]);
    assert_eq!(join(&members, &begun_since), [40]);
    // Or it was in another session, of which no member is left.
    let left_behind = with_us(&[(40, 1, 25, 8)]);
    members.known.insert(30, Known { start: 6, session: 25 });
    members.remove_gone(&left_behind, true);
    assert_eq!(join(&members, &left_behind), [40]);
    // The next scan no longer uses that session.
    members.remove_gone(&left_behind, true);
    assert_eq!(join(&members, &left_behind), [0; 0]);
}

#[test]
fn an_old_scan_proves_nothing() {
    let look = with_us(&[(40, 1, 30, 8)]);
    let mut members = tree(&[(30, 6)]);
    assert_eq!(members.remove_gone(&look, false), [30]);
    assert_eq!(join(&members, &look), [0; 0]);
}

#[test]
fn an_unknown_session_of_a_gone_member_proves_nothing() {
    let mut look = with_us(&[(40, 1, 0, 8)]);
    look.get_mut(&40).unwrap().pgrp = 40;
    let mut members = tree(&[]);
    members.known.insert(30, Known { start: 6, session: 0 });
    members.remove_gone(&look, true);
    assert_eq!(join(&members, &look), [0; 0]);
}

#[test]
fn a_process_that_is_older_than_its_parent_is_no_child() {
    let look = with_us(&[(30, ROOT, 30, 4)]);
    assert_eq!(join(&tree(&[]), &look), [0; 0]);
}

#[test]
fn a_zombie_is_no_member_and_no_witness_but_its_children_are_members() {
    let look = dead(with_us(&[(30, ROOT, 30, 6), (40, 30, 40, 7), (50, 1, 0, 8)]), 30);
    assert_eq!(join(&tree(&[(30, 6)]), &look), [40], "40 was read just before 30 died");
    assert_eq!(join(&tree(&[]), &look), [0; 0], "30 was never a member");
}

#[test]
fn the_keeper_launchd_and_the_kernel_never_join() {
    // In the root's session, because of an error of the system.
    let look = seen(&[(0, 0, ROOT, 1), (1, 0, ROOT, 1), (KEEPER, ROOT, ROOT, 6), (ROOT, KEEPER, ROOT, 5)]);
    assert_eq!(join(&tree(&[]), &look), [0; 0]);
}

#[test]
fn an_unknown_session_proves_nothing() {
    let mut look = with_us(&[(30, ROOT, 0, 6), (60, 1, 0, 7)]);
    look.get_mut(&30).unwrap().session = 0;
    assert_eq!(join(&tree(&[(30, 6)]), &look), [0; 0]);
}

/// A small simulated system: it reuses PIDs soon, launchd adopts orphans, and `ours` records the
/// true descendants of the root.
struct System {
    processes: Seen,
    ours: HashSet<(i32, u64)>,
    clock: u64,
    random: u64,
}

const PIDS: u64 = 40;

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

    fn random_process(&mut self) -> Stat {
        let mut pids: Vec<_> = self.processes.keys().copied().filter(|&pid| pid != KEEPER).collect();
        pids.sort_unstable();
        let index = usize::try_from(self.random(pids.len() as u64)).unwrap();
        self.processes[&pids[index]].clone()
    }

    /// A free PID, as the kernel chooses it: no process, session or group has it.
    fn free_pid(&mut self) -> Option<i32> {
        let pid = 50 + i32::try_from(self.random(PIDS)).unwrap();
        let taken = |stat: &Stat| [stat.pid, stat.session, stat.pgrp].contains(&pid);
        (!self.processes.values().any(taken)).then_some(pid)
    }

    fn step(&mut self) {
        self.clock += 1;
        let one = self.random_process();
        match self.random(10) {
            0..5 => {
                if let Some(pid) = self.free_pid() {
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
    members.remove_gone(&system.processes, is_recent);
    let claims = members.claims(&system.processes, true, no_carrier);
    let new_members: Vec<Stat> = claims.into_iter().map(|claim| claim.stat.clone()).collect();
    for new_member in &new_members {
        members.admit(new_member);
    }
    members.living(&system.processes).iter().map(|stat| (stat.pid, stat.start)).collect()
}

#[test]
fn frequent_scans_find_exactly_the_descendants_of_the_root() {
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
fn rare_scans_claim_no_other_process_and_forget_no_member() {
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
            assert!(known.is_subset(&found), "seed {seed}, step {step}: a known member is lost");
            missed += ours.difference(&found).count();
            known = found;
        }
    }
    assert!(missed > 0, "the simulation must contain processes that rare scans miss");
}
