//! The journal: appended to by everybody, without waiting for anybody.
//!
//! One `write` with `O_APPEND` is one piece: the kernel lets no other in between. On Windows not every file system promises that, and
//! writers take turns, each for the time of one write. What needs an argument is how the journal is replaced while others write to
//! it. Whoever makes a checkpoint renames it to `.old` and reads that to its end. A
//! writer that still had the old one open looks, after every write, whether the path still is the file it wrote to; if
//! not, it writes again, to the new one. So a line is in what the checkpoint has read (written before the rename, which
//! comes before the read), or the writer has noticed and repeated it. Twice does no harm, see [`super::table`].
//!
//! A line is its length, a space, JSON, and a newline. Each write begins with a newline: whatever a crash or a full disk has
//! left at the end is then a line of its own, whose length does not agree.

use std::fs::File;
use std::io::Write;

use super::disk::{self, Paths};
use super::error::RegistryError;
use super::record::Line;
use super::{failpoint, import};
use crate::errno::Errno;

/// How often the journal may be replaced under a writer's hands.
const ATTEMPTS: usize = 64;

#[derive(Debug, Default)]
pub struct Journal {
    file: Option<File>,
}

impl Journal {
    /// When this returns, the lines are in the journal that is in place, or will be seen by whoever replaces it.
    pub fn append(&mut self, paths: &Paths, bytes: &[u8]) -> Result<(), RegistryError> {
        for _ in 0..ATTEMPTS {
            let file = self.open(paths)?;
            disk::take_turn(file);
            let written = failpoint::write(bytes, |part| write_at_once(file, part));
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

    /// Gives away a file that is the journal no more. Whoever wrote to it next, on the event loop perhaps, would have to find that out,
    /// to write once more, and to close it, which is when the kernel frees what it holds.
    pub fn let_go(&mut self, paths: &Paths) -> Option<File> {
        self.file.take_if(|file| !disk::is_in_place(file, &paths.journal))
    }

    /// The journal, made if need be, and its folder too: somebody may have deleted both while we run.
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

/// All of it in one call, or an error: the rest, written later, could come after somebody else's line.
fn write_at_once(file: &mut File, bytes: &[u8]) -> Result<(), Errno> {
    match file.write(bytes) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(Errno::ENOSPC),
        Err(error) => Err(disk::errno_of(&error)),
    }
}

/// Lines as they are written.
pub fn encode<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Vec<u8> {
    let mut bytes = vec![b'\n'];
    for line in lines {
        // Maps with text keys and plain values: there is nothing that JSON cannot hold.
        let Ok(json) = serde_json::to_vec(line) else { continue };
        bytes.extend_from_slice(json.len().to_string().as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(&json);
        bytes.push(b'\n');
    }
    bytes
}

/// The lines of a journal, and how many pieces of it were none.
pub fn decode(bytes: &[u8]) -> (Vec<Line>, usize) {
    let mut torn = 0;
    let lines = bytes.split(|&byte| byte == b'\n').filter(|piece| !piece.is_empty());
    let lines = lines.filter_map(|piece| {
        let line = decode_line(piece);
        torn += usize::from(line.is_none());
        line
    });
    (lines.collect(), torn)
}

fn decode_line(piece: &[u8]) -> Option<Line> {
    let space = piece.iter().position(|&byte| byte == b' ')?;
    let (length, json) = (&piece[..space], &piece[space + 1..]);
    let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
    if json.len() != length {
        return None;
    }
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
    fn a_torn_piece_does_not_spoil_what_follows_it() {
        let whole = encode([&dropped("a"), &dropped("b")]);
        for cut in 0..whole.len() {
            let bytes = [&whole[..cut], &encode([&dropped("c")])].concat();
            let (lines, _) = decode(&bytes);
            let first = &whole[..cut];
            let complete = first.split(|&byte| byte == b'\n').count().saturating_sub(2);
            let expected = [dropped("a"), dropped("b")].into_iter().take(complete);
            // A line that lacks nothing but its newline is complete as well.
            let (lone, _) = decode(first);
            assert!(lone.len() == complete || lone.len() == complete + 1, "cut at {cut}");
            assert_eq!(lines.last(), Some(&dropped("c")), "cut at {cut}");
            assert_eq!(lines[..complete], expected.collect::<Vec<_>>(), "cut at {cut}");
        }
    }

    #[test]
    fn what_a_line_adds_to_an_entry_cannot_reach_a_terminal_either() {
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
    fn nothing_but_whole_lines_is_read() {
        let json = serde_json::to_string(&dropped("a")).unwrap();
        for text in
            ["", "\n\n", "x", "12", "5 {}", &json, &format!("{} {json}", json.len() - 1), "2 {}", "\u{0}"]
        {
            assert_eq!(decode(text.as_bytes()).0, [], "{text:?}");
        }
    }
}
