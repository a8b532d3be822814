//! Removes old entries of ended runs. Pure: no disk, no clock.
//!
//! A run that ends after its bot leaves an `exited` entry for the next reaper. A program that never
//! calls `reapOrphans` would leave one with each start. So the process that writes the file removes
//! the old ones.

use super::record::{Record, State};
use super::table::Table;
use crate::run::Policy;

const HOUR_MS: u64 = 60 * 60 * 1000;

/// How long an ended run stays in the file.
pub const ENDED_FOR_MS: u64 = 24 * HOUR_MS;
/// The same for a run with `onOwnerExit: 'keep'`: a later bot may want to know how it ended.
pub const KEPT_FOR_MS: u64 = 7 * 24 * HOUR_MS;
/// Maximum number of ended runs of each of the two kinds. The latest stay.
pub const AT_MOST: usize = 1_000;

/// Removes ended runs that are too old or too many. Returns their number.
pub fn prune(table: &mut Table, now: u64) -> usize {
    let mut expired = Vec::new();
    for (policy, for_ms) in [(Policy::Kill, ENDED_FOR_MS), (Policy::Keep, KEPT_FOR_MS)] {
        let is_of_this_kind = |record: &Record| record.on_owner_exit == policy && is_over(record);
        let mut ended: Vec<(u64, String)> = table
            .iter()
            .filter(|(_, record)| is_of_this_kind(record))
            .map(|(key, record)| (ended_at(record), key.clone()))
            .collect();
        // The latest first. The key decides between equal times, so that every process gets the
        // same result.
        ended.sort_unstable_by(|one, other| other.cmp(one));
        let young = ended.iter().take_while(|(at, _)| now.saturating_sub(*at) <= for_ms).count();
        expired.extend(ended.drain(young.min(AT_MOST)..).map(|(_, key)| key));
        expired.retain(|key| table.get(key).is_some_and(|record| !is_claimed(record, now)));
    }
    for key in &expired {
        table.remove(key);
    }
    expired.len()
}

/// Whether the run has ended without survivors.
fn is_over(record: &Record) -> bool {
    record.state == State::Exited && record.exit.as_ref().is_some_and(|exit| exit.survivors == 0)
}

/// Whether a reaper has claimed the entry and may be about to report it. A claim renews the lease.
fn is_claimed(record: &Record, now: u64) -> bool {
    record.lease_expires_at_ms.is_some_and(|until| until > now)
}

fn ended_at(record: &Record) -> u64 {
    record.exit.as_ref().map_or(record.updated_at_ms, |exit| exit.at_ms)
}

#[cfg(test)]
mod tests {
    use super::super::import::tests::ours;
    use super::super::record::Exit;
    use super::*;

    const NOW: u64 = 2_000_000_000_000;

    fn ended(pid: i32, age_ms: u64, policy: Policy) -> Record {
        let exit = Exit {
            at_ms: NOW - age_ms,
            reason: "exit".into(),
            ending: "root-exit".into(),
            limit_ms: 0,
            exit_code: Some(0),
            signal: None,
            survivors: 0,
        };
        let lease_expires_at_ms = Some(NOW - age_ms);
        Record {
            state: State::Exited,
            exit: Some(exit),
            lease_expires_at_ms,
            on_owner_exit: policy,
            ..ours(pid)
        }
    }

    fn pids(table: &Table) -> Vec<i32> {
        let mut pids: Vec<_> = table.records().map(|record| record.pid).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn prune_removes_old_ended_runs_and_keeps_ended_kept_runs_longer() {
        let mut table = Table::new([
            ended(1000, ENDED_FOR_MS, Policy::Kill),
            ended(1001, ENDED_FOR_MS + 1, Policy::Kill),
            ended(1002, ENDED_FOR_MS + 1, Policy::Keep),
            ended(1003, KEPT_FOR_MS + 1, Policy::Keep),
        ]);
        assert_eq!((prune(&mut table, NOW), pids(&table)), (2, vec![1000, 1002]));
        assert_eq!(prune(&mut table, NOW), 0, "a second prune removes nothing");
    }

    #[test]
    fn prune_keeps_the_latest_of_too_many_ended_runs() {
        let count = i32::try_from(AT_MOST).unwrap();
        let entries = (0..count + 7).map(|i| ended(1000 + i, u64::try_from(i).unwrap(), Policy::Kill));
        let kept = ended(9_000_000, 1, Policy::Keep);
        let mut table = Table::new(entries.chain([kept]));
        assert_eq!(prune(&mut table, NOW), 7);
        assert_eq!(table.len(), AT_MOST + 1);
        assert_eq!(pids(&table)[..2], [1000, 1001]);
        assert!(!pids(&table).contains(&(1000 + count)), "the oldest entries are removed");
    }

    #[test]
    fn prune_keeps_a_run_that_is_not_over_whatever_its_age() {
        let old = || ended(1000, KEPT_FOR_MS * 10, Policy::Kill);
        let with_survivors = |mut record: Record| {
            record.exit.as_mut().unwrap().survivors = 1;
            record
        };
        let cases = [
            Record { state: State::Running, exit: None, ..old() },
            Record { state: State::Exiting, ..old() },
            Record { exit: None, ..old() },
            with_survivors(old()),
            // A reaper has claimed the entry and is about to report it.
            Record { lease_expires_at_ms: Some(NOW + 1), ..old() },
        ];
        for record in cases {
            let mut table = Table::new([record.clone()]);
            assert_eq!((prune(&mut table, NOW), table.len()), (0, 1), "{record:?}");
        }
    }

    /// The clock was set back, so the end lies in the future. It is not old.
    #[test]
    fn prune_keeps_a_run_whose_end_lies_in_the_future() {
        let mut table = Table::new([ended(1000, 0, Policy::Kill)]);
        assert_eq!(prune(&mut table, NOW - 1), 0);
    }
}
