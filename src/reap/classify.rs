//! What is to become of an entry. Pure: observed facts in, a decision out.
//!
//! The facts are read by somebody else, one after the other, while processes come and go. So a decision to end something is
//! only permission to try: whoever carries it out names every process by its identity again, and that has the last word.

#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;

use crate::registry;

/// All that a decision rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    pub owner: Owner,
    pub lease: Lease,
    /// The caller wants expired leases even of owners that are alive.
    #[serde(skip)]
    pub steal_from_live: bool,
    pub boot: Boot,
    pub namespace: Namespace,
    pub root: Root,
    pub group: Group,
    pub keeper: Keeper,
    /// Living processes carry the run's cookie.
    #[serde(serialize_with = "in_words")]
    pub carriers: bool,
    /// The entry says that it is a service.
    #[serde(serialize_with = "in_words", skip_serializing_if = "std::ops::Not::not")]
    pub service: bool,
    /// What the entry says.
    pub state: registry::State,
    /// Why the entry's number must not be signalled, whatever it stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protected: Option<Protected>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde wants it.
fn in_words<S: serde::Serializer>(fact: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(fact)
}

/// The bot that answers for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// This very bot, by PID *and* start token: a restarted container gives the same PID again.
    Me,
    Alive,
    Dead,
    /// It cannot be judged: no token, another namespace, unreadable.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lease {
    Valid,
    Expired,
    /// An old entry: there were no leases.
    None,
}

/// The boot in which the run was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boot {
    Same,
    Other,
    /// An old entry, without a token.
    Unknown,
}

/// The PID namespace in which the run was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Namespace {
    Same,
    Other,
    /// An old entry, without a token.
    Unknown,
}

/// The recorded process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Root {
    Alive,
    /// Gone, or a zombie.
    Exited,
    /// Its number belongs to another process.
    Recycled,
    /// Unreadable, or an old entry whose age does not agree with that of the process.
    Unknown,
}

/// The group that has the recorded process's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    Empty,
    /// A verified member vouches for it.
    Ours,
    /// Somebody is in it, and nobody proves that it is ours.
    Unproven,
    /// The recorded process was in somebody else's group: there is none that is ours.
    NotLed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keeper {
    /// A registered process, or an old entry.
    None,
    Alive,
    Dead,
}

/// A PID that orphan tools never signal, even if the file says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protected {
    PidOne,
    /// Below 100: the system's.
    Low,
    Ourselves,
    Ancestor,
}

/// See [`classify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub action: Action,
    pub reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Somebody answers for it: not our business, and not in the report.
    Leave,
    /// Nothing of it is left; the entry goes.
    Drop { report: Report },
    /// Hands off, and the entry stays: somebody may be able to tell later, or elsewhere.
    Skip,
    /// It is an orphan, and proven to be the run.
    End(Via),
}

/// Where people find an entry that was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    AlreadyDead,
    /// Something is alive under its number and was left alone. That is worth saying, although the entry goes.
    Skipped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Asked over its socket.
    Keeper,
    /// Verified root, its group, and carriers of the cookie.
    Outside,
}

/// Why, in a sentence for people (`Display`) and in a stable word for logs ([`Reason::word`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Mine,
    OwnerAlive,
    LeaseExpired,
    OwnerUnknown,
    Service,
    EndRecorded,
    OtherBoot,
    OtherNamespace,
    Refused(Protected),
    KeeperAlive,
    RootAlive,
    RootUnknown,
    MembersAlive,
    DetachedOrphaned,
    PidReused,
    GroupUnproven,
    Gone,
}

/// The rules, in this order:
///
/// 1. **Whose is it?** Before anything else, because no fact about the run makes it ours as long as somebody answers for it.
/// 2. **Its end is recorded**, or it belongs to **another boot**: nothing of it can be alive, so nothing that is alive under
///    its numbers is looked at. Before the namespace: inode numbers of namespaces mean nothing across boots.
/// 3. **Another namespace**: its numbers are not our numbers, so all the facts below are about strangers.
/// 4. **A service** whose root is proven alive needs no owner: it outlives its bots, and is ended by name only. Its remains are an
///    orphan's like any other's. Before the refusal: what is left alone need not be refused.
/// 5. **A protected number** is refused before any proof is heard, because a file that names us, our ancestors or the system is
///    wrong, and then its other fields deserve no trust either. Only an entry of which nothing is left needs no refusal.
/// 6. **The keeper**, if it lives: it knows the whole tree, and a message cannot reach a stranger as a signal can.
/// 7. **The root**, if it is proven alive; and otherwise whoever else is proven to belong to the run.
/// 8. What is left is unproven (hands off) or gone.
pub fn classify(facts: &Facts) -> Decision {
    claim_of_others(facts)
        .or_else(|| elsewhere(facts))
        .or_else(|| service(facts))
        .or_else(|| refusal(facts))
        .unwrap_or_else(|| orphan(facts))
}

/// An owner that is alive keeps its runs even if its lease ran out (a laptop slept), unless the caller wants them. One that
/// cannot be judged is taken to be alive as long as its lease says so; one that never had a lease says nothing at all, and
/// silence is no permission.
fn claim_of_others(facts: &Facts) -> Option<Decision> {
    let reason = match (facts.owner, facts.lease) {
        (Owner::Me, _) => Reason::Mine,
        (Owner::Alive, Lease::Valid | Lease::None) => Reason::OwnerAlive,
        (Owner::Alive, Lease::Expired) if !facts.steal_from_live => Reason::LeaseExpired,
        (Owner::Unknown, Lease::Valid | Lease::None) => Reason::OwnerUnknown,
        (Owner::Alive | Owner::Unknown, Lease::Expired) | (Owner::Dead, _) => return None,
    };
    Some(Decision { action: Action::Leave, reason })
}

/// What cannot be alive, and what cannot be seen from here.
fn elsewhere(facts: &Facts) -> Option<Decision> {
    if facts.state == registry::State::Exited {
        return Some(dead(Reason::EndRecorded));
    }
    if facts.boot == Boot::Other {
        return Some(dead(Reason::OtherBoot));
    }
    (facts.namespace == Namespace::Other).then(|| skip(Reason::OtherNamespace))
}

fn service(facts: &Facts) -> Option<Decision> {
    // One that cannot be judged may well do its work.
    let runs = facts.service && matches!(facts.root, Root::Alive | Root::Unknown);
    runs.then_some(Decision { action: Action::Leave, reason: Reason::Service })
}

fn refusal(facts: &Facts) -> Option<Decision> {
    let protected = facts.protected?;
    let nothing_left = matches!(orphan(facts).action, Action::Drop { .. });
    (!nothing_left).then(|| skip(Reason::Refused(protected)))
}

/// Nobody answers for it, and it was started here.
fn orphan(facts: &Facts) -> Decision {
    let member = facts.group == Group::Ours || facts.carriers;
    match facts.root {
        _ if facts.keeper == Keeper::Alive => end(Via::Keeper, Reason::KeeperAlive),
        Root::Alive => end(Via::Outside, Reason::RootAlive),
        Root::Unknown if member => end(Via::Outside, Reason::MembersAlive),
        Root::Unknown => skip(Reason::RootUnknown),
        Root::Exited | Root::Recycled if member => end(Via::Outside, Reason::DetachedOrphaned),
        // The kernel hands a number out again only when no process *and no group* has it any more. So our group was empty
        // before the stranger came, and whatever group has the number now is the stranger's: nothing of ours is left. That
        // something is alive under the number is said all the same.
        Root::Recycled => {
            Decision { action: Action::Drop { report: Report::Skipped }, reason: Reason::PidReused }
        }
        // Here the group may have outlived its leader, or may be a later one whose leader is gone as well.
        Root::Exited if facts.group == Group::Unproven => skip(Reason::GroupUnproven),
        Root::Exited => dead(Reason::Gone),
    }
}

fn dead(reason: Reason) -> Decision {
    Decision { action: Action::Drop { report: Report::AlreadyDead }, reason }
}

fn skip(reason: Reason) -> Decision {
    Decision { action: Action::Skip, reason }
}

fn end(via: Via, reason: Reason) -> Decision {
    Decision { action: Action::End(via), reason }
}

impl Reason {
    /// Never changes: people search their logs for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Mine => "own-run",
            Self::OwnerAlive => "owner-alive",
            Self::LeaseExpired => "lease-expired-owner-alive",
            Self::OwnerUnknown => "owner-unknown",
            Self::Service => "service",
            Self::EndRecorded => "end-recorded",
            Self::OtherBoot => "other-boot",
            Self::OtherNamespace => "other-namespace",
            Self::Refused(Protected::PidOne) => "refused-pid-1",
            Self::Refused(Protected::Low) => "refused-low-pid",
            Self::Refused(Protected::Ourselves) => "refused-ourselves",
            Self::Refused(Protected::Ancestor) => "refused-ancestor",
            Self::KeeperAlive => "keeper-alive",
            Self::RootAlive => "root-alive",
            Self::RootUnknown => "identity-unknown",
            Self::MembersAlive => "members-alive",
            Self::DetachedOrphaned => "detached-orphaned",
            Self::PidReused => "pid-reused",
            Self::GroupUnproven => "group-unproven",
            Self::Gone => "already-gone",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mine => "it is this bot's own run",
            Self::OwnerAlive => "its owner is alive",
            Self::LeaseExpired => "its owner's lease has expired, but the owner is alive",
            Self::OwnerUnknown => {
                "whether its owner is alive cannot be told, so the owner is taken to be alive"
            }
            Self::Service => "it is a service, which needs no owner: only stopService or a cancel ends it",
            Self::EndRecorded => "its end was recorded when its owner was gone",
            Self::OtherBoot => "it was started in another boot: nothing of it can be alive",
            Self::OtherNamespace => "it was started in another PID namespace: its numbers mean nothing here",
            Self::Refused(Protected::PidOne) => "refused: PID 1 is never signalled",
            Self::Refused(Protected::Low) => "refused: PIDs below 100 are never signalled",
            Self::Refused(Protected::Ourselves) => "refused: the entry names this very process",
            Self::Refused(Protected::Ancestor) => "refused: the entry names an ancestor of this process",
            Self::KeeperAlive => "no owner answers for it, and its keeper is alive",
            Self::RootAlive => "no owner answers for it, and the recorded process is alive",
            Self::RootUnknown => "whether the process with its PID is the recorded one cannot be told",
            Self::MembersAlive => {
                "no owner answers for it, and members of its tree are alive; its root cannot be judged"
            }
            Self::DetachedOrphaned => "its owner and its root are gone, but members of its tree are alive",
            Self::PidReused => "its PID was reused: the process that has it now is another one",
            Self::GroupUnproven => {
                "its root is gone; its group's number is in use, but nobody proves that it is ours"
            }
            Self::Gone => "nothing of it is left",
        })
    }
}
