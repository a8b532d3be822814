use std::sync::{Arc, mpsc};

use super::*;
use crate::registry::Instance;
use crate::registry::import::tests::ours;

/// A supervisor whose registry is in a folder of its own, which goes with the test.
pub struct Somewhere(pub Instance);

impl Somewhere {
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("somewhere-{}-{name}", std::process::id()));
        disk::make_folder(&folder).unwrap();
        Self(Instance {
            registry: Registry::at(folder.join("process-registry.json")).unwrap(),
            id: "this-supervisor".into(),
            lease: Duration::from_secs(3600),
            counters: Arc::default(),
            orphan_log: None,
        })
    }
}

impl Drop for Somewhere {
    fn drop(&mut self) {
        // What is still due would make the folder again.
        self.0.registry.flush(Duration::from_secs(10));
        let _ = std::fs::remove_dir_all(self.0.registry.path().parent().unwrap());
    }
}

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

/// The thread sleeps until it is told, and then the file is brought up to date: if the journal cannot be written to, that may be what
/// helps, and it is what tells people that something is wrong.
#[test]
fn the_file_follows_also_when_an_intent_could_not_be_written_down() {
    let Somewhere(instance) = &Somewhere::new("refused");
    let registry = instance.registry;
    // From here on nothing is looked at before it is written.
    instance.begin(ours(4242), false).unwrap().over();
    registry.flush(Duration::from_secs(60));
    let (tell, told) = mpsc::channel();
    registry.on_trouble(Box::new(move |trouble| {
        let _ = tell.send(trouble.kind);
    }));

    let journal = &registry.paths.journal;
    assert!(!journal.exists());
    std::fs::create_dir(journal).unwrap();
    assert!(instance.begin(ours(4243), false).is_err());
    assert!(!registry.inner().untold, "the thread sleeps on");
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok("unwritable"));
    assert_eq!(registry.own(None, None), []);
}
