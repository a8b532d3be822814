//! Real processes. Liveness is judged by the end of a pipe that they hold, and by how they have ended.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;
use crate::contain::cookie;

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(10);

/// `sh -c script` whose standard input, output and group are the test's business.
fn sh(script: &str, group: i32) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(group);
    command
}

/// A tree, and the pipe that every process of it holds.
struct Tree {
    child: Child,
    pipe: BufReader<ChildStdout>,
}

impl Tree {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let pipe = BufReader::new(child.stdout.take().unwrap());
        Self { child, pipe }
    }

    /// The process of which the tree tells the number.
    fn told(&mut self) -> ProcessRef {
        let mut line = String::new();
        self.pipe.read_line(&mut line).unwrap();
        ProcessRef::capture(line.trim().parse().unwrap()).unwrap()
    }

    fn root(&self) -> ProcessRef {
        ProcessRef::capture(self.child.id().cast_signed()).unwrap()
    }

    /// Lets the root end by itself, and reaps it.
    fn lose_root(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    /// Nobody holds the pipe any more. All that was written to it was read, so there is nothing else to be told.
    fn assert_extinct(mut self) {
        let mut fds = [PollFd::new(self.pipe.get_ref().as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::try_from(LONG).unwrap()), Ok(1), "somebody is alive");
        assert_eq!(self.pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
        let _ = self.child.wait();
    }
}

fn registered(root: &ProcessRef, leads_group: bool) -> Target<'_> {
    Target { root, leads_group, run_id: None, members: &[], cgroup: None }
}

#[test]
fn a_root_that_leads_no_group_is_ended_without_the_others_in_its_group() {
    let mut leader = Command::new("cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
    let group = leader.id().cast_signed();
    let mut bystander = Command::new("cat").stdin(Stdio::piped()).process_group(group).spawn().unwrap();
    let mut root = Tree::start(&mut sh("sleep 300 & echo $!; read line", group));
    root.told();
    let process = root.root();
    let ended = end_tree(&registered(&process, false), libc::SIGTERM, LONG, LONG);
    assert_eq!(ended, Ended { found: true, survivors: Vec::new(), signalled: 2 });
    assert_eq!(root.child.wait().unwrap().signal(), Some(libc::SIGTERM));
    root.assert_extinct();
    for child in [&mut leader, &mut bystander] {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "ended by its end of input, not by a signal");
    }
}

#[test]
fn a_descendant_that_has_left_the_group_is_ended_though_its_parent_dies_first() {
    let stubborn = "trap '' TERM; echo $$; exec sleep 300";
    let mut tree =
        Tree::start(&mut sh(&format!("setsid sh -c \"{}\" & wait", stubborn.replace('$', "\\$")), 0));
    let descendant = tree.told();
    assert_eq!(read_stat(descendant.pid).unwrap().session, descendant.pid);
    let root = tree.root();
    let ended = end_tree(&registered(&root, true), libc::SIGTERM, SHORT, LONG);
    assert_eq!(ended, Ended { found: true, survivors: Vec::new(), signalled: 2 });
    assert_eq!(tree.child.wait().unwrap().signal(), Some(libc::SIGTERM), "it died before its descendant");
    tree.assert_extinct();
}

const TWO_THAT_STAY: &str = "sleep 300 & sleep 300 & echo $!; read line; exit 0";

#[test]
fn a_group_without_its_root_is_ended_if_a_recorded_member_vouches() {
    let mut tree = Tree::start(&mut sh(TWO_THAT_STAY, 0));
    let (root, members) = (tree.root(), [tree.told()]);
    tree.lose_root();
    let target = Target { members: &members, ..registered(&root, true) };
    assert_eq!(Scan::take().unwrap().group_state(&target), GroupState::Ours);
    assert_eq!(Scan::take().unwrap().living(&target).unwrap().len(), 2);
    let ended = end_tree(&target, libc::SIGTERM, LONG, LONG);
    assert_eq!(ended, Ended { found: true, survivors: Vec::new(), signalled: 2 });
    tree.assert_extinct();
    assert_eq!(Scan::take().unwrap().group_state(&target), GroupState::Empty);
}

#[test]
fn a_group_without_its_root_is_left_alone_if_nobody_vouches() {
    let mut tree = Tree::start(&mut sh(TWO_THAT_STAY, 0));
    let (root, member) = (tree.root(), tree.told());
    tree.lose_root();
    let recycled = [ProcessRef { start: member.start - 1, ..member.clone() }];
    for members in [&[], &recycled[..]] {
        let target = Target { members, ..registered(&root, true) };
        assert_eq!(Scan::take().unwrap().group_state(&target), GroupState::Unproven);
        let ended = end_tree(&target, SIGKILL, Duration::ZERO, LONG);
        assert_eq!(ended, Ended { found: false, survivors: Vec::new(), signalled: 0 });
        assert_eq!(member.state(), State::Alive);
    }
    let members = [member];
    end_tree(&Target { members: &members, ..registered(&root, true) }, SIGKILL, Duration::ZERO, LONG);
    tree.assert_extinct();
}

#[test]
fn a_run_without_its_root_is_found_by_its_cookie_and_by_one_look_for_many() {
    let run_id = format!("outside-{}", std::process::id());
    // One carrier leaves the session, one process clears its environment and stays a child of the other carrier.
    let script = "setsid sleep 300 & sh -c 'env -i sleep 300 & echo $!; wait' & read line; exit 0";
    let mut tree = Tree::start(sh(script, 0).env(cookie::VARIABLE, &run_id));
    let root = tree.root();
    let cleared = tree.told();
    tree.lose_root();
    let target = Target::spawned(&root, &run_id);
    let scan = Scan::take().unwrap();
    let seen = scan.living(&target).unwrap();
    assert!(seen.len() == 3 && seen.contains(&cleared), "{seen:?}");
    assert_eq!(scan.living(&Target::spawned(&root, "another")).unwrap(), []);
    let ended = end_tree(&target, libc::SIGTERM, LONG, LONG);
    assert_eq!((ended.found, ended.survivors), (true, Vec::new()));
    // The shell goes by itself when its only child is gone, and may be faster than its signal.
    assert!((2..=3).contains(&ended.signalled));
    tree.assert_extinct();
}

#[test]
fn members_that_ignore_the_signal_or_are_stopped_are_killed() {
    let mut tree = Tree::start(&mut sh("trap '' TERM; sleep 300 & echo $!; kill -STOP $!; wait", 0));
    tree.told();
    let root = tree.root();
    let ended = end_tree(&registered(&root, true), libc::SIGTERM, SHORT, LONG);
    assert_eq!(ended, Ended { found: true, survivors: Vec::new(), signalled: 2 });
    assert_eq!(tree.child.wait().unwrap().signal(), Some(SIGKILL));
    tree.assert_extinct();
}

#[test]
fn a_tree_that_forks_while_it_is_killed_leaves_nothing() {
    let forks = "echo $$; i=0; while [ $i -lt 200 ]; do setsid sleep 300 & i=$((i+1)); done; wait";
    let mut tree = Tree::start(&mut sh(forks, 0));
    tree.told();
    let root = tree.root();
    let ended = end_tree(&registered(&root, true), SIGKILL, Duration::ZERO, LONG);
    assert_eq!((ended.found, ended.survivors), (true, Vec::new()));
    tree.assert_extinct();
}

#[test]
fn we_are_not_ended_together_with_a_group_that_we_are_in() {
    let me = nix::unistd::getpgrp().as_raw();
    let mut child = Command::new("cat").stdin(Stdio::piped()).process_group(me).spawn().unwrap();
    // As a record could claim it: we, as the root.
    let ourselves = ProcessRef::capture(std::process::id().cast_signed()).unwrap();
    let ended = end_tree(&registered(&ourselves, true), SIGKILL, Duration::ZERO, SHORT);
    assert_eq!(ended, Ended { found: false, survivors: Vec::new(), signalled: 0 });
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_is_unknown_is_reported_and_not_touched() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
    let mut root = ProcessRef::capture(child.id().cast_signed()).unwrap();
    root.ns += 1;
    let ended = end_tree(&registered(&root, true), SIGKILL, Duration::ZERO, SHORT);
    assert!(!ended.found && ended.signalled == 0 && ended.survivors.len() == 1, "{ended:?}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
