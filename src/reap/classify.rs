//! Decides what to do with a registry entry. Pure: observed facts in, a decision out.
//!
//! `observe` reads the facts one after the other, while processes start and end. So they can be out
//! of date when `end` obeys the decision. That is safe: `end` verifies the identity of every process
//! again before it signals, and a dead process does not come back. See [`Via`].

mod facts;
mod reason;
#[cfg(test)]
mod tests;

pub use self::facts::{Boot, Facts, Group, Keeper, Lease, Namespace, Owner, Protected, Root};
pub use self::reason::Reason;
use crate::registry;

/// The result of [`classify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub action: Action,
    pub reason: Reason,
}

/// What the reaper does with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The run has an owner or needs none, or a policy leaves it. It is not touched.
    Leave,
    /// Nothing of the run is alive; remove the entry.
    Drop,
    /// The same, and another process has its PID. The report says that it is left alone.
    DropReused,
    /// Do nothing and keep the entry. A later reaper, or one in another namespace, may know more.
    Skip,
    /// The run is an orphan, and the live processes are proven to belong to it.
    End(Via),
    /// A policy replaced `End` by this. If the run cannot be adopted, it is ended after all.
    Adopt(Via),
}

impl Action {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leave => "leave",
            Self::Drop => "drop",
            Self::DropReused => "drop-reused",
            Self::Skip => "skip",
            Self::End(_) => "end",
            Self::Adopt(_) => "adopt",
        }
    }
}

/// How to end a run. [`super::end::end`] obeys it, although the facts can be out of date:
///
/// - `Keeper`, and the keeper has died since: `end` checks it by its start token before each
///   attempt, and continues from outside.
/// - `Outside`, and a keeper is alive: impossible. A dead process stays dead, a start token never
///   names a second process, and an entry gets another keeper only together with another owner. Then
///   the claim fails, and `end` is not called.
/// - Members have exited, and their PIDs mean other processes: both ways verify the start token of
///   each process, with an open handle, before they signal it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Through the control socket of its keeper.
    Keeper,
    /// From outside: the verified root, its group, and carriers of the cookie key.
    Outside,
}

impl Via {
    /// The keeper knows the whole tree, and a message cannot reach a wrong process as a signal can.
    pub fn of(keeper: Keeper) -> Self {
        match keeper {
            Keeper::Alive => Self::Keeper,
            Keeper::None | Keeper::Dead => Self::Outside,
        }
    }
}

/// Decides by the first rule that applies:
///
/// 1. **Ownership** comes first: no fact about the run matters while it has an owner.
/// 2. **A recorded end** or **another boot**: nothing of the run can be alive. Processes that now
///    have its PIDs are not checked. This comes before the namespace, because namespace inode
///    numbers are meaningless across boots.
/// 3. **Another namespace**: its PIDs are not valid here, so all further facts are about other
///    processes.
/// 4. **A service** whose root is alive (or unknown) needs no owner. It outlives its bots and is
///    ended by name only. If its root has ended, the rest is an orphan like any other. This comes
///    before rule 5, because a run that is left alone needs no refusal.
/// 5. **A protected PID** is refused before any proof counts. An entry that names this process, its
///    ancestors or the system is wrong or dangerous, so its other fields deserve no trust either.
///    An entry of which nothing is left needs no refusal.
/// 6. **The keeper**, if it is alive: see [`Via::of`].
/// 7. **The root**, if it is proven alive; otherwise, if it has ended, any other proven member.
/// 8. The rest is unproven (skip) or gone (drop).
pub fn classify(facts: &Facts) -> Decision {
    ownership(facts)
        .or_else(|| ended_or_invisible(facts))
        .or_else(|| service(facts))
        .or_else(|| refusal(facts))
        .unwrap_or_else(|| orphan(facts))
}

/// Whether the decision can depend on members of the tree other than the root and the keeper. Only
/// then is a scan of all processes necessary.
pub fn depends_on_members(facts: &Facts) -> bool {
    let is_decided =
        ownership(facts).or_else(|| ended_or_invisible(facts)).or_else(|| service(facts)).is_some();
    !is_decided && facts.keeper != Keeper::Alive
}

/// Leaves runs that have an owner. A live owner keeps its runs even with an expired lease (a laptop
/// slept), unless the caller wants them. An owner whose state is unknown counts as alive while its
/// lease is valid, and also if the entry has no lease: missing information is no permission.
fn ownership(facts: &Facts) -> Option<Decision> {
    let reason = match (facts.owner, facts.lease) {
        (Owner::Me, _) => Reason::Mine,
        (Owner::Alive, Lease::Valid | Lease::None) => Reason::OwnerAlive,
        (Owner::Alive, Lease::Expired) if !facts.steal_from_live => Reason::LeaseExpired,
        (Owner::Unknown, Lease::Valid | Lease::None) => Reason::OwnerUnknown,
        (Owner::Alive | Owner::Unknown, Lease::Expired) | (Owner::Dead, _) => return None,
    };
    Some(Decision { action: Action::Leave, reason })
}

/// Handles runs that cannot be alive, and runs that are not visible from this namespace.
fn ended_or_invisible(facts: &Facts) -> Option<Decision> {
    if facts.state == registry::State::Exited {
        return Some(dead(Reason::EndRecorded));
    }
    if facts.boot == Boot::Other {
        return Some(dead(Reason::OtherBoot));
    }
    (facts.namespace == Namespace::Other).then(|| skip(Reason::OtherNamespace))
}

fn service(facts: &Facts) -> Option<Decision> {
    // An unknown root may be a working service.
    let runs = facts.service && matches!(facts.root, Root::Alive | Root::Unknown);
    runs.then_some(Decision { action: Action::Leave, reason: Reason::Service })
}

fn refusal(facts: &Facts) -> Option<Decision> {
    let protected = facts.protected?;
    let nothing_left = matches!(orphan(facts).action, Action::Drop | Action::DropReused);
    (!nothing_left).then(|| skip(Reason::Refused(protected)))
}

/// Decides about a run of this boot and namespace that has no owner.
fn orphan(facts: &Facts) -> Decision {
    let has_member = facts.group == Group::Ours || facts.carriers;
    let end = |reason| Decision { action: Action::End(Via::of(facts.keeper)), reason };
    match facts.root {
        _ if facts.keeper == Keeper::Alive => end(Reason::KeeperAlive),
        Root::Alive => end(Reason::RootAlive),
        // Members are proven by their relation to the root. If it is unknown, nothing is proven.
        Root::Unknown => skip(Reason::RootUnknown),
        Root::Exited | Root::Recycled if has_member => end(Reason::DetachedOrphaned),
        // The kernel reuses a PID only when no process *and no group* has it. So the run's group
        // was empty before the other process got the PID, and the group that has the ID now belongs
        // to that process: nothing of the run is left. The report mentions the reused PID.
        Root::Recycled => Decision { action: Action::DropReused, reason: Reason::PidReused },
        // The group may have outlived its leader, or may be a later group whose leader has ended
        // too.
        Root::Exited if facts.group == Group::Unproven => skip(Reason::GroupUnproven),
        Root::Exited if facts.keyless => dead(Reason::GoneKeyless),
        Root::Exited => dead(Reason::Gone),
    }
}

fn dead(reason: Reason) -> Decision {
    Decision { action: Action::Drop, reason }
}

fn skip(reason: Reason) -> Decision {
    Decision { action: Action::Skip, reason }
}
