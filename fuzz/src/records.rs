//! Properties of every record, wherever it was read.

use spawn_owned::identity::ProcessRef;
use spawn_owned::registry::{Record, import};

/// The import accepts the record unchanged, and the text contains every process identity in it as a
/// whole.
pub fn assert_sound(record: &Record, text: &str) {
    assert_eq!(import::sound(record.clone()).as_ref(), Ok(record), "an accepted record is not sound");
    let texts = [Some(&record.command_preview), Some(&record.run_id), record.session_id.as_ref()];
    for shown in texts.into_iter().flatten() {
        assert!(!shown.contains(char::is_control), "a control character could reach a terminal: {shown:?}");
        assert!(shown.chars().count() <= 256);
    }
    named(record).for_each(|process| assert_spelled(process, text));
    if record.start_token.is_none() && record.keeper.is_none() {
        // Of an entry of an old format only the PID and the age count, and no field that leads to
        // other processes.
        let claims_more = record.cgroup.is_some() || record.job.is_some() || record.service.is_some();
        assert!(
            !claims_more || text.contains("runId") || text.contains('\\'),
            "an entry of an old format has too many fields"
        );
    }
}

fn named(record: &Record) -> impl Iterator<Item = &ProcessRef> {
    let keeper = record.keeper.as_ref().map(|keeper| &keeper.start_token);
    let owner = record.bot_start_token.as_ref();
    record.start_token.iter().chain(owner).chain(keeper).chain(&record.members)
}

/// An identity is never composed of parts. (With backslashes, JSON can spell any text differently.)
fn assert_spelled(process: &ProcessRef, text: &str) {
    assert!(text.contains('\\') || text.contains(&process.to_string()), "{process} is not in the input");
}
