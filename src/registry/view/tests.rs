use std::fs;
use std::sync::Mutex;

use super::super::checkpoint::{Checkpointer, Outcome};
use super::super::import::tests::{Random, ours};
use super::super::journal::Journal;
use super::super::record::{Claim, Owner, State};
use super::super::{PATIENCE, now_ms};
use super::*;
use crate::identity::ProcessRef;

/// A registry in its own temporary folder, which is deleted with the value.
struct Folder(Paths);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("view-{}-{name}", std::process::id()));
        let paths = Paths::new(folder.join("process-registry.json"));
        paths.make_folder().unwrap();
        Self(paths)
    }

    fn append(&self, line: &Line) {
        Journal::default().append(&self.0, &journal::encode([line])).unwrap();
    }

    fn checkpoint(&self, view: &Mutex<View>) -> Outcome {
        Checkpointer::new(self.0.clone()).run(view, PATIENCE, |_| false, &mut Vec::new()).unwrap()
    }

    /// Checks that a view has the same content as a view that reads everything.
    fn assert_fresh(&self, view: &mut View, when: &str) {
        let mut other = View::default();
        let fresh = other.refresh(&self.0).unwrap();
        let current = view.refresh(&self.0).unwrap();
        assert_eq!(current.table, fresh.table, "{when}");
        assert_eq!(current.index, Index::of(&fresh.table), "{when}");
        assert_eq!(current.flaw(&self.0).is_some(), fresh.flaw(&self.0).is_some(), "{when}");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.json.parent().unwrap());
    }
}

fn entry(pid: i32) -> Record {
    let (run_id, scope_key) = (format!("run-{pid}"), Some(format!("scope-{}", pid % 3)));
    let session_id = (pid % 2 == 0).then(|| format!("session-{}", pid % 5));
    Record { run_id, scope_key, session_id, state: State::Starting, ..ours(pid) }
}

fn intent(pid: i32) -> Line {
    Line::Intent { entry: Box::new(entry(pid)) }
}

fn dropped(pid: i32) -> Line {
    Line::Dropped { keys: vec![entry(pid).key()] }
}

fn runs(view: &mut View, folder: &Folder, filter: &Filter) -> Vec<String> {
    let found = view.refresh(&folder.0).unwrap().select(filter);
    let mut ids: Vec<_> = found.iter().map(|entry| entry.run_id.clone()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_filter_finds_added_entries_and_no_dropped_entries() {
    let (folder, mut view) = (Folder::new("filter"), View::default());
    for pid in [1000, 1001, 1003] {
        folder.append(&intent(pid));
        assert_eq!(runs(&mut view, &folder, &Filter::run(&format!("run-{pid}"))), [format!("run-{pid}")]);
    }
    assert_eq!(runs(&mut view, &folder, &Filter::scope("scope-1")), ["run-1000", "run-1003"]);
    folder.append(&dropped(1000));
    assert_eq!(runs(&mut view, &folder, &Filter::scope("scope-1")), ["run-1003"]);
    assert_eq!(runs(&mut view, &folder, &Filter::run("run-1000")), Vec::<String>::new());
    assert_eq!(runs(&mut view, &folder, &Filter::default()), ["run-1001", "run-1003"]);
}

/// Random sequences of what writers, checkpoints of this and other processes, crashes and users do.
#[test]
fn a_view_equals_a_fresh_read_after_every_step() {
    for seed in 1..=12_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let folder = Folder::new(&format!("steps-{seed}"));
        let view = Mutex::new(View::default());
        let mut next = 1000;
        for step in 0..30 {
            let pid = 1000 + i32::try_from(random.below(8)).unwrap();
            match random.below(12) {
                0..=3 => {
                    folder.append(&intent(next));
                    next += 1;
                }
                4 => folder.append(&dropped(pid)),
                5 => {
                    let process = ProcessRef { pid: 800, start: 1, boot: "boot".into(), ns: 1 };
                    let by = Owner { instance: "b".into(), process, lease_until: now_ms() };
                    let claims = vec![Claim { key: entry(pid).key(), from: entry(pid).owner_instance_id }];
                    folder.append(&Line::Claimed { claims, by, at: now_ms() });
                }
                6 => {
                    let entry = Box::new(Record { run_id: format!("again-{pid}"), ..entry(pid) });
                    folder.append(&Line::Returned { entry, by: "b".into() });
                }
                7 => drop(folder.checkpoint(&view)),
                8 => drop(folder.checkpoint(&Mutex::default())),
                // A bot dies during its checkpoint.
                9 if !folder.0.old.exists() => drop(fs::rename(&folder.0.journal, &folder.0.old)),
                // The next journal may get the inode number of this one.
                10 => drop(fs::remove_file(&folder.0.journal)),
                _ => {
                    let mut bytes = fs::read(&folder.0.journal).unwrap_or_default();
                    bytes.extend_from_slice(b"\n99 half\n");
                    fs::write(&folder.0.journal, bytes).unwrap();
                }
            }
            folder.assert_fresh(&mut view.lock().unwrap(), &format!("seed {seed}, step {step}"));
        }
    }
}

/// A file system may give the inode number of a removed `.old` to the next journal. That journal
/// becomes the next `.old`, with lines that the view has not read.
#[test]
fn a_view_reads_the_next_old_journal_even_if_it_has_the_same_inode_number() {
    let (folder, view) = (Folder::new("same-inode"), Mutex::new(View::default()));
    folder.append(&intent(1000));
    folder.assert_fresh(&mut view.lock().unwrap(), "before");
    let spare = folder.0.journal.with_extension("spare");
    fs::hard_link(&folder.0.journal, &spare).unwrap();
    assert_eq!(folder.checkpoint(&view), Outcome::Written);
    // Another process makes a checkpoint and has just renamed the journal. No read happened in
    // between.
    fs::write(&spare, journal::encode([&intent(1001)])).unwrap();
    fs::rename(&spare, &folder.0.old).unwrap();
    folder.assert_fresh(&mut view.lock().unwrap(), "while the next checkpoint is made");
}

#[test]
fn a_refresh_reads_only_new_lines() {
    let (folder, mut view) = (Folder::new("new"), View::default());
    folder.append(&intent(1000));
    view.refresh(&folder.0).unwrap();
    // If this line were read again, it would be invalid: its length is wrong now.
    let bytes = fs::read(&folder.0.journal).unwrap();
    let spoiled = String::from_utf8(bytes).unwrap().replacen("run-1000", "gone-100", 1);
    fs::write(&folder.0.journal, spoiled).unwrap();
    folder.append(&intent(1001));
    assert_eq!(runs(&mut view, &folder, &Filter::default()), ["run-1000", "run-1001"]);
}

#[test]
fn a_line_that_is_being_written_counts_when_it_is_complete() {
    let (folder, mut view) = (Folder::new("half"), View::default());
    folder.append(&intent(1000));
    let line = journal::encode([&intent(1001)]);
    let whole = fs::read(&folder.0.journal).unwrap();
    for cut in (0..line.len()).filter(|cut| cut % 7 == 0 || line.len() - cut < 4) {
        fs::write(&folder.0.journal, [&whole[..], &line[..cut]].concat()).unwrap();
        let current = view.refresh(&folder.0).unwrap();
        // A line that lacks only its newline is complete.
        assert_eq!(current.table.len(), if cut < line.len() - 1 { 1 } else { 2 }, "cut at {cut}");
        assert_eq!(current.flaw(&folder.0), None, "cut at {cut}");
    }
    fs::write(&folder.0.journal, [whole, line].concat()).unwrap();
    assert_eq!(view.refresh(&folder.0).unwrap().table.len(), 2);
}

#[test]
fn an_unreadable_file_is_a_flaw_and_an_empty_registry_is_not() {
    let folder = Folder::new("flaw");
    let flaw = || View::default().refresh(&folder.0).unwrap().flaw(&folder.0);
    assert_eq!(flaw(), None, "there is no file");
    for text in ["{\"version\":1,\"entries\":[]}", "{\"pids\":[]}"] {
        fs::write(&folder.0.json, text).unwrap();
        assert_eq!(flaw(), None, "{text}");
    }
    for text in ["", "{", "{}", "[]", "null", "\0", "{\"version\":1,\"entries\":[{\"pid\":0}]}"] {
        fs::write(&folder.0.json, text).unwrap();
        assert_eq!(flaw().map(|flaw| flaw.path), Some(folder.0.json.clone()), "{text:?}");
    }
    fs::remove_file(&folder.0.json).unwrap();
    fs::write(&folder.0.journal, "\n12 half\n").unwrap();
    assert_eq!(flaw(), None, "an incomplete line of a crash has no effect and is no flaw");
    fs::write(&folder.0.journal, "\n2 {}\nOnce upon a time\n").unwrap();
    assert_eq!(flaw().map(|flaw| flaw.path), Some(folder.0.journal.clone()));
}
