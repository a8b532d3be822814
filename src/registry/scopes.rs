//! One run per scope, also among several bots: whoever holds the scope's lock while it looks and writes its intent is alone.
//!
//! A lock is a byte of one file beside the registry, held by an open file: the kernel releases it when its
//! holder is gone, however it went. It is held for the time of one spawn and never waited for here.

use std::fs::File;

use super::disk;
use super::error::RegistryError;
use super::ledger::Registry;

/// Released when it is dropped.
#[derive(Debug)]
pub struct ScopeLock {
    _file: File,
}

impl Registry {
    /// The right to start a run in a scope in which nothing lives. `None` if something does, or if somebody else is about to.
    pub fn lock_scope(&self, scope: &str) -> Result<Option<ScopeLock>, RegistryError> {
        self.prepare()?;
        let path = &self.paths.scopes;
        let file = disk::open_to_append(path)?;
        // What others write comes before or after what we look at and write: they cannot have the lock in between.
        let is_ours = disk::lock_byte(&file, place(scope)).map_err(|error| disk::unwritable(path, &error))?;
        if !is_ours || !disk::is_in_place(&file, path) || self.has_scope(scope)? {
            return Ok(None);
        }
        Ok(Some(ScopeLock { _file: file }))
    }
}

/// The scope's byte: FNV-1a, the same in every build. Two scopes that share one wait for each other for a moment.
fn place(scope: &str) -> i64 {
    let hash = scope.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    i64::try_from(hash >> 2).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_and_each_scope_for_itself() {
        let path = std::env::temp_dir().join(format!("scopes-{}", std::process::id()));
        let open = || disk::open_to_append(&path).unwrap();
        let (first, second) = (open(), open());
        assert!(disk::lock_byte(&first, place("a")).unwrap());
        assert!(!disk::lock_byte(&second, place("a")).unwrap());
        assert!(disk::lock_byte(&second, place("b")).unwrap());
        drop(first);
        assert!(disk::lock_byte(&second, place("a")).unwrap());
        std::fs::remove_file(path).unwrap();
    }
}
