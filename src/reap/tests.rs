//! Whatever a file says, nobody is ended but who was recorded.

use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::classify::{self, Action, Via};
use super::observe::{Observer, identify_old, target};
use crate::contain::outside::Scan;
use crate::identity::{self, ProcessRef};
use crate::registry::import::tests::{Random, file, mutate};
use crate::registry::{self, Containment, Keeper, Record, import};

/// Lives until its standard input ends, in a group of its own.
fn cat() -> Child {
    // Windows has no cat. What its shell is told ends when that ends, too.
    let mut command = Command::new(if cfg!(windows) { "cmd" } else { "cat" });
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

fn process(child: &Child) -> ProcessRef {
    ProcessRef::capture(child.id().cast_signed()).unwrap()
}

/// A registered process of a bot that is gone.
fn orphan(process: &ProcessRef) -> Record {
    let gone = ProcessRef { pid: 4_000_000, ..process.clone() };
    Record {
        pid: process.pid,
        run_id: "run".into(),
        started_at: identity::started_at_ms(process.start).unwrap(),
        bot_pid: gone.pid,
        bot_start_token: Some(gone),
        start_token: Some(process.clone()),
        owner_instance_id: Some("i".into()),
        lease_expires_at_ms: Some(registry::now_ms() + 60_000),
        pgid: Some(process.pid),
        containment: Containment::Group,
        ..Record::blank()
    }
}

/// `MUTATIONS=100000` for a longer run.
#[test]
fn no_mutation_of_a_file_ends_a_bystander() {
    let count = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(5_000);
    let (recorded, keeper) = (cat(), cat());
    let (root, keeper_process) = (process(&recorded), process(&keeper));
    let kept = Record {
        containment: Containment::Keeper,
        keeper: Some(Keeper { start_token: keeper_process.clone(), address: "00000".into() }),
        members: vec![keeper_process.clone()],
        ..orphan(&root)
    };
    let old = json!({ "entries": [{
        "pid": root.pid, "startedAt": orphan(&root).started_at, "sessionId": "s", "botPid": 0, "commandPreview": "cat",
    }] });
    let seeds = [file(&[orphan(&root)]), file(&[kept]), old.to_string()];

    let me = identity::me().unwrap();
    let (observer, scan) = (Observer::new(&me, me.pid, false, &|_| false), Scan::take().unwrap());
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut ended, mut looked_at) = (0, 0);
    for _ in 0..count {
        let seed = random.pick(&seeds);
        let text = mutate(&seed, &mut random);
        let Ok(imported) = import::read(&text) else { continue };
        for record in &imported.records {
            looked_at += 1;
            let facts = observer.look_at(record);
            match classify::classify(&facts).action {
                Action::End(Via::Keeper) => {
                    ended += 1;
                    assert_eq!(
                        record.keeper.as_ref().map(|keeper| &keeper.start_token),
                        Some(&keeper_process)
                    );
                }
                Action::End(Via::Outside) => {
                    ended += 1;
                    let found = record.start_token.clone().or_else(|| identify_old(record));
                    let Some(found) = found else { continue };
                    let members = scan.living(&target(record, &found)).unwrap();
                    // An old entry names a process by number and time; whoever has both is the one.
                    let is_ours = |member: &ProcessRef| {
                        *member == root || *member == keeper_process || record.start_token.is_none()
                    };
                    assert!(members.iter().all(is_ours), "{members:?} would be ended because of {text}");
                }
                _ => {}
            }
        }
    }
    println!("{count} files: {looked_at} entries, {ended} of them to be ended, none of them a bystander");
    assert!(ended > 0 && ended < looked_at, "the mutations reach both sides");
    for mut child in [recorded, keeper] {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "ended by its own end of input, not by a signal");
    }
}

/// Elsewhere a file that somebody has open is not moved.
#[cfg(unix)]
mod unwritable {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::reap::{Outcome, claim, plan, settle_all};
    use crate::registry::disk::{self, Paths};
    use crate::registry::{Instance, Registry};

    /// A folder with a registry that has these entries.
    fn registry_of(name: &str, records: &[Record]) -> (Paths, Instance) {
        let folder = std::env::temp_dir().join(format!("reap-{}-{name}", std::process::id()));
        let paths = Paths::new(folder.join("process-registry.json"));
        paths.make_folder().unwrap();
        std::fs::write(&paths.json, file(records)).unwrap();
        let instance = Instance {
            registry: Registry::at(paths.json.clone()).unwrap(),
            id: "reaper".into(),
            lease: Duration::from_secs(60),
            counters: Arc::default(),
            orphan_log: None,
        };
        (paths, instance)
    }

    #[test]
    fn what_was_claimed_is_ended_also_if_that_cannot_be_written_down_of_others() {
        let mut child = cat();
        let alive = orphan(&process(&child));
        let gone = ProcessRef { pid: 4_000_001, ..process(&child) };
        let dead = Record { run_id: "dead".into(), ..orphan(&gone) };
        let (paths, instance) = registry_of("unwritable", &[dead, alive]);
        // Nobody makes a checkpoint meanwhile.
        let lock = disk::open_to_append(&paths.lock).unwrap();
        assert!(disk::try_lock(&lock).unwrap());

        let planned = plan(&instance, instance.registry.me().pid, false).unwrap();
        let ours = claim(&instance, &planned).unwrap();
        assert_eq!(ours.len(), 2);
        // From here on no line can be added.
        std::fs::rename(&paths.journal, paths.journal.with_extension("moved")).unwrap();
        std::fs::create_dir(&paths.journal).unwrap();
        let done = settle_all(&instance, &planned, ours, Some(0));

        for (planned, done) in planned.iter().zip(done) {
            let expected =
                if planned.record.run_id == "dead" { Outcome::AlreadyDead } else { Outcome::Ended };
            assert_eq!(done.outcome, expected);
            assert!(done.error.unwrap().contains("its entry stays for now"), "and it is said of each");
        }
        assert!(!child.wait().unwrap().success(), "it was killed");
        drop(lock);
        let _ = std::fs::remove_dir_all(paths.json.parent().unwrap());
    }
}
