//! The ancestors of a process.

use super::read_stat;

/// Returns the ancestors of a process: its parent first, PID 1 (or the topmost visible process)
/// last. Ancestors outside this PID namespace have no PID here and are left out.
///
/// On Windows a process keeps the PID of its parent after the parent has ended. Another process may
/// have that PID by then. A "parent" that started after its child is such a process, and the list
/// ends before it.
pub fn ancestors(pid: i32) -> Vec<i32> {
    walk(pid, |pid| {
        let child = read_stat(pid).ok()?;
        let is_stale = cfg!(windows) && read_stat(child.ppid).is_ok_and(|parent| parent.start > child.start);
        (!is_stale).then_some(child.ppid)
    })
}

/// The walk of [`ancestors`] without the system calls. It reads one link after the other, so links
/// can be stale and form a loop. The walk stops at the first PID that it has already seen.
fn walk(pid: i32, parent_of: impl Fn(i32) -> Option<i32>) -> Vec<i32> {
    let mut ancestors = Vec::new();
    let mut current = pid;
    while current > 1
        && let Some(parent) = parent_of(current)
        && parent > 0
        && parent != pid
        && !ancestors.contains(&parent)
    {
        ancestors.push(parent);
        current = parent;
    }
    ancestors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_ends_with_pid_1_or_at_the_last_known_parent() {
        let ancestors = |pid, links: &[(i32, i32)]| {
            walk(pid, |pid| links.iter().find(|link| link.0 == pid).map(|link| link.1))
        };
        assert_eq!(ancestors(30, &[(30, 20), (20, 1), (1, 0)]), [20, 1]);
        assert_eq!(ancestors(30, &[(30, 20), (20, 0)]), [20], "the parent is outside this PID namespace");
        assert_eq!(ancestors(30, &[(30, 20)]), [20], "the parent has ended");
        assert_eq!(ancestors(1, &[(1, 0)]), [0; 0]);
        assert_eq!(ancestors(30, &[]), [0; 0]);
    }

    #[test]
    fn a_loop_of_stale_links_does_not_hang_the_walk() {
        assert_eq!(walk(30, |pid| Some(if pid == 30 { 20 } else { 30 })), [20]);
        assert_eq!(walk(30, |pid| Some(if pid == 20 { 25 } else { 20 })), [20, 25]);
        assert_eq!(walk(30, Some), [0; 0]);
    }

    #[test]
    fn the_first_ancestor_of_this_process_is_its_parent() {
        let me = std::process::id().cast_signed();
        let parent = read_stat(me).unwrap().ppid;
        assert_eq!(ancestors(me).first(), (parent > 0).then_some(&parent));
    }
}
