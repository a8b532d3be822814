//! The members that outlived a root that exited by itself, as a report lists them. Pure.

use std::collections::HashSet;

use crate::contain::Leftover;
use crate::run::{MAX_LISTED, ProcessInfo, Unlisted};

type Identity = (i32, u64);

/// At most [`MAX_LISTED`] processes for each list of a report, and the count of all others.
///
/// The lists are limited, because a tree can fork during its whole grace period.
#[derive(Debug, Default)]
pub struct Leftovers {
    listed: Vec<Leftover>,
    listed_escaped: usize,
    /// The processes that the scan at the root's exit found, and all listed ones.
    ///
    /// The first pass finds the former again. No pass finds a process that an earlier pass found,
    /// so all others can be forgotten.
    known: HashSet<Identity>,
    unlisted: Unlisted,
}

impl Leftovers {
    /// Creates the lists from the scan at the root's exit.
    pub fn seen_at_exit(found: Vec<Leftover>) -> Self {
        let mut leftovers = Self::default();
        let ids: Vec<_> = found.iter().map(Leftover::id).collect();
        leftovers.add(found);
        leftovers.known.extend(ids);
        leftovers
    }

    /// Adds the processes that a pass has found.
    pub fn add(&mut self, found: Vec<Leftover>) {
        for leftover in found {
            if !self.known.contains(&leftover.id()) {
                self.add_new(leftover);
            }
        }
    }

    /// Adds a process that is not known. A report lists an escaped process in both lists, and any
    /// other process only in the first.
    fn add_new(&mut self, leftover: Leftover) {
        let is_listed = self.listed.len() < MAX_LISTED;
        let is_listed_as_escaped = leftover.has_escaped && self.listed_escaped < MAX_LISTED;
        // The first list can become longer than MAX_LISTED. `protocol::shorten` counts the surplus.
        if is_listed || is_listed_as_escaped {
            self.known.insert(leftover.id());
            self.listed_escaped += usize::from(leftover.has_escaped);
            self.listed.push(leftover);
        } else {
            let Unlisted { leftovers, escaped, .. } = &mut self.unlisted;
            *leftovers = leftovers.saturating_add(1);
            *escaped = escaped.saturating_add(u32::from(leftover.has_escaped));
        }
    }

    /// Returns all listed processes, the escaped ones among them, and the counts of the unlisted.
    ///
    /// The lists do not contain survivors, because those did not end. The counts of unlisted
    /// processes can include survivors.
    pub fn without(self, survivors: &[ProcessInfo]) -> (Vec<ProcessInfo>, Vec<ProcessInfo>, Unlisted) {
        let surviving: HashSet<_> = survivors.iter().map(|process| (process.pid, process.start)).collect();
        let mut listed = self.listed;
        listed.retain(|leftover| !surviving.contains(&leftover.id()));
        let escaped = listed.iter().filter(|leftover| leftover.has_escaped);
        let escaped = escaped.map(|leftover| leftover.process.clone()).collect();
        (listed.into_iter().map(|leftover| leftover.process).collect(), escaped, self.unlisted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    fn found(pids: Range<i32>, has_escaped: bool) -> Vec<Leftover> {
        let process = |pid| ProcessInfo { pid, start: 1, command: String::new(), why: String::new() };
        pids.map(|pid| Leftover { process: process(pid), is_root: false, has_escaped }).collect()
    }

    #[test]
    fn lists_are_limited_and_each_process_is_counted_once() {
        for (at_exit, passes, expected) in [
            // Expected: all listed, the escaped among them, and the unlisted of each.
            (0..0, vec![(0..3, false), (0..3, false)], (3, 0, 0, 0)),
            (0..5000, vec![(0..5000, false)], (1024, 0, 3976, 0)),
            (0..1000, vec![(0..1000, false), (1000..1100, false)], (1024, 0, 76, 0)),
            (0..1024, vec![(2000..2010, true)], (1034, 10, 0, 0)),
            (0..0, vec![(0..1030, true), (2000..2010, false)], (1024, 1024, 16, 6)),
            (0..1024, vec![(2000..4000, true)], (2048, 1024, 976, 976)),
        ] {
            let name = format!("{at_exit:?}, {passes:?}");
            let mut leftovers = Leftovers::seen_at_exit(found(at_exit, false));
            for (pids, has_escaped) in passes {
                leftovers.add(found(pids, has_escaped));
            }
            let (all, escaped, unlisted) = leftovers.without(&[]);
            assert_eq!((all.len(), escaped.len(), unlisted.leftovers, unlisted.escaped), expected, "{name}");
        }
    }

    #[test]
    fn survivors_are_not_listed_as_leftovers() {
        let survivors = found(1..2, true).into_iter().map(|leftover| leftover.process).collect::<Vec<_>>();
        let (all, escaped, _) = Leftovers::seen_at_exit(found(0..3, true)).without(&survivors);
        let pids = |list: Vec<ProcessInfo>| list.into_iter().map(|process| process.pid).collect::<Vec<_>>();
        assert_eq!((pids(all), pids(escaped)), (vec![0, 2], vec![0, 2]));
    }
}
