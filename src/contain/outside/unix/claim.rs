//! Who belongs to a run, according to one look. Pure: a scan in, claims out.

use std::collections::{HashMap, HashSet};

use super::scan::{Row, Scan};
use super::{GroupState, Target};
use crate::contain::tree;
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, State};

/// What makes a process the run's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// It is known by its identity, or carries the run's id.
    Itself,
    /// It is in the run's cgroup.
    InCgroup,
    /// It is in the run's group, which is the run's because of the witness.
    Group { witness: i32 },
    /// It is a child of one that is the run's.
    ChildOf(i32),
}

#[derive(Debug)]
pub(super) struct Claim<'a> {
    pub stat: &'a Stat,
    pub proof: Proof,
}

/// Processes by their identity: number and start token, here and now.
pub(super) type Known = HashMap<i32, u64>;

/// Everybody who is alive and belongs to the run. Whoever a proof refers to comes before it.
///
/// The group is the run's if the living root has led it, or if one that is the run's by itself is in it: then its number has not
/// been given to anybody else since. Without such a witness a group with the root's number may be a stranger's, and if somebody
/// else has that number, it is.
///
/// `inside` are those in the run's cgroup, wherever else they went. Whatever descends from a member is a member. `known` are those that were proven before: they are the run's even if what
/// has proven it is gone.
pub(super) fn ours<'a>(scan: &'a Scan, target: &Target, known: &Known, inside: &[i32]) -> Vec<Claim<'a>> {
    let mut claims = Claims::default();
    if target.root.without_a_look().is_some() {
        return claims.list;
    }
    claims.add_all(by_themselves(scan, target, known), Proof::Itself);
    // A group that we are in, or our ancestors, holds more than the run.
    if let Some(witness) = witness(target, &claims.list).filter(|_| !scan.is_shared(target.root.pid)) {
        claims.add_all(group(scan, target), Proof::Group { witness });
    }
    claims.add_all(inside.iter().filter_map(|&pid| scan.touchable(pid)), Proof::InCgroup);
    let mut next = 0;
    while let Some(parent) = claims.list.get(next).map(|claim| claim.stat) {
        let children = scan.children(parent.pid).filter(|child| tree::is_child(child, parent));
        claims.add_all(children, Proof::ChildOf(parent.pid));
        next += 1;
    }
    claims.list
}

/// What is to be said of the run's group, see [`GroupState`].
pub(super) fn group_state(scan: &Scan, target: &Target) -> GroupState {
    match target.root.without_a_look() {
        Some(State::Unknown) => return GroupState::Unproven,
        Some(_) => return GroupState::Empty,
        None => {}
    }
    if group(scan, target).next().is_none() {
        return GroupState::Empty;
    }
    let mut claims = Claims::default();
    claims.add_all(by_themselves(scan, target, &Known::new()), Proof::Itself);
    match witness(target, &claims.list) {
        Some(_) if !scan.is_shared(target.root.pid) => GroupState::Ours,
        _ => GroupState::Unproven,
    }
}

/// The root, those known by their identity, and the carriers of the cookie.
fn by_themselves<'a>(scan: &'a Scan, target: &Target, known: &Known) -> impl Iterator<Item = &'a Stat> {
    let known = known.iter().map(|(&pid, &start)| ProcessRef::known(pid, start));
    let known: Vec<_> = known.filter_map(|process| scan.find(&process)).collect();
    let carriers = target.run_id.into_iter().flat_map(|run_id| {
        let carriers = scan.carriers(run_id).filter(move |row| !is_kept_by_another(scan, row, run_id));
        carriers.map(|row| &row.stat)
    });
    let carriers: Vec<_> = carriers.collect();
    let recorded = target.members.iter().filter_map(|member| scan.find(member));
    let recorded: Vec<_> =
        recorded.filter(|stat| is_group_possible(scan, target) && target.has_in_group(stat)).collect();
    scan.find(target.root).into_iter().chain(known).chain(carriers).chain(recorded)
}

/// This run has lost its keeper. A carrier that has one, which is not itself part of the run, belongs to another bot that has
/// chosen the same run id. Our own keeper, if we are an owned run ourselves, is above everything here and says nothing. Nor does one that
/// is dead or about to be: the run's own may not have given its children away yet when its socket tells of its end.
fn is_kept_by_another(scan: &Scan, carrier: &Row, run_id: &str) -> bool {
    let carries = |row: &Row| row.runs.iter().any(|id| id == run_id);
    let is_going = |stat: &Stat| stat.is_dead() || stat.exiting;
    let keeps = |row: &Row| {
        row.stat.comm == crate::keeper::NAME
            && !is_going(&row.stat)
            && !carries(row)
            && !scan.is_above_us(row.stat.pid)
    };
    scan.line(carrier).any(keeps)
}

/// Who is in the group that may be the run's.
fn group<'a>(scan: &'a Scan, target: &Target) -> impl Iterator<Item = &'a Stat> {
    let is_possible = is_group_possible(scan, target);
    scan.group(target.root.pid).filter(move |stat| is_possible && target.has_in_group(stat))
}

/// The kernel does not give out a number while a group has it. So when somebody else has the root's, even if only as a zombie,
/// the run's group had come to its end before, and one with that number is theirs.
fn is_group_possible(scan: &Scan, target: &Target) -> bool {
    target.leads_group && scan.holder(target.root.pid).is_none_or(|stat| stat.start == target.root.start)
}

/// One who vouches for the group, among those that are the run's by themselves.
fn witness(target: &Target, claims: &[Claim]) -> Option<i32> {
    let vouches = |stat: &Stat| stat.pid == target.root.pid || target.has_in_group(stat);
    claims.iter().map(|claim| claim.stat).find(|stat| vouches(stat)).map(|stat| stat.pid)
}

#[derive(Default)]
struct Claims<'a> {
    list: Vec<Claim<'a>>,
    pids: HashSet<i32>,
}

impl<'a> Claims<'a> {
    fn add_all(&mut self, stats: impl Iterator<Item = &'a Stat>, proof: Proof) {
        for stat in stats {
            if self.pids.insert(stat.pid) {
                self.list.push(Claim { stat, proof });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that started at 5, below somebody unknown.
    fn row(pid: i32, pgrp: i32, state: char, runs: &[&str]) -> Row {
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
            runs: runs.iter().map(|&run| run.to_owned()).collect(),
        }
    }

    fn child(pid: i32, ppid: i32, comm: &str, runs: &[&str]) -> Row {
        let mut row = row(pid, pid, 'S', runs);
        (row.stat.ppid, row.stat.comm) = (ppid, comm.into());
        row
    }

    fn started(mut row: Row, start: u64) -> Row {
        row.stat.start = start;
        row
    }

    /// Asks about the process 100 that started at 5: as a run `r` that was spawned, or as one that was registered.
    struct Question {
        root: ProcessRef,
        leads_group: bool,
        run_id: Option<&'static str>,
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
            run_id: Some("r"),
            members: Vec::new(),
            known,
            inside,
            off_limits,
        }
    }

    fn registered() -> Question {
        Question { run_id: None, ..spawned() }
    }

    impl Question {
        fn recorded(self, members: &[(i32, u64)]) -> Self {
            let members = members.iter().map(|&(pid, start)| ProcessRef::known(pid, start)).collect();
            Self { members, ..self }
        }

        fn ask(&self, rows: Vec<Row>) -> (Vec<i32>, GroupState) {
            let Self { root, leads_group, run_id, members, .. } = self;
            let target = Target { root, leads_group: *leads_group, run_id: *run_id, members, cgroup: None };
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
    fn a_living_root_vouches_for_its_group() {
        let rows = || vec![row(100, 100, 'S', &[]), row(101, 100, 'S', &[]), row(7, 7, 'S', &[])];
        check(&spawned(), rows(), &[100, 101], Ours);
        check(&registered(), rows(), &[100, 101], Ours);
    }

    #[test]
    fn a_root_that_leads_no_group_takes_nobody_elses_along() {
        let question = Question { leads_group: false, ..registered() };
        let rows = vec![row(90, 90, 'S', &[]), row(100, 90, 'S', &[]), row(101, 90, 'S', &[])];
        check(&question.recorded(&[(101, 5)]), rows, &[100], Empty);
        let rows = vec![row(100, 90, 'S', &[]), row(101, 100, 'S', &[])];
        check(&Question { leads_group: false, ..registered() }, rows, &[100], Empty);
    }

    #[test]
    fn a_group_with_a_recycled_number_is_left_alone() {
        for state in ['S', 'Z'] {
            let rows = vec![started(row(100, 100, state, &[]), 6), row(101, 100, 'S', &[])];
            check(&registered().recorded(&[(101, 5)]), rows, &[], Empty);
        }
        // A carrier is the run's all the same, its group is not.
        let rows =
            vec![started(row(100, 100, 'S', &[]), 6), row(101, 100, 'S', &["r"]), row(102, 100, 'S', &[])];
        check(&spawned(), rows, &[101], Empty);
    }

    #[test]
    fn a_group_for_which_nobody_vouches_is_left_alone() {
        let rows = || vec![row(101, 100, 'S', &[]), row(102, 100, 'S', &["other"])];
        check(&spawned(), rows(), &[], Unproven);
        check(&registered(), rows(), &[], Unproven);
        // A zombie of the root is dead. It keeps its number, though, so the group is Unproven and not a stranger's.
        let mut rows = rows();
        rows.push(row(100, 100, 'Z', &[]));
        check(&registered(), rows, &[], Unproven);
    }

    #[test]
    fn a_carrier_in_the_group_vouches_for_it_when_the_root_is_gone() {
        let rows = vec![row(101, 100, 'S', &["r"]), row(102, 100, 'S', &[])];
        check(&spawned(), rows, &[101, 102], Ours);
    }

    #[test]
    fn a_recorded_member_vouches_for_the_group_while_it_is_in_it() {
        let rows = || vec![row(101, 100, 'S', &[]), row(102, 100, 'S', &[])];
        check(&registered().recorded(&[(7, 5), (101, 5)]), rows(), &[101, 102], Ours);
        check(&spawned().recorded(&[(101, 5)]), rows(), &[101, 102], Ours);
        let left = vec![row(101, 101, 'S', &[]), row(102, 100, 'S', &[])];
        check(&registered().recorded(&[(101, 5)]), left, &[], Unproven);
        let dead = vec![row(101, 100, 'Z', &[]), row(102, 100, 'S', &[])];
        check(&registered().recorded(&[(101, 5)]), dead, &[], Unproven);
    }

    #[test]
    fn a_recycled_member_vouches_for_nobody() {
        let rows = || vec![row(101, 100, 'S', &[]), row(102, 100, 'S', &[])];
        check(&registered().recorded(&[(101, 4)]), rows(), &[], Unproven);
        let mut before_the_boot = registered().recorded(&[(101, 5)]);
        before_the_boot.members[0].boot = "another".into();
        check(&before_the_boot, rows(), &[], Unproven);
    }

    #[test]
    fn a_dead_carrier_vouches_for_nobody() {
        let rows = vec![row(101, 100, 'Z', &["r"]), row(102, 100, 'S', &[])];
        check(&spawned(), rows, &[], Unproven);
    }

    #[test]
    fn a_group_in_another_session_is_not_that_of_a_spawned_run() {
        let rows = || {
            let mut row = row(102, 100, 'S', &[]);
            row.stat.session = 90;
            vec![row]
        };
        check(&spawned().recorded(&[(102, 5)]), rows(), &[], Empty);
        check(&registered().recorded(&[(102, 5)]), rows(), &[102], Ours);
    }

    #[test]
    fn a_carrier_with_a_keeper_of_its_own_is_another_bots() {
        let other = vec![
            child(50, 2, "owned-keeper", &[]),
            child(60, 50, "sh", &["r"]),
            child(61, 60, "sleep", &["r"]),
        ];
        check(&spawned(), other, &[], Empty);
        // A keeper that carries the id is that of a run within this run.
        let nested = vec![child(50, 2, "owned-keeper", &["r"]), child(60, 50, "sh", &["r", "inner"])];
        check(&spawned(), nested, &[50, 60], Empty);
    }

    #[test]
    fn a_carrier_whose_keeper_is_just_dying_is_ours() {
        let going = |mut keeper: Row, state: char, exiting: bool| {
            (keeper.stat.state, keeper.stat.exiting) = (state, exiting);
            vec![keeper, child(60, 50, "sh", &["r"])]
        };
        let keeper = || child(50, 2, "owned-keeper", &[]);
        check(&spawned(), going(keeper(), 'R', true), &[60], Empty);
        check(&spawned(), going(keeper(), 'Z', true), &[60], Empty);
        check(&spawned(), going(keeper(), 'S', false), &[], Empty);
    }

    #[test]
    fn a_carrier_elsewhere_is_ours_but_its_group_is_not() {
        let rows = vec![row(200, 200, 'S', &["r"]), row(201, 200, 'S', &[])];
        check(&spawned(), rows, &[200], Empty);
    }

    #[test]
    fn whoever_descends_from_a_member_is_one() {
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
    fn nobody_descends_from_a_recycled_number() {
        let younger = vec![started(row(100, 100, 'S', &[]), 5), started(child(101, 100, "x", &[]), 4)];
        check(&registered(), younger, &[100], Ours);
        let stranger = vec![started(row(100, 100, 'S', &[]), 6), started(child(101, 100, "x", &[]), 7)];
        check(&registered(), stranger, &[], Empty);
    }

    #[test]
    fn one_that_was_proven_before_stays_known_and_so_does_what_descends_from_it() {
        let rows = || vec![child(101, 2, "x", &[]), child(102, 101, "x", &[]), row(103, 100, 'S', &[])];
        let known =
            |pairs: &[(i32, u64)]| Question { known: pairs.iter().copied().collect(), ..registered() };
        check(&known(&[(101, 5)]), rows(), &[101, 102], Unproven);
        check(&known(&[(101, 4)]), rows(), &[], Unproven);
    }

    #[test]
    fn whoever_is_in_the_cgroup_is_the_runs_and_so_is_what_it_has_started() {
        let inside = |inside: &[i32]| Question { inside: inside.to_vec(), ..spawned() };
        let rows = || vec![row(200, 200, 'S', &[]), child(201, 200, "x", &[]), row(300, 300, 'S', &[])];
        check(&inside(&[200]), rows(), &[200, 201], Empty);
        check(&inside(&[]), rows(), &[], Empty);
        // Gone since the scan was taken, or come after it, or dead.
        check(&inside(&[400]), rows(), &[], Empty);
        check(&inside(&[200]), vec![row(200, 200, 'Z', &[])], &[], Empty);
    }

    #[test]
    fn one_in_the_cgroup_does_not_vouch_for_a_group_that_is_not_the_roots() {
        let question = Question { inside: vec![200], ..spawned() };
        let rows = vec![row(200, 200, 'S', &[]), row(201, 200, 'S', &[]), row(102, 100, 'S', &[])];
        check(&question, rows, &[200], Unproven);
    }

    #[test]
    fn we_our_ancestors_and_init_are_nobodys_members_and_prove_nothing() {
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
    fn nothing_is_left_from_another_boot_and_nothing_is_known_of_another_namespace() {
        let rows = || vec![row(100, 100, 'S', &["r"]), row(101, 100, 'S', &["r"])];
        let mut question = spawned();
        question.root.boot = "another".into();
        check(&question, rows(), &[], Empty);
        let mut question = spawned();
        question.root.ns += 1;
        check(&question, rows(), &[], Unproven);
    }

    #[test]
    fn a_loop_of_stale_links_ends() {
        let rows = vec![child(50, 60, "x", &["r"]), child(60, 50, "x", &["r"])];
        check(&spawned(), rows, &[50, 60], Empty);
    }
}
