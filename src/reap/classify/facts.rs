//! The facts about an entry that [`super::classify`] decides by.

use serde::Serialize;

use crate::registry;

/// All facts for one decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_excessive_bools)] // Independent observations; the report lists each by its name.
pub struct Facts {
    pub owner: Owner,
    pub lease: Lease,
    /// The caller also wants runs of a live owner whose lease has expired.
    #[serde(skip)]
    pub steal_from_live: bool,
    pub boot: Boot,
    pub namespace: Namespace,
    pub root: Root,
    pub group: Group,
    pub keeper: Keeper,
    /// Live processes carry the run's cookie key. Searched for only if the decision depends on it.
    #[serde(serialize_with = "as_text")]
    pub carriers: bool,
    /// A spawned run whose entry has no cookie key, because an older version wrote it. So its
    /// carriers cannot be recognized.
    #[serde(serialize_with = "as_text", skip_serializing_if = "std::ops::Not::not")]
    pub keyless: bool,
    /// The entry is a service.
    #[serde(serialize_with = "as_text", skip_serializing_if = "std::ops::Not::not")]
    pub service: bool,
    /// The state in the entry.
    pub state: registry::State,
    /// Why the entry's PID must never be signalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protected: Option<Protected>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires this signature.
fn as_text<S: serde::Serializer>(fact: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(fact)
}

/// The bot that owns the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// This bot, by PID *and* start token: after a container restart another bot can have the same
    /// PID.
    Me,
    Alive,
    Dead,
    /// The owner's state is unknown: no start token, another namespace, or unreadable.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lease {
    Valid,
    Expired,
    /// An entry of an old format, without leases.
    None,
}

/// The boot in which the run started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boot {
    Same,
    Other,
    /// An entry of an old format, without a start token.
    Unknown,
}

/// The PID namespace in which the run started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Namespace {
    Same,
    Other,
    /// An entry of an old format, without a start token.
    Unknown,
}

/// The recorded process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Root {
    Alive,
    /// Ended, or a zombie.
    Exited,
    /// Another process has its PID.
    Recycled,
    /// Unreadable, or an entry of an old format whose start time does not match the process.
    Unknown,
}

/// The process group whose ID is the PID of the recorded process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    Empty,
    /// A verified member of the run is in the group.
    Ours,
    /// The group has members, but none of them is proven to belong to the run.
    Unproven,
    /// The recorded process was in the group of another process, so the run has no group of its
    /// own.
    NotLed,
    /// Not checked, because the decision does not depend on it: see [`depends_on_members`].
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keeper {
    /// A registered process, or an entry of an old format.
    None,
    Alive,
    Dead,
}

/// A PID that orphan tools never signal, even if an entry names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protected {
    PidOne,
    /// Below 100 (on Windows below 8): a system process.
    Low,
    Ourselves,
    Ancestor,
}
