//! `orphan-events.log`: one line for everything that was decided about an orphan, for people and for `grep`.
//!
//! ```text
//! 2026-11-17T02:55:16.123Z KILLED pid=4711 cmd="claude -p hello" age=3605s status=confirmed reason="no owner answers …"
//! ```
//!
//! Text between quotation marks is JSON, so whatever a command calls itself, it cannot end its line or begin another.
//!
//! Lines are appended, all of a batch by one `write`: no lock is needed for that. When the file has become too long it is moved
//! to `.1`, in place of the one before.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;

use crate::registry::disk::{self, Refusal};

/// What is longer is moved aside before the next batch.
const LIMIT: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Before anything is done about it.
    Detected,
    Killed,
    /// It was left alone, or there was nothing left to be ended.
    Skipped,
    Failed,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            Self::Detected => "DETECTED",
            Self::Killed => "KILLED",
            Self::Skipped => "SKIPPED",
            Self::Failed => "FAILED",
        }
    }
}

/// Whom a line is about.
#[derive(Debug, Clone, Copy)]
pub struct Orphan<'a> {
    pub pid: i32,
    pub command: &'a str,
    /// `None`: nobody knows when it was started.
    pub age_ms: Option<u64>,
    /// What is known of it, in a word.
    pub status: &'a str,
}

/// Lines of the same instant.
#[derive(Debug)]
pub struct Batch {
    at: String,
    text: String,
}

impl Batch {
    pub fn new(at: SystemTime) -> Self {
        Self { at: humantime::format_rfc3339_millis(at).to_string(), text: String::new() }
    }

    pub fn add(&mut self, what: What, orphan: &Orphan, reason: &str) {
        let Orphan { pid, command, age_ms, status } = orphan;
        let age = age_ms.map_or_else(|| "unknown".to_owned(), |ms| format!("{}s", ms / 1000));
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.text,
            "{} {} pid={pid} cmd={} age={age} status={status} reason={}",
            self.at,
            what.word(),
            Quoted(command),
            Quoted(reason),
        );
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

/// As a string of JSON, and without anything that a terminal, or a reader of lines, takes for more than text.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                _ if is_treacherous(character) => write!(f, "\\u{:04x}", u32::from(character))?,
                _ => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}

/// Control characters, other ends of lines, and what turns the direction of writing. All have four digits.
fn is_treacherous(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The file.
#[derive(Debug)]
pub struct OrphanLog {
    path: PathBuf,
    limit: u64,
}

impl OrphanLog {
    /// Touches no disk.
    pub fn new(path: PathBuf) -> Self {
        Self { path, limit: LIMIT }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a batch. Blocks for a disk, but never for another bot.
    pub fn append(&self, batch: &Batch) -> Result<(), Refusal> {
        let mut file = self.make_room(self.open()?, batch.text.len())?;
        disk::take_turn(&file);
        file.write_all(batch.text.as_bytes()).map_err(Refusal::Failed)
    }

    /// The file that was opened, or a new one if it has become too long.
    ///
    /// The lock is on the file that is to be moved, not on its name. Of two bots that find it full one gets it and moves the file;
    /// the other gets it afterwards, sees that the name belongs to another file by now, and moves nothing: otherwise it would
    /// put a file of a few lines in place of a full one. Whoever does not get the lock, or finds that nothing can be moved, writes
    /// to the end of the file it has, which is not lost by being moved.
    fn make_room(&self, file: File, length: usize) -> Result<File, Refusal> {
        let size = file.metadata().map_err(Refusal::Failed)?.len();
        if size == 0 || size.saturating_add(length as u64) <= self.limit {
            return Ok(file);
        }
        match disk::try_lock(&file) {
            Ok(true) if disk::is_in_place(&file, &self.path) => {
                match std::fs::rename(&self.path, self.rotated()) {
                    Ok(()) => self.open(),
                    Err(_) => Ok(file),
                }
            }
            Ok(true) => self.open(),
            Ok(false) | Err(_) => Ok(file),
        }
    }

    fn rotated(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".1");
        name.into()
    }

    fn open(&self) -> Result<File, Refusal> {
        if let Some(folder) = self.path.parent() {
            disk::make_folder(folder).map_err(Refusal::Failed)?;
        }
        disk::open_to_extend(&self.path)
    }
}

#[cfg(test)]
mod tests;
