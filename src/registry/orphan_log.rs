//! `orphan-events.log`: one line for every decision about an orphan, for people and for `grep`.
//!
//! ```text
//! 2026-11-17T02:55:16.123Z KILLED pid=4711 cmd="claude" age=3605s status=confirmed reason="no owner …"
//! ```
//!
//! Text between quotation marks is JSON. So a command cannot end its line or forge another one,
//! whatever its name is.
//!
//! Lines are appended, all lines of a batch by one `write`, so no lock is needed. A file that is
//! too long is renamed to `.1`, which replaces the previous `.1`.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;

use super::disk::{self, Refusal};

/// A longer file is renamed before the next batch.
const LIMIT: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Written before anything is done about the orphan.
    Detected,
    Killed,
    /// The orphan was not ended, or no process of it was left.
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

/// The orphan that a line is about.
#[derive(Debug, Clone, Copy)]
pub struct Orphan<'a> {
    pub pid: i32,
    pub command: &'a str,
    /// `None`: the start time is unknown.
    pub age_ms: Option<u64>,
    /// What is known about the orphan, as one word.
    pub status: &'a str,
}

/// Lines with the same time.
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

/// Displays text as a JSON string, with every character escaped that a terminal or a line reader
/// would interpret.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                _ if must_be_escaped(character) => write!(f, "\\u{:04x}", u32::from(character))?,
                _ => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}

/// Whether to escape a character: control characters, other line separators, and characters that
/// change the text direction. Their code points all have at most four hex digits.
fn must_be_escaped(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The log file.
#[derive(Debug)]
pub struct OrphanLog {
    path: PathBuf,
    limit: u64,
}

impl OrphanLog {
    /// Does not access the disk.
    pub fn new(path: PathBuf) -> Self {
        Self { path, limit: LIMIT }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a batch. May wait for the disk, but never for another bot.
    pub fn append(&self, batch: &Batch) -> Result<(), Refusal> {
        let mut file = self.rotate_if_full(self.open()?, batch.text.len())?;
        disk::take_turn(&file);
        file.write_all(batch.text.as_bytes()).map_err(Refusal::Failed)
    }

    /// Returns the open file, or a new one if the file is too long, see [`disk::rotate`].
    fn rotate_if_full(&self, file: File, length: usize) -> Result<File, Refusal> {
        let size = file.metadata().map_err(Refusal::Failed)?.len();
        let is_full = size > 0 && size.saturating_add(length as u64) > self.limit;
        if is_full && disk::rotate(&file, &self.path) { self.open() } else { Ok(file) }
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
