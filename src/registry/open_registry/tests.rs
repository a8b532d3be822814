use std::sync::{Arc, mpsc};

use super::*;
use crate::registry::Instance;
use crate::registry::import::tests::ours;

/// A supervisor whose registry is in its own temporary folder, which is deleted with the value.
pub struct TestRegistry(pub Instance);

impl TestRegistry {
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

impl Drop for TestRegistry {
    fn drop(&mut self) {
        // A later checkpoint would create the folder again.
        self.0.registry.flush(Duration::from_secs(10));
        let _ = std::fs::remove_dir_all(self.0.registry.path().parent().unwrap());
    }
}

/// A registry in a folder that does not exist. Nothing creates it.
fn in_missing_folder(name: &str) -> Arc<Registry> {
    let folder = std::env::temp_dir().join(format!("open-registry-{}-{name}", std::process::id()));
    Registry::at(folder.join("process-registry.json")).unwrap()
}

#[test]
fn flush_waits_for_a_checkpoint_that_is_being_made() {
    let registry = in_missing_folder("flush");
    let limit = Duration::from_millis(50);
    let checkpointer = registry.checkpointer.lock().unwrap();
    let from = Instant::now();
    registry.flush(limit);
    assert!(from.elapsed() >= limit, "no checkpoint is due, but one is being made");
    drop(checkpointer);
    // Would take an hour if it waited for anything.
    registry.flush(Duration::from_secs(3600));
}

/// The thread sleeps until it is woken, also if the journal cannot be written. Then the checkpoint
/// may repair that, and it reports the problem.
#[test]
fn the_thread_makes_a_checkpoint_also_after_an_intent_could_not_be_written() {
    let TestRegistry(instance) = &TestRegistry::new("refused");
    let registry = &instance.registry;
    // From here on `begin` does not read the files before it writes.
    instance.begin(ours(4242), false).unwrap().remove();
    registry.flush(Duration::from_secs(60));
    let (sender, receiver) = mpsc::channel();
    registry.on_warning(
        &instance.id,
        Box::new(move |warning| {
            let _ = sender.send(warning.kind);
        }),
    );

    let journal = &registry.paths.journal;
    assert!(!journal.exists());
    std::fs::create_dir(journal).unwrap();
    assert!(instance.begin(ours(4243), false).is_err());
    assert!(!registry.inner().needs_wakeup, "the thread was woken");
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok("unwritable"));
    assert_eq!(registry.own(None, None), []);
}

fn is_open(registry: &Registry) -> bool {
    OPEN.lock().unwrap().contains_key(registry.path())
}

#[test]
fn the_last_supervisor_on_a_path_ends_the_thread_and_leaves_the_file_up_to_date() {
    let somewhere = TestRegistry::new("closed");
    let instance = &somewhere.0;
    let (registry, path) = (&instance.registry, instance.registry.path().to_owned());
    let second = Registry::at(path.clone()).unwrap();
    assert!(Arc::ptr_eq(registry, &second));
    instance.begin(ours(4242), false).unwrap().remove();
    registry.close("one");
    registry.wait_closed();
    assert!(registry.inner().has_thread && is_open(registry), "the other supervisor needs the thread");
    registry.close("two");
    registry.wait_closed();
    assert!(!registry.inner().has_thread && !is_open(registry));
    assert!(registry.inner().thread.is_none(), "the thread was joined");
    assert!(disk::stamp(&registry.paths.json).is_some() && disk::stamp(&registry.paths.journal).is_none());
    let third = Registry::at(path).unwrap();
    assert!(!Arc::ptr_eq(registry, &third), "the next supervisor on this path opens a new registry");
    third.close("three");
}

#[test]
fn the_thread_of_a_closed_registry_runs_until_no_entry_is_alive() {
    let somewhere = TestRegistry::new("closed-live");
    let (instance, registry) = (&somewhere.0, &somewhere.0.registry);
    let entry = instance.begin(ours(4242), false).unwrap();
    registry.close(&instance.id);
    registry.wait_closed();
    assert!(registry.inner().has_thread && is_open(registry));
    entry.remove();
    registry.wait_closed();
    assert!(!registry.inner().has_thread && !is_open(registry));
    // A task that ends late starts a new thread, which ends by itself.
    instance.begin(ours(4243), false).unwrap().remove();
    registry.wait_closed();
    assert!(!registry.inner().has_thread && registry.load().unwrap().is_empty());
}

/// A caller of `wait_closed` waits for the same condition variable, and for longer than the thread.
/// A single notification would go to that caller.
#[test]
fn the_thread_makes_checkpoints_also_while_wait_closed_waits() {
    let TestRegistry(instance) = &TestRegistry::new("closer");
    let registry = &instance.registry;
    let (started, has_started) = mpsc::channel();
    let closer = {
        let registry = registry.clone();
        std::thread::spawn(move || {
            let mut inner = registry.inner();
            started.send(()).unwrap();
            while inner.users > 0 {
                inner = registry.changed.wait(inner).unwrap();
            }
        })
    };
    has_started.recv().unwrap();
    let give_up_at = Instant::now() + Duration::from_secs(20);
    for pid in 4242..4246 {
        instance.begin(ours(pid), false).unwrap().wake_checkpoint_thread();
        while registry.inner().checkpoint_at.is_some() {
            assert!(Instant::now() < give_up_at, "the thread sleeps through the checkpoint");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The thread holds this lock or the registry's lock until it waits again.
        drop(registry.checkpointer.lock().unwrap());
    }
    registry.close(&instance.id);
    closer.join().unwrap();
}

#[test]
fn a_closed_registry_remembers_an_unsettled_entry() {
    let somewhere = TestRegistry::new("closed-unsettled");
    let (instance, registry) = (&somewhere.0, &somewhere.0.registry);
    let entry = instance.begin(ours(4242), false).unwrap();
    registry.flush(Duration::from_secs(10));
    let key = entry.key().to_owned();
    {
        // The entry is ours on disk, but not in memory.
        let mut inner = registry.inner();
        inner.own.give_back(&key);
    }
    registry.close(&instance.id);
    registry.wait_closed();
    let next = Registry::at(registry.path().to_owned()).unwrap();
    assert!(next.is_unsettled(&key), "the next supervisor may claim it");
    entry.remove();
    next.flush(Duration::from_secs(10));
    next.close("next");
}
