//! What is to hold for every record, wherever it was read.

use spawn_owned::identity::ProcessRef;
use spawn_owned::registry::{Record, import};

/// It is one that we would have taken as it is, whichever way it came; and it names nobody whom the text did not name in full.
pub fn assert_sound(record: &Record, text: &str) {
    assert_eq!(import::sound(record.clone()).as_ref(), Ok(record), "taken, and not sound");
    let texts = [Some(&record.command_preview), Some(&record.run_id), record.session_id.as_ref()];
    for shown in texts.into_iter().flatten() {
        assert!(!shown.contains(char::is_control), "it would reach a terminal: {shown:?}");
        assert!(shown.chars().count() <= 256);
    }
    named(record).for_each(|process| assert_spelled(process, text));
    if record.start_token.is_none() && record.keeper.is_none() {
        // Of an old entry a PID and an age are believed, and nothing by which others could be found.
        let claims_more = record.cgroup.is_some() || record.job.is_some() || record.service.is_some();
        assert!(
            !claims_more || text.contains("runId") || text.contains('\\'),
            "an old entry claims too much"
        );
    }
}

fn named(record: &Record) -> impl Iterator<Item = &ProcessRef> {
    let keeper = record.keeper.as_ref().map(|keeper| &keeper.start_token);
    let owner = record.bot_start_token.as_ref();
    record.start_token.iter().chain(owner).chain(keeper).chain(&record.members)
}

/// An identity is never put together from pieces. (A backslash may spell anything in another way.)
fn assert_spelled(process: &ProcessRef, text: &str) {
    assert!(text.contains('\\') || text.contains(&process.to_string()), "{process} was made up");
}
