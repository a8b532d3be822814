//! One run per scope, also among several bots: whoever holds the scope's lock while it looks and writes its intent is alone.
//!
//! A lock is a byte of one file beside the registry, held by an open file description: the kernel releases it when its
//! holder is gone, however it went. It is held for the time of one spawn and never waited for here.

use std::fs::File;
use std::io;

use crate::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

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
        let file = disk::open_to_append(path, true)?;
        // What others write comes before or after what we look at and write: they cannot have the lock in between.
        let is_ours = lock(&file, place(scope)).map_err(|error| disk::unwritable(path, &error))?;
        if !is_ours || !disk::is_in_place(&file, path) || self.has_scope(scope)? {
            return Ok(None);
        }
        Ok(Some(ScopeLock { _file: file }))
    }
}

/// Whether it is ours now.
#[allow(clippy::cast_possible_truncation)] // Small constants, of another type in the structure.
fn lock(file: &File, start: i64) -> io::Result<bool> {
    // SAFETY: all zeroes is a valid flock; its type differs between C libraries.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::F_WRLCK as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    (range.l_start, range.l_len) = (start, 1);
    match fcntl(file, FcntlArg::F_OFD_SETLK(&range)) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
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
        let open = || disk::open_to_append(&path, true).unwrap();
        let (first, second) = (open(), open());
        assert!(lock(&first, place("a")).unwrap());
        assert!(!lock(&second, place("a")).unwrap());
        assert!(lock(&second, place("b")).unwrap());
        drop(first);
        assert!(lock(&second, place("a")).unwrap());
        std::fs::remove_file(path).unwrap();
    }
}
