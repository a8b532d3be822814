//! The reason for a decision, as a sentence for people and as a word for logs.

use std::fmt;

use super::Protected;

/// The reason for a decision: a sentence for people (`Display`), and a stable word for logs
/// ([`Reason::word`]).
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
    DetachedOrphaned,
    PidReused,
    GroupUnproven,
    GoneKeyless,
    Gone,
}

impl Reason {
    /// A stable word. It never changes, because users search logs for it.
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
            Self::DetachedOrphaned => "detached-orphaned",
            Self::PidReused => "pid-reused",
            Self::GroupUnproven => "group-unproven",
            Self::GoneKeyless => "gone-without-key",
            Self::Gone => "already-gone",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mine => "this bot owns the run",
            Self::OwnerAlive => "its owner is alive, so it is no orphan",
            Self::LeaseExpired => {
                "its owner is alive, although its lease has expired (pass stealFromLive to take the run)"
            }
            Self::OwnerUnknown => {
                "its owner cannot be checked (no start token, another namespace, or unreadable), so it counts as alive"
            }
            Self::Service => "it is a service, which needs no owner; only stopService or cancel ends it",
            Self::EndRecorded => "the registry records that the run has ended, so nothing of it is alive",
            Self::OtherBoot => "it started in another boot, so nothing of it can be alive",
            Self::OtherNamespace => "it started in another PID or time namespace, so its PID and start token are not valid here",
            Self::Refused(Protected::PidOne) => "refused: the entry names PID 1, which is never signalled",
            Self::Refused(Protected::Low) if cfg!(windows) => {
                "refused: the entry names a PID below 8; such PIDs belong to the system and are never signalled"
            }
            Self::Refused(Protected::Low) => {
                "refused: the entry names a PID below 100; such PIDs belong to the system and are never signalled"
            }
            Self::Refused(Protected::Ourselves) => {
                "refused: this process is the recorded process or a part of the run, so ending the run could end this process"
            }
            Self::Refused(Protected::Ancestor) => {
                "refused: the entry names an ancestor of this process, so ending the run could end this process"
            }
            Self::KeeperAlive => "its owner is gone or its lease has expired, and its keeper is alive",
            Self::RootAlive => {
                "its owner is gone or its lease has expired, and the recorded process is alive"
            }
            Self::RootUnknown => {
                "a process has its PID, but its identity cannot be verified, so it is not signalled"
            }
            Self::DetachedOrphaned => {
                "its owner is gone or its lease has expired, and its root process has ended, \
                 but verified members of its tree are alive"
            }
            Self::PidReused => {
                "nothing of it is alive: its PID was reused by another process, which is left alone"
            }
            Self::GroupUnproven => {
                "its root process has ended; its process group may have members, but none of them is proven \
                 to belong to the run, so none is signalled"
            }
            Self::GoneKeyless => {
                "its root process and its process group have ended; an older version wrote the entry without a cookie key, \
                 so processes that left the group cannot be found"
            }
            Self::Gone => "none of its processes is alive",
        })
    }
}
