//! Whatever a registry file says, the reaper ends only processes that are recorded in it.

use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::classify::{self, Action, Via};
use super::observe::{Observer, identify_old, target};
use crate::contain::outside::Scan;
use crate::identity::{self, ProcessRef};
use crate::registry::import::tests::{Random, file, mutate};
use crate::registry::{self, Containment, Keeper, Record, import};

/// Starts a process that lives until its standard input ends, in its own process group.
fn cat() -> Child {
    // Windows has no `cat`. Its shell also exits when its input ends.
    let mut command = Command::new(if cfg!(windows) { "cmd" } else { "cat" });
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

fn process(child: &Child) -> ProcessRef {
    ProcessRef::capture(child.id().cast_signed()).unwrap()
}

/// A registered process of a bot that has ended.
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
        ..Record::empty()
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
    let (mut ended, mut checked) = (0, 0);
    for _ in 0..count {
        let seed = random.pick(&seeds);
        let text = mutate(&seed, &mut random);
        let Ok(imported) = import::read(&text) else { continue };
        for record in &imported.records {
            checked += 1;
            let facts = observer.facts(record);
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
                    // An entry of an old format names a process by PID and time; a process with
                    // both is the recorded one.
                    let is_ours = |member: &ProcessRef| {
                        *member == root || *member == keeper_process || record.start_token.is_none()
                    };
                    assert!(members.iter().all(is_ours), "{members:?} would be ended because of {text}");
                }
                _ => {}
            }
        }
    }
    println!("{count} files: {checked} entries, {ended} of them to be ended, none of them a bystander");
    assert!(ended > 0 && ended < checked, "the mutations reach both sides");
    for mut child in [recorded, keeper] {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "the end of its input ended it, not a signal");
    }
}

/// Unix only: Windows refuses to move a file that is open.
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
    fn a_claimed_run_is_ended_even_if_the_registry_becomes_unwritable() {
        let mut child = cat();
        let alive = orphan(&process(&child));
        let gone = ProcessRef { pid: 4_000_001, ..process(&child) };
        let dead = Record { run_id: "dead".into(), ..orphan(&gone) };
        let (paths, instance) = registry_of("unwritable", &[dead, alive]);
        // The lock prevents a checkpoint by any other process.
        let lock = disk::open_to_append(&paths.lock).unwrap();
        assert!(disk::try_lock(&lock).unwrap());

        let crate::reap::Plan { planned, .. } = plan(&instance, instance.registry.me().pid, false).unwrap();
        let ours = claim(&instance, &planned).unwrap();
        assert_eq!(ours.len(), 2);
        // From here on the journal cannot be written.
        std::fs::rename(&paths.journal, paths.journal.with_extension("moved")).unwrap();
        std::fs::create_dir(&paths.journal).unwrap();
        let done = settle_all(&instance, &planned, ours, Some(0));

        for (planned, done) in planned.iter().zip(done) {
            let expected =
                if planned.record.run_id == "dead" { Outcome::AlreadyDead } else { Outcome::Ended };
            assert_eq!(done.outcome, expected);
            assert!(
                done.error.unwrap().contains("its entry could not be removed yet"),
                "each outcome reports it"
            );
        }
        assert!(!child.wait().unwrap().success(), "it was killed");
        drop(lock);
        let _ = std::fs::remove_dir_all(paths.json.parent().unwrap());
    }
}

/// Linux only: there a test can listen at any control address.
#[cfg(target_os = "linux")]
mod decision {
    use std::io::{Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::keeper::protocol::{self, Report};
    use crate::reap::classify::Reason;
    use crate::reap::end::end;
    use crate::reap::{Decided, Planned, Verdict};
    use crate::registry::CachedRecord;
    use crate::run::reason::Ending;
    use crate::run::signal::SIGTERM;
    use crate::run::{Cause, Ended, Force};

    /// A run whose keeper is this process, and the socket at which it listens.
    fn kept(child: &Child, name: &str) -> (Record, UnixListener) {
        let address = format!("spawn-owned-test-{}-{name}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&address).unwrap()).unwrap();
        let keeper = Keeper { start_token: identity::me().unwrap(), address };
        let record =
            Record { containment: Containment::Keeper, keeper: Some(keeper), ..orphan(&process(child)) };
        (record, listener)
    }

    #[test]
    fn a_decision_to_end_a_run_from_outside_does_not_connect_to_its_keeper() {
        let mut child = cat();
        let (record, listener) = kept(&child, "outside");
        listener.set_nonblocking(true).unwrap();
        let ended = end(&record, Via::Outside, SIGTERM, Duration::from_secs(5), "owner-exit");
        assert_eq!((ended.ending, ended.survivors.len()), (Ending::KeeperLost, 0));
        assert!(!child.wait().unwrap().success());
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_decision_to_end_a_run_through_its_keeper_sends_the_keeper_a_cancel() {
        let mut child = cat();
        let (record, listener) = kept(&child, "keeper");
        let root = protocol::Process { pid: record.pid, start: process(&child).start };
        let keeper = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let ready = Report::Ready { keeper: root, root, address: String::new(), cgroup: None };
            client.write_all(&protocol::encode(&ready).unwrap()).unwrap();
            let mut request = [0; 64];
            assert!(client.read(&mut request).unwrap() > 0);
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success(), "only its keeper ends it");
            let ended =
                Ended { named_reason: "owner-exit".into(), ..Ended::new(Ending::Cause(Cause::Cancel)) };
            client.write_all(&protocol::encode(&Report::Extinct(ended)).unwrap()).unwrap();
        });
        let ended = end(&record, Via::Keeper, SIGTERM, Duration::from_secs(5), "owner-exit");
        keeper.join().unwrap();
        assert_eq!((ended.ending, ended.reason().name()), (Ending::Cause(Cause::Cancel), "owner-exit"));
    }

    #[test]
    fn this_process_and_its_ancestors_survive_and_are_not_reported_as_ended() {
        let me = identity::me().unwrap();
        let parent = ProcessRef::capture(std::os::unix::process::parent_id().cast_signed()).unwrap();
        for process in [me, parent] {
            let ended = end(&orphan(&process), Via::Outside, SIGTERM, Duration::ZERO, "manual-cancel");
            let survivors: Vec<_> = ended.survivors.iter().map(|process| process.pid).collect();
            assert_eq!((ended.ending, survivors), (Ending::Cause(Cause::Cancel), vec![process.pid]));
            assert_eq!(ended.force, Force::Nothing);
        }
    }

    #[test]
    fn a_policy_changes_only_a_decision_to_end_a_run() {
        let me = identity::me().unwrap();
        let record = Arc::new(CachedRecord::new(orphan(&me)));
        let facts = Observer::new(&me, me.pid, false, &|_| false).facts(&record);
        let planned = |action| Planned {
            key: record.key(),
            record: record.clone(),
            decided: Decided { facts, decision: classify::Decision { action, reason: Reason::RootAlive } },
        };
        for (action, verdict, expected) in [
            (Action::End(Via::Keeper), Verdict::Adopt, Action::Adopt(Via::Keeper)),
            (Action::End(Via::Outside), Verdict::Adopt, Action::Adopt(Via::Outside)),
            (Action::End(Via::Keeper), Verdict::Leave, Action::Leave),
            (Action::Leave, Verdict::Adopt, Action::Leave),
            (Action::Skip, Verdict::Adopt, Action::Skip),
            (Action::Drop, Verdict::Leave, Action::Drop),
            (Action::DropReused, Verdict::Leave, Action::DropReused),
        ] {
            let mut planned = planned(action);
            planned.apply(verdict);
            assert_eq!(planned.action(), expected, "{action:?} {verdict:?}");
        }
    }
}
