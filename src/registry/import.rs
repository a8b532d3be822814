//! Reading a file, whoever wrote it. Pure: text in, records out.
//!
//! | file | entries |
//! |---|---|
//! | ours | `{"version":1,"entries":[…]}`, see [`Record`] |
//! | Papercup's | `{"entries":[{pid, startedAt, sessionId, botPid, commandPreview}]}` |
//! | loopwork's, of the orphan detector | `{"pids":[{pid, command, spawnedAt, cwd}]}`, or numbers alone |
//! | loopwork's, of the process manager | `{"version":1,"processes":[{pid, command, startTime, parentPid, …}]}` |
//! | claude-mem's | `{"processes":{"<id>":{pid, type, sessionId?, startedAt, pgid?}}}` |
//!
//! A file can be wrong in every way there is: half of it, another program's, edited by hand, made up to have somebody killed. So an
//! entry is taken only if all of it makes sense, and one that does not make sense takes no other with it.
//!
//! Of the old files only a PID and an age are believed. Their `pgid` is not: it was written down without asking the
//! kernel, and a group that the process does not lead is somebody else's.

#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::record::{Exit, Owner, Record};

/// The format we write.
const VERSION: u64 = 1;

/// How far an old entry's `startedAt` and the start of the process with its PID may be apart.
///
/// Old bots read the clock when `spawn` had returned, which takes up to some tenths of a second in a big bot. The kernel
/// tells a start in hundredths of a second since a boot whose own time it tells in whole seconds; and the clock may have been
/// adjusted. So the two never agree exactly, but they do within two seconds. For a stranger to be that close, the kernel
/// must have handed out *all* other PIDs in between: it goes round.
pub const WINDOW_MS: u64 = 2_000;

/// Numbers below are seconds, others are milliseconds: 1973 if taken for the latter, 5138 if taken for the former.
const SECONDS_BELOW: u64 = 100_000_000_000;
/// The year 10000. Nobody has started anything after it.
const TOO_LATE_MS: u64 = 253_402_300_800_000;

const PREVIEW: usize = 120;
const ID: usize = 256;
const PATH: usize = 4096;
const WHY: usize = 200;

/// Fields that only we write. With one of them an entry is ours, and is not taken for an old one because the others are
/// damaged: of an old one less is asked.
const OURS: [&str; 3] = ["runId", "startToken", "containment"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    pub records: Vec<Record>,
    /// Which entries were not taken, and why. Says nothing of what was in them.
    pub rejected: Vec<String>,
}

/// Not one entry can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// Written by a later version, which knows what we would lose.
    Newer(u64),
    Corrupt(String),
}

#[derive(Deserialize)]
struct File {
    version: u64,
    entries: Vec<Record>,
}

/// The entries of a registry file.
pub fn read(text: &str) -> Result<Imported, Unreadable> {
    // Nearly always the file is our own and in order. If not, it is worth the time to find out what is wrong with it.
    let Ok(file) = serde_json::from_str::<File>(text) else { return piece_by_piece(text) };
    if file.version > VERSION {
        return Err(Unreadable::Newer(file.version));
    }
    let mut imported = Imported::default();
    for (index, record) in file.entries.into_iter().enumerate() {
        imported.add("entries", &index.to_string(), sound(record));
    }
    Ok(imported)
}

/// Whether the process that was seen to start then may be the one of an old entry. An entry without an age names nobody.
pub fn agrees(started_at: u64, seen_ms: u64) -> bool {
    started_at != 0 && started_at.abs_diff(seen_ms) <= WINDOW_MS
}

impl Imported {
    fn add(&mut self, list: &str, name: &str, entry: Result<Record, String>) {
        match entry {
            Ok(record) => self.records.push(record),
            Err(why) => {
                let mut why = format!("{list}[{name}]: {why}");
                tidy(&mut why, WHY);
                self.rejected.push(why);
            }
        }
    }
}

fn piece_by_piece(text: &str) -> Result<Imported, Unreadable> {
    let corrupt = |why: &str| Unreadable::Corrupt(why.to_owned());
    let file: Value = serde_json::from_str(text).map_err(|error| corrupt(&error.to_string()))?;
    let Value::Object(file) = file else { return Err(corrupt("not an object")) };
    if let Some(version) = file.get("version") {
        let number = version.as_f64().ok_or_else(|| corrupt("its version is not a number"))?;
        if number > 1.0 {
            return Err(Unreadable::Newer(version.as_u64().unwrap_or(u64::MAX)));
        }
    }
    let mut imported = Imported::default();
    let mut known = false;
    for list in ["entries", "pids", "processes"] {
        match file.get(list) {
            None => continue,
            Some(Value::Array(entries)) => {
                for (index, entry) in entries.iter().enumerate() {
                    imported.add(list, &index.to_string(), any(list, "", entry));
                }
            }
            Some(Value::Object(entries)) if list == "processes" => {
                for (id, entry) in entries {
                    imported.add(list, id, any(list, id, entry));
                }
            }
            Some(_) => return Err(Unreadable::Corrupt(format!("`{list}` is not a list"))),
        }
        known = true;
    }
    if known { Ok(imported) } else { Err(corrupt("neither `entries` nor `pids` nor `processes`")) }
}

fn any(list: &str, id: &str, entry: &Value) -> Result<Record, String> {
    match entry {
        Value::Object(fields) if list == "entries" && OURS.iter().any(|name| fields.contains_key(*name)) => {
            Record::deserialize(entry).map_err(|error| without_values(&error.to_string())).and_then(sound)
        }
        Value::Object(fields) => old(id, fields),
        Value::Number(_) => Ok(bare(pid(entry)?, 0)),
        _ => Err("neither a PID nor an object".to_owned()),
    }
}

/// An entry of ours, if it does not contradict itself. A token carries its PID, so that one cannot be changed without the
/// other: whoever edits a number in the file does not thereby aim at another process.
pub fn sound(mut record: Record) -> Result<Record, String> {
    let names =
        |token: &Option<crate::identity::ProcessRef>, pid| token.as_ref().is_none_or(|it| it.pid == pid);
    if record.pid <= 0 {
        return Err("its pid is none".to_owned());
    }
    if !names(&record.start_token, record.pid) {
        return Err("its startToken is another process's".to_owned());
    }
    if record.bot_pid < 0 || !names(&record.bot_start_token, record.bot_pid) {
        return Err("its botStartToken is another process's".to_owned());
    }
    // Signals to such groups go to everybody, or to our own.
    if record.pgid.is_some_and(|pgid| pgid <= 0) {
        return Err("its pgid is none".to_owned());
    }
    if record.run_id.is_empty() {
        return Err("its runId is empty".to_owned());
    }
    if record.bot_start_token.as_ref().is_some_and(|owner| record.has_part(owner)) {
        return Err("its owner is named as a part of it".to_owned());
    }
    tidy(&mut record.command_preview, PREVIEW);
    tidy(&mut record.run_id, ID);
    let texts = [
        &mut record.session_id,
        &mut record.owner_instance_id,
        &mut record.backend_id,
        &mut record.scope_key,
        &mut record.service,
    ];
    texts.into_iter().flatten().for_each(|text| tidy(text, ID));
    record.cgroup.iter_mut().chain(&mut record.job).for_each(|path| tidy(path, PATH));
    record.keeper.iter_mut().for_each(|keeper| tidy(&mut keeper.address, PATH));
    record.exit = record.exit.map(sound_exit);
    record.labels = std::mem::take(&mut record.labels).into_iter().map(tidy_label).collect();
    Ok(record)
}

/// The same for what is written down later.
pub fn sound_exit(mut exit: Exit) -> Exit {
    tidy(&mut exit.reason, ID);
    tidy(&mut exit.ending, ID);
    exit
}

pub fn sound_owner(mut owner: Owner) -> Owner {
    tidy(&mut owner.instance, ID);
    owner
}

/// An entry of somebody else's. What they all mean is the same; the names differ.
fn old(id: &str, fields: &Map<String, Value>) -> Result<Record, String> {
    let first =
        |names: &[&str]| names.iter().find_map(|name| fields.get(*name).filter(|value| !value.is_null()));
    let pid = pid(first(&["pid"]).ok_or("it has no pid")?)?;
    let started_at = match first(&["startedAt", "spawnedAt", "startTime"]) {
        Some(value) => time(value).ok_or("its start is no time")?,
        None => 0,
    };
    let mut record = bare(pid, started_at);
    record.bot_pid = match first(&["botPid", "parentPid"]) {
        Some(value) if value.as_u64() == Some(0) => 0,
        Some(value) => self::pid(value)?,
        None => 0,
    };
    record.session_id = match first(&["sessionId"]) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(_) => return Err("its sessionId is neither text nor a number".to_owned()),
        None => None,
    };
    record.command_preview = match first(&["commandPreview", "command", "type"]) {
        Some(Value::String(text)) => text.clone(),
        Some(_) => return Err("its command is no text".to_owned()),
        None => id.to_owned(),
    };
    sound(record)
}

/// What is known of a process of which a PID was written down. `startedAt` 0 and `botPid` 0 mean: unknown.
fn bare(pid: i32, started_at: u64) -> Record {
    Record {
        pid,
        started_at,
        run_id: format!("old-{pid}-{started_at}"),
        created_at_ms: started_at,
        updated_at_ms: started_at,
        ..Record::blank()
    }
}

fn pid(value: &Value) -> Result<i32, String> {
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    number.filter(|&pid| pid > 0).ok_or_else(|| "not a PID".to_owned())
}

/// Milliseconds since 1970, from those, from seconds (with or without a fraction), or from text.
fn time(value: &Value) -> Option<u64> {
    let ms = match value {
        Value::String(text) => iso(text)?,
        Value::Number(number) => match number.as_u64() {
            Some(seconds) if seconds < SECONDS_BELOW => seconds * 1_000,
            Some(ms) => ms,
            None => fractional(number.as_f64()?)?,
        },
        _ => return None,
    };
    (ms < TOO_LATE_MS).then_some(ms)
}

fn fractional(number: f64) -> Option<u64> {
    let seconds = if number < 1e11 { number } else { number / 1_000.0 };
    u64::try_from(Duration::try_from_secs_f64(seconds).ok()?.as_millis()).ok()
}

/// `YYYY-MM-DDTHH:MM:SS`, perhaps with a fraction, and `Z` or `±HH:MM`: what `toISOString` writes, and no more than its
/// neighbours in other languages do. A time without a zone is somebody's local time, hence none.
fn iso(text: &str) -> Option<u64> {
    let (head, rest) = (text.get(..19)?, text.get(19..)?);
    if !looks_like(head, "0000-00-00T00:00:00") {
        return None;
    }
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => {
            rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).filter(|n| (1..=9).contains(n))?)
        }
        None => ("0", rest),
    };
    let part = |text: &str, from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let days = days(part(head, 0, 4)?, part(head, 5, 7)?, part(head, 8, 10)?)?;
    let (hour, minute, second) = (part(head, 11, 13)?, part(head, 14, 16)?, part(head, 17, 19)?);
    let east = if zone == "Z" {
        0
    } else {
        let ahead = if looks_like(zone, "+00:00") { 1 } else { -1 };
        if ahead < 0 && !looks_like(zone, "-00:00") {
            return None;
        }
        let (hours, minutes) = (part(zone, 1, 3)?, part(zone, 4, 6)?);
        (hours < 24 && minutes < 60).then_some(ahead * (hours * 60 + minutes))?
    };
    let milli = part(&format!("{fraction:0<3}"), 0, 3)?;
    let minutes =
        (hour < 24 && minute < 60 && second < 60).then_some((days * 24 + hour) * 60 + minute - east)?;
    u64::try_from((minutes * 60 + second) * 1_000 + milli).ok()
}

/// Zeros stand for digits, everything else for itself.
fn looks_like(text: &str, pattern: &str) -> bool {
    let same = |(byte, expected): (u8, u8)| byte == expected || (expected == b'0' && byte.is_ascii_digit());
    text.len() == pattern.len() && text.bytes().zip(pattern.bytes()).all(same)
}

/// From 1970-01-01 to that day of the Gregorian calendar, if there is such a day.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month).ok()?.checked_sub(1)?;
    if !(1..=*lengths.get(before)?).contains(&day) {
        return None;
    }
    let leaps_until = |year: i64| (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400;
    let leaps = leaps_until(year) - leaps_until(1970);
    Some((year - 1970) * 365 + leaps + lengths[..before].iter().sum::<i64>() + day - 1)
}

/// Control characters would reach terminals, and endless text would bury the rest. The mark at the end shows people that there was
/// more, and keeps an id that was cut from being another one's.
fn tidy(text: &mut String, most: usize) {
    if text.contains(char::is_control) {
        *text = text.replace(char::is_control, "\u{fffd}");
    }
    if let Some((end, _)) = text.char_indices().nth(most) {
        let last = text[..end].char_indices().next_back().map_or(0, |(at, _)| at);
        text.truncate(last);
        text.push('…');
    }
}

fn tidy_label((mut name, mut value): (String, String)) -> (String, String) {
    tidy(&mut name, ID);
    tidy(&mut value, ID);
    (name, value)
}

/// What serde says, without what it has read: that may be anybody's secret.
fn without_values(message: &str) -> String {
    if message.starts_with("unknown variant") {
        return "unknown variant".to_owned();
    }
    match (message.find('"'), message.rfind('"')) {
        (Some(from), Some(to)) => format!("{}\"…\"{}", &message[..from], &message[to + 1..]),
        _ => message.to_owned(),
    }
}
