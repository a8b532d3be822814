//! Reads a registry file of any known format. Pure: text in, records out.
//!
//! | file | entries |
//! |---|---|
//! | spawn-owned | `{"version":1,"entries":[…]}`, see [`Record`] |
//! | Papercup | `{"entries":[{pid, startedAt, sessionId, botPid, commandPreview}]}` |
//! | loopwork orphan detector | `{"pids":[{pid, command, spawnedAt, cwd}]}`, or PIDs alone |
//! | loopwork manager | `{"version":1,"processes":[{pid, command, startTime, parentPid, …}]}` |
//! | claude-mem | `{"processes":{"<id>":{pid, type, sessionId?, startedAt, pgid?}}}` |
//!
//! A file can be wrong in any way: truncated, written by another program, edited by hand, or forged
//! to have a process killed. So an entry is accepted only if all of it is valid. An invalid entry
//! does not affect the others.
//!
//! From files of other programs only the PID and the age are used. Their `pgid` is ignored: those
//! programs did not read it from the kernel, and a group that the process does not lead belongs to
//! other processes.

#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::record::{Exit, Owner, Record};
use crate::contain::cookie::is_key;

/// The format version that we write.
const VERSION: u64 = 1;

/// Maximum difference between an old entry's `startedAt` and the start of the process with its PID.
///
/// Old bots read the clock after `spawn` returned, which takes up to some tenths of a second in a
/// large bot. The kernel reports a start in hundredths of a second since boot, and the boot time in
/// whole seconds. And the clock may have been adjusted. So the two never agree exactly, but within
/// two seconds.
///
/// Another process can be that close only if the kernel assigned *all* other PIDs in between,
/// because PIDs are assigned in turn.
pub const WINDOW_MS: u64 = 2_000;

/// Smaller numbers are seconds, larger ones are milliseconds. The limit is a date in 1973 as
/// milliseconds, and in 5138 as seconds.
const SECONDS_BELOW: u64 = 100_000_000_000;
/// The year 10000. A later start is invalid.
const TOO_LATE_MS: u64 = 253_402_300_800_000;

const PREVIEW: usize = 120;
const ID: usize = 256;
const PATH: usize = 4096;
const WHY: usize = 200;

/// Fields that only spawn-owned writes.
///
/// An entry with one of them is ours. It is not read as an old entry if its other fields are
/// damaged, because fewer checks apply to old entries.
const OURS: [&str; 3] = ["runId", "startToken", "containment"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    pub records: Vec<Record>,
    /// The rejected entries with the reasons. Contains no values of the entries.
    pub rejected: Vec<String>,
}

/// Why no entry of a file can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// A newer version wrote the file; this version would lose data.
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
    // Nearly always the file is our own and valid. Only otherwise it is read entry by entry.
    let Ok(file) = serde_json::from_str::<File>(text) else { return read_each_entry(text) };
    if file.version > VERSION {
        return Err(Unreadable::Newer(file.version));
    }
    let mut imported = Imported::default();
    for (index, record) in file.entries.into_iter().enumerate() {
        imported.add("entries", &index.to_string(), sound(record));
    }
    Ok(imported)
}

/// Whether a process that started at `seen_ms` may be the process of an old entry. An entry without
/// an age matches no process.
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

fn read_each_entry(text: &str) -> Result<Imported, Unreadable> {
    let corrupt = |why: &str| Unreadable::Corrupt(why.to_owned());
    let file: Value = serde_json::from_str(text).map_err(|error| corrupt(&error.to_string()))?;
    let Value::Object(file) = file else { return Err(corrupt("it is not a JSON object")) };
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
                    imported.add(list, &index.to_string(), read_entry(list, "", entry));
                }
            }
            Some(Value::Object(entries)) if list == "processes" => {
                for (id, entry) in entries {
                    imported.add(list, id, read_entry(list, id, entry));
                }
            }
            Some(_) => return Err(Unreadable::Corrupt(format!("`{list}` is not a list"))),
        }
        known = true;
    }
    if known { Ok(imported) } else { Err(corrupt("it has none of `entries`, `pids` and `processes`")) }
}

fn read_entry(list: &str, id: &str, entry: &Value) -> Result<Record, String> {
    match entry {
        Value::Object(fields) if list == "entries" && OURS.iter().any(|name| fields.contains_key(*name)) => {
            Record::deserialize(entry).map_err(|error| without_values(&error.to_string())).and_then(sound)
        }
        Value::Object(fields) => read_old_entry(id, fields),
        Value::Number(_) => Ok(bare(pid(entry)?, 0)),
        _ => Err("neither a PID nor an object".to_owned()),
    }
}

/// The entry with its text made safe, if it does not contradict itself.
///
/// A start token contains its PID. So a user who edits only the PID in the file cannot make the
/// entry name another process.
pub fn sound(mut record: Record) -> Result<Record, String> {
    let names =
        |token: &Option<crate::identity::ProcessRef>, pid| token.as_ref().is_none_or(|it| it.pid == pid);
    if record.pid <= 0 {
        return Err("its pid is not a valid PID".to_owned());
    }
    if !names(&record.start_token, record.pid) {
        return Err("its startToken has another PID than its pid field".to_owned());
    }
    if record.bot_pid < 0 || !names(&record.bot_start_token, record.bot_pid) {
        return Err("its botPid is negative, or differs from the PID in its botStartToken".to_owned());
    }
    // A signal to such a group would go to all processes, or to our own group.
    if record.pgid.is_some_and(|pgid| pgid <= 0) {
        return Err("its pgid is not a valid process group".to_owned());
    }
    if record.run_id.is_empty() {
        return Err("its runId is empty".to_owned());
    }
    if record.bot_start_token.as_ref().is_some_and(|owner| record.has_part(owner)) {
        return Err("it names its owner as a member or as the keeper".to_owned());
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
    // An invalid key would match no process, or any process.
    record.cookie_key.take_if(|key| !is_key(key));
    record.exit = record.exit.map(sound_exit);
    record.labels = std::mem::take(&mut record.labels).into_iter().map(tidy_label).collect();
    Ok(record)
}

/// The end of a run with its text made safe.
pub fn sound_exit(mut exit: Exit) -> Exit {
    tidy(&mut exit.reason, ID);
    tidy(&mut exit.ending, ID);
    exit
}

pub fn sound_owner(mut owner: Owner) -> Owner {
    tidy(&mut owner.instance, ID);
    owner
}

/// An entry of another program. The programs use different names for the same fields.
fn read_old_entry(id: &str, fields: &Map<String, Value>) -> Result<Record, String> {
    let first =
        |names: &[&str]| names.iter().find_map(|name| fields.get(*name).filter(|value| !value.is_null()));
    let pid = pid(first(&["pid"]).ok_or("it has no pid")?)?;
    let started_at = match first(&["startedAt", "spawnedAt", "startTime"]) {
        Some(value) => time(value).ok_or("its start time is invalid")?,
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
        Some(_) => return Err("its command is not text".to_owned()),
        None => id.to_owned(),
    };
    sound(record)
}

/// A record of which only PID and start are known. `startedAt` 0 and `botPid` 0 mean: unknown.
fn bare(pid: i32, started_at: u64) -> Record {
    Record {
        pid,
        started_at,
        run_id: format!("old-{pid}-{started_at}"),
        created_at_ms: started_at,
        updated_at_ms: started_at,
        ..Record::empty()
    }
}

fn pid(value: &Value) -> Result<i32, String> {
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    number.filter(|&pid| pid > 0).ok_or_else(|| "not a PID".to_owned())
}

/// A time in milliseconds since 1970, from milliseconds, seconds (with or without a fraction), or
/// text.
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

/// Parses `YYYY-MM-DDTHH:MM:SS`, with an optional fraction, and `Z` or `±HH:MM`.
///
/// That is the format of `toISOString` and of its equivalents in other languages. A time without a
/// zone is local time of an unknown zone, so it is refused.
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

/// Whether `text` has the form of `pattern`: a zero stands for any digit, other characters for
/// themselves.
fn looks_like(text: &str, pattern: &str) -> bool {
    let same = |(byte, expected): (u8, u8)| byte == expected || (expected == b'0' && byte.is_ascii_digit());
    text.len() == pattern.len() && text.bytes().zip(pattern.bytes()).all(same)
}

/// The number of days from 1970-01-01 to a day of the Gregorian calendar, if that day exists.
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

/// Replaces control characters and shortens long text.
///
/// Control characters would reach terminals. The `…` shows that the text was cut, so a shortened id
/// cannot equal another id.
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

/// The message of serde without the values that it has read, because these may be secrets.
fn without_values(message: &str) -> String {
    if message.starts_with("unknown variant") {
        return "unknown variant".to_owned();
    }
    match (message.find('"'), message.rfind('"')) {
        (Some(from), Some(to)) => format!("{}\"…\"{}", &message[..from], &message[to + 1..]),
        _ => message.to_owned(),
    }
}
