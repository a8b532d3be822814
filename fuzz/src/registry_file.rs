//! A registry file: ours, one of another program, or any bytes.

use spawn_owned::registry::import::{self, Imported};
use spawn_owned::registry::{CachedRecord, Record};

use crate::records::assert_sound;

pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(imported) = import::read(&text) else { return };
    for record in &imported.records {
        assert_sound(record, &text);
    }
    for why in &imported.rejected {
        assert!(why.chars().count() <= 200 && !why.contains(char::is_control), "{why:?}");
    }
    let again = import::read(&file(&imported.records));
    let expected = Imported { records: imported.records, rejected: Vec::new() };
    assert_eq!(again, Ok(expected), "the records changed when written and read again");
}

fn file(records: &[Record]) -> String {
    let entries: Vec<_> = records.iter().map(|record| CachedRecord::new(record.clone())).collect();
    let entries: Vec<_> = entries.iter().filter_map(|entry| entry.json().map(|json| json.get())).collect();
    format!("{{\"version\":1,\"entries\":[{}]}}", entries.join(","))
}
