//! Who is suspected, and who must not be.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::{Details, Id, Scene, Seen, suspects};
use crate::identity::stat::Stat;

const BOT: i32 = 200;
const ME: i32 = 300;
/// Above us.
const SHELL: i32 = 299;

/// A bot that is alive and in the registry; we, below a shell; and whoever else a test adds.
struct Stage {
    seen: HashMap<i32, Seen>,
    owners: HashSet<Id>,
    taken: HashSet<Id>,
    project: Option<PathBuf>,
}

/// A process of ours with this number, below that one, at work in that directory. It started at its own number.
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

    /// Each with whether it is in the project, and the owner it descends from.
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
fn whoever_is_in_the_project_is_suspected_and_nobody_beside_it() {
    for (directory, expected) in [
        ("/project", true),
        ("/project/a/b", true),
        ("/project-2", false),
        ("/", false),
        ("/elsewhere/project", false),
        ("", false),
    ] {
        let expected = if expected { vec![(500, true, None)] } else { Vec::new() };
        stage([process(500, 1, directory)]).check(&expected);
    }
}

#[test]
fn without_a_project_nobody_is_suspected_for_where_it_is() {
    let stage =
        Stage { project: None, ..stage([process(500, 1, "/project"), process(501, BOT, "/project")]) };
    stage.check(&[(501, false, Some(BOT))]);
}

#[test]
fn whoever_descends_from_an_owner_is_suspected() {
    let below = [process(500, BOT, "/"), process(501, 500, ""), process(502, ME, "/project")];
    stage(below).check(&[(500, false, Some(BOT)), (501, false, Some(BOT)), (502, true, Some(ME))]);
}

#[test]
fn nobody_descends_from_who_has_an_owners_number() {
    // The number is another's now: the owner in the registry was started at another time.
    let stranger = [process(400, 1, "/"), process(500, 400, "/")];
    stage(stranger).owned_by((400, 7)).check(&[]);
    // A child that is older than its parent is somebody else's.
    stage([started(process(500, BOT, "/"), 199)]).check(&[]);
}

#[test]
fn who_belongs_to_an_entry_is_no_suspect_and_neither_is_what_it_has_started() {
    let run = || [process(500, BOT, "/project"), process(501, 500, "/project"), process(502, 1, "/project")];
    stage(run()).taken(&[(500, 500), (502, 502)]).check(&[]);
    // An entry about somebody who had the number before says nothing.
    stage(run()).taken(&[(500, 4), (502, 502)]).check(&[(500, true, Some(BOT)), (501, true, Some(BOT))]);
}

#[cfg(unix)]
#[test]
fn who_has_a_keeper_is_somebodys_run_whatever_registry_it_is_in() {
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
fn the_nearest_above_decides() {
    // We are a run ourselves, and so is everything below us; but it is we who have started it.
    let mut stage = stage([called(process(250, 1, "/"), "owned-keeper"), process(500, ME, "/")]);
    stage.seen.get_mut(&SHELL).unwrap().stat.ppid = 250;
    stage.check(&[(500, false, Some(ME))]);
}

#[test]
fn who_answers_for_others_is_no_suspect() {
    // An owner, and who is above it.
    stage([process(150, 1, "/project"), process(400, 150, "/project")]).owned_by((400, 400)).check(&[]);
    // Who is above somebody that belongs to an entry.
    stage([process(400, 1, "/project"), process(500, 400, "/")]).taken(&[(500, 500)]).check(&[]);
}

#[cfg(unix)]
#[test]
fn a_bot_with_another_registry_is_no_suspect() {
    stage([process(400, 1, "/project"), called(process(401, 400, "/"), "owned-zygote")]).check(&[]);
}

#[test]
fn we_those_above_us_and_those_of_the_system_are_no_suspects() {
    let mut ours = stage([process(super::LOWEST_PID - 1, 1, "/project"), process(150, 1, "/project")]);
    for pid in [1, SHELL, ME] {
        let directory = Some(PathBuf::from("/project"));
        ours.seen.get_mut(&pid).unwrap().details.as_mut().unwrap().directory = directory;
    }
    ours.check(&[(150, true, None)]);
}

#[test]
fn other_users_processes_are_no_suspects_but_lead_to_ours() {
    let mut setuid = process(500, BOT, "/project");
    setuid.details = None;
    stage([setuid, process(501, 500, "/")]).check(&[(501, false, Some(BOT))]);
}

#[test]
fn the_dead_are_no_suspects() {
    let mut zombie = process(500, BOT, "/project");
    zombie.stat.state = 'Z';
    stage([zombie]).check(&[]);
}

#[test]
fn a_loop_of_stale_links_ends() {
    let circle = [
        started(process(500, 501, "/project"), 9),
        started(process(501, 500, "/"), 9),
        started(process(502, 502, "/"), 9),
    ];
    stage(circle).check(&[(500, true, None)]);
}
