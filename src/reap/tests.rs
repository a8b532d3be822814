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
