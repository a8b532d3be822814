//! Thousands of damaged files: each yields valid records, or is refused.

use super::*;

/// Checks what must hold for every record, whatever its source.
fn assert_sound(record: &Record, text: &str) {
    let tidy = |text: &str, most| text.chars().count() <= most && !text.contains(char::is_control);
    assert!(record.pid > 0 && record.bot_pid >= 0, "{text}");
    assert!(record.start_token.as_ref().is_none_or(|token| token.pid == record.pid), "{text}");
    assert!(record.bot_start_token.as_ref().is_none_or(|token| token.pid == record.bot_pid), "{text}");
    assert!(record.pgid.is_none_or(|pgid| pgid > 0), "{text}");
    assert!(record.members.iter().all(|member| member.pid > 0), "{text}");
    assert!(!record.run_id.is_empty() && tidy(&record.run_id, ID), "{text}");
    assert!(tidy(&record.command_preview, PREVIEW), "{text}");
    assert!(record.session_id.as_ref().is_none_or(|session| tidy(session, ID)), "{text}");
}

pub fn mutate(seed: &str, random: &mut Random) -> String {
    #[rustfmt::skip]
    const FRAGMENTS: [&str; 22] = [
        "null", "-1", "0", "1", "4242", "2147483648", "1e400", "1.5", "18446744073709551616", "\"\"", "\"\\u0000\"",
        "\\ud800", "{", "}", "[", "]", "[[[[[[[[", ",", ":", "\"", "\"pid\":7,", "\"startToken\":\"7:8:9:b\",",
    ];
    let mut bytes = seed.as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let to = (at + random.below(24)).min(bytes.len());
        match random.below(6) {
            0 if at < to => bytes[at] ^= 1 << random.below(8),
            1 => drop(bytes.drain(at..to)),
            2 if random.below(4) == 0 => bytes.truncate(at),
            3 => bytes.extend_from_within(at..to),
            // Replace digits by other digits: the file stays valid JSON, with other content.
            4 => bytes[at..to]
                .iter_mut()
                .filter(|b| b.is_ascii_digit())
                .for_each(|b| *b = b'0' + (*b - b'0' + 3) % 10),
            _ => drop(bytes.splice(at..at, random.pick(&FRAGMENTS).bytes())),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `MUTATIONS=1000000` for a longer run.
#[test]
fn every_mutated_file_yields_only_valid_records() {
    let count = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let seeds = [
        file(&[ours(4242)]),
        file(&[ours(4242), bare(77, 1_700_000_000_000)]),
        json!({ "entries": [papercup(), papercup()] }).to_string(),
        json!({ "pids": [4242, { "pid": 4243, "command": "claude", "spawnedAt": "2023-11-14T22:13:20.123Z" }] }).to_string(),
        json!({ "processes": { "sdk:7:4242": { "pid": 4242, "type": "sdk", "sessionId": 7, "startedAt": "2023-11-14T22:13:20Z" } } }).to_string(),
    ];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut accepted, mut refused, mut unreadable) = (0, 0, 0);
    for _ in 0..count {
        let seed = random.pick(&seeds);
        let text = mutate(&seed, &mut random);
        let Ok(imported) = read(&text) else {
            unreadable += 1;
            continue;
        };
        imported.records.iter().for_each(|record| assert_sound(record, &text));
        assert!(imported.rejected.iter().all(|why| why.chars().count() <= WHY), "{text}");
        accepted += imported.records.len();
        refused += imported.rejected.len();
        // Accepted entries are written in our format, and then read back unchanged.
        if random.below(8) == 0 {
            let again = read(&file(&imported.records));
            assert_eq!(again, Ok(Imported { records: imported.records, rejected: vec![] }), "{text}");
        }
    }
    println!("{count} files: {accepted} entries accepted, {refused} refused, {unreadable} files unreadable");
    assert!(accepted > 0 && refused > 0 && unreadable > 0, "the mutations reach every branch");
}
