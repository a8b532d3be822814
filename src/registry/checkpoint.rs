//! The checkpoint: the journal's sum, in the file that people read.
//!
//! ```text
//!   1  lock                       one at a time; whoever dies lets go of it
//!   2  read the file              unless it is the one we have read, or written
//!   3  rename journal → .old      if a crash has left an .old, 4 to 6 for that one first
//!   4  read .old, apply           from here on nobody's line can be lost, see `journal`
//!   5  write a new file, rename   valid at every instant
//!   6  unlink .old
//! ```
//!
//! A crash after any step leaves a state from which the next checkpoint, anybody's, goes on: after 3 or 4 the lines are in
//! `.old`; after 5 they are in the file and in `.old`, and applying them again changes nothing.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::disk::{self, Paths, Replacement, Stamp};
use super::error::RegistryError;
use super::import::{self, Unreadable};
use super::record::{Line, Record};
use super::table::Table;
use super::{failpoint, journal, now_ms};

/// Something about the registry that its owner should know; work goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    pub kind: &'static str,
    pub message: String,
    pub path: PathBuf,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run_ids: Vec<String>,
}

impl Trouble {
    pub fn new(kind: &'static str, message: String, path: &Path) -> Self {
        Self { kind, message, path: path.to_owned(), run_ids: Vec::new() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Written,
    /// Nothing had changed.
    UpToDate,
    /// Somebody else is at it.
    Busy,
}

/// Makes checkpoints of one registry.
#[derive(Debug)]
pub struct Checkpointer {
    paths: Paths,
    /// The file that was set aside last.
    aside: Option<(u64, u64)>,
}

impl Checkpointer {
    pub fn new(paths: Paths) -> Self {
        Self { paths, aside: None }
    }

    /// `settle` has the last word on what is to be written; it returns whether it has changed something. What the file says
    /// from here on is in `seen`, so that nobody of this process need read it.
    ///
    /// `patience` is for each step that somebody else, who has a file open, may be in the way of for a moment.
    pub fn run(
        &mut self,
        seen: &Mutex<LastRead>,
        patience: Duration,
        settle: impl FnOnce(&mut Table) -> bool,
        trouble: &mut Vec<Trouble>,
    ) -> Result<Outcome, RegistryError> {
        let Some(_lock) = lock(&self.paths)? else { return Ok(Outcome::Busy) };
        let (mut table, mut changed) = self.base(seen, trouble)?;
        if disk::stamp(&self.paths.old).is_some() {
            // Somebody died at it. What it has must be in the file before the journal can take its place.
            self.apply_old(&mut table, trouble)?;
            let new = Replacement::write(&self.paths.json, |file| render(&table, file))?;
            disk::patiently(patience, || new.put_in_place()).map_err(|error| new.failed(&error))?;
            self.remove_old(patience);
        }
        failpoint::hit();
        match disk::patiently(patience, || std::fs::rename(&self.paths.journal, &self.paths.old)) {
            // Nobody has written anything if there is none.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(disk::unwritable(&self.paths.journal, &error));
            }
            _ => {}
        }
        failpoint::hit();
        changed |= self.apply_old(&mut table, trouble)?;
        changed |= settle(&mut table);
        let table = Arc::new(table);
        let known = |stamp| Known { stamp, table: table.clone(), is_whole: true };
        if changed {
            let new = Replacement::write(&self.paths.json, |file| render(&table, file))?;
            // The file and what is known of it change together. Whoever came in between would find another file than the one it
            // knows, and read all of it, on the event loop perhaps. But nobody has to wait there while we try again.
            let put_in_place = || {
                let mut seen = locked(seen);
                *seen = Some(known(new.put_in_place()?));
                Ok(())
            };
            disk::patiently(patience, put_in_place).map_err(|error| new.failed(&error))?;
        } else {
            *locked(seen) = disk::stamp(&self.paths.json).map(known);
        }
        self.remove_old(patience);
        Ok(if changed { Outcome::Written } else { Outcome::UpToDate })
    }

    /// True if it says anything.
    fn apply_old(&self, table: &mut Table, trouble: &mut Vec<Trouble>) -> Result<bool, RegistryError> {
        let Some((mut bytes, _)) = disk::read(&self.paths.old)? else { return Ok(false) };
        // Of a line that crosses a page the first half can be read before the second is written. Its writer is going to repeat it
        // in the new journal, so nothing is lost; but nobody has died either, unless it stays that way.
        for _ in 0..HALF_LINE_READS {
            if bytes.last().is_none_or(|&byte| byte == b'\n') {
                break;
            }
            std::thread::sleep(HALF_LINE_PAUSE);
            bytes = disk::read(&self.paths.old)?.map_or(bytes, |(bytes, _)| bytes);
        }
        Ok(apply(&bytes, table, &self.paths, trouble))
    }

    /// Should that fail, the next checkpoint begins with it: all of it is in the file, and applying it again changes nothing.
    fn remove_old(&self, patience: Duration) {
        failpoint::hit();
        let _ = disk::patiently(patience, || std::fs::remove_file(&self.paths.old));
    }

    /// What the file says. True if it is to be written in any case.
    fn base(
        &mut self,
        seen: &Mutex<LastRead>,
        trouble: &mut Vec<Trouble>,
    ) -> Result<(Table, bool), RegistryError> {
        let now = disk::stamp(&self.paths.json);
        let known = locked(seen).clone();
        if let Some(known) = known.filter(|known| known.is_whole && now == Some(known.stamp)) {
            return Ok(((*known.table).clone(), false));
        }
        let Some((bytes, _)) = disk::read(&self.paths.json)? else { return Ok((Table::default(), false)) };
        match read_file(&bytes, &self.paths)? {
            Ok((records, rejected)) if rejected.is_empty() => Ok((Table::new(records), false)),
            Ok((records, rejected)) => {
                let why = format!("{} of its entries cannot be understood ({})", rejected.len(), rejected[0]);
                self.set_aside(&why, trouble)?;
                Ok((Table::new(records), true))
            }
            Err(why) => {
                self.set_aside(&why, trouble)?;
                Ok((Table::default(), true))
            }
        }
    }

    /// Nothing is lost: what we cannot read may be read by somebody else. Once: the next try, if this one fails, finds it aside.
    fn set_aside(&mut self, why: &str, trouble: &mut Vec<Trouble>) -> Result<(), RegistryError> {
        let file = disk::stamp(&self.paths.json).map(Stamp::file);
        if file.is_none() || self.aside == file {
            return Ok(());
        }
        set_aside(&self.paths, why, trouble)?;
        self.aside = file;
        Ok(())
    }
}

/// The file as it was when it was last read or written: as long as it is the same, it need not be read again.
pub type LastRead = Option<Known>;

#[derive(Debug, Clone)]
pub struct Known {
    stamp: Stamp,
    table: Arc<Table>,
    /// All that is in the file is in the table. If not, it is to be set aside, and must not be replaced before that.
    is_whole: bool,
}

fn locked(seen: &Mutex<LastRead>) -> MutexGuard<'_, LastRead> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file, and the journals that come after it, oldest first.
struct Reading {
    file: Arc<Table>,
    lines: Vec<Line>,
}

/// Everything there is to know, without a lock.
pub fn load(paths: &Paths, last: &mut LastRead) -> Result<Table, RegistryError> {
    let Reading { file, lines } = read_all(paths, last)?;
    let mut table = (*file).clone();
    for line in lines {
        table.apply(line);
    }
    Ok(table)
}

/// Some of the entries, found in the file by `search`. Cheaper than all there is to know.
pub fn find(
    paths: &Paths,
    last: &mut LastRead,
    search: impl FnOnce(&Table) -> Vec<Record>,
    wanted: impl Fn(&Record) -> bool,
) -> Result<Vec<Record>, RegistryError> {
    let Reading { file, lines } = read_all(paths, last)?;
    let mut table = Table::new(search(&file));
    for line in lines {
        match &line {
            Line::Intent { entry } if !wanted(entry) => {}
            _ => table.apply(line),
        }
    }
    Ok(table.records().cloned().collect())
}

/// The newest first, because lines only ever move from the journal to `.old` to the file. One that moves while we read is then seen
/// twice rather than not at all; but what has come after it is not. So if anything has moved, it is read again, within reason.
fn read_all(paths: &Paths, last: &mut LastRead) -> Result<Reading, RegistryError> {
    let places = || [&paths.journal, &paths.old].map(|path| disk::stamp(path).map(Stamp::file));
    for attempt in 1.. {
        let before = places();
        let newest = disk::read(&paths.journal)?;
        let older = disk::read(&paths.old)?;
        let file = load_file(paths, last)?;
        if before == places() || attempt == READS {
            let journals = [older, newest].into_iter().flatten();
            return Ok(Reading {
                file,
                lines: journals.flat_map(|(bytes, _)| journal::decode(&bytes).0).collect(),
            });
        }
    }
    unreachable!("the last attempt returns")
}

fn load_file(paths: &Paths, last: &mut LastRead) -> Result<Arc<Table>, RegistryError> {
    let now = disk::stamp(&paths.json);
    if let Some(known) = last
        && now == Some(known.stamp)
    {
        return Ok(known.table.clone());
    }
    let Some((bytes, stamp)) = disk::read(&paths.json)? else { return Ok(Arc::default()) };
    // What cannot be read is set aside by the next checkpoint, which holds the lock.
    let (records, is_whole) = read_file(&bytes, paths)?
        .map_or_else(|_| (Vec::new(), false), |(records, rejected)| (records, rejected.is_empty()));
    let table = Arc::new(Table::new(records));
    *last = Some(Known { stamp, table: table.clone(), is_whole });
    Ok(table)
}

/// How long a line may be half before its writer is taken to be dead.
const HALF_LINE_READS: usize = 50;
const HALF_LINE_PAUSE: Duration = Duration::from_millis(2);

/// How often everything is read if others write all the while.
const READS: usize = 3;

type Readable = Result<(Vec<Record>, Vec<String>), String>;

fn read_file(bytes: &[u8], paths: &Paths) -> Result<Readable, RegistryError> {
    match import::read(&String::from_utf8_lossy(bytes)) {
        Ok(imported) => Ok(Ok((imported.records, imported.rejected))),
        Err(Unreadable::Newer(version)) => Err(RegistryError::Newer { path: paths.json.clone(), version }),
        Err(Unreadable::Corrupt(why)) => Ok(Err(why)),
    }
}

fn apply(bytes: &[u8], table: &mut Table, paths: &Paths, trouble: &mut Vec<Trouble>) -> bool {
    let (lines, torn) = journal::decode(bytes);
    let changed = !lines.is_empty();
    for line in lines {
        table.apply(line);
    }
    if torn > 0 {
        let message =
            format!("{torn} incomplete lines of the journal were passed over: somebody died while writing");
        trouble.push(Trouble::new("torn", message, &paths.journal));
    }
    changed
}

fn set_aside(paths: &Paths, why: &str, trouble: &mut Vec<Trouble>) -> Result<(), RegistryError> {
    let mut aside = paths.json.clone().into_os_string();
    aside.push(format!(".corrupt-{}", now_ms()));
    let aside = PathBuf::from(aside);
    // A copy, by link, so that the path is never without a file; a rename where there are no links.
    std::fs::hard_link(&paths.json, &aside)
        .or_else(|_| std::fs::rename(&paths.json, &aside))
        .map_err(|error| disk::unwritable(&paths.json, &error))?;
    let message = format!("the process registry was set aside as {}: {why}", aside.display());
    trouble.push(Trouble::new("corrupt", message, &aside));
    Ok(())
}

/// One entry per line: easy on `grep`, and on people.
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

/// The lock, or `None` if somebody has it. The path must still be the file that was locked: a folder may have been deleted and
/// made anew meanwhile, and then another file is the one that everybody locks.
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
