use super::*;

/// A registry in a folder that is not there, and is not made.
fn nowhere(name: &str) -> &'static Registry {
    let folder = std::env::temp_dir().join(format!("ledger-{}-{name}", std::process::id()));
    Registry::at(folder.join("process-registry.json")).unwrap()
}

#[test]
fn a_process_does_not_end_in_the_middle_of_a_checkpoint() {
    let registry = nowhere("flush");
    let limit = Duration::from_millis(50);
    let at_it = registry.checkpointer.lock().unwrap();
    let from = Instant::now();
    registry.flush(limit);
    assert!(from.elapsed() >= limit, "nothing is due, but somebody is at it");
    drop(at_it);
    // Would take an hour if it waited for anything.
    registry.flush(Duration::from_secs(3600));
}
