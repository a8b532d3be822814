//! Tables of processes in, claims out.

use super::super::scan::Row;
use super::*;
use crate::contain::cookie::Carried;

/// A process that started at 5. Its parent is not in the scan.
fn row(pid: i32, pgrp: i32, state: char, keys: &[&str]) -> Row {
    Row {
        stat: Stat {
            pid,
            comm: "x".into(),
            state,
            ppid: 2,
            pgrp,
            session: pgrp,
            threads: 1,
            start: 5,
            ..Stat::default()
        },
        carried: Carried::Keys(keys.iter().map(|&key| key.to_owned()).collect()),
    }
}

fn child(pid: i32, ppid: i32, comm: &str, keys: &[&str]) -> Row {
    let mut row = row(pid, pid, 'S', keys);
    (row.stat.ppid, row.stat.comm) = (ppid, comm.into());
    row
}

fn started(mut row: Row, start: u64) -> Row {
    row.stat.start = start;
    row
}

fn hidden(mut row: Row) -> Row {
    row.carried = Carried::Hidden;
    row
}

/// A question about process 100, which started at 5: a spawned run with the key `r`, or a
/// registered process.
struct Question {
    root: ProcessRef,
    leads_group: bool,
    spawned: bool,
    alone: bool,
    cookie_key: Option<&'static str>,
    members: Vec<ProcessRef>,
    known: Known,
    inside: Vec<i32>,
    off_limits: HashSet<i32>,
}

fn spawned() -> Question {
    let root = ProcessRef::known(100, 5);
    let (known, inside, off_limits) = (Known::new(), Vec::new(), HashSet::new());
    Question {
        root,
        leads_group: true,
        spawned: true,
        alone: false,
        cookie_key: Some("r"),
        members: Vec::new(),
        known,
        inside,
        off_limits,
    }
}

fn registered() -> Question {
    Question { spawned: false, cookie_key: None, ..spawned() }
}

impl Question {
    fn recorded(self, members: &[(i32, u64)]) -> Self {
        let members = members.iter().map(|&(pid, start)| ProcessRef::known(pid, start)).collect();
        Self { members, ..self }
    }

    fn ask(&self, rows: Vec<Row>) -> (Vec<i32>, GroupState) {
        let &Self { ref root, leads_group, spawned, alone, cookie_key, ref members, .. } = self;
        let target = Target { leads_group, spawned, alone, members, ..Target::spawned(root, cookie_key) };
        let scan = Scan::of(rows, self.off_limits.clone());
        let mut pids: Vec<_> =
            ours(&scan, &target, &self.known, &self.inside).iter().map(|claim| claim.stat.pid).collect();
        pids.sort_unstable();
        (pids, group_state(&scan, &target))
    }
}

#[track_caller]
fn check(question: &Question, rows: Vec<Row>, ours: &[i32], group: GroupState) {
    assert_eq!(question.ask(rows), (ours.to_vec(), group));
}

use GroupState::{Empty, Ours, Unproven};

#[test]
fn a_bot_that_registered_itself_is_the_only_member() {
    let rows = || vec![row(100, 7, 'S', &[]), child(101, 100, "x", &[]), row(7, 7, 'S', &[])];
    let process = Question { leads_group: false, ..registered() };
    check(&process, rows(), &[100, 101], Empty);
    check(&Question { alone: true, ..process }, rows(), &[100], Empty);
}

#[test]
fn a_living_root_proves_its_group() {
    let rows = || vec![row(100, 100, 'S', &[]), row(101, 100, 'S', &[]), row(7, 7, 'S', &[])];
    check(&spawned(), rows(), &[100, 101], Ours);
    check(&registered(), rows(), &[100, 101], Ours);
}

#[test]
fn a_root_that_leads_no_group_claims_no_group() {
    let question = Question { leads_group: false, ..registered() };
    let rows = vec![row(90, 90, 'S', &[]), row(100, 90, 'S', &[]), row(101, 90, 'S', &[])];
    check(&question.recorded(&[(101, 5)]), rows, &[100], Empty);
    let rows = vec![row(100, 90, 'S', &[]), row(101, 100, 'S', &[])];
    check(&Question { leads_group: false, ..registered() }, rows, &[100], Empty);
}

#[test]
fn a_group_with_a_recycled_id_is_not_claimed() {
    for state in ['S', 'Z'] {
        let rows = vec![started(row(100, 100, state, &[]), 6), row(101, 100, 'S', &[])];
        check(&registered().recorded(&[(101, 5)]), rows, &[], Empty);
    }
    // A carrier belongs to the run, but its group does not.
    let rows = vec![started(row(100, 100, 'S', &[]), 6), row(101, 100, 'S', &["r"]), row(102, 100, 'S', &[])];
    check(&spawned(), rows, &[101], Empty);
}

#[test]
fn a_group_without_a_witness_is_not_claimed() {
    let rows = || vec![row(101, 100, 'S', &[]), row(102, 100, 'S', &["other"])];
    check(&spawned(), rows(), &[], Unproven);
    check(&registered(), rows(), &[], Unproven);
    // The root's zombie is dead, but keeps its PID. So the group is Unproven and cannot be
    // another one.
    let mut rows = rows();
    rows.push(row(100, 100, 'Z', &[]));
    check(&registered(), rows, &[], Unproven);
}

#[test]
fn a_carrier_in_the_group_proves_it_when_the_root_is_gone() {
    let rows = vec![row(101, 100, 'S', &["r"]), row(102, 100, 'S', &[])];
    check(&spawned(), rows, &[101, 102], Ours);
}

#[test]
fn a_recorded_member_proves_the_group_while_it_is_in_it() {
    let rows = || vec![row(101, 100, 'S', &[]), row(102, 100, 'S', &[])];
    check(&registered().recorded(&[(7, 5), (101, 5)]), rows(), &[101, 102], Ours);
    check(&spawned().recorded(&[(101, 5)]), rows(), &[101, 102], Ours);
    let left = vec![row(101, 101, 'S', &[]), row(102, 100, 'S', &[])];
    check(&registered().recorded(&[(101, 5)]), left, &[], Unproven);
    let dead = vec![row(101, 100, 'Z', &[]), row(102, 100, 'S', &[])];
    check(&registered().recorded(&[(101, 5)]), dead, &[], Unproven);
}

#[test]
fn a_recycled_member_proves_nothing() {
    let rows = || vec![row(101, 100, 'S', &[]), row(102, 100, 'S', &[])];
    check(&registered().recorded(&[(101, 4)]), rows(), &[], Unproven);
    let mut before_the_boot = registered().recorded(&[(101, 5)]);
    before_the_boot.members[0].boot = "another".into();
    check(&before_the_boot, rows(), &[], Unproven);
}

#[test]
fn a_dead_carrier_proves_nothing() {
    let rows = vec![row(101, 100, 'Z', &["r"]), row(102, 100, 'S', &[])];
    check(&spawned(), rows, &[], Unproven);
}

#[test]
fn a_group_in_another_session_is_not_the_group_of_a_spawned_run() {
    let rows = || {
        let mut row = row(102, 100, 'S', &[]);
        row.stat.session = 90;
        vec![row]
    };
    check(&spawned().recorded(&[(102, 5)]), rows(), &[], Empty);
    check(&registered().recorded(&[(102, 5)]), rows(), &[102], Ours);
}

#[test]
fn a_carrier_belongs_to_the_run_whichever_keeper_is_above_it() {
    let nested = || vec![child(50, 2, "owned-keeper", &["r"]), child(60, 50, "sh", &["r", "inner"])];
    check(&spawned(), nested(), &[50, 60], Empty);
    // The run's own keeper, which is not dead yet or has another version.
    let own = vec![child(50, 2, "owned-keeper", &[]), child(60, 50, "sh", &["r"])];
    check(&spawned(), own, &[60], Empty);
}

#[test]
fn a_carrier_that_is_older_than_the_root_is_no_member() {
    let aged = |start| vec![started(row(200, 200, 'S', &["r"]), start)];
    check(&spawned(), aged(4), &[], Empty);
    check(&spawned(), aged(5), &[200], Empty);
    check(&spawned(), aged(6), &[200], Empty);
    // It does not prove the group either.
    let rows = vec![started(row(101, 100, 'S', &["r"]), 4), row(102, 100, 'S', &[])];
    check(&spawned(), rows, &[], Unproven);
}

#[test]
fn without_a_key_no_process_is_a_member_because_of_its_cookie() {
    let old = Question { cookie_key: None, ..spawned() };
    check(&old, vec![row(200, 200, 'S', &["r"]), row(201, 201, 'S', &[""])], &[], Empty);
    check(&old, vec![row(101, 100, 'S', &["r"]), row(102, 100, 'S', &[])], &[], Unproven);
    check(&old, vec![row(100, 100, 'S', &[]), row(102, 100, 'S', &[])], &[100, 102], Ours);
}

#[test]
fn helpers_of_a_bot_inside_the_run_are_found_through_their_children() {
    let helpers = |start, comm| {
        let zygote = started(hidden(child(50, 2, comm, &[])), start);
        let keeper = started(hidden(child(51, 50, comm, &[])), start);
        vec![zygote, keeper, started(child(60, 51, "sh", &["r"]), 9)]
    };
    check(&spawned(), helpers(8, "owned-keeper"), &[50, 51, 60], Empty);
    // The run's own helpers started before its root or at the same time.
    check(&spawned(), helpers(4, "owned-keeper"), &[60], Empty);
    check(&spawned(), helpers(5, "owned-keeper"), &[60], Empty);
    // Other programs that start a process for the run are no members.
    check(&spawned(), helpers(8, "tmux: server"), &[60], Empty);
    // A helper whose environment shows that it is no member.
    let mut seen = helpers(8, "owned-keeper");
    seen[1].carried = Carried::Keys(Vec::new());
    check(&spawned(), seen, &[60], Empty);
}

#[test]
fn a_helper_is_not_claimed_if_only_some_of_its_children_are() {
    let at_8 = |row| started(row, 8);
    let helper = |pid, ppid| at_8(hidden(child(pid, ppid, "owned-keeper", &[])));
    let command = |pid, ppid, keys: &[&str]| at_8(child(pid, ppid, "sh", keys));
    // Another bot's keeper. One of its two children has copied a member's environment.
    let keeper = |second: Row| vec![helper(50, 2), helper(51, 50), command(60, 51, &["r"]), second];
    check(&spawned(), keeper(command(61, 51, &[])), &[60], Empty);
    check(&spawned(), keeper(command(61, 51, &["other"])), &[60], Empty);
    check(&spawned(), keeper(hidden(command(61, 51, &[]))), &[60], Empty);
    let above_us = Question { off_limits: HashSet::from([61]), ..spawned() };
    check(&above_us, keeper(command(61, 51, &["r"])), &[60], Empty);
    // The keeper of a bot inside the run. Each of its children is claimed for another reason,
    // or dead.
    check(&spawned(), keeper(command(61, 51, &["r"])), &[50, 51, 60, 61], Empty);
    let known = Question { known: Known::from([(61, 8)]), ..spawned() };
    check(&known, keeper(command(61, 51, &[])), &[50, 51, 60, 61], Empty);
    let mut dead = command(61, 51, &[]);
    dead.stat.state = 'Z';
    check(&spawned(), keeper(dead), &[50, 51, 60], Empty);

    // A zygote with two keepers.
    let zygote = |keys: &[&str]| {
        let keepers = [helper(50, 2), helper(51, 50), helper(52, 50)];
        keepers.into_iter().chain([command(60, 51, &["r"]), command(61, 52, keys)]).collect()
    };
    check(&spawned(), zygote(&[]), &[51, 60], Empty);
    check(&spawned(), zygote(&["other"]), &[51, 60], Empty);
    check(&spawned(), zygote(&["r"]), &[50, 51, 52, 60, 61], Empty);
}

#[test]
fn a_carrier_in_another_group_is_a_member_but_its_group_is_not() {
    let rows = vec![row(200, 200, 'S', &["r"]), row(201, 200, 'S', &[])];
    check(&spawned(), rows, &[200], Empty);
}

#[test]
fn a_descendant_of_a_member_is_a_member() {
    let rows = || {
        vec![
            child(101, 100, "x", &[]),
            child(102, 101, "x", &[]),
            child(103, 7, "x", &[]),
            row(100, 100, 'S', &[]),
        ]
    };
    check(&registered(), rows(), &[100, 101, 102], Ours);
    check(&Question { leads_group: false, ..registered() }, rows(), &[100, 101, 102], Empty);
}

#[test]
fn a_recycled_parent_pid_proves_no_descent() {
    let younger = vec![started(row(100, 100, 'S', &[]), 5), started(child(101, 100, "x", &[]), 4)];
    check(&registered(), younger, &[100], Ours);
    let recycled = vec![started(row(100, 100, 'S', &[]), 6), started(child(101, 100, "x", &[]), 7)];
    check(&registered(), recycled, &[], Empty);
}

#[test]
fn a_process_that_was_proven_before_stays_a_member_and_so_do_its_descendants() {
    let rows = || vec![child(101, 2, "x", &[]), child(102, 101, "x", &[]), row(103, 100, 'S', &[])];
    let known = |pairs: &[(i32, u64)]| Question { known: pairs.iter().copied().collect(), ..registered() };
    check(&known(&[(101, 5)]), rows(), &[101, 102], Unproven);
    check(&known(&[(101, 4)]), rows(), &[], Unproven);
}

#[test]
fn processes_in_the_cgroup_and_their_descendants_are_members() {
    let inside = |inside: &[i32]| Question { inside: inside.to_vec(), ..spawned() };
    let rows = || vec![row(200, 200, 'S', &[]), child(201, 200, "x", &[]), row(300, 300, 'S', &[])];
    check(&inside(&[200]), rows(), &[200, 201], Empty);
    check(&inside(&[]), rows(), &[], Empty);
    // Exited since the scan, started after it, or dead.
    check(&inside(&[400]), rows(), &[], Empty);
    check(&inside(&[200]), vec![row(200, 200, 'Z', &[])], &[], Empty);
}

#[test]
fn a_process_in_the_cgroup_does_not_prove_another_group() {
    let question = Question { inside: vec![200], ..spawned() };
    let rows = vec![row(200, 200, 'S', &[]), row(201, 200, 'S', &[]), row(102, 100, 'S', &[])];
    check(&question, rows, &[200], Unproven);
}

#[test]
fn this_process_its_ancestors_and_init_are_never_members_and_prove_nothing() {
    for pid in [1, 100] {
        let root = ProcessRef::known(pid, 5);
        let question = Question { root, off_limits: HashSet::from([100]), ..registered() };
        let rows = vec![row(pid, pid, 'S', &[]), row(101, pid, 'S', &[]), child(102, pid, "x", &[])];
        check(&question, rows, &[], Unproven);
    }
    let ourselves = Question { off_limits: HashSet::from([101]), ..spawned() };
    let rows = || vec![row(101, 100, 'S', &["r"]), row(102, 100, 'S', &[]), child(103, 101, "x", &[])];
    check(&ourselves, rows(), &[], Unproven);
    check(&Question { inside: vec![1, 101], ..ourselves }, rows(), &[], Unproven);
}

#[test]
fn a_run_from_another_boot_has_no_members_and_one_from_another_namespace_is_unproven() {
    let rows = || vec![row(100, 100, 'S', &["r"]), row(101, 100, 'S', &["r"])];
    let mut question = spawned();
    question.root.boot = "another".into();
    check(&question, rows(), &[], Empty);
    let mut question = spawned();
    question.root.ns += 1;
    check(&question, rows(), &[], Unproven);
}

#[test]
fn a_loop_of_stale_parent_links_ends() {
    let rows = vec![child(50, 60, "x", &["r"]), child(60, 50, "x", &["r"])];
    check(&spawned(), rows, &[50, 60], Empty);
}
