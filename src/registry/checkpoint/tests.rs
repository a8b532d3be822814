use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::registry::PATIENCE;
use crate::registry::import::tests::ours;
use crate::registry::journal::Journal;

/// A registry in a folder of its own, which goes with the test.
struct Folder(Paths);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("checkpoint-{}-{name}", std::process::id()));
        let paths = Paths::new(folder.join("process-registry.json"));
        paths.make_folder().unwrap();
        Self(paths)
    }

    fn intend(&self, pid: i32) {
        let line = Line::Intent { entry: Box::new(ours(pid)) };
        Journal::default().append(&self.0, &journal::encode([&line])).unwrap();
    }

    /// What there is about it to be told.
    fn checkpoint(&self, seen: &Mutex<LastRead>) -> Vec<Trouble> {
        let mut trouble = Vec::new();
        let outcome = Checkpointer::new(self.0.clone()).run(seen, PATIENCE, |_| false, &mut trouble);
        assert_eq!(outcome.unwrap(), Outcome::Written);
        trouble
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.json.parent().unwrap());
    }
}

#[test]
fn at_no_instant_is_there_a_file_that_we_would_have_to_read() {
    let folder = Folder::new("instant");
    let (seen, done) = (Mutex::default(), AtomicBool::new(false));
    folder.intend(4242);
    folder.checkpoint(&seen);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for pid in 4243..4443 {
                folder.intend(pid);
                folder.checkpoint(&seen);
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            let seen = locked(&seen);
            assert_eq!(seen.as_ref().map(|known| known.stamp), disk::stamp(&folder.0.json));
        }
    });
    let known = load(&folder.0, &mut locked(&seen)).unwrap();
    assert_eq!((known.len(), load(&folder.0, &mut None).unwrap()), (201, known));
}

#[test]
fn a_damaged_file_is_set_aside_even_if_somebody_has_read_it_before() {
    let folder = Folder::new("damaged");
    let sound = serde_json::to_string(&ours(4242)).unwrap();
    let text = format!("{{\"version\":1,\"entries\":[{sound},{{\"pid\":\"none\"}}]}}");
    let new = Replacement::write(&folder.0.json, |file| file.write_all(text.as_bytes())).unwrap();
    new.put_in_place().unwrap();
    let seen = Mutex::default();
    assert_eq!(load(&folder.0, &mut locked(&seen)).unwrap().len(), 1);
    folder.intend(4243);
    let trouble = folder.checkpoint(&seen);
    assert_eq!(trouble.iter().map(|trouble| trouble.kind).collect::<Vec<_>>(), ["corrupt"]);
    assert_eq!(std::fs::read_to_string(&trouble[0].path).unwrap(), text);
    assert_eq!(load(&folder.0, &mut None).unwrap().len(), 2);
}

/// A whole line, and one of which the end is not written yet; that end.
fn half_a_line(folder: &Folder) -> Vec<u8> {
    folder.intend(4242);
    let line = journal::encode([&Line::Intent { entry: Box::new(ours(4243)) }]);
    let (first, rest) = line.split_at(line.len() / 2);
    let mut journal = std::fs::OpenOptions::new().append(true).open(&folder.0.journal).unwrap();
    journal.write_all(first).unwrap();
    rest.to_vec()
}

#[test]
fn a_line_that_is_being_written_is_not_torn() {
    let folder = Folder::new("half");
    let rest = half_a_line(&folder);
    let mut journal = std::fs::OpenOptions::new().append(true).open(&folder.0.journal).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !folder.0.old.exists() {
                std::thread::yield_now();
            }
            journal.write_all(&rest).unwrap();
        });
        assert_eq!(folder.checkpoint(&Mutex::default()), []);
    });
    assert_eq!(load(&folder.0, &mut None).unwrap().len(), 2);
}

#[test]
fn a_line_that_stays_half_is_torn_and_the_others_are_not() {
    let folder = Folder::new("torn");
    half_a_line(&folder);
    let kinds: Vec<_> = folder.checkpoint(&Mutex::default()).iter().map(|trouble| trouble.kind).collect();
    assert_eq!(kinds, ["torn"]);
    assert_eq!(load(&folder.0, &mut None).unwrap().len(), 1);
}
