//! The relation of this process to an entry: owns it, claims it, or has left it. Pure.
//!
//! [`ClaimState::after`] is the only place that changes a state. A table in the tests lists the
//! result of every event in every state.
//!
//! ```text
//!              Claim              Adopt               Take
//!  Unclaimed ─────────► Claiming ───────► Adopted ───────────► Own ◄──── Remember ──── any
//!      ▲                 │     │             │                  │
//!      │ Release         │     │ ClaimFailed │ Return           │ Forget, a theft ──► Unclaimed
//!      ├─────────────────┘     ▼             ▼                  │ Abandon ──────────► Abandoned
//!      └──── a checkpoint ──── Unsettled ◄──────────────────────┘ Return
//! ```
//!
//! A lost claim restores the state before the claim. The winner can return an entry to this
//! process, and then a checkpoint of this process must not remove it.

#[cfg(test)]
mod tests;

use super::record::{Record, State};

/// A time, as the number of checkpoints that this process had begun. They never overlap.
///
/// A checkpoint contains every line that was written before it began, but perhaps not a line that
/// was written later. So a checkpoint can judge only what happened at a lower number than its own.
pub type CheckpointNumber = u64;

/// The relation of this process to one entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ClaimState {
    /// This process has nothing to do with the entry. If it owns the entry on disk, the run is
    /// over, and the next checkpoint removes the entry.
    #[default]
    Unclaimed,
    /// This process is claiming the entry, or has claimed it and decides what to do with the run.
    ///
    /// `before`: the state before the claim.
    Claiming { pending: Option<PendingClaim>, before: Box<ClaimState> },
    /// The entry is ours, but no [`super::Entry`] handles it yet. `former`: the entry before the
    /// claim.
    Adopted { former: Box<Record>, pending: Option<PendingClaim> },
    /// The entry is ours.
    Own { pending: Option<PendingClaim> },
    /// The entry may be ours on disk, and only there: a claim failed or its result is unknown, or
    /// the entry was returned to its former owner.
    ///
    /// The entry stays in the file and may be claimed again. A checkpoint that began before the
    /// claim was written shows the former owner, as if the entry had been returned. So only a
    /// checkpoint that began later can settle the entry.
    ///
    /// `is_with_other`: a checkpoint has shown another owner, which can still return the entry to
    /// this process.
    Unsettled { since: CheckpointNumber, is_with_other: bool },
    /// This process has left the entry to its keeper, which records the end.
    ///
    /// `was_seen`: a checkpoint has contained the entry. A checkpoint that began before the entry
    /// was written does not contain it; that does not mean that the entry was dropped.
    Abandoned { was_seen: bool },
}

/// A claim that no checkpoint has contained yet.
///
/// A checkpoint that began before the claim was written still has the former owner. That does not
/// mean that the former owner took the entry back. Without a pending claim it does mean that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingClaim {
    /// The former owner.
    pub from: Option<String>,
    pub since: CheckpointNumber,
}

/// Something that happens to an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// This process writes the entry as its own.
    Remember,
    /// This process is about to write a claim. Has no effect if [`ClaimState::is_claimable`] is
    /// false.
    Claim { from: Option<String>, at: CheckpointNumber },
    /// The claim is over, because the run has ended.
    Release,
    /// Another process claimed the entry first.
    LoseClaim,
    /// The claim could not be written, or its result could not be read.
    ClaimFailed { at: CheckpointNumber },
    /// The claimed run continues, and the entry is ours.
    Adopt { former: Box<Record> },
    /// An [`super::Entry`] handles the adopted entry from now on.
    Take,
    /// This process returns the entry to its former owner.
    Return { at: CheckpointNumber },
    /// The run is over.
    Forget,
    /// This process leaves the entry to its keeper.
    Abandon,
    /// A checkpoint of this process has read the entry.
    Checkpoint { number: CheckpointNumber, content: Content<'a> },
}

/// What a checkpoint finds about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    Missing,
    /// This process owns the entry.
    Ours(State),
    /// Another supervisor instance owns the entry. `None`: an old entry without an owner.
    Others(Option<&'a str>),
}

impl ClaimState {
    /// The state after an event.
    #[must_use]
    pub fn after(self, event: Event) -> Self {
        match event {
            Event::Remember => match self {
                Self::Claiming { pending, .. } => Self::Own { pending },
                Self::Adopted { .. } | Self::Own { .. } => self,
                Self::Unclaimed | Self::Unsettled { .. } | Self::Abandoned { .. } => {
                    Self::Own { pending: None }
                }
            },
            Event::Claim { from, at } if self.is_claimable() => {
                Self::Claiming { pending: Some(PendingClaim { from, since: at }), before: Box::new(self) }
            }
            Event::Release => match self {
                Self::Claiming { .. } => Self::Unclaimed,
                _ => self,
            },
            Event::LoseClaim => match self {
                Self::Claiming { before, .. } => *before,
                _ => self,
            },
            Event::ClaimFailed { at } if !self.is_live() => Self::unsettled(at),
            Event::Adopt { former } => {
                let pending = match self {
                    Self::Claiming { pending, .. }
                    | Self::Adopted { pending, .. }
                    | Self::Own { pending } => pending,
                    Self::Unclaimed | Self::Unsettled { .. } | Self::Abandoned { .. } => None,
                };
                Self::Adopted { former, pending }
            }
            Event::Take => match self {
                Self::Adopted { pending, .. } => Self::Own { pending },
                _ => self,
            },
            Event::Return { at } => Self::unsettled(at),
            Event::Forget if self.is_live() => Self::Unclaimed,
            Event::Abandon => match self {
                Self::Unclaimed | Self::Adopted { .. } | Self::Own { .. } => {
                    Self::Abandoned { was_seen: false }
                }
                Self::Claiming { .. } | Self::Unsettled { .. } | Self::Abandoned { .. } => self,
            },
            Event::Checkpoint { number, content } => self.after_checkpoint(number, content),
            Event::Claim { .. } | Event::ClaimFailed { .. } | Event::Forget => self,
        }
    }

    fn after_checkpoint(self, number: CheckpointNumber, content: Content) -> Self {
        match self {
            Self::Unclaimed => Self::Unclaimed,
            // Only a read of the journal decides who won the claim, see `Registry::claim`.
            Self::Claiming { pending, before } => match content {
                Content::Ours(_) => Self::Claiming { pending: confirmed(pending, number), before },
                Content::Missing | Content::Others(_) => Self::Claiming { pending, before },
            },
            Self::Adopted { pending, .. } | Self::Own { pending }
                if is_theft(pending.as_ref(), number, content) =>
            {
                Self::Unclaimed
            }
            Self::Adopted { former, pending } => match content {
                Content::Others(_) => Self::Adopted { former, pending },
                // The checkpoint restores a missing entry from memory.
                _ => Self::Adopted { former, pending: confirmed(pending, number) },
            },
            Self::Own { pending } => match content {
                Content::Others(_) => Self::Own { pending },
                _ => Self::Own { pending: confirmed(pending, number) },
            },
            Self::Unsettled { since, .. } => match content {
                Content::Missing if since < number => Self::Unclaimed,
                Content::Others(_) if since < number => Self::Unsettled { since, is_with_other: true },
                Content::Missing | Content::Others(_) => self,
                Content::Ours(_) => Self::unsettled(since),
            },
            Self::Abandoned { was_seen } => match content {
                Content::Missing if was_seen => Self::Unclaimed,
                Content::Missing => self,
                // The keeper has recorded the end.
                Content::Ours(State::Exited) => Self::Unclaimed,
                Content::Ours(_) | Content::Others(_) => Self::Abandoned { was_seen: true },
            },
        }
    }

    fn unsettled(since: CheckpointNumber) -> Self {
        Self::Unsettled { since, is_with_other: false }
    }

    /// Whether the entry is ours, and memory decides what a checkpoint writes about it.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Adopted { .. } | Self::Own { .. })
    }

    /// Whether this process may write a claim: it neither has the entry nor is claiming it.
    pub fn is_claimable(&self) -> bool {
        matches!(self, Self::Unclaimed | Self::Unsettled { .. } | Self::Abandoned { .. })
    }

    /// Whether this process must remember the entry, even if no supervisor is open.
    ///
    /// This includes unsettled entries whose owner on disk may be this process, which is alive.
    /// Without this memory no supervisor of this process could claim them again.
    pub fn needs_memory(&self) -> bool {
        match self {
            Self::Unclaimed | Self::Abandoned { .. } | Self::Unsettled { is_with_other: true, .. } => false,
            Self::Claiming { .. } | Self::Adopted { .. } | Self::Own { .. } | Self::Unsettled { .. } => true,
        }
    }

    /// Whether an entry with this state stays in the file, if this process owns it on disk.
    pub fn keeps_entry(&self, state: State) -> bool {
        match self {
            Self::Unclaimed => false,
            Self::Abandoned { .. } => state != State::Exited,
            Self::Claiming { .. } | Self::Adopted { .. } | Self::Own { .. } | Self::Unsettled { .. } => true,
        }
    }
}

/// Whether another owner has taken an entry of ours.
fn is_theft(pending: Option<&PendingClaim>, number: CheckpointNumber, content: Content) -> bool {
    let Content::Others(owner) = content else { return false };
    let is_from_before = |pending: &PendingClaim| pending.from.as_deref() == owner || pending.since >= number;
    !pending.is_some_and(is_from_before)
}

/// The pending claim after a checkpoint that has the entry as ours.
fn confirmed(pending: Option<PendingClaim>, number: CheckpointNumber) -> Option<PendingClaim> {
    pending.filter(|pending| pending.since >= number)
}
