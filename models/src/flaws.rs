//! Mistakes on purpose. A model that does not find them proves nothing.

use crate::model::{FIRST_CLAIM, KNOWN_FIRST, NO_BYSTANDER, ONE_ACTS, RECORDED, SETTLED, Scenario, TRUE_END};
use crate::scenarios;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The command is sent before the intent is written.
    IntentAfterCommand,
    /// The tree is ended first, and claimed then.
    ClaimAfterSignal,
    /// A claim is believed without reading the journal again.
    ClaimNotChecked,
    /// A claim is written as one from whoever has the entry now.
    LastClaimCounts,
    /// From outside, the recorded number is signalled, whoever has it now.
    SignalByNumber,
    /// The keeper waits for the root at once, and goes on to signal its group.
    RootNotHeld,
    /// Visitors hear of the end first.
    VisitorsToldFirst,
    /// The entry goes when the tree was asked to end.
    DropWhenAsked,
    /// A bot is taken for the owner if it has its PID.
    OwnerByNumber,
    /// What a bot is claiming is not in its memory.
    ClaimNotRemembered,
    /// A keeper that was stopped is left alone.
    NobodyWakes,
    /// A keeper that hears of no owner waits for one.
    OrphanWaits,
    /// A bot that has lost its keeper says that the run is over.
    LostIsOver,
}

impl Flaw {
    /// Each, what it must break, and in which scenario.
    pub const ALL: [(Self, Scenario, &'static str); 13] = [
        (Self::IntentAfterCommand, scenarios::ONE_BOT, RECORDED),
        (Self::ClaimAfterSignal, scenarios::TWO_REAPERS, ONE_ACTS),
        (Self::ClaimNotChecked, scenarios::TWO_REAPERS, ONE_ACTS),
        (Self::LastClaimCounts, scenarios::TWO_REAPERS, FIRST_CLAIM),
        (Self::SignalByNumber, scenarios::ONE_BOT, NO_BYSTANDER),
        (Self::RootNotHeld, scenarios::ONE_BOT, NO_BYSTANDER),
        (Self::VisitorsToldFirst, scenarios::VISITORS, KNOWN_FIRST),
        (Self::DropWhenAsked, scenarios::VISITORS, RECORDED),
        (Self::OwnerByNumber, scenarios::ONE_BOT, SETTLED),
        (Self::ClaimNotRemembered, scenarios::ROBBED, RECORDED),
        (Self::NobodyWakes, scenarios::ONE_BOT, SETTLED),
        (Self::OrphanWaits, scenarios::ONE_BOT, SETTLED),
        (Self::LostIsOver, scenarios::ONE_BOT, TRUE_END),
    ];
}
