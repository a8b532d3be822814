//! The members that needed SIGKILL, as a report lists them. Pure.

use std::collections::HashSet;

use super::{MAX_LISTED, ProcessInfo};

const WHY: &str = "needed SIGKILL";

/// How many processes are remembered, to count each once. The limit is needed because a tree can
/// fork while it is being killed.
const MAX_KNOWN: usize = 16 * MAX_LISTED;

/// The first [`MAX_LISTED`] members that got SIGKILL, each once, and the count of all others.
///
/// It does not contain members that died of an earlier signal.
#[derive(Debug, Default)]
pub struct Forced {
    listed: Vec<ProcessInfo>,
    known: HashSet<(i32, u64)>,
}

impl Forced {
    /// Adds members that are about to get SIGKILL. Passes repeat, so most are known already.
    pub fn add(&mut self, members: impl IntoIterator<Item = ProcessInfo>) {
        for member in members {
            let is_new = self.known.len() < MAX_KNOWN && self.known.insert((member.pid, member.start));
            if is_new && self.listed.len() < MAX_LISTED {
                self.listed.push(ProcessInfo { why: WHY.to_owned(), ..member });
            }
        }
    }

    /// Returns the listed processes without the survivors, because those did not end, and the count
    /// of the others.
    pub fn without(self, survivors: &[ProcessInfo]) -> (Vec<ProcessInfo>, u32) {
        let unlisted = u32::try_from(self.known.len() - self.listed.len()).unwrap_or(u32::MAX);
        let surviving: HashSet<_> = survivors.iter().map(|process| (process.pid, process.start)).collect();
        let mut listed = self.listed;
        listed.retain(|process| !surviving.contains(&(process.pid, process.start)));
        (listed, unlisted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(pids: std::ops::Range<i32>) -> impl Iterator<Item = ProcessInfo> {
        pids.map(|pid| ProcessInfo { pid, start: 1, command: "x".into(), why: "another list".into() })
    }

    #[test]
    fn each_member_is_listed_once_and_the_list_is_limited() {
        for (passes, listed, unlisted) in [
            (vec![], 0, 0),
            (vec![0..3, 0..3, 2..5], 5, 0),
            (vec![0..1024, 0..1024], 1024, 0),
            (vec![0..1000, 500..2000, 0..2000], 1024, 976),
            (vec![0..100_000, 0..100_000], 1024, 15 * 1024),
        ] {
            let name = format!("{passes:?}");
            let mut forced = Forced::default();
            for pids in passes {
                forced.add(members(pids));
            }
            let (list, others) = forced.without(&[]);
            assert_eq!((list.len(), others), (listed, unlisted), "{name}");
            assert!(list.iter().all(|process| process.why == WHY && process.command == "x"));
        }
    }

    #[test]
    fn survivors_are_not_listed_and_a_reused_pid_is_another_process() {
        let mut forced = Forced::default();
        forced.add(members(1..3));
        forced.add([ProcessInfo { pid: 1, start: 2, command: "y".into(), why: String::new() }]);
        let survivors: Vec<_> = members(1..2).collect();
        let ids = |(list, others): (Vec<ProcessInfo>, u32)| {
            (list.iter().map(|process| (process.pid, process.start)).collect::<Vec<_>>(), others)
        };
        assert_eq!(ids(forced.without(&survivors)), (vec![(2, 1), (1, 2)], 0));
    }
}
