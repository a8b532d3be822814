//! The present content of the registry's files, cached in memory between reads.
//!
//! A read costs only what has changed since the last one, however long the journal is. That matters
//! while another process holds the lock, because then no checkpoint shortens the journal.

#[cfg(test)]
mod tests;

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::cached_record::CachedRecord;
use super::disk::{self, FileId, Paths, Stamp};
use super::error::RegistryError;
use super::import::{self, Unreadable};
use super::index::{Filter, Index};
use super::journal;
use super::record::{Line, Record};
use super::table::Table;

/// How often to read all files if other processes change them meanwhile.
const READS: usize = 3;

/// Number of bytes to compare before the position up to which the journal was read. If they differ,
/// it is another journal with the same inode number.
const ANCHOR: usize = 64;

/// Content of the files that cannot be read. Runs may exist that no table has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadableContent {
    pub kind: &'static str,
    pub message: String,
    pub path: PathBuf,
    /// Differs for every content of the file, so that each content is reported once.
    pub id: String,
}

impl UnreadableContent {
    fn new(path: &Path, why: &str, id: String) -> Self {
        let message = format!(
            "not all of the process registry {} can be read: {why}. Runs may exist that are not listed. The file was not changed; the \
             next bot that starts a run sets it aside as .corrupt-… . Find the missing runs with ps -e: their keepers are named \
             owned-keeper.",
            path.display()
        );
        Self { kind: "unreadable", message, path: path.to_owned(), id }
    }
}

/// The files at the last read or write.
#[derive(Debug, Default)]
pub struct View {
    file: Option<Known>,
    current: Option<Current>,
}

/// The content of the file, without the journals.
#[derive(Debug, Clone)]
pub struct Known {
    pub stamp: Stamp,
    pub table: Arc<Table>,
    /// Why the table does not have the whole content of the file, if it does not. Then a checkpoint
    /// sets the file aside before it replaces it.
    pub flaw: Option<String>,
}

/// The content of the file and the journals together.
#[derive(Debug)]
pub struct Current {
    file: Option<Stamp>,
    file_flaw: Option<String>,
    /// The `.old` whose lines are in the table.
    ///
    /// An inode number alone does not identify it. When `.old` is removed, the next journal may get
    /// its inode number, and becomes the next `.old`.
    old: Option<Stamp>,
    journal: Option<Position>,
    /// Number of journal lines that are neither valid nor merely incomplete.
    invalid_lines: usize,
    table: Table,
    index: Index,
}

/// The position up to which a journal was read.
#[derive(Debug)]
struct Position {
    file: FileId,
    offset: u64,
    anchor: Vec<u8>,
}

impl View {
    /// Reads what has changed.
    pub fn refresh(&mut self, paths: &Paths) -> Result<&Current, RegistryError> {
        let advanced = match self.current.take() {
            Some(mut current) => current.advance(paths)?.then_some(current),
            None => None,
        };
        let current = match advanced {
            Some(current) => current,
            None => self.rebuild(paths)?,
        };
        Ok(self.current.insert(current))
    }

    /// The content of the file, if the file still has this stamp.
    pub fn known(&self, stamp: Option<Stamp>) -> Option<&Known> {
        self.file.as_ref().filter(|known| Some(known.stamp) == stamp)
    }

    /// What a checkpoint prepares for [`View::publish`]. `None` if this process has not read the
    /// registry.
    pub fn prepare(&self, paths: &Paths, table: &Table) -> Option<Current> {
        self.current.is_some().then(|| Current::of(disk::stamp(&paths.old), table.clone()))
    }

    /// Notes that a checkpoint has written the file. `current` is the result of [`View::prepare`].
    ///
    /// Returns the replaced values. Freeing thousands of entries takes time, so the caller drops
    /// them after it has unlocked the view.
    pub fn publish(&mut self, known: Known, current: Option<Current>) -> impl Sized + use<> {
        let current = current.map(|current| Current { file: Some(known.stamp), ..current });
        (self.file.replace(known), std::mem::replace(&mut self.current, current))
    }

    /// Notes that a checkpoint has removed `.old`, while it still holds the lock.
    ///
    /// A later `.old` is another file. It may have the same inode number, the same size and, with a
    /// coarse clock, the same time of change.
    pub fn forget_old(&mut self) {
        if let Some(current) = &mut self.current {
            current.old = None;
        }
    }

    /// Notes that a checkpoint has found nothing to write.
    pub fn confirm(&mut self, known: Option<Known>) {
        self.file = known;
    }

    /// Reads everything, the journal first.
    ///
    /// Lines only move from the journal to `.old` and from there to the file. So a line that moves
    /// during the read is seen twice, and not missed. But lines that were written after it may be
    /// missed. So if a file was renamed meanwhile, everything is read again, up to [`READS`] times.
    fn rebuild(&mut self, paths: &Paths) -> Result<Current, RegistryError> {
        let file_ids = || [&paths.journal, &paths.old].map(|path| disk::stamp(path).map(Stamp::file));
        for attempt in 1.. {
            let before = file_ids();
            let journal = disk::read(&paths.journal)?;
            let old = disk::read(&paths.old)?;
            let file = self.load_file(paths)?;
            if before != file_ids() && attempt < READS {
                continue;
            }
            let table = file.map_or_else(Table::default, |known| (*known.table).clone());
            let mut current = Current::of(old.as_ref().map(|(_, stamp)| *stamp), table);
            current.file = file.map(|known| known.stamp);
            current.file_flaw = file.and_then(|known| known.flaw.clone());
            if let Some((bytes, _)) = old {
                current.apply(&bytes);
            }
            if let Some((bytes, stamp)) = journal {
                current.consume(Position { file: stamp.file(), offset: 0, anchor: Vec::new() }, &bytes);
            }
            return Ok(current);
        }
        unreachable!("the last attempt returns")
    }

    fn load_file(&mut self, paths: &Paths) -> Result<Option<&Known>, RegistryError> {
        let now = disk::stamp(&paths.json);
        if self.known(now).is_none() {
            // A file that cannot be read stays in place. The next checkpoint, which holds the lock,
            // sets it aside.
            self.file = match disk::read(&paths.json)? {
                Some((bytes, stamp)) => {
                    let (records, flaw) = match read_file(&bytes, paths)? {
                        Ok((records, rejected)) => (records, rejected_entries(&rejected)),
                        Err(why) => (Vec::new(), Some(why)),
                    };
                    Some(Known { stamp, table: Arc::new(Table::new(records)), flaw })
                }
                None => None,
            };
        }
        Ok(self.file.as_ref())
    }
}

impl Current {
    fn of(old: Option<Stamp>, table: Table) -> Self {
        let index = Index::of(&table);
        Self { file: None, file_flaw: None, old, journal: None, invalid_lines: 0, table, index }
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The entries that a filter matches.
    pub fn select(&self, filter: &Filter) -> Vec<Arc<CachedRecord>> {
        let is_wanted = |entry: &&Arc<CachedRecord>| filter.matches(entry);
        match self.index.candidates(filter) {
            Some(keys) => keys.filter_map(|key| self.table.entry(key)).filter(is_wanted).cloned().collect(),
            None => self.table.entries().filter(is_wanted).cloned().collect(),
        }
    }

    /// What in the files cannot be read, if anything.
    pub fn flaw(&self, paths: &Paths) -> Option<UnreadableContent> {
        if let Some(why) = &self.file_flaw {
            return Some(UnreadableContent::new(&paths.json, why, format!("{:?}", self.file)));
        }
        let journal = self.journal.as_ref().map(|position| position.file);
        (self.invalid_lines > 0).then(|| {
            let why = format!("{} line(s) have an unknown format", self.invalid_lines);
            UnreadableContent::new(
                &paths.journal,
                &why,
                format!("{:?} {journal:?} {}", self.old, self.invalid_lines),
            )
        })
    }

    /// Applies the lines that were appended to the journal since the last read. Returns false if
    /// anything else has changed: then everything must be read again.
    ///
    /// The order of the three steps matters: open the journal, check `.old`, check the file. A
    /// checkpoint renames the journal to `.old`, replaces the file, and then removes `.old`.
    /// Suppose that a journal which we have not read to its end was renamed before we opened the
    /// present one. Then it is still `.old` at the second step, or the file has changed at the
    /// third. If both are unchanged, the open journal continues exactly where our table ends. A
    /// later checkpoint cannot change what the open file contains.
    fn advance(&mut self, paths: &Paths) -> Result<bool, RegistryError> {
        let journal = disk::open_to_read(&paths.journal)?;
        // If `.old` has grown, everything is read again. That is harmless, because its writer
        // repeats the line in the journal.
        if disk::stamp(&paths.old).is_some_and(|old| Some(old) != self.old)
            || disk::stamp(&paths.json) != self.file
        {
            return Ok(false);
        }
        let Some((mut file, stamp)) = journal else {
            return Ok(self.journal.is_none());
        };
        let position = match self.journal.take() {
            Some(position) if position.file != stamp.file() => return Ok(false),
            Some(position) => position,
            None => Position { file: stamp.file(), offset: 0, anchor: Vec::new() },
        };
        let from = position.offset - position.anchor.len() as u64;
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))
            .and_then(|_| file.read_to_end(&mut bytes))
            .map_err(|error| disk::unreadable(&paths.journal, &error))?;
        let Some(new) = bytes.strip_prefix(position.anchor.as_slice()) else { return Ok(false) };
        self.consume(position, new);
        Ok(true)
    }

    /// Applies the lines after a position.
    ///
    /// A last line without a newline is applied if it is complete, and is read again the next time.
    fn consume(&mut self, mut position: Position, bytes: &[u8]) {
        let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let (complete, rest) = bytes.split_at(end);
        self.apply(complete);
        for line in journal::decode(rest).0 {
            self.apply_line(line);
        }
        position.offset += end as u64;
        position.anchor.extend_from_slice(&complete[complete.len().saturating_sub(ANCHOR)..]);
        let surplus = position.anchor.len().saturating_sub(ANCHOR);
        position.anchor.drain(..surplus);
        self.journal = Some(position);
    }

    fn apply(&mut self, bytes: &[u8]) {
        let decoded = journal::read(bytes);
        self.invalid_lines += decoded.invalid;
        for line in decoded.lines {
            self.apply_line(line);
        }
    }

    fn apply_line(&mut self, line: Line) {
        let touched = match &line {
            Line::Intent { entry } | Line::Returned { entry, .. } => vec![entry.key()],
            Line::Dropped { keys } => keys.clone(),
            // Other lines do not change the fields of the index.
            _ => Vec::new(),
        };
        for key in &touched {
            if let Some(record) = self.table.get(key) {
                self.index.remove(key, record);
            }
        }
        self.table.apply(line);
        for key in &touched {
            if let Some(record) = self.table.get(key) {
                self.index.add(key, record);
            }
        }
    }
}

/// The entries of a file and the reasons for rejected ones; or why the file is not a registry.
type Readable = Result<(Vec<Record>, Vec<String>), String>;

pub fn read_file(bytes: &[u8], paths: &Paths) -> Result<Readable, RegistryError> {
    match import::read(&String::from_utf8_lossy(bytes)) {
        Ok(imported) => Ok(Ok((imported.records, imported.rejected))),
        Err(Unreadable::Newer(version)) => Err(RegistryError::Newer { path: paths.json.clone(), version }),
        Err(Unreadable::Corrupt(why)) => Ok(Err(why)),
    }
}

/// The reason to set a file aside of which some entries were rejected.
pub fn rejected_entries(rejected: &[String]) -> Option<String> {
    let first = rejected.first()?;
    Some(format!("{} of its entries are invalid ({first})", rejected.len()))
}
