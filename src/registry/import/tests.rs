//! Tables of files, and of the records that must or must not result.

mod mutations;
mod times;

pub use mutations::mutate;

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::identity::ProcessRef;
use crate::registry::{Containment, Keeper};

pub fn process(pid: i32) -> ProcessRef {
    ProcessRef { pid, start: 8_812_345, boot: "0b1c2d3e-4f50".into(), ns: 4_026_531_836 }
}

/// An entry as spawn-owned writes it.
pub fn ours(pid: i32) -> Record {
    Record {
        session_id: Some("chat-7".into()),
        bot_pid: 700,
        command_preview: "agent --print".into(),
        run_id: format!("run-{pid}"),
        start_token: Some(process(pid)),
        bot_start_token: Some(process(700)),
        owner_instance_id: Some("supervisor-1".into()),
        lease_expires_at_ms: Some(1_700_000_030_000),
        pgid: Some(pid),
        containment: Containment::Keeper,
        labels: BTreeMap::from([("agent".into(), "codex".into())]),
        members: vec![process(pid + 1)],
        ..bare(pid, 1_700_000_000_000)
    }
}

/// A pseudo-random generator with a fixed seed (xorshift64), so that every run is the same.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    pub fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

pub fn file(records: &[Record]) -> String {
    json!({ "version": 1, "entries": records }).to_string()
}

fn papercup() -> Value {
    json!({ "pid": 4242, "startedAt": 1_700_000_000_123_u64, "sessionId": "chat-7", "botPid": 700, "commandPreview": "agent -p" })
}

/// The only record of a file that has one.
fn only(text: &str) -> Record {
    let Imported { mut records, rejected } = read(text).unwrap();
    assert_eq!((records.len(), rejected), (1, vec![]), "{text}");
    records.remove(0)
}

/// Why the only entry of a file was rejected.
fn refused(text: &str) -> String {
    let Imported { records, mut rejected } = read(text).unwrap();
    assert_eq!((records, rejected.len()), (vec![], 1), "{text}");
    rejected.remove(0)
}

#[test]
fn read_returns_the_entries_that_we_write() {
    let records = [ours(4242), ours(4300), bare(77, 0)];
    assert_eq!(read(&file(&records)), Ok(Imported { records: records.to_vec(), rejected: vec![] }));
    assert_eq!(read(&file(&[])), Ok(Imported::default()));
}

#[test]
fn read_understands_the_formats_of_other_programs() {
    let pids = json!({ "pids": [{ "pid": 4242, "command": "claude", "spawnedAt": "2023-11-14T22:13:20.123Z", "cwd": "." }] });
    let manager = json!({ "version": 1, "parentPid": 9, "lastUpdated": 1, "processes": [{ "pid": 4242, "status": "running",
        "parentPid": 700, "command": "claude", "args": ["-p"], "namespace": "default", "startTime": 1_700_000_000_123_u64 }] });
    let worker = json!({ "processes": { "sdk:7:4242": { "pid": 4242, "type": "sdk", "sessionId": 7,
        "startedAt": "2023-11-14T22:13:20.123Z", "pgid": 4242 } } });
    let unnamed =
        json!({ "processes": { "worker": { "pid": 4242, "startedAt": "2023-11-14T22:13:20.123Z" } } });
    let text = |text: &str| Some(text.to_owned());
    for (file, bot_pid, session_id, preview) in [
        (json!({ "entries": [papercup()] }), 700, text("chat-7"), "agent -p"),
        (pids, 0, None, "claude"),
        (manager, 700, None, "claude"),
        (worker, 0, text("7"), "sdk"),
        (unnamed, 0, None, "worker"),
    ] {
        let expected =
            Record { bot_pid, session_id, command_preview: preview.into(), ..bare(4242, 1_700_000_000_123) };
        assert_eq!(only(&file.to_string()), expected, "{file}");
    }
    assert_eq!(bare(4242, 5).run_id, "old-4242-5");
}

#[test]
fn a_pid_without_an_age_matches_no_process() {
    let record = only(r#"{"pids":[4242]}"#);
    assert_eq!(record, bare(4242, 0));
    assert!(!agrees(record.started_at, 0) && !agrees(record.started_at, 1_000));
}

#[test]
fn read_ignores_the_process_group_in_files_of_other_programs() {
    let text = r#"{"processes":{"chroma":{"pid":4242,"pgid":4000,"startedAt":"2023-11-14T22:13:20Z"}}}"#;
    assert_eq!((only(text).pgid, only(text).containment), (None, Containment::Process));
}

#[test]
fn start_times_agree_only_within_the_window() {
    let at = 1_700_000_000_000;
    for (seen, expected) in [
        (at, true),
        (at - WINDOW_MS, true),
        (at + WINDOW_MS, true),
        (at - WINDOW_MS - 1, false),
        (at + WINDOW_MS + 1, false),
        (0, false),
        (u64::MAX, false),
    ] {
        assert_eq!(agrees(at, seen), expected, "{seen}");
    }
    assert!(!agrees(0, 0) && !agrees(0, WINDOW_MS));
}

#[test]
fn an_invalid_entry_does_not_affect_the_others() {
    let mut entries =
        vec![serde_json::to_value(ours(4242)).unwrap(), papercup(), json!(null), json!([]), json!({})];
    entries.push(json!({ "pid": 9, "runId": "damaged" }));
    entries.push(serde_json::to_value(ours(4300)).unwrap());
    let imported = read(&json!({ "version": 1, "entries": entries }).to_string()).unwrap();
    assert_eq!(imported.records.iter().map(|record| record.pid).collect::<Vec<_>>(), [4242, 4242, 4300]);
    assert_eq!(imported.rejected.len(), 4);
    assert_eq!(imported.rejected[0], "entries[2]: neither a PID nor an object");
    assert_eq!(imported.rejected[3], "entries[5]: missing field `startedAt`");
}

#[test]
fn a_damaged_entry_of_ours_is_not_read_as_an_old_entry() {
    for name in OURS {
        let mut entry = papercup();
        entry[name] = json!("x");
        refused(&json!({ "entries": [entry] }).to_string());
    }
}

#[test]
fn an_invalid_pid_is_refused() {
    #[rustfmt::skip]
    let invalid = [
        "0", "-1", "-4242", "1.5", "4242.0", "1e3", "2147483648", "4294967297",
        "18446744073709551617", "1e300", "true", "\"4242\"", "null", "[]", "{}",
    ];
    for pid in invalid {
        refused(&format!(r#"{{"entries":[{{"pid":{pid},"startedAt":1}}]}}"#));
        refused(&format!(r#"{{"pids":[{pid}]}}"#));
        refused(&file(&[ours(4242)]).replace("\"pid\":4242", &format!("\"pid\":{pid}")));
    }
}

#[test]
fn an_entry_with_a_field_of_the_wrong_type_is_refused() {
    for (name, value) in [
        ("startedAt", json!("yesterday")),
        ("startedAt", json!(-1)),
        ("startedAt", json!(1e300)),
        ("startedAt", json!(u64::MAX)),
        ("startedAt", json!(true)),
        ("sessionId", json!([])),
        ("botPid", json!(-1)),
        ("botPid", json!("700")),
        ("commandPreview", json!(7)),
    ] {
        let mut entry = papercup();
        entry[name] = value;
        refused(&json!({ "entries": [entry] }).to_string());
    }
    for name in ["startedAt", "sessionId", "botPid", "commandPreview"] {
        let mut entry = papercup();
        entry[name] = Value::Null;
        only(&json!({ "entries": [entry] }).to_string());
    }
}

#[test]
fn an_entry_that_contradicts_itself_is_refused() {
    let whole = ours(4242);
    for (changed, why) in [
        (Record { pid: 4243, ..whole.clone() }, "startToken"),
        (Record { start_token: Some(process(4243)), ..whole.clone() }, "startToken"),
        (Record { bot_pid: 701, ..whole.clone() }, "botStartToken"),
        (Record { bot_pid: 0, ..whole.clone() }, "botStartToken"),
        (Record { bot_start_token: None, bot_pid: -1, ..whole.clone() }, "botStartToken"),
        (Record { pgid: Some(-1), ..whole.clone() }, "pgid"),
        (Record { pgid: Some(0), ..whole.clone() }, "pgid"),
        (Record { run_id: String::new(), ..whole.clone() }, "runId"),
    ] {
        assert!(refused(&file(std::slice::from_ref(&changed))).contains(why), "{changed:?}");
    }
    refused(&file(&[whole]).replace("4242:8812345:", "4242:-8812345:"));
}

#[test]
fn a_file_that_is_no_registry_is_corrupt() {
    let deep = "[".repeat(100_000);
    let nested = format!(r#"{{"entries":[{}{}]}}"#, "[".repeat(500), "]".repeat(500));
    for text in [
        "",
        " ",
        "{",
        "[]",
        "7",
        "null",
        "{}",
        r#"{"entries":{}}"#,
        r#"{"pids":7}"#,
        r#"{"processes":null}"#,
        r#"{"version":"1","entries":[]}"#,
        r#"{"version":null,"entries":[]}"#,
        r#"{"other":[]}"#,
        "\0",
        r#"{"entries":[]}}"#,
        &deep,
        &nested,
    ] {
        assert!(matches!(read(text), Err(Unreadable::Corrupt(_))), "{:?}", text.get(..40));
    }
}

#[test]
fn a_file_of_a_newer_version_is_refused() {
    let newer = file(&[ours(4242)]).replace("\"version\":1", "\"version\":2");
    assert_eq!(read(&newer), Err(Unreadable::Newer(2)));
    assert_eq!(read(r#"{"version":3,"runs":{}}"#), Err(Unreadable::Newer(3)));
    assert_eq!(read(r#"{"version":1e30,"entries":[]}"#), Err(Unreadable::Newer(u64::MAX)));
    assert_eq!(read(r#"{"version":1.5,"entries":[]}"#), Err(Unreadable::Newer(u64::MAX)));
}

#[test]
fn the_last_of_duplicate_fields_counts_as_in_javascript() {
    assert_eq!(only(r#"{"pids":[1],"pids":[{"pid":5,"pid":4242}]}"#).pid, 4242);
}

#[test]
fn control_characters_are_replaced_and_long_text_is_shortened() {
    let long = format!("a\u{0}b\u{1b}[2J\u{9b}{}", "é".repeat(500));
    let record = only(&file(&[Record {
        command_preview: long.clone(),
        run_id: long.clone(),
        session_id: Some(long.clone()),
        labels: BTreeMap::from([(long.clone(), long.clone())]),
        ..ours(4242)
    }]));
    let (name, value) = record.labels.first_key_value().unwrap();
    let session = record.session_id.as_ref().unwrap();
    for (text, most) in
        [(&record.command_preview, 120), (&record.run_id, 256), (session, 256), (name, 256), (value, 256)]
    {
        assert!(text.starts_with("a\u{fffd}b\u{fffd}[2J\u{fffd}é") && text.ends_with('…'), "{text}");
        assert_eq!(text.chars().count(), most);
    }
    let entry = json!({ "entries": [{ "pid": 4242, "commandPreview": long, "sessionId": long }] });
    assert_eq!(only(&entry.to_string()).command_preview, record.command_preview);
}

#[test]
fn valid_text_stays_unchanged() {
    for text in ["é".repeat(120), String::new(), "agent --print 'a b'".into()] {
        let mut tidied = text.clone();
        tidy(&mut tidied, PREVIEW);
        assert_eq!(tidied, text);
    }
}

#[test]
fn a_rejection_contains_no_values_of_the_entry() {
    let secret = "hunter2".repeat(100);
    for name in ["graceMs", "state", "startToken", "members", "labels", "keeper"] {
        let mut entry = serde_json::to_value(ours(4242)).unwrap();
        entry[name] = json!(format!("\"{secret}"));
        let why = refused(&json!({ "version": 1, "entries": [entry] }).to_string());
        assert!(!why.contains("hunter2") && why.chars().count() <= WHY, "{why}");
    }
    let named = json!({ "processes": { secret: [] } });
    assert_eq!(refused(&named.to_string()).chars().count(), WHY);
}

/// An action on a run hits its members, and must never hit the bot that owns it.
#[test]
fn an_entry_that_names_its_owner_as_a_member_or_keeper_is_refused() {
    let owner = ours(4242).bot_start_token.unwrap();
    let keeper = Some(Keeper { start_token: owner.clone(), address: "00abc".into() });
    for (record, is_accepted) in [
        (Record { members: vec![process(4243)], ..ours(4242) }, true),
        (Record { members: vec![process(4243), owner], ..ours(4242) }, false),
        (Record { keeper: keeper.clone(), ..ours(4242) }, false),
        // With a Job Object, the bot itself is the keeper.
        (Record { keeper, containment: Containment::Job, ..ours(4242) }, true),
    ] {
        let Imported { records, rejected } = read(&file(std::slice::from_ref(&record))).unwrap();
        assert_eq!(
            (records.len(), rejected.is_empty()),
            (usize::from(is_accepted), is_accepted),
            "{record:?}"
        );
    }
}
