//! Decides when a command has written no output for too long. Pure: observations in, decisions out.
//!
//! Output is observed in two ways. The bot reports what it has read, a little late (see
//! [`report_interval`]). And the bytes that wait in the pipes can be counted:
//!
//! - If the bot reads that stream, the bytes wait for the bot, which has paused the stream or is
//!   busy. The command may be unable to write more. So they count as output as long as they wait.
//! - If the bot never reads that stream, the bytes stay there forever. They count as output once,
//!   when they arrive.
//!
//! Both err on the same side: the timeout may come late, never early.

use super::warn_after;

/// Number of bytes that wait in the output streams of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// In streams that the bot reads.
    pub with_reader: u64,
    /// In streams that no code of the bot reads.
    pub without_reader: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do; check again at that time.
    Wait { until: u64 },
    /// Four fifths of the limit have passed. Returned once, until there is output again.
    Warn { until: u64, limit_ms: u64, remaining_ms: u64 },
    /// The limit has passed.
    Expired { limit_ms: u64 },
}

/// The idle timeout of a run.
///
/// Times are milliseconds of any clock that does not go backwards.
#[derive(Debug)]
pub struct IdleTimeout {
    limit_ms: u64,
    /// Extra time for the present idle period only.
    extra_ms: u64,
    since: u64,
    unread: u64,
    warned: bool,
}

/// Minimum interval between two reports of the bot that it has read output.
pub fn report_interval(limit_ms: u64) -> u64 {
    (limit_ms / 50).clamp(1, 100)
}

impl IdleTimeout {
    pub fn new(limit_ms: u64) -> Self {
        Self { limit_ms, extra_ms: 0, since: 0, unread: 0, warned: false }
    }

    /// Starts the idle time, because the command runs. Extra time that was granted before stays.
    pub fn begin(&mut self, now: u64) {
        self.since = self.since.max(now);
    }

    /// Sets another limit. The idle time starts again now.
    pub fn set_limit(&mut self, limit_ms: u64, now: u64) {
        *self = Self { limit_ms, extra_ms: 0, since: now, warned: false, ..*self };
    }

    /// The bot reports that it read output at that time.
    ///
    /// It may have read more until its next possible report, so the idle time starts after that
    /// interval.
    pub fn output_read(&mut self, at: u64) {
        self.restart(at.saturating_add(report_interval(self.limit_ms)));
    }

    /// Extends the present idle period.
    pub fn extend(&mut self, ms: u64) {
        self.extra_ms = self.extra_ms.saturating_add(ms);
        self.warned = false;
    }

    pub fn look(&mut self, waiting: Waiting, now: u64) -> Verdict {
        if waiting.with_reader > 0 || waiting.without_reader > self.unread {
            self.restart(now);
        }
        self.unread = waiting.without_reader;
        let limit_ms = self.limit_ms.saturating_add(self.extra_ms);
        let at = self.since.saturating_add(limit_ms);
        if now >= at {
            return Verdict::Expired { limit_ms };
        }
        let warn_at = self.since.saturating_add(warn_after(limit_ms));
        // Bytes in a pipe without a reader count from the check that finds them, so check often.
        let look_again = now.saturating_add((self.limit_ms / 10).clamp(5, 10_000));
        if now >= warn_at && !self.warned {
            self.warned = true;
            return Verdict::Warn { until: at.min(look_again), limit_ms, remaining_ms: at - now };
        }
        let next = if self.warned { at } else { warn_at };
        Verdict::Wait { until: next.min(look_again) }
    }

    /// Restarts the idle time at `at`, unless later output is known. Reports may arrive late.
    fn restart(&mut self, at: u64) {
        if at > self.since {
            self.since = at;
            self.extra_ms = 0;
            self.warned = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Waiting = Waiting { with_reader: 0, without_reader: 0 };

    fn started(now: u64) -> IdleTimeout {
        let mut idle = IdleTimeout::new(1_000);
        idle.begin(now);
        idle
    }

    fn expired(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Expired { .. })
    }

    #[test]
    fn an_idle_period_is_warned_of_once_and_then_expires() {
        let mut idle = started(500);
        assert_eq!(idle.look(NOTHING, 500), Verdict::Wait { until: 600 });
        assert_eq!(idle.look(NOTHING, 1_299), Verdict::Wait { until: 1_300 });
        assert_eq!(
            idle.look(NOTHING, 1_300),
            Verdict::Warn { until: 1_400, limit_ms: 1_000, remaining_ms: 200 }
        );
        assert_eq!(idle.look(NOTHING, 1_301), Verdict::Wait { until: 1_401 });
        assert_eq!(idle.look(NOTHING, 1_450), Verdict::Wait { until: 1_500 });
        assert_eq!(idle.look(NOTHING, 1_500), Verdict::Expired { limit_ms: 1_000 });
    }

    #[test]
    fn another_limit_starts_the_idle_time_again() {
        let mut idle = started(0);
        assert!(matches!(idle.look(NOTHING, 900), Verdict::Warn { .. }));
        idle.extend(5_000);
        idle.set_limit(500, 950);
        assert_eq!(idle.look(NOTHING, 1_000), Verdict::Wait { until: 1_050 });
        assert!(matches!(idle.look(NOTHING, 1_350), Verdict::Warn { limit_ms: 500, remaining_ms: 100, .. }));
        assert_eq!(idle.look(NOTHING, 1_450), Verdict::Expired { limit_ms: 500 });
    }

    #[test]
    fn output_that_the_bot_has_read_restarts_the_idle_time() {
        let mut idle = started(0);
        idle.output_read(900);
        assert!(
            !expired(idle.look(NOTHING, 1_900 + report_interval(1_000) - 1)),
            "the bot may have read more until its next report"
        );
        assert!(expired(idle.look(NOTHING, 1_900 + report_interval(1_000))));
    }

    #[test]
    fn bytes_that_wait_for_a_paused_bot_count_as_long_as_they_wait() {
        let mut idle = started(0);
        let paused = Waiting { with_reader: 3, without_reader: 0 };
        for now in [100, 1_000, 5_000, 99_000] {
            assert!(!expired(idle.look(paused, now)), "{now}");
        }
        assert!(!expired(idle.look(NOTHING, 99_999)));
        assert!(expired(idle.look(NOTHING, 100_000)));
    }

    #[test]
    fn bytes_without_a_reader_count_once_when_they_arrive() {
        let mut idle = started(0);
        let more = |bytes| Waiting { with_reader: 0, without_reader: bytes };
        assert!(!expired(idle.look(more(3), 900)));
        assert!(!expired(idle.look(more(3), 1_899)));
        assert!(!expired(idle.look(more(4), 1_900)), "one more byte");
        assert!(expired(idle.look(more(4), 2_900)));
    }

    #[test]
    fn an_extension_holds_for_one_idle_period_and_a_new_warning_follows() {
        let mut idle = started(0);
        assert!(matches!(idle.look(NOTHING, 800), Verdict::Warn { .. }));
        idle.extend(1_000);
        assert!(matches!(idle.look(NOTHING, 1_000), Verdict::Wait { .. }));
        assert_eq!(
            idle.look(NOTHING, 1_600),
            Verdict::Warn { until: 1_700, limit_ms: 2_000, remaining_ms: 400 }
        );
        idle.output_read(1_700);
        assert!(!expired(idle.look(NOTHING, 2_700)));
        assert!(expired(idle.look(NOTHING, 2_720)), "the next idle period has the normal limit again");
    }

    #[test]
    fn an_extension_before_the_command_runs_is_not_lost() {
        let mut idle = IdleTimeout::new(1_000);
        idle.extend(500);
        idle.begin(100);
        assert!(!expired(idle.look(NOTHING, 1_599)));
        assert!(expired(idle.look(NOTHING, 1_600)));
    }

    #[test]
    fn a_late_report_does_not_undo_later_output() {
        let mut idle = started(0);
        idle.look(Waiting { with_reader: 1, without_reader: 0 }, 500);
        idle.output_read(200);
        assert!(!expired(idle.look(NOTHING, 1_499)));
        assert!(expired(idle.look(NOTHING, 1_500)));
    }

    #[test]
    fn the_report_interval_is_between_1_and_100_ms() {
        for (limit, expected) in [(1, 1), (50, 1), (300, 6), (60_000, 100), (u64::MAX, 100)] {
            assert_eq!(report_interval(limit), expected);
        }
    }
}
