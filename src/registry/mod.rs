//! The process registry: one human-readable file and the journal beside it.
//!
//! | file | content |
//! |---|---|
//! | `process-registry.json` | the checkpoint: every run; always valid, at most 250 ms behind |
//! | `process-registry.json.journal` | the changes since then, one per line; needs no lock |
//! | `process-registry.json.journal.old` | the journal that a checkpoint is reading |
//! | `process-registry.json.lock` | locked by the process that makes a checkpoint |
//! | `process-registry.json.scopes` | one byte is locked while the only run of a scope starts |
//!
//! A bot knows its own runs better than the file does. While the bot lives, its memory
//! ([`Registry`]) decides which of its own entries the file contains. So the next checkpoint
//! repairs a file that was deleted, damaged or overwritten.

mod checkpoint;
pub(crate) mod disk;
mod error;
mod failpoint;
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    //! The journal encoder and decoder, for the targets in `fuzz/`.
    pub use super::journal::{decode, encode};
}
mod cached_record;
mod checkpoint_thread;
pub mod claim_state;
pub mod import;
mod index;
mod instance;
mod journal;
mod leases;
mod line_trace;
pub mod local_entries;
mod open_registry;
pub mod orphan_log;
mod prune;
pub mod record;
mod scopes;
pub mod table;
mod view;

pub use cached_record::CachedRecord;
pub use checkpoint::Warning;
pub use error::RegistryError;
pub use index::Filter;
pub use instance::{Entry, Instance};
#[cfg(all(test, unix))]
pub(crate) use open_registry::tests::TestRegistry;
pub use open_registry::{Contents, Registry};
pub use record::{Claim, Containment, Exit, Keeper, Line, Owner, Record, State, TakeoverRules};
pub use scopes::ScopeLock;
pub use table::Table;
pub use view::UnreadableContent;

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long [`record_end`] retries while other processes hold the lock or a file.
const PATIENCE: Duration = Duration::from_secs(2);

/// Milliseconds since 1970, like JavaScript's `Date.now()`.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Renames the log file at `path` to the same path with `.1`, if it is longer than `limit`.
pub fn rotate_if_longer(path: &Path, limit: u64) -> Result<(), disk::Refusal> {
    let file = disk::open_to_extend(path)?;
    if file.metadata().map_err(disk::Refusal::Failed)?.len() > limit {
        disk::rotate(&file, path);
    }
    Ok(())
}

/// Records how a run ended whose owner is gone, so that the next bot can report it. Blocks; for
/// keepers.
///
/// Does nothing if the registry's files were deleted: the keeper must not create them again.
pub fn record_end(json: &Path, line: &Line) -> Result<(), RegistryError> {
    let paths = disk::Paths::new(json.to_owned());
    if disk::stamp(&paths.journal).is_none()
        && disk::stamp(&paths.json).is_none()
        && disk::stamp(&paths.old).is_none()
    {
        return Ok(());
    }
    journal::Journal::default().write(&paths, std::slice::from_ref(line))?;
    let give_up_at = Instant::now() + PATIENCE;
    let mut checkpointer = checkpoint::Checkpointer::new(paths.clone());
    // Many keepers may end at the same time. The first one that gets the lock writes the lines of
    // all.
    while disk::stamp(&paths.journal).is_some() || disk::stamp(&paths.old).is_some() {
        match checkpointer.run(&Mutex::default(), PATIENCE, |_| false, &mut Vec::new()) {
            Ok(checkpoint::Outcome::Busy) if Instant::now() < give_up_at => {
                std::thread::sleep(Duration::from_millis(5));
            }
            // A failed checkpoint loses nothing: readers read the journal too.
            _ => break,
        }
    }
    Ok(())
}
