use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::registry::PATIENCE;
use crate::registry::import::tests::ours;
use crate::registry::journal::Journal;
use crate::registry::record::Line;

/// A registry in its own temporary folder, which is deleted with the value.
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

    fn load(&self, view: &mut View) -> Table {
        view.refresh(&self.0).unwrap().table().clone()
    }

    /// Makes a checkpoint and returns its warnings.
    fn checkpoint(&self, seen: &Mutex<View>) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let outcome = Checkpointer::new(self.0.clone()).run(seen, PATIENCE, |_| false, &mut warnings);
        assert_eq!(outcome.unwrap(), Outcome::Written);
        warnings
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.json.parent().unwrap());
    }
}

#[test]
fn a_checkpoint_never_leaves_a_file_that_this_process_would_have_to_read() {
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
            let view = locked(&seen);
            let stamp = disk::stamp(&folder.0.json);
            assert!(view.known(stamp).is_some());
            drop(view);
            // The mutex is not fair, and the other thread needs it too.
            std::thread::yield_now();
        }
    });
    let known = folder.load(&mut locked(&seen));
    assert_eq!((known.len(), folder.load(&mut View::default())), (201, known));
}

#[test]
fn a_checkpoint_sets_a_damaged_file_aside_even_if_this_process_has_read_it_before() {
    let folder = Folder::new("damaged");
    let sound = serde_json::to_string(&ours(4242)).unwrap();
    let text = format!("{{\"version\":1,\"entries\":[{sound},{{\"pid\":\"none\"}}]}}");
    let new = Replacement::write(&folder.0.json, |file| file.write_all(text.as_bytes())).unwrap();
    new.put_in_place().unwrap();
    let seen = Mutex::default();
    assert_eq!(folder.load(&mut locked(&seen)).len(), 1);
    folder.intend(4243);
    let warnings = folder.checkpoint(&seen);
    assert_eq!(warnings.iter().map(|warning| warning.kind).collect::<Vec<_>>(), ["corrupt"]);
    assert_eq!(std::fs::read_to_string(&warnings[0].path).unwrap(), text);
    assert_eq!(folder.load(&mut View::default()).len(), 2);
}

/// Writes a complete line and the first half of a second one. Returns the second half.
fn append_half_a_line(folder: &Folder) -> Vec<u8> {
    folder.intend(4242);
    let line = journal::encode([&Line::Intent { entry: Box::new(ours(4243)) }]);
    let (first, rest) = line.split_at(line.len() / 2);
    let mut journal = std::fs::OpenOptions::new().append(true).open(&folder.0.journal).unwrap();
    journal.write_all(first).unwrap();
    rest.to_vec()
}

#[test]
fn a_checkpoint_waits_for_a_line_that_is_being_written() {
    let folder = Folder::new("half");
    let rest = append_half_a_line(&folder);
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
    assert_eq!(folder.load(&mut View::default()).len(), 2);
}

#[test]
fn a_checkpoint_reports_a_line_that_stays_incomplete_and_applies_the_others() {
    let folder = Folder::new("torn");
    append_half_a_line(&folder);
    let kinds: Vec<_> = folder.checkpoint(&Mutex::default()).iter().map(|warning| warning.kind).collect();
    assert_eq!(kinds, ["torn"]);
    assert_eq!(folder.load(&mut View::default()).len(), 1);
}
