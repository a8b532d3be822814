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

/// Whether one names the other as its parent, and may be right: a parent is never younger than its child.
pub fn is_child(child: &Stat, parent: &Stat) -> bool {
    child.ppid == parent.pid && parent.start <= child.start
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_loop_in_stale_data_ends() {
        let seen = table(&[(20, 30, 5), (30, 20, 5)]);
        assert_eq!(branch_of(20, 10, &seen), None);
    }
}
