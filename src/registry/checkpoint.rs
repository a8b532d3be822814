//! A checkpoint: merges the journal into the file that users read.
//!
//! ```text
//!   1  lock                       one process at a time; the kernel unlocks when that process dies
//!   2  read the file              skipped if this process has read or written the same file before
//!   3  rename journal → .old      if a crash left an .old, steps 4 to 6 for that one first
//!   4  read .old, apply           from here on no line can be lost, see `journal`
//!   5  write a new file, rename   the path always has a valid file
//!   6  unlink .old
//! ```
//!
//! After a crash at any step, the next checkpoint of any process continues. After step 3 or 4 the
//! lines are in `.old`. After step 5 they are in the file and in `.old`, and applying them again
//! changes nothing.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::disk::{self, FileId, Paths, Replacement, Stamp};
use super::error::RegistryError;
use super::table::Table;
use super::view::{self, Known, View};
use super::{failpoint, journal, now_ms, prune};

/// A problem with the registry that the supervisors report. The work continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    pub kind: &'static str,
    pub message: String,
    pub path: PathBuf,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run_ids: Vec<String>,
}

impl Warning {
    pub fn new(kind: &'static str, message: String, path: &Path) -> Self {
        Self { kind, message, path: path.to_owned(), run_ids: Vec::new() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Written,
    /// Nothing has changed.
    UpToDate,
    /// Another process holds the lock.
    Busy,
}

/// Makes checkpoints of one registry.
#[derive(Debug)]
pub struct Checkpointer {
    paths: Paths,
    /// The last file that was moved aside.
    moved_aside: Option<FileId>,
}

impl Checkpointer {
    pub fn new(paths: Paths) -> Self {
        Self { paths, moved_aside: None }
    }

    /// Makes one checkpoint.
    ///
    /// `settle` makes the last changes to the table before it is written; it returns whether it
    /// changed anything. Afterwards `seen` has the content of the file, so that this process need
    /// not read it.
    ///
    /// `patience` is how long each file operation is retried if another process has the file open
    /// (Windows).
    pub fn run(
        &mut self,
        seen: &Mutex<View>,
        patience: Duration,
        settle: impl FnOnce(&mut Table) -> bool,
        warnings: &mut Vec<Warning>,
    ) -> Result<Outcome, RegistryError> {
        let Some(_lock) = lock(&self.paths)? else { return Ok(Outcome::Busy) };
        let (mut table, mut changed) = self.base(seen, warnings)?;
        if disk::stamp(&self.paths.old).is_some() {
            // A process died during its checkpoint. The lines of `.old` must be in the file before
            // the journal can be renamed to `.old`.
            self.apply_old(&mut table, warnings)?;
            let new = Replacement::write(&self.paths.json, |file| render(&table, file))?;
            disk::retry_while_busy(patience, || new.put_in_place()).map_err(|error| new.failed(&error))?;
            self.remove_old(patience);
        }
        failpoint::hit();
        match disk::retry_while_busy(patience, || std::fs::rename(&self.paths.journal, &self.paths.old)) {
            // Without a journal there are no changes.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(disk::unwritable(&self.paths.journal, &error));
            }
            _ => {}
        }
        failpoint::hit();
        changed |= self.apply_old(&mut table, warnings)?;
        changed |= settle(&mut table);
        if changed {
            // Only the lock holder prunes. A line that a keeper appends meanwhile goes to the next
            // journal. If that line ends a run, this table does not have the run as ended, so the
            // run is not pruned. If it repeats an end, its entry may be gone, and the line does
            // nothing.
            prune::prune(&mut table, now_ms());
        }
        let table = Arc::new(table);
        let known = |stamp| Known { stamp, table: table.clone(), flaw: None };
        if changed {
            let new = Replacement::write(&self.paths.json, |file| render(&table, file))?;
            let mut current = locked(seen).prepare(&self.paths, &table);
            let mut replaced = None;
            // `seen` stays locked while the file is replaced. A reader that came in between would
            // find a file that it does not know. It would read all of it, perhaps on the event
            // loop. Between two attempts the lock is free, so no reader waits for the retries.
            let put_in_place = || {
                let mut view = locked(seen);
                let stamp = new.put_in_place()?;
                replaced = Some(view.publish(known(stamp), current.take()));
                Ok(())
            };
            disk::retry_while_busy(patience, put_in_place).map_err(|error| new.failed(&error))?;
            drop(replaced);
        } else {
            locked(seen).confirm(disk::stamp(&self.paths.json).map(known));
        }
        if self.remove_old(patience) {
            locked(seen).forget_old();
        }
        Ok(if changed { Outcome::Written } else { Outcome::UpToDate })
    }

    /// Applies the lines of `.old`. Returns whether there were any.
    fn apply_old(&self, table: &mut Table, warnings: &mut Vec<Warning>) -> Result<bool, RegistryError> {
        let Some((mut bytes, _)) = disk::read(&self.paths.old)? else { return Ok(false) };
        // A line that crosses a page can be visible in part while its writer still writes. Nothing
        // is lost, because the writer repeats the line in the new journal. But the line must not be
        // reported as torn, so wait for the rest.
        for _ in 0..HALF_LINE_READS {
            if bytes.last().is_none_or(|&byte| byte == b'\n') {
                break;
            }
            std::thread::sleep(HALF_LINE_PAUSE);
            bytes = disk::read(&self.paths.old)?.map_or(bytes, |(bytes, _)| bytes);
        }
        Ok(apply(&bytes, table, &self.paths, warnings))
    }

    /// Removes `.old`. Returns whether that succeeded.
    ///
    /// If it fails, the next checkpoint starts with this `.old`. The file has all its lines, so
    /// applying them again changes nothing.
    fn remove_old(&self, patience: Duration) -> bool {
        failpoint::hit();
        disk::retry_while_busy(patience, || std::fs::remove_file(&self.paths.old)).is_ok()
    }

    /// The content of the file, and whether the file must be written even without changes.
    fn base(
        &mut self,
        seen: &Mutex<View>,
        warnings: &mut Vec<Warning>,
    ) -> Result<(Table, bool), RegistryError> {
        let now = disk::stamp(&self.paths.json);
        let known = locked(seen).known(now).filter(|known| known.flaw.is_none()).cloned();
        if let Some(known) = known {
            return Ok(((*known.table).clone(), false));
        }
        let Some((bytes, _)) = disk::read(&self.paths.json)? else { return Ok((Table::default(), false)) };
        match view::read_file(&bytes, &self.paths)? {
            Ok((records, rejected)) => {
                let flaw = view::rejected_entries(&rejected);
                if let Some(why) = &flaw {
                    self.set_aside(why, warnings)?;
                }
                Ok((Table::new(records), flaw.is_some()))
            }
            Err(why) => {
                self.set_aside(&why, warnings)?;
                Ok((Table::default(), true))
            }
        }
    }

    /// Moves a damaged file aside, so that its content is not lost.
    ///
    /// Each file only once: if a later step fails, the next checkpoint finds the same file in
    /// place.
    fn set_aside(&mut self, why: &str, warnings: &mut Vec<Warning>) -> Result<(), RegistryError> {
        let file = disk::stamp(&self.paths.json).map(Stamp::file);
        if file.is_none() || self.moved_aside == file {
            return Ok(());
        }
        set_aside(&self.paths, why, warnings)?;
        self.moved_aside = file;
        Ok(())
    }
}

fn locked(view: &Mutex<View>) -> MutexGuard<'_, View> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long to wait for the rest of a line before its writer counts as dead.
const HALF_LINE_READS: usize = 50;
const HALF_LINE_PAUSE: Duration = Duration::from_millis(2);

fn apply(bytes: &[u8], table: &mut Table, paths: &Paths, warnings: &mut Vec<Warning>) -> bool {
    let (lines, torn) = journal::decode(bytes);
    let changed = !lines.is_empty();
    for line in lines {
        table.apply(line);
    }
    if torn > 0 {
        let message = format!(
            "skipped {torn} incomplete or invalid line(s) of the journal. Their writer died while writing, or the disk was full. \
             These changes had no effect; nothing needs to be done."
        );
        warnings.push(Warning::new("torn", message, &paths.journal));
    }
    changed
}

fn set_aside(paths: &Paths, why: &str, warnings: &mut Vec<Warning>) -> Result<(), RegistryError> {
    let mut aside = paths.json.clone().into_os_string();
    aside.push(format!(".corrupt-{}", now_ms()));
    let aside = PathBuf::from(aside);
    // A hard link, so that the path always has a file. A rename on file systems without hard links.
    std::fs::hard_link(&paths.json, &aside)
        .or_else(|_| std::fs::rename(&paths.json, &aside))
        .map_err(|error| disk::unwritable(&paths.json, &error))?;
    let message = format!(
        "not all of the process registry can be read ({why}), so it was set aside as {}. Runs may be missing from list(). Check \
         that file, then delete it.",
        aside.display()
    );
    warnings.push(Warning::new("corrupt", message, &aside));
    Ok(())
}

/// Writes the table as JSON, one entry per line, for `grep` and for readers.
fn render(table: &Table, file: &mut dyn Write) -> io::Result<()> {
    file.write_all(b"{\n  \"version\": 1,\n  \"entries\": [")?;
    let mut separator: &[u8] = b"\n    ";
    for json in table.sorted().into_iter().filter_map(|entry| entry.json()) {
        file.write_all(separator)?;
        file.write_all(json.get().as_bytes())?;
        separator = b",\n    ";
    }
    file.write_all(if table.is_empty() { b"]\n}\n" } else { b"\n  ]\n}\n" })
}

/// Locks the registry. `None` if another process holds the lock.
///
/// The path must still be the locked file: the folder may have been deleted and created again. Then
/// the other processes lock another file.
fn lock(paths: &Paths) -> Result<Option<File>, RegistryError> {
    let file = match disk::open_to_append(&paths.lock) {
        Err(RegistryError::Unwritable { errno: crate::errno::Errno::ENOENT, .. }) => {
            paths.make_folder()?;
            disk::open_to_append(&paths.lock)?
        }
        opened => opened?,
    };
    let is_ours = disk::try_lock(&file).map_err(|error| disk::unwritable(&paths.lock, &error))?;
    Ok((is_ours && disk::is_in_place(&file, &paths.lock)).then_some(file))
}
