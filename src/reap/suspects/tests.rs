//! Which processes are suspects, and which must never be.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::{Details, Id, Scene, Seen, suspects};
use crate::identity::stat::Stat;

const BOT: i32 = 200;
const ME: i32 = 300;
/// An ancestor of this process.
const SHELL: i32 = 299;

/// A live bot in the registry, this process below a shell, and the processes that a test adds.
struct Stage {
    seen: HashMap<i32, Seen>,
    owners: HashSet<Id>,
    taken: HashSet<Id>,
    project: Option<PathBuf>,
}

/// A process of this user with this PID, parent and directory. Its start time equals its PID.
fn process(pid: i32, ppid: i32, directory: &str) -> Seen {
    let start = u64::try_from(pid).unwrap();
    let stat = Stat { pid, ppid, comm: "x".into(), state: 'S', threads: 1, start, ..Stat::default() };
    let directory = (!directory.is_empty()).then(|| directory.into());
    Seen { stat, details: Some(Details { words: vec!["claude".into()], directory }) }
}

fn stage(others: impl IntoIterator<Item = Seen>) -> Stage {
    let known = [process(1, 0, "/"), process(BOT, 1, "/"), process(SHELL, 1, "/"), process(ME, SHELL, "/")];
    let seen = known.into_iter().chain(others).map(|seen| (seen.stat.pid, seen)).collect();
    let owners = HashSet::from([(BOT, 200), (ME, 300)]);
    Stage { seen, owners, taken: HashSet::new(), project: Some("/project".into()) }
}

impl Stage {
    fn taken(mut self, taken: &[Id]) -> Self {
        self.taken.extend(taken);
        self
    }

    fn owned_by(mut self, owner: Id) -> Self {
        self.owners.insert(owner);
        self
    }

    /// `expected`: each suspect, whether it is in the project, and the owner from which it
    /// descends.
    #[track_caller]
    fn check(&self, expected: &[(i32, bool, Option<i32>)]) {
        let scene = Scene {
            seen: &self.seen,
            off_limits: &HashSet::from([1, SHELL, ME]),
            owners: &self.owners,
            taken: &self.taken,
            project: self.project.as_deref(),
        };
        let found: Vec<_> =
            suspects(&scene).iter().map(|it| (it.stat.pid, it.in_project, it.owner)).collect();
        assert_eq!(found, expected);
    }
}

fn started(mut seen: Seen, start: u64) -> Seen {
    seen.stat.start = start;
    seen
}

#[cfg(unix)]
fn called(mut seen: Seen, comm: &str) -> Seen {
    seen.stat.comm = comm.into();
    seen
}

#[test]
fn only_a_process_in_the_project_directory_is_a_suspect() {
    for (directory, expected) in [
        ("/project", true),
        ("/project/a/b", true),
        ("/project-2", false),
        ("/", false),
        ("/other/project", false),
        ("", false),
    ] {
        let expected = if expected { vec![(500, true, None)] } else { Vec::new() };
        stage([process(500, 1, directory)]).check(&expected);
    }
}

#[test]
fn without_a_project_no_process_is_a_suspect_because_of_its_directory() {
    let stage =
        Stage { project: None, ..stage([process(500, 1, "/project"), process(501, BOT, "/project")]) };
    stage.check(&[(501, false, Some(BOT))]);
}

#[test]
fn a_descendant_of_an_owner_is_a_suspect() {
    let below = [process(500, BOT, "/"), process(501, 500, ""), process(502, ME, "/project")];
    stage(below).check(&[(500, false, Some(BOT)), (501, false, Some(BOT)), (502, true, Some(ME))]);
}

#[test]
fn a_process_that_reuses_an_owners_pid_is_no_owner() {
    // Another process has the PID now: the owner in the registry has another start time.
    let stranger = [process(400, 1, "/"), process(500, 400, "/")];
    stage(stranger).owned_by((400, 7)).check(&[]);
    // A child that is older than its parent is not its child.
    stage([started(process(500, BOT, "/"), 199)]).check(&[]);
}

#[test]
fn a_process_of_an_entry_and_its_descendants_are_no_suspects() {
    let run = || [process(500, BOT, "/project"), process(501, 500, "/project"), process(502, 1, "/project")];
    stage(run()).taken(&[(500, 500), (502, 502)]).check(&[]);
    // An entry of a former process with that PID does not count.
    stage(run()).taken(&[(500, 4), (502, 502)]).check(&[(500, true, Some(BOT)), (501, true, Some(BOT))]);
}

#[cfg(unix)]
#[test]
fn a_process_with_a_keeper_is_no_suspect_whatever_its_registry() {
    let kept = [
        called(process(400, 1, "/"), "owned-zygote"),
        called(process(401, 400, "/project"), "owned-keeper"),
        process(500, 401, "/project"),
        process(501, 500, "/project"),
    ];
    stage(kept).check(&[]);
}

#[cfg(unix)]
#[test]
fn the_nearest_owner_or_keeper_decides() {
    // This process is a run itself, and so is everything below it. But it started them itself.
    let mut stage = stage([called(process(250, 1, "/"), "owned-keeper"), process(500, ME, "/")]);
    stage.seen.get_mut(&SHELL).unwrap().stat.ppid = 250;
    stage.check(&[(500, false, Some(ME))]);
}

#[test]
fn owners_and_ancestors_of_runs_are_no_suspects() {
    // An owner and its ancestor.
    stage([process(150, 1, "/project"), process(400, 150, "/project")]).owned_by((400, 400)).check(&[]);
    // An ancestor of a process that belongs to an entry.
    stage([process(400, 1, "/project"), process(500, 400, "/")]).taken(&[(500, 500)]).check(&[]);
}

#[cfg(unix)]
#[test]
fn a_bot_with_another_registry_is_no_suspect() {
    stage([process(400, 1, "/project"), called(process(401, 400, "/"), "owned-zygote")]).check(&[]);
}

#[test]
fn this_process_its_ancestors_and_system_processes_are_no_suspects() {
    let mut ours = stage([process(super::LOWEST_PID - 1, 1, "/project"), process(150, 1, "/project")]);
    for pid in [1, SHELL, ME] {
        let directory = Some(PathBuf::from("/project"));
        ours.seen.get_mut(&pid).unwrap().details.as_mut().unwrap().directory = directory;
    }
    ours.check(&[(150, true, None)]);
}

#[test]
fn a_process_of_another_user_is_no_suspect_but_its_descendants_are() {
    let mut setuid = process(500, BOT, "/project");
    setuid.details = None;
    stage([setuid, process(501, 500, "/")]).check(&[(501, false, Some(BOT))]);
}

#[test]
fn a_zombie_is_no_suspect() {
    let mut zombie = process(500, BOT, "/project");
    zombie.stat.state = 'Z';
    stage([zombie]).check(&[]);
}

#[test]
fn a_loop_of_stale_links_does_not_hang_the_search() {
    let circle = [
        started(process(500, 501, "/project"), 9),
        started(process(501, 500, "/"), 9),
        started(process(502, 502, "/"), 9),
    ];
    stage(circle).check(&[(500, true, None)]);
}
