//! One run per scope, also across several bots.
//!
//! A bot holds the scope's lock while it checks the registry and writes its intent, so only one bot
//! can do that at a time.
//!
//! A lock is one byte of a file beside the registry, locked through an open file. The kernel
//! releases it when the holder exits, in whatever way. It is held for the duration of one spawn,
//! and no bot waits for it here.

use std::fs::File;

use super::disk;
use super::error::RegistryError;
use super::open_registry::Registry;

/// A held scope lock. Dropping it releases the lock.
#[derive(Debug)]
pub struct ScopeLock {
    _file: File,
}

impl Registry {
    /// Locks a scope that has no live run. `None` if the scope has one, or if another bot holds the
    /// lock to start one.
    pub fn lock_scope(&self, scope: &str) -> Result<Option<ScopeLock>, RegistryError> {
        self.prepare()?;
        let path = &self.paths.scopes;
        let file = disk::open_to_append(path)?;
        // Another bot cannot hold the lock between our check and our intent. So its intent comes
        // before the check, or its check after the intent.
        let is_ours =
            disk::lock_byte(&file, byte_of(scope)).map_err(|error| disk::unwritable(path, &error))?;
        if !is_ours || !disk::is_in_place(&file, path) || self.has_scope(scope)? {
            return Ok(None);
        }
        Ok(Some(ScopeLock { _file: file }))
    }
}

/// The scope's byte in the file: FNV-1a, the same in every build.
///
/// Two scopes with the same byte exclude each other for the duration of a spawn.
fn byte_of(scope: &str) -> i64 {
    let hash = scope.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    i64::try_from(hash >> 2).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_can_be_locked_by_one_holder_at_a_time() {
        let path = std::env::temp_dir().join(format!("scopes-{}", std::process::id()));
        let open = || disk::open_to_append(&path).unwrap();
        let (first, second) = (open(), open());
        assert!(disk::lock_byte(&first, byte_of("a")).unwrap());
        assert!(!disk::lock_byte(&second, byte_of("a")).unwrap());
        assert!(disk::lock_byte(&second, byte_of("b")).unwrap());
        drop(first);
        assert!(disk::lock_byte(&second, byte_of("a")).unwrap());
        std::fs::remove_file(path).unwrap();
    }
}
