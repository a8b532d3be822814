//! Locks on bytes beyond the end of a file: for the whole file, and for the turn of a writer.

use std::fs::File;
use std::io;
use std::os::windows::io::AsRawHandle;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windows_sys::Win32::Foundation::ERROR_LOCK_VIOLATION;
use windows_sys::Win32::Storage::FileSystem::{
    LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx,
};
use windows_sys::Win32::System::IO::OVERLAPPED;

use crate::registry::disk::{EVENT_LOOP_PATIENCE, retry_while_busy};

/// Locks the file through a byte beyond its end.
///
/// Not with [`File::try_lock`], which locks the whole file: other processes must still be able to
/// write to it and read it.
pub fn try_lock(file: &File) -> io::Result<bool> {
    lock_byte(file, BEYOND_END)
}

/// A position beyond the end of every file.
const BEYOND_END: i64 = 1 << 62;

/// The byte that a writer locks while it appends, and the byte for writers that did not get the
/// first one in time.
const TURN: i64 = BEYOND_END + 1;
const LATE_TURN: i64 = BEYOND_END + 2;

/// How long a writer waits for its turn: the normal value, and the value after a wait that failed,
/// until a wait succeeds again.
const PATIENCE: Duration = Duration::from_millis(250);
const SHORT_PATIENCE: Duration = Duration::from_millis(10);

/// Waits until no other process appends to the file. The turn lasts until this handle is closed.
///
/// NTFS appends atomically and does not need this. Other file systems, and Wine, find the end and
/// then write there, so two simultaneous writers overwrite each other's lines.
///
/// A writer must wait longer than another writer may be unscheduled. But a writer that is suspended
/// during its turn keeps the lock, and must not delay every later append. So the first wait is
/// long, and the following ones are short.
///
/// Writers whose wait failed also take turns, because they tend to fail at the same moment.
pub fn take_turn(file: &File) {
    static IS_STUCK: AtomicBool = AtomicBool::new(false);
    let lock = |byte| if lock_byte(file, byte)? { Ok(()) } else { Err(lock_violation()) };
    let patience = if IS_STUCK.load(Ordering::Relaxed) { SHORT_PATIENCE } else { PATIENCE };
    let is_granted = retry_while_busy(patience, || lock(TURN)).is_ok();
    IS_STUCK.store(!is_granted, Ordering::Relaxed);
    if !is_granted {
        let _ = retry_while_busy(EVENT_LOOP_PATIENCE, || lock(LATE_TURN));
    }
}

fn lock_violation() -> io::Error {
    io::Error::from_raw_os_error(ERROR_LOCK_VIOLATION.cast_signed())
}

/// The lock belongs to this handle: the system releases it when the handle is closed or the process
/// ends.
pub fn lock_byte(file: &File, at: i64) -> io::Result<bool> {
    let mut place = OVERLAPPED::default();
    let at = at.cast_unsigned();
    // The union variant with the offset.
    (place.Anonymous.Anonymous.Offset, place.Anonymous.Anonymous.OffsetHigh) = (at as u32, (at >> 32) as u32);
    let flags = LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY;
    // SAFETY: the handle is open and not for overlapped calls, so nothing uses `place` after the
    // call returns.
    if unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &raw mut place) } != 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(ERROR_LOCK_VIOLATION.cast_signed()) => Ok(false),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use super::*;

    /// Opens a file like the journal.
    fn open_like_the_journal(path: &Path) -> File {
        crate::registry::disk::open_to_extend(path).unwrap()
    }

    #[test]
    fn writers_lose_no_line_while_another_writer_is_stuck_in_its_turn() {
        const WRITERS: usize = 8;
        const LINES: usize = 25;
        let folder = crate::registry::disk::tests::Folder::new("stuck-turn");
        let path = folder.0.join("it");
        let stuck = open_like_the_journal(&path);
        take_turn(&stuck);
        let began = std::time::Instant::now();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let path = &path;
                scope.spawn(move || {
                    let line = format!("{writer:<300}\n");
                    for _ in 0..LINES {
                        let mut file = open_like_the_journal(path);
                        take_turn(&file);
                        file.write_all(line.as_bytes()).unwrap();
                    }
                });
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().filter(|line| line.len() == 300).count(), WRITERS * LINES);
        assert_eq!(text.lines().count(), WRITERS * LINES);
        // One long wait for each writer, and short waits after that.
        assert!(began.elapsed() < PATIENCE * (LINES as u32), "{:?}", began.elapsed());
        drop(stuck);
        let granted = open_like_the_journal(&path);
        take_turn(&granted);
        assert!(!lock_byte(&open_like_the_journal(&path), TURN).unwrap(), "the turn is granted again");
    }
}
