//! Who is above a process.

use super::read_stat;

/// The ancestors of a process, its parent first, PID 1 or whoever takes its place last. Those outside our PID namespace have
/// no number here.
///
/// Where a process keeps the number of its parent when that is gone (Windows), the number may be a stranger's by now: whoever is
/// younger than its child is none, and the line ends there.
pub fn ancestors(pid: i32) -> Vec<i32> {
    line_of(pid, |pid| {
        let child = read_stat(pid).ok()?;
        let is_stale = cfg!(windows) && read_stat(child.ppid).is_ok_and(|parent| parent.start > child.start);
        (!is_stale).then_some(child.ppid)
    })
}

/// The walk in [`ancestors`], apart from the reading. Links are read one after the other and may be stale: a loop of them ends.
fn line_of(pid: i32, parent_of: impl Fn(i32) -> Option<i32>) -> Vec<i32> {
    let mut line = Vec::new();
    let mut current = pid;
    while current > 1
        && let Some(parent) = parent_of(current)
        && parent > 0
        && parent != pid
        && !line.contains(&parent)
    {
        line.push(parent);
        current = parent;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_ends_with_init_or_where_nothing_is_known() {
        let line = |pid, links: &[(i32, i32)]| {
            line_of(pid, |pid| links.iter().find(|link| link.0 == pid).map(|link| link.1))
        };
        assert_eq!(line(30, &[(30, 20), (20, 1), (1, 0)]), [20, 1]);
        assert_eq!(line(30, &[(30, 20), (20, 0)]), [20], "the parent is outside our namespace");
        assert_eq!(line(30, &[(30, 20)]), [20], "the parent is gone");
        assert_eq!(line(1, &[(1, 0)]), [0; 0]);
        assert_eq!(line(30, &[]), [0; 0]);
    }

    #[test]
    fn a_loop_of_stale_links_ends() {
        assert_eq!(line_of(30, |pid| Some(if pid == 30 { 20 } else { 30 })), [20]);
        assert_eq!(line_of(30, |pid| Some(if pid == 20 { 25 } else { 20 })), [20, 25]);
        assert_eq!(line_of(30, Some), [0; 0]);
    }

    #[test]
    fn our_own_line_begins_with_our_parent() {
        let me = std::process::id().cast_signed();
        let parent = read_stat(me).unwrap().ppid;
        assert_eq!(ancestors(me).first(), (parent > 0).then_some(&parent));
    }
}
