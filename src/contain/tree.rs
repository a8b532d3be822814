//! Decides which processes descend from which. Pure: process states in, members out.

use std::collections::{HashMap, HashSet};

use crate::identity::stat::Stat;

/// Maps every descendant of `ancestor` to the child of `ancestor` from which it descends.
///
/// `seen` was read one process at a time, so a parent link can be stale: the parent died and its
/// PID belongs to another process now. A stale link breaks the chain (see [`is_child`]). `ancestor`
/// is the calling process, so it is alive. The function visits each process once, however deep the
/// tree is.
pub fn branches(ancestor: i32, seen: &HashMap<i32, Stat>) -> HashMap<i32, i32> {
    let mut known: HashMap<i32, Option<i32>> = HashMap::with_capacity(seen.len());
    let mut chain = Vec::new();
    for &pid in seen.keys() {
        let mut current = pid;
        let branch = loop {
            if let Some(branch) = known.get(&current) {
                break *branch;
            }
            let Some(child) = seen.get(&current) else { break None };
            // No branch until the chain is complete. So a loop in stale data ends here.
            known.insert(current, None);
            chain.push(current);
            if child.ppid == ancestor {
                break Some(current);
            }
            match seen.get(&child.ppid) {
                Some(parent) if is_child(child, parent) => current = child.ppid,
                _ => break None,
            }
        };
        known.extend(chain.drain(..).map(|pid| (pid, branch)));
    }
    known.into_iter().filter_map(|(pid, branch)| Some((pid, branch?))).collect()
}

/// Returns those of `pids` that descend from `ancestor` now, see [`still_descends`].
///
/// Reads each process once, except when a parent exits during the reads.
pub fn verified_descendants(
    pids: impl Iterator<Item = i32>,
    ancestor: i32,
    seen: &HashMap<i32, Stat>,
    read: impl Fn(i32) -> Option<Stat>,
) -> HashSet<i32> {
    let mut verified = HashSet::new();
    let mut chain = Vec::new();
    'pids: for pid in pids {
        let mut current = pid;
        chain.clear();
        while !verified.contains(&current) {
            let before = seen.get(&current).filter(|_| chain.len() <= seen.len());
            let now = before.and_then(|before| read(current).filter(|now| now.start == before.start));
            let Some(now) = now else {
                // The process or one of its parents has exited, or its PID was reused. If only a
                // parent is gone, a new read can still prove the descent.
                if still_descends(pid, ancestor, seen, &read) {
                    verified.insert(pid);
                }
                continue 'pids;
            };
            chain.push(current);
            if now.ppid == ancestor {
                break;
            }
            current = now.ppid;
        }
        verified.extend(chain.drain(..));
    }
    verified
}

/// Returns whether `pid` descends from `ancestor` now. Each process between them must still have
/// the start token in `seen`.
///
/// If a parent exits before it is read, the kernel has already given its children a new parent. So
/// the chain is read again, from `pid` upwards. Without this, a member would miss a signal because
/// its parent died of that signal first.
pub fn still_descends(
    pid: i32,
    ancestor: i32,
    seen: &HashMap<i32, Stat>,
    read: impl Fn(i32) -> Option<Stat>,
) -> bool {
    // Each further attempt means that one of the processes in `seen` has exited.
    (0..=seen.len()).find_map(|_| chain_reaches(pid, ancestor, seen, &read)).unwrap_or(false)
}

/// Reads the parents of `pid` up to `ancestor`. Returns `None` if a parent exited during the reads.
fn chain_reaches(
    pid: i32,
    ancestor: i32,
    seen: &HashMap<i32, Stat>,
    read: impl Fn(i32) -> Option<Stat>,
) -> Option<bool> {
    let mut current = pid;
    for _ in 0..=seen.len() {
        let Some(before) = seen.get(&current) else { return Some(false) };
        match read(current) {
            Some(now) if now.start == before.start && now.ppid == ancestor => return Some(true),
            Some(now) if now.start == before.start => current = now.ppid,
            _ if current == pid => return Some(false),
            _ => return None,
        }
    }
    Some(false)
}

/// Returns whether `child` names `parent` as its parent, and the start times allow it. A parent is
/// never younger than its child.
pub fn is_child(child: &Stat, parent: &Stat) -> bool {
    child.ppid == parent.pid && parent.start <= child.start
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn table(rows: &[(i32, i32, u64)]) -> HashMap<i32, Stat> {
        rows.iter()
            .map(|&(pid, ppid, start)| {
                (
                    pid,
                    Stat {
                        pid,
                        comm: "x".into(),
                        state: 'S',
                        ppid,
                        pgrp: pid,
                        session: pid,
                        threads: 1,
                        start,
                        ..Stat::default()
                    },
                )
            })
            .collect()
    }

    #[test]
    fn branches_contains_children_and_grandchildren() {
        let seen = table(&[(20, 10, 5), (30, 20, 5), (40, 30, 9)]);
        for pid in [20, 30, 40] {
            assert_eq!(branches(10, &seen).get(&pid), Some(&20), "{pid}");
        }
    }

    #[test]
    fn branches_rejects_strangers_and_the_ancestor_itself() {
        let seen = table(&[(20, 10, 5), (50, 1, 5), (60, 50, 6)]);
        for pid in [10, 50, 60, 99] {
            assert_eq!(branches(10, &seen).get(&pid), None, "{pid}");
        }
    }

    #[test]
    fn branches_rejects_children_of_a_recycled_parent_pid() {
        // 30 started at 5 below another process. PID 20 now belongs to a member that started
        // at 8.
        let seen = table(&[(20, 10, 8), (30, 20, 5)]);
        assert_eq!(branches(10, &seen), HashMap::from([(20, 20)]));
    }

    #[test]
    fn a_deep_chain_is_followed_to_its_end_with_one_read_per_process() {
        let rows: Vec<_> = (1..20_000).map(|pid| (pid + 1, pid, 5)).collect();
        let seen = table(&rows);
        let branches = branches(1, &seen);
        assert_eq!((branches.len(), branches.get(&20_000)), (19_999, Some(&2)));
        let reads = RefCell::new(0);
        let read = |pid: i32| {
            *reads.borrow_mut() += 1;
            seen.get(&pid).cloned()
        };
        assert_eq!(verified_descendants(2..=20_000, 1, &seen, read).len(), 19_999);
        assert_eq!(*reads.borrow(), 19_999, "each process is read once");
    }

    /// Returns the answers in order, and checks that each answer is about the process that is read.
    fn reads(answers: &[(i32, Option<(i32, u64)>)]) -> impl Fn(i32) -> Option<Stat> {
        let answers = RefCell::new(answers.to_vec());
        move |pid| {
            let (expected, answer) = answers.borrow_mut().remove(0);
            assert_eq!(expected, pid, "the code reads another process");
            answer.map(|(ppid, start)| table(&[(pid, ppid, start)])[&pid].clone())
        }
    }

    #[test]
    fn a_parent_that_dies_during_the_reads_does_not_hide_its_child() {
        let seen = table(&[(20, 10, 5), (30, 20, 6), (40, 30, 7)]);
        let adopted = reads(&[(40, Some((30, 7))), (30, None), (40, Some((10, 7)))]);
        assert!(still_descends(40, 10, &seen, adopted));
        let recycled =
            reads(&[(40, Some((30, 7))), (30, Some((1, 9))), (40, Some((20, 7))), (20, Some((10, 5)))]);
        assert!(still_descends(40, 10, &seen, recycled));
        let adopted = reads(&[(40, Some((30, 7))), (30, None), (40, Some((10, 7))), (20, Some((10, 5)))]);
        assert_eq!(verified_descendants([40, 20].into_iter(), 10, &seen, adopted), HashSet::from([40, 20]));
    }

    #[test]
    fn a_process_that_exited_or_was_adopted_outside_the_tree_does_not_descend() {
        let seen = table(&[(20, 10, 5), (30, 20, 6), (40, 30, 7)]);
        let gone = reads(&[(40, None)]);
        assert!(!still_descends(40, 10, &seen, gone));
        let gone = reads(&[(40, None), (40, None)]);
        assert_eq!(verified_descendants([40].into_iter(), 10, &seen, gone), HashSet::new());
        let another = reads(&[(40, Some((10, 8)))]);
        assert!(!still_descends(40, 10, &seen, another));
        let adopted_by_a_stranger = reads(&[(40, Some((30, 7))), (30, None), (40, Some((1, 7)))]);
        assert!(!still_descends(40, 10, &seen, adopted_by_a_stranger));
    }

    #[test]
    fn repeated_reads_end() {
        let seen = table(&[(20, 10, 5), (30, 20, 6)]);
        // Cannot happen on a real kernel: the parent has exited, but is still named as the parent.
        let read = |pid| (pid == 30).then(|| seen[&30].clone());
        assert!(!still_descends(30, 10, &seen, read));
    }

    #[test]
    fn branches_ends_on_a_loop_in_stale_data() {
        let seen = table(&[(20, 30, 5), (30, 20, 5)]);
        assert_eq!(branches(10, &seen), HashMap::new());
    }

    /// Real parent links have no loop. But they are read one after the other while PIDs are reused,
    /// so the data can contain one.
    #[test]
    fn every_function_ends_on_a_loop_in_stale_data() {
        let seen = table(&[(20, 30, 5), (30, 20, 5)]);
        assert_eq!(branches(10, &seen), HashMap::new());
        let read = |pid: i32| seen.get(&pid).cloned();
        assert_eq!(verified_descendants([20, 30].into_iter(), 10, &seen, read), HashSet::new());
        assert!(!still_descends(30, 10, &seen, |pid| seen.get(&pid).cloned()));
    }
}
