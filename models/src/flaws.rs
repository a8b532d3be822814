//! Deliberate mistakes. A model that does not find them proves nothing.

use crate::model::{FIRST_CLAIM, KNOWN_FIRST, NO_BYSTANDER, ONE_ACTS, RECORDED, SETTLED, Scenario, TRUE_END};
use crate::scenarios;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The command is sent before the intent is written.
    IntentAfterCommand,
    /// The tree is ended first, and claimed second.
    ClaimAfterSignal,
    /// A claim counts without a second read of the journal.
    ClaimNotChecked,
    /// A claim names the current owner of the entry as its previous owner, not the one that it saw.
    LastClaimCounts,
    /// From outside, the recorded PID is signalled, even if another process has it now.
    SignalByPid,
    /// The keeper reaps the root immediately, and still signals its group.
    RootNotHeld,
    /// Control clients are informed of the end first.
    ClientsInformedFirst,
    /// The entry is dropped when the cancel is sent, not when the tree has ended.
    DropBeforeEnd,
    /// A bot counts as the owner if it has the owner's PID.
    OwnerByPid,
    /// A bot does not remember that it is claiming an entry.
    ClaimNotRemembered,
    /// A stopped keeper is left alone.
    StoppedKeeperNotWoken,
    /// A keeper whose owner is gone waits for another one.
    OrphanWaits,
    /// A bot that has lost its keeper reports that the run has ended.
    LostCountsAsEnded,
}

impl Flaw {
    /// Each flaw, the scenario, and the property that it must violate.
    pub const ALL: [(Self, Scenario, &'static str); 13] = [
        (Self::IntentAfterCommand, scenarios::ONE_BOT, RECORDED),
        (Self::ClaimAfterSignal, scenarios::TWO_REAPERS, ONE_ACTS),
        (Self::ClaimNotChecked, scenarios::TWO_REAPERS, ONE_ACTS),
        (Self::LastClaimCounts, scenarios::TWO_REAPERS, FIRST_CLAIM),
        (Self::SignalByPid, scenarios::ONE_BOT, NO_BYSTANDER),
        (Self::RootNotHeld, scenarios::ONE_BOT, NO_BYSTANDER),
        (Self::ClientsInformedFirst, scenarios::CANCELLER, KNOWN_FIRST),
        (Self::DropBeforeEnd, scenarios::CANCELLER, RECORDED),
        (Self::OwnerByPid, scenarios::ONE_BOT, SETTLED),
        (Self::ClaimNotRemembered, scenarios::STOLEN, RECORDED),
        (Self::StoppedKeeperNotWoken, scenarios::ONE_BOT, SETTLED),
        (Self::OrphanWaits, scenarios::ONE_BOT, SETTLED),
        (Self::LostCountsAsEnded, scenarios::ONE_BOT, TRUE_END),
    ];
}
