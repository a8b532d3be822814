//! Tests with real processes. A process is alive while it holds the pipe open; its exit status
//! shows how it ended.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;
use crate::contain::{SIGKILL, cookie};
use crate::identity::read_stat;
use crate::run::Force;
use crate::run::reason::Ending;

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(10);

/// `sh -c script` with piped input and output, in the given process group.
fn sh(script: &str, group: i32) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(group);
    command
}

/// A tree, and the pipe that each of its processes holds.
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

    /// Reads a PID that the tree prints, and returns that process.
    fn read_process(&mut self) -> ProcessRef {
        let mut line = String::new();
        self.pipe.read_line(&mut line).unwrap();
        ProcessRef::capture(line.trim().parse().unwrap()).unwrap()
    }

    fn root(&self) -> ProcessRef {
        ProcessRef::capture(self.child.id().cast_signed()).unwrap()
    }

    /// Waits until the root exits at its end of input, and reaps it.
    fn end_root(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    /// Checks that no process holds the pipe any more. All output was read before, so the read
    /// returns 0.
    fn assert_extinct(mut self) {
        let mut fds = [PollFd::new(self.pipe.get_ref().as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::try_from(LONG).unwrap()), Ok(1), "a process is alive");
        assert_eq!(self.pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
        let _ = self.child.wait();
    }
}

fn registered(root: &ProcessRef, leads_group: bool) -> Target<'_> {
    Target { leads_group, spawned: false, ..Target::spawned(root, None) }
}

/// The end of a tree of which at least one process was alive and none is left.
fn found(force: Force) -> Ended {
    Ended { force, ..Ended::new(Ending::KeeperLost) }
}

/// Takes the list of the members that needed SIGKILL out of an end, and returns their PIDs.
fn take_forced(ended: &mut Ended) -> Vec<i32> {
    std::mem::take(&mut ended.forced).into_iter().map(|process| process.pid).collect()
}

#[test]
fn a_root_that_leads_no_group_is_ended_without_the_rest_of_its_group() {
    let mut leader = Command::new("cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
    let group = leader.id().cast_signed();
    let mut bystander = Command::new("cat").stdin(Stdio::piped()).process_group(group).spawn().unwrap();
    let mut root = Tree::start(&mut sh("sleep 300 & echo $!; read line", group));
    root.read_process();
    let process = root.root();
    let (ended, signalled) = end_and_count(&registered(&process, false), libc::SIGTERM, LONG, LONG);
    assert_eq!((ended, signalled), (found(Force::Signal), 2));
    assert_eq!(root.child.wait().unwrap().signal(), Some(libc::SIGTERM));
    root.assert_extinct();
    for child in [&mut leader, &mut bystander] {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "it exits at its end of input, not by a signal");
    }
}

#[test]
fn a_descendant_that_left_the_group_is_ended_although_its_parent_dies_first() {
    let stubborn = "trap '' TERM; echo $$; exec sleep 300";
    let mut tree =
        Tree::start(&mut sh(&format!("setsid sh -c \"{}\" & wait", stubborn.replace('$', "\\$")), 0));
    let descendant = tree.read_process();
    assert_eq!(read_stat(descendant.pid).unwrap().session, descendant.pid);
    let root = tree.root();
    let (mut ended, signalled) = end_and_count(&registered(&root, true), libc::SIGTERM, SHORT, LONG);
    assert_eq!(take_forced(&mut ended), [descendant.pid], "the root died of SIGTERM");
    assert_eq!((ended, signalled), (found(Force::Kill), 2));
    assert_eq!(tree.child.wait().unwrap().signal(), Some(libc::SIGTERM), "it dies before its descendant");
    tree.assert_extinct();
}

const TWO_THAT_STAY: &str = "sleep 300 & sleep 300 & echo $!; read line; exit 0";

#[test]
fn a_group_without_its_root_is_ended_if_a_recorded_member_proves_it() {
    let mut tree = Tree::start(&mut sh(TWO_THAT_STAY, 0));
    let (root, members) = (tree.root(), [tree.read_process()]);
    tree.end_root();
    let target = Target { members: &members, ..registered(&root, true) };
    assert_eq!(Scan::take().unwrap().group_state(&target), GroupState::Ours);
    assert_eq!(Scan::take().unwrap().living(&target).unwrap().len(), 2);
    let (ended, signalled) = end_and_count(&target, libc::SIGTERM, LONG, LONG);
    assert_eq!((ended, signalled), (found(Force::Signal), 2));
    tree.assert_extinct();
    assert_eq!(Scan::take().unwrap().group_state(&target), GroupState::Empty);
}

#[test]
fn a_group_without_its_root_is_not_signalled_without_proof() {
    let mut tree = Tree::start(&mut sh(TWO_THAT_STAY, 0));
    let (root, member) = (tree.root(), tree.read_process());
    tree.end_root();
    let recycled = [ProcessRef { start: member.start - 1, ..member.clone() }];
    for members in [&[], &recycled[..]] {
        let target = Target { members, ..registered(&root, true) };
        assert_eq!(Scan::take().unwrap().group_state(&target), GroupState::Unproven);
        let (ended, signalled) = end_and_count(&target, SIGKILL, Duration::ZERO, LONG);
        assert_eq!((ended, signalled), (Ended::new(Ending::AlreadyEnded), 0));
        assert_eq!(member.state(), State::Alive);
    }
    let members = [member];
    end_tree(&Target { members: &members, ..registered(&root, true) }, SIGKILL, Duration::ZERO, LONG);
    tree.assert_extinct();
}

#[test]
fn a_run_without_its_root_is_found_by_its_cookie_and_one_scan_serves_many_runs() {
    let key = cookie::new_key();
    // One carrier leaves the session. Another process clears its environment and stays a child of
    // the other carrier.
    let script = "setsid sleep 300 & sh -c 'env -i sleep 300 & echo $!; wait' & read line; exit 0";
    let mut tree = Tree::start(sh(script, 0).env(cookie::VARIABLE, cookie::append("", "r", &key)));
    let root = tree.root();
    let cleared = tree.read_process();
    tree.end_root();
    let target = Target::spawned(&root, Some(&key));
    let scan = Scan::take().unwrap();
    let seen = scan.living(&target).unwrap();
    assert!(seen.len() == 3 && seen.contains(&cleared), "{seen:?}");
    for other in [None, Some("r"), Some(cookie::new_key().as_str())] {
        assert_eq!(scan.living(&Target::spawned(&root, other)).unwrap(), []);
    }
    let (ended, signalled) = end_and_count(&target, libc::SIGTERM, LONG, LONG);
    assert_eq!(ended, found(Force::Signal));
    // The shell exits when its only child is gone, perhaps before it is signalled.
    assert!((2..=3).contains(&signalled));
    tree.assert_extinct();
}

#[test]
fn members_that_ignore_the_signal_or_are_stopped_are_killed_after_the_grace_period() {
    let mut tree = Tree::start(&mut sh("trap '' TERM; sleep 300 & echo $!; kill -STOP $!; wait", 0));
    let (root, stopped) = (tree.root(), tree.read_process());
    let (mut ended, signalled) = end_and_count(&registered(&root, true), libc::SIGTERM, SHORT, LONG);
    let forced: HashSet<_> = take_forced(&mut ended).into_iter().collect();
    assert_eq!(forced, HashSet::from([root.pid, stopped.pid]));
    assert_eq!((ended, signalled), (found(Force::Kill), 2));
    assert_eq!(tree.child.wait().unwrap().signal(), Some(SIGKILL));
    tree.assert_extinct();
}

#[test]
fn without_a_grace_all_members_are_forced() {
    let mut tree = Tree::start(&mut sh("sleep 300 & echo $!; read line", 0));
    let (root, child) = (tree.root(), tree.read_process());
    let mut ended = end_tree(&registered(&root, true), libc::SIGTERM, Duration::ZERO, LONG);
    let forced: HashSet<_> = take_forced(&mut ended).into_iter().collect();
    assert_eq!(forced, HashSet::from([root.pid, child.pid]));
    tree.assert_extinct();
}

#[test]
fn a_tree_that_forks_while_it_is_killed_leaves_no_process() {
    let forks = "echo $$; i=0; while [ $i -lt 200 ]; do setsid sleep 300 & i=$((i+1)); done; wait";
    let mut tree = Tree::start(&mut sh(forks, 0));
    tree.read_process();
    let root = tree.root();
    let mut ended = end_tree(&registered(&root, true), SIGKILL, Duration::ZERO, LONG);
    let forced = take_forced(&mut ended);
    assert!(forced.contains(&root.pid));
    assert_eq!(forced.iter().collect::<HashSet<_>>().len(), forced.len(), "each is listed once");
    assert_eq!(ended, found(Force::Kill));
    tree.assert_extinct();
}

#[test]
fn this_process_survives_the_end_of_a_group_that_it_is_in() {
    let me = nix::unistd::getpgrp().as_raw();
    let mut child = Command::new("cat").stdin(Stdio::piped()).process_group(me).spawn().unwrap();
    // A wrong record could name this process as the root.
    let ourselves = ProcessRef::capture(std::process::id().cast_signed()).unwrap();
    let (ended, signalled) = end_and_count(&registered(&ourselves, true), SIGKILL, Duration::ZERO, SHORT);
    assert_eq!((ended, signalled), (Ended::new(Ending::AlreadyEnded), 0));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_root_of_another_namespace_is_reported_and_not_signalled() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
    let mut root = ProcessRef::capture(child.id().cast_signed()).unwrap();
    root.ns += 1;
    let (ended, signalled) = end_and_count(&registered(&root, true), SIGKILL, Duration::ZERO, SHORT);
    assert_eq!((ended.ending, signalled, ended.survivors.len()), (Ending::AlreadyEnded, 0, 1), "{ended:?}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
