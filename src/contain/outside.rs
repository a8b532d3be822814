//! A tree seen from outside, when its keeper is not there to ask: the root's group, and whoever carries the run's
//! cookie. A process that has cleared its environment *and* left the group cannot be found this way; that is what
//! the keeper is for.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use std::{fs, io};

use nix::errno::Errno;

use super::{ProcessInfo, SIGCONT, SIGKILL, cookie};
use crate::identity::stat::Stat;
use crate::identity::{Pidfd, ProcessRef, State, read_stat};

/// One process of the system, as far as this decision needs it.
#[derive(Debug)]
struct Row {
    stat: Stat,
    carries: bool,
}

/// Ends whatever can be proven to belong to the run: `signal` and SIGCONT, `grace`, then SIGKILL until nothing is
/// found, at most `limit` after that. Returns what is left. Blocks; never call it on the event loop.
pub fn end_tree(
    root: &ProcessRef,
    run_id: &str,
    signal: i32,
    grace: Duration,
    limit: Duration,
) -> Vec<ProcessInfo> {
    // An absurdly long grace must not overflow the clock.
    let kill_at = Instant::now() + grace.min(Duration::from_secs(365 * 24 * 3600));
    if signal != SIGKILL
        && let Ok(members) = find(root, run_id)
    {
        send(&members, signal);
        send(&members, SIGCONT);
        wait_until_gone(&members, kill_at);
    }
    let give_up_at = Instant::now() + limit;
    loop {
        let found = find(root, run_id);
        let is_late = Instant::now() >= give_up_at;
        match found {
            Ok(members) if members.is_empty() => return Vec::new(),
            Ok(members) if is_late => return members.iter().map(survivor).collect(),
            Ok(members) => {
                send(&members, SIGKILL);
                wait_until_gone(&members, give_up_at.min(Instant::now() + Duration::from_millis(100)));
            }
            // Not being able to look is not the same as seeing nothing.
            Err(error) if is_late => return vec![unseen(root, &error)],
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The living members, as identities that were captured while they were proven to be ours.
fn find(root: &ProcessRef, run_id: &str) -> io::Result<Vec<ProcessRef>> {
    let root_is_alive = root.state() == State::Alive;
    let mut rows = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        rows.extend(look_at(pid, run_id));
    }
    Ok(ours(root.pid, root_is_alive, &rows)
        .into_iter()
        .map(|stat| ProcessRef::known(stat.pid, stat.start))
        .filter(|process| process.pid != std::process::id().cast_signed())
        .collect())
}

/// One process, with its environment read between two looks at its start token: both are the same process's.
fn look_at(pid: i32, run_id: &str) -> Option<Row> {
    let stat = read_stat(pid).ok()?;
    let carries = cookie::carried_by(pid, run_id);
    (read_stat(pid).ok()?.start == stat.start).then_some(Row { stat, carries })
}

/// Pure: who belongs to the run.
///
/// The group is ours if its leader is the verified root, or if a carrier of the cookie is in it: then its number
/// has not been given to anybody else since. Without such a witness a group with the root's number is a stranger's.
///
/// This run has lost its keeper. A carrier that has one, which is not itself part of the run, belongs to another bot that
/// has chosen the same run id.
fn ours(root: i32, root_is_alive: bool, rows: &[Row]) -> Vec<&Stat> {
    let by_pid: HashMap<i32, &Row> = rows.iter().map(|row| (row.stat.pid, row)).collect();
    let is_kept_by_another = |row: &Row| {
        std::iter::successors(Some(row), |row| by_pid.get(&row.stat.ppid).copied())
            .take(rows.len())
            .any(|row| row.stat.comm == "owned-keeper" && !row.carries)
    };
    let in_group = |row: &Row| row.stat.pgrp == root && row.stat.session == root;
    let carriers: Vec<_> =
        rows.iter().filter(|row| row.carries && !row.stat.is_dead() && !is_kept_by_another(row)).collect();
    let group_is_ours = root_is_alive || carriers.iter().any(|row| in_group(row));
    let group =
        rows.iter().filter(|row| group_is_ours && in_group(row) && !row.carries && !row.stat.is_dead());
    carriers.into_iter().chain(group).map(|row| &row.stat).collect()
}

/// Errors are not lost: a process that could not be signalled is found again and ends up among the survivors.
fn send(members: &[ProcessRef], signal: i32) {
    for member in members {
        let _ = member.signal(signal);
    }
}

fn wait_until_gone(members: &[ProcessRef], deadline: Instant) {
    for member in members {
        if let Ok(pidfd) = Pidfd::open(member.pid)
            && member.state() == State::Alive
        {
            let _ = pidfd.wait_exited(Some(deadline.saturating_duration_since(Instant::now())));
        }
    }
}

fn survivor(process: &ProcessRef) -> ProcessInfo {
    let why = match process.signal(0) {
        Err(Errno::EPERM) => "not permitted to signal it (EPERM): it runs as another user",
        _ => "still there after SIGKILL",
    };
    let command = read_stat(process.pid).map(|stat| stat.comm).unwrap_or_default();
    ProcessInfo { pid: process.pid, start: process.start, command, why: why.to_owned() }
}

fn unseen(root: &ProcessRef, error: &io::Error) -> ProcessInfo {
    let why = format!("what is left of the run could not be looked for: {error}");
    ProcessInfo { pid: root.pid, start: root.start, command: String::new(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: i32, pgrp: i32, session: i32, state: char, carries: bool) -> Row {
        Row {
            stat: Stat { pid, comm: "x".into(), state, ppid: 1, pgrp, session, threads: 1, start: 1 },
            carries,
        }
    }

    fn pids(root_is_alive: bool, rows: &[Row]) -> Vec<i32> {
        ours(100, root_is_alive, rows).iter().map(|stat| stat.pid).collect()
    }

    #[test]
    fn a_living_root_vouches_for_its_group() {
        let rows = [row(100, 100, 100, 'S', false), row(101, 100, 100, 'S', false), row(7, 7, 7, 'S', false)];
        assert_eq!(pids(true, &rows), [100, 101]);
    }

    #[test]
    fn a_group_with_a_recycled_number_is_left_alone() {
        let rows = [row(100, 100, 100, 'S', false), row(101, 100, 100, 'S', false)];
        assert_eq!(pids(false, &rows), [0; 0]);
    }

    #[test]
    fn a_carrier_in_the_group_vouches_for_it_when_the_root_is_gone() {
        let rows = [row(101, 100, 100, 'S', true), row(102, 100, 100, 'S', false)];
        assert_eq!(pids(false, &rows), [101, 102]);
    }

    #[test]
    fn a_dead_carrier_vouches_for_nobody() {
        let rows = [row(101, 100, 100, 'Z', true), row(102, 100, 100, 'S', false)];
        assert_eq!(pids(false, &rows), [0; 0]);
    }

    #[test]
    fn a_carrier_with_a_keeper_of_its_own_is_another_bots() {
        let below = |pid, ppid, comm: &str, carries| {
            let mut row = row(pid, pid, pid, 'S', carries);
            (row.stat.ppid, row.stat.comm) = (ppid, comm.into());
            row
        };
        let other =
            [below(50, 1, "owned-keeper", false), below(60, 50, "sh", true), below(61, 60, "sleep", true)];
        assert_eq!(pids(false, &other), [0; 0]);
        // A keeper that carries the id is that of a run within this run.
        let nested = [below(50, 1, "owned-keeper", true), below(60, 50, "sh", true)];
        assert_eq!(pids(false, &nested), [50, 60]);
    }

    #[test]
    fn a_carrier_elsewhere_is_ours_but_its_group_is_not() {
        let rows = [row(200, 200, 200, 'S', true), row(201, 200, 200, 'S', false)];
        assert_eq!(pids(false, &rows), [200]);
    }
}
