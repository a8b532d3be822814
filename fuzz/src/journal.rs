//! A journal with any content: complete lines count, others do not, and the resulting records are
//! sound.

use spawn_owned::registry::Table;
use spawn_owned::registry::fuzzing::{decode, encode};

use crate::records::assert_sound;

pub fn check(input: &[u8]) {
    is_sound(input);
    // A line with a wrong length is skipped, and nearly every mutation makes the length wrong. An
    // attacker can write correct lengths, so correct them.
    is_sound(&with_true_lengths(input));
}

fn is_sound(input: &[u8]) {
    let (lines, _) = decode(input);
    let (again, torn) = decode(&encode(&lines));
    assert_eq!((&again, torn), (&lines, 0), "the lines changed when written and read again");

    let text = String::from_utf8_lossy(input);
    let mut table = Table::default();
    for line in lines {
        table.apply(line);
        for record in table.records() {
            assert_sound(record, &text);
        }
    }
    for (key, record) in table.iter() {
        assert_eq!(*key, record.key());
    }
}

fn with_true_lengths(input: &[u8]) -> Vec<u8> {
    let lines = input.split(|&byte| byte == b'\n').filter_map(|line| {
        let json = &line[line.iter().position(|&byte| byte == b'{')?..];
        Some([format!("{} ", json.len()).as_bytes(), json, b"\n"].concat())
    });
    lines.flatten().collect()
}
