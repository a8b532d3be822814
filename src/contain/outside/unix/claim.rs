//! Decides which processes of a scan belong to a run. Pure: a scan in, claims out.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use super::scan::Scan;
use super::{GroupState, Target};
use crate::contain::tree;
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, State};

/// Why a process belongs to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// Its identity is known, or it carries the run's key.
    Itself,
    /// It is in the run's cgroup.
    InCgroup,
    /// It is in the run's group. The witness proves that the group is the run's.
    Group { witness: i32 },
    /// It is a child of a member.
    ChildOf(i32),
    /// It is a keeper or zygote of a bot inside the run: the parent of a member.
    HelperAbove(i32),
}

#[derive(Debug)]
pub(super) struct Claim<'a> {
    pub stat: &'a Stat,
    pub proof: Proof,
}

/// Processes by identity: PID and start token, valid for this boot and PID namespace.
pub(super) type Known = HashMap<i32, u64>;

/// Returns every living process that belongs to the run. A process that a proof refers to comes
/// before it in the list.
///
/// The group is the run's if the living root leads it, or if a process that belongs to the run by
/// itself is in it. Such a witness shows that the group has existed without a break, so its ID was
/// not reused. Without a witness, a group with the root's PID may be another one. If another
/// process has that PID, it is another one.
///
/// `inside` are the processes in the run's cgroup. All descendants of members are members. `known`
/// are processes that were proven before: they belong to the run even if that proof is gone.
pub(super) fn ours<'a>(scan: &'a Scan, target: &Target, known: &Known, inside: &[i32]) -> Vec<Claim<'a>> {
    let mut claims = Claims::default();
    if target.root.state_without_lookup().is_some() {
        return claims.list;
    }
    claims.add_all(by_themselves(scan, target, known), Proof::Itself);
    // If this process or an ancestor is in the group, the group contains more than the run.
    if let Some(witness) = witness(target, &claims.list).filter(|_| !scan.is_shared(target.root.pid)) {
        claims.add_all(group(scan, target), Proof::Group { witness });
    }
    claims.add_all(inside.iter().filter_map(|&pid| scan.touchable(pid)), Proof::InCgroup);
    let mut next = if target.alone { claims.list.len() } else { 0 };
    while let Some(parent) = claims.list.get(next).map(|claim| claim.stat) {
        let children = scan.children(parent.pid).filter(|child| tree::is_child(child, parent));
        claims.add_all(children, Proof::ChildOf(parent.pid));
        // A helper is claimed with its last child: only then are all its children claimed.
        let helper = nested_helper(scan, target, parent, &claims.pids);
        claims.add_all(helper.into_iter(), Proof::HelperAbove(parent.pid));
        next += 1;
    }
    claims.list
}

/// Returns the state of the run's group, see [`GroupState`].
pub(super) fn group_state(scan: &Scan, target: &Target) -> GroupState {
    match target.root.state_without_lookup() {
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

/// The processes that belong to the run by themselves: the root, known identities, and carriers of
/// the key. A carrier that is older than the root cannot have inherited the key, so it is no
/// member.
fn by_themselves<'a>(scan: &'a Scan, target: &Target, known: &Known) -> impl Iterator<Item = &'a Stat> {
    let known = known.iter().map(|(&pid, &start)| ProcessRef::known(pid, start));
    let known: Vec<_> = known.filter_map(|process| scan.find(&process)).collect();
    let carriers = target.cookie_key.into_iter().flat_map(|key| scan.carriers(key));
    let carriers: Vec<_> = carriers.filter(|stat| stat.start >= target.root.start).collect();
    let recorded = target.members.iter().filter_map(|member| scan.find(member));
    let recorded: Vec<_> =
        recorded.filter(|stat| is_group_possible(scan, target) && target.has_in_group(stat)).collect();
    scan.find(target.root).into_iter().chain(known).chain(carriers).chain(recorded)
}

/// Returns the keeper or zygote above a member, if it belongs to a bot inside the run.
///
/// Without privileges its environment cannot be read, so its position proves it. All ancestors of
/// the root are older than the root. So an ancestor of a member that is younger than the root is
/// below the root. Only helpers count: a server of another session may have started a carrier for
/// the run, and is also younger.
///
/// All living children of the helper must be claimed already. A command of another bot may have
/// copied a member's environment. That must not lead to the other bot's keepers and zygote, and so
/// to all its runs. A helper that is not claimed for this reason ends with its bot.
fn nested_helper<'a>(
    scan: &'a Scan,
    target: &Target,
    member: &Stat,
    claimed: &HashSet<i32>,
) -> Option<&'a Stat> {
    target.cookie_key?;
    let helper = scan.hidden_helper_above(member).filter(|helper| helper.start > target.root.start)?;
    scan.are_all_children_in(helper.pid, claimed).then_some(helper)
}

/// Members of the group that may be the run's.
fn group<'a>(scan: &'a Scan, target: &Target) -> impl Iterator<Item = &'a Stat> {
    let is_possible = is_group_possible(scan, target);
    scan.group(target.root.pid).filter(move |stat| is_possible && target.has_in_group(stat))
}

/// Returns whether the run's group can still exist. The kernel does not reuse a PID while a group
/// has it as ID. So if another process has the root's PID, even as a zombie, the run's group ended
/// before, and a group with that ID is not the run's.
fn is_group_possible(scan: &Scan, target: &Target) -> bool {
    target.leads_group && scan.holder(target.root.pid).is_none_or(|stat| stat.start == target.root.start)
}

/// Returns the PID of a process that proves the group, among those that belong to the run by
/// themselves.
fn witness(target: &Target, claims: &[Claim]) -> Option<i32> {
    let is_witness = |stat: &Stat| stat.pid == target.root.pid || target.has_in_group(stat);
    claims.iter().map(|claim| claim.stat).find(|stat| is_witness(stat)).map(|stat| stat.pid)
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
