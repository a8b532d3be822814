//! Who descends from whom. Pure: observations in, members out.

use std::collections::HashMap;

use crate::identity::stat::Stat;

/// The child of `ancestor` through which `pid` descends from it, according to what was read. `None` if it does not.
///
/// The entries were read one after the other while processes came and went, so a link may be stale: a parent may
/// have died and its number may have gone to a stranger; such a link breaks the chain (see [`is_child`]). The ancestor itself is
/// the reader, and alive.
pub fn branch_of(pid: i32, ancestor: i32, seen: &HashMap<i32, Stat>) -> Option<i32> {
    let mut current = pid;
    // A chain cannot be longer than the table; a loop in stale data ends here too.
    for _ in 0..=seen.len() {
        let child = seen.get(&current)?;
        if child.ppid == ancestor {
            return Some(current);
        }
        match seen.get(&child.ppid) {
            Some(parent) if is_child(child, parent) => current = child.ppid,
            _ => return None,
        }
    }
    None
}

/// Whether `pid` descends from `ancestor` at the time of reading: each process between them must be the very one that was seen.
///
/// A parent that is gone when its turn comes has given its children away before: the dead have none. So the line is read once more, from
/// the bottom. Otherwise a member would miss a signal because its parent has heard it first.
pub fn still_descends(
    pid: i32,
    ancestor: i32,
    seen: &HashMap<i32, Stat>,
    read: impl Fn(i32) -> Option<Stat>,
) -> bool {
    // Each further attempt means that one of those who were seen has gone.
    (0..=seen.len()).find_map(|_| line_of_descent(pid, ancestor, seen, &read)).unwrap_or(false)
}

/// `None`: a parent has gone while we looked.
fn line_of_descent(
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

/// Whether one names the other as its parent, and may be right: a parent is never younger than its child.
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
    fn finds_children_and_grandchildren() {
        let seen = table(&[(20, 10, 5), (30, 20, 5), (40, 30, 9)]);
        for pid in [20, 30, 40] {
            assert_eq!(branch_of(pid, 10, &seen), Some(20), "{pid}");
        }
    }

    #[test]
    fn rejects_strangers_and_itself() {
        let seen = table(&[(20, 10, 5), (50, 1, 5), (60, 50, 6)]);
        for pid in [10, 50, 60, 99] {
            assert_eq!(branch_of(pid, 10, &seen), None, "{pid}");
        }
    }

    #[test]
    fn rejects_children_of_a_recycled_parent_number() {
        // 30 was started by somebody at 5; the number 20 has since gone to a process of ours started at 8.
        let seen = table(&[(20, 10, 8), (30, 20, 5)]);
        assert_eq!(branch_of(30, 10, &seen), None);
    }

    /// What is read in turn, each time about the process whose turn it is.
    fn reads(answers: &[(i32, Option<(i32, u64)>)]) -> impl Fn(i32) -> Option<Stat> {
        let answers = RefCell::new(answers.to_vec());
        move |pid| {
            let (asked, answer) = answers.borrow_mut().remove(0);
            assert_eq!(asked, pid, "another one is read");
            answer.map(|(ppid, start)| table(&[(pid, ppid, start)])[&pid].clone())
        }
    }

    #[test]
    fn a_parent_that_dies_while_we_look_does_not_hide_its_child() {
        let seen = table(&[(20, 10, 5), (30, 20, 6), (40, 30, 7)]);
        let adopted = reads(&[(40, Some((30, 7))), (30, None), (40, Some((10, 7)))]);
        assert!(still_descends(40, 10, &seen, adopted));
        let recycled =
            reads(&[(40, Some((30, 7))), (30, Some((1, 9))), (40, Some((20, 7))), (20, Some((10, 5)))]);
        assert!(still_descends(40, 10, &seen, recycled));
    }

    #[test]
    fn who_is_gone_or_went_elsewhere_does_not_descend_any_more() {
        let seen = table(&[(20, 10, 5), (30, 20, 6), (40, 30, 7)]);
        let gone = reads(&[(40, None)]);
        assert!(!still_descends(40, 10, &seen, gone));
        let another = reads(&[(40, Some((10, 8)))]);
        assert!(!still_descends(40, 10, &seen, another));
        let adopted_by_a_stranger = reads(&[(40, Some((30, 7))), (30, None), (40, Some((1, 7)))]);
        assert!(!still_descends(40, 10, &seen, adopted_by_a_stranger));
    }

    #[test]
    fn to_look_again_has_an_end() {
        let seen = table(&[(20, 10, 5), (30, 20, 6)]);
        // As no kernel would have it: the parent is gone, and still the parent.
        let read = |pid| (pid == 30).then(|| seen[&30].clone());
        assert!(!still_descends(30, 10, &seen, read));
    }

    #[test]
    fn a_loop_in_stale_data_ends() {
        let seen = table(&[(20, 30, 5), (30, 20, 5)]);
        assert_eq!(branch_of(20, 10, &seen), None);
    }

    /// The kernel has none. What was read one after the other, while numbers are given away again, may look like one.
    #[test]
    fn a_circle_ends() {
        let seen = table(&[(20, 30, 5), (30, 20, 5)]);
        assert_eq!(branch_of(30, 10, &seen), None);
        assert!(!still_descends(30, 10, &seen, |pid| seen.get(&pid).cloned()));
    }
}
