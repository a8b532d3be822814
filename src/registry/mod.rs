//! Who runs what: one file that people can read, and the journal beside it.
//!
//! | file | what it is |
//! |---|---|
//! | `process-registry.json` | the checkpoint: every run, replaced atomically, valid at every instant, at most 250 ms behind |
//! | `process-registry.json.journal` | what happened since, one line each; appended to without a lock |
//! | `process-registry.json.journal.old` | what a checkpoint is being made of |
//! | `process-registry.json.lock` | held by whoever makes a checkpoint |
//! | `process-registry.json.scopes` | a byte of it is held by whoever is about to start the only run of a scope |
//!
//! A bot's own runs are known best to the bot: as long as it lives, its memory ([`Registry`]) decides which entries of its
//! own the file has. So a file that was deleted, damaged or overwritten is right again after the next checkpoint.

mod checkpoint;
pub(crate) mod disk;
mod error;
mod failpoint;
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    //! For `fuzz/`: the journal as bytes.
    pub use super::journal::{decode, encode};
}
pub mod import;
mod instance;
mod journal;
mod kept;
mod ledger;
pub mod own;
pub mod record;
mod scopes;
pub mod table;
mod upkeep;

pub use checkpoint::Trouble;
pub use error::RegistryError;
pub use instance::{Entry, Instance};
pub use kept::Kept;
pub use ledger::Registry;
#[cfg(test)]
pub(crate) use ledger::tests::Somewhere;
pub use record::{Claim, Containment, Exit, Keeper, KeptRules, Line, Owner, Record, State};
pub use scopes::ScopeLock;
pub use table::Table;

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long somebody who has nothing else to do waits for the lock.
const PATIENCE: Duration = Duration::from_secs(2);

/// Milliseconds since 1970, as `Date.now()` counts them.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Writes down how a run ended whose owner is gone, for whoever comes next. Blocks; for keepers.
///
/// A registry that was deleted meanwhile is not brought back: nobody is interested any more.
pub fn record_end(json: &Path, line: &Line) -> Result<(), RegistryError> {
    let paths = disk::Paths::new(json.to_owned());
    if disk::stamp(&paths.journal).is_none()
        && disk::stamp(&paths.json).is_none()
        && disk::stamp(&paths.old).is_none()
    {
        return Ok(());
    }
    journal::Journal::default().append(&paths, &journal::encode([line]))?;
    let give_up_at = Instant::now() + PATIENCE;
    let mut checkpointer = checkpoint::Checkpointer::new(paths.clone());
    // Many keepers may end at once; the first to get the lock does the work of all.
    while disk::stamp(&paths.journal).is_some() || disk::stamp(&paths.old).is_some() {
        match checkpointer.run(&Mutex::default(), PATIENCE, |_| false, &mut Vec::new()) {
            Ok(checkpoint::Outcome::Busy) if Instant::now() < give_up_at => {
                std::thread::sleep(Duration::from_millis(5));
            }
            // What is in the journal will be read, whether the file has it or not.
            _ => break,
        }
    }
    Ok(())
}
