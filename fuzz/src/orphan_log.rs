//! A log line about an orphan: whatever the command contains, it is one line with the correct
//! fields.

use std::time::UNIX_EPOCH;

use spawn_owned::registry::orphan_log::{Batch, Orphan, What};

pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (command, reason) =
        text.split_at(text.chars().take(text.chars().count() / 2).map(char::len_utf8).sum());
    let orphan = Orphan { pid: 7, command, age_ms: Some(1), status: "confirmed" };
    let mut batch = Batch::new(UNIX_EPOCH);
    batch.add(What::Killed, &orphan, reason);
    let line = batch.text().strip_suffix('\n').expect("the line ends with a newline");
    assert!(
        !line.contains(char::is_control) && !line.contains(['\u{2028}', '\u{2029}', '\u{202e}']),
        "{line:?}"
    );

    let rest = line
        .strip_prefix("1970-01-01T00:00:00.000Z KILLED pid=7 cmd=")
        .expect("the line starts with the fixed fields");
    let (found, rest) = string(rest);
    assert_eq!(found, command);
    let (found, rest) =
        string(rest.strip_prefix(" age=0s status=confirmed reason=").expect("the fixed fields follow"));
    assert_eq!((found.as_str(), rest), (reason, ""));
}

/// Parses a JSON string, and returns it and the rest of the text.
fn string(text: &str) -> (String, &str) {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let value = values.next().and_then(Result::ok).expect("a string");
    (value, &text[values.byte_offset()..])
}
