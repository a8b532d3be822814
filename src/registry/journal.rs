//! The journal: any process appends to it at any time, without the registry lock.
//!
//! The kernel writes one `write` with `O_APPEND` in one piece, so lines of different processes do
//! not mix. Some Windows file systems do not guarantee that, so there writers take turns, each for
//! the duration of one write.
//!
//! A checkpoint replaces the journal while other processes write to it, and no line is lost:
//!
//! - The checkpoint renames the journal to `.old`, and then reads `.old` to its end.
//! - After every write the writer checks that the path still is the file it wrote to. If it is not,
//!   the writer repeats the line in the new journal.
//! - So a line was written before the rename, and the checkpoint reads it; or the writer repeats
//!   it. A line that appears twice does no harm, see [`super::table`].
//!
//! A line consists of its length, a space, JSON and a newline. Each write begins with a newline. So
//! a part of a line that a crash or a full disk left behind becomes a line of its own, with a wrong
//! length.

use std::fs::File;
use std::io::Write;

use super::disk::{self, Paths};
use super::error::RegistryError;
use super::line_trace::trace_lines;
use super::record::Line;
use super::{failpoint, import};
use crate::errno::Errno;

/// Maximum number of times to write the same lines, if checkpoints keep replacing the journal.
const ATTEMPTS: usize = 64;

#[derive(Debug, Default)]
pub struct Journal {
    file: Option<File>,
}

impl Journal {
    /// Encodes, appends and traces lines.
    pub fn write(&mut self, paths: &Paths, lines: &[Line]) -> Result<(), RegistryError> {
        let written = self.append(paths, &encode(lines));
        trace_lines(lines, &written);
        written
    }

    /// Appends lines.
    ///
    /// When this returns, the lines are in the current journal, or the checkpoint that replaces the
    /// journal will read them.
    pub fn append(&mut self, paths: &Paths, bytes: &[u8]) -> Result<(), RegistryError> {
        for _ in 0..ATTEMPTS {
            let file = self.open(paths)?;
            disk::take_turn(file);
            let written = failpoint::write(bytes, |part| write_in_one_call(file, part));
            written.map_err(|errno| RegistryError::Unwritable { path: paths.journal.clone(), errno })?;
            let is_done = disk::is_in_place(file, &paths.journal);
            if !(is_done && disk::JOURNAL_STAYS_OPEN) {
                self.file = None;
            }
            if is_done {
                return Ok(());
            }
        }
        Err(RegistryError::Unwritable { path: paths.journal.clone(), errno: Errno::EBUSY })
    }

    /// Returns the open file if it is no longer the journal, so that the caller closes it.
    ///
    /// Otherwise the next writer, perhaps on the event loop, writes to the replaced file, writes
    /// again, and closes it. Closing takes time, because the kernel then frees the file's pages.
    pub fn take_replaced(&mut self, paths: &Paths) -> Option<File> {
        self.file.take_if(|file| !disk::is_in_place(file, &paths.journal))
    }

    /// The open journal.
    ///
    /// Creates the file and its folder if they do not exist: they may have been deleted while the
    /// bot runs.
    fn open(&mut self, paths: &Paths) -> Result<&mut File, RegistryError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => match disk::open_journal(&paths.journal) {
                Err(RegistryError::Unwritable { errno: Errno::ENOENT, .. }) => {
                    paths.make_folder()?;
                    disk::open_journal(&paths.journal)?
                }
                opened => opened?,
            },
        };
        Ok(self.file.insert(file))
    }
}

/// Writes all bytes in one call, or returns an error.
///
/// A second call could write the rest after a line of another process.
fn write_in_one_call(file: &mut File, bytes: &[u8]) -> Result<(), Errno> {
    match file.write(bytes) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(Errno::ENOSPC),
        Err(error) => Err(disk::errno_of(&error)),
    }
}

/// The lines as bytes for one `write`.
pub fn encode<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Vec<u8> {
    let mut bytes = vec![b'\n'];
    for line in lines {
        // Cannot fail: the lines contain only maps with text keys and plain values.
        let Ok(json) = serde_json::to_vec(line) else { continue };
        bytes.extend_from_slice(json.len().to_string().as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(&json);
        bytes.push(b'\n');
    }
    bytes
}

/// The content of a journal, sorted by kind of line.
#[derive(Debug, Default)]
pub struct Decoded {
    pub lines: Vec<Line>,
    /// Number of incomplete lines. Their writers died, or the disk was full; such a line has no
    /// effect.
    pub incomplete: usize,
    /// Number of lines that this version never writes.
    pub invalid: usize,
}

/// Decodes a journal.
pub fn read(bytes: &[u8]) -> Decoded {
    let mut decoded = Decoded::default();
    for piece in bytes.split(|&byte| byte == b'\n').filter(|piece| !piece.is_empty()) {
        match decode_line(piece) {
            DecodedLine::Valid(line) => decoded.lines.push(line),
            DecodedLine::Incomplete => decoded.incomplete += 1,
            DecodedLine::Invalid => decoded.invalid += 1,
        }
    }
    decoded
}

/// The valid lines of a journal, and the number of other lines.
pub fn decode(bytes: &[u8]) -> (Vec<Line>, usize) {
    let Decoded { lines, incomplete, invalid } = read(bytes);
    (lines, incomplete + invalid)
}

enum DecodedLine {
    Valid(Line),
    Incomplete,
    Invalid,
}

fn decode_line(piece: &[u8]) -> DecodedLine {
    let space = piece.iter().position(|&byte| byte == b' ').unwrap_or(piece.len());
    let digits = &piece[..space];
    let Some(length) = std::str::from_utf8(digits).ok().and_then(|text| text.parse::<usize>().ok()) else {
        return DecodedLine::Invalid;
    };
    let Some(json) = piece.get(space + 1..).filter(|json| json.len() >= length) else {
        return DecodedLine::Incomplete;
    };
    let line = if json.len() == length { valid_line(json) } else { None };
    line.map_or(DecodedLine::Invalid, DecodedLine::Valid)
}

/// The decoded line, with text made safe, if its content is valid.
fn valid_line(json: &[u8]) -> Option<Line> {
    match serde_json::from_slice(json).ok()? {
        Line::Intent { entry } => Some(Line::Intent { entry: Box::new(import::sound(*entry).ok()?) }),
        Line::Returned { entry, by } => {
            Some(Line::Returned { entry: Box::new(import::sound(*entry).ok()?), by })
        }
        Line::Ended { key, exit } => Some(Line::Ended { key, exit: import::sound_exit(exit) }),
        Line::Claimed { claims, by, at } => Some(Line::Claimed { claims, by: import::sound_owner(by), at }),
        line => Some(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(key: &str) -> Line {
        Line::Dropped { keys: vec![key.into()] }
    }

    #[test]
    fn an_incomplete_line_does_not_damage_the_next_line() {
        let whole = encode([&dropped("a"), &dropped("b")]);
        for cut in 0..whole.len() {
            let bytes = [&whole[..cut], &encode([&dropped("c")])].concat();
            let (lines, _) = decode(&bytes);
            let first = &whole[..cut];
            let complete = first.split(|&byte| byte == b'\n').count().saturating_sub(2);
            let expected = [dropped("a"), dropped("b")].into_iter().take(complete);
            // A line that lacks only its newline is complete too.
            let (lone, _) = decode(first);
            assert!(lone.len() == complete || lone.len() == complete + 1, "cut at {cut}");
            assert_eq!(lines.last(), Some(&dropped("c")), "cut at {cut}");
            assert_eq!(lines[..complete], expected.collect::<Vec<_>>(), "cut at {cut}");
        }
    }

    #[test]
    fn decoded_lines_contain_no_control_characters() {
        let lines = [
            json_line(
                r#"{"ended":{"key":"k","exit":{"atMs":1,"reason":"\u001b[2J","ending":"\n","exitCode":0,"signal":null,"survivors":0}}}"#,
            ),
            json_line(
                r#"{"claimed":{"claims":[],"by":{"instance":"\u0007","process":"7:8:9:b","leaseUntil":1},"at":1}}"#,
            ),
        ];
        let (lines, torn) = decode(lines.concat().as_bytes());
        assert_eq!((lines.len(), torn), (2, 0));
        assert!(!String::from_utf8_lossy(&encode(&lines)).contains("\\u00"), "{lines:?}");
    }

    fn json_line(json: &str) -> String {
        format!("{} {json}\n", json.len())
    }

    #[test]
    fn decode_skips_every_incomplete_or_invalid_line() {
        let json = serde_json::to_string(&dropped("a")).unwrap();
        for text in
            ["", "\n\n", "x", "12", "5 {}", &json, &format!("{} {json}", json.len() - 1), "2 {}", "\u{0}"]
        {
            assert_eq!(decode(text.as_bytes()).0, [], "{text:?}");
        }
    }
}
