//! When a command has been quiet for too long. Pure: what was seen goes in, what to do comes out.
//!
//! Output is seen in two ways. What the bot has read it tells, a little late (see [`told_every`]). What waits in the pipe can be
//! counted:
//! - If the bot reads that stream, what waits there waits for the bot, which has paused it or is busy. The command may not even
//!   be able to write more. So it counts as output for as long as it waits.
//! - If nobody has ever asked for that stream, what waits there will wait for ever. It counts when it comes.
//!
//! Both err on the same side: a deadline may come late, never early.

use super::warn_after;

/// How many bytes wait in a stream of the run's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// In streams that the bot reads.
    pub for_the_bot: u64,
    /// In streams that nobody has asked for.
    pub for_nobody: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All is well; look again then.
    Wait { until: u64 },
    /// Four fifths of the time are over. Told once, until there is output again.
    Warn { until: u64, limit_ms: u64, remaining_ms: u64 },
    /// It is over.
    Expired { limit_ms: u64 },
}

/// Times are milliseconds on any clock that does not go backwards.
#[derive(Debug)]
pub struct Silence {
    limit_ms: u64,
    /// Allowed once, on top.
    extra_ms: u64,
    since: u64,
    unread: u64,
    warned: bool,
}

/// How often the bot tells at most that it has read something.
pub fn told_every(limit_ms: u64) -> u64 {
    (limit_ms / 50).clamp(1, 100)
}

impl Silence {
    pub fn new(limit_ms: u64) -> Self {
        Self { limit_ms, extra_ms: 0, since: 0, unread: 0, warned: false }
    }

    /// The command runs, and it counts from now. What was allowed on top before stays allowed.
    pub fn begin(&mut self, now: u64) {
        self.since = self.since.max(now);
    }

    /// The bot has read something then, and perhaps more until it would have told again.
    pub fn heard(&mut self, at: u64) {
        self.restart(at.saturating_add(told_every(self.limit_ms)));
    }

    /// This silence may last longer.
    pub fn extend(&mut self, ms: u64) {
        self.extra_ms = self.extra_ms.saturating_add(ms);
        self.warned = false;
    }

    pub fn look(&mut self, waiting: Waiting, now: u64) -> Verdict {
        if waiting.for_the_bot > 0 || waiting.for_nobody > self.unread {
            self.restart(now);
        }
        self.unread = waiting.for_nobody;
        let limit_ms = self.limit_ms.saturating_add(self.extra_ms);
        let at = self.since.saturating_add(limit_ms);
        if now >= at {
            return Verdict::Expired { limit_ms };
        }
        let warn_at = self.since.saturating_add(warn_after(limit_ms));
        // What comes into a pipe that nobody reads is dated by the look that finds it.
        let look_again = now.saturating_add((self.limit_ms / 10).clamp(5, 10_000));
        if now >= warn_at && !self.warned {
            self.warned = true;
            return Verdict::Warn { until: at.min(look_again), limit_ms, remaining_ms: at - now };
        }
        let next = if self.warned { at } else { warn_at };
        Verdict::Wait { until: next.min(look_again) }
    }

    /// It may be told late: a look may have seen something later.
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

    const NOTHING: Waiting = Waiting { for_the_bot: 0, for_nobody: 0 };

    fn begun(now: u64) -> Silence {
        let mut silence = Silence::new(1_000);
        silence.begin(now);
        silence
    }

    fn expired(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Expired { .. })
    }

    #[test]
    fn a_silence_is_warned_of_once_and_then_over() {
        let mut silence = begun(500);
        assert_eq!(silence.look(NOTHING, 500), Verdict::Wait { until: 600 });
        assert_eq!(silence.look(NOTHING, 1_299), Verdict::Wait { until: 1_300 });
        assert_eq!(
            silence.look(NOTHING, 1_300),
            Verdict::Warn { until: 1_400, limit_ms: 1_000, remaining_ms: 200 }
        );
        assert_eq!(silence.look(NOTHING, 1_301), Verdict::Wait { until: 1_401 });
        assert_eq!(silence.look(NOTHING, 1_450), Verdict::Wait { until: 1_500 });
        assert_eq!(silence.look(NOTHING, 1_500), Verdict::Expired { limit_ms: 1_000 });
    }

    #[test]
    fn what_the_bot_has_read_counts_anew_and_never_too_early() {
        let mut silence = begun(0);
        silence.heard(900);
        assert!(
            !expired(silence.look(NOTHING, 1_900 + told_every(1_000) - 1)),
            "more may have come just then"
        );
        assert!(expired(silence.look(NOTHING, 1_900 + told_every(1_000))));
    }

    #[test]
    fn what_waits_for_a_bot_that_has_paused_counts_for_as_long_as_it_waits() {
        let mut silence = begun(0);
        let paused = Waiting { for_the_bot: 3, for_nobody: 0 };
        for now in [100, 1_000, 5_000, 99_000] {
            assert!(!expired(silence.look(paused, now)), "{now}");
        }
        assert!(!expired(silence.look(NOTHING, 99_999)));
        assert!(expired(silence.look(NOTHING, 100_000)));
    }

    #[test]
    fn what_nobody_is_going_to_read_counts_when_it_comes() {
        let mut silence = begun(0);
        let more = |bytes| Waiting { for_the_bot: 0, for_nobody: bytes };
        assert!(!expired(silence.look(more(3), 900)));
        assert!(!expired(silence.look(more(3), 1_899)));
        assert!(!expired(silence.look(more(4), 1_900)), "one more byte");
        assert!(expired(silence.look(more(4), 2_900)));
    }

    #[test]
    fn an_extension_is_for_one_silence_and_warned_of_again() {
        let mut silence = begun(0);
        assert!(matches!(silence.look(NOTHING, 800), Verdict::Warn { .. }));
        silence.extend(1_000);
        assert!(matches!(silence.look(NOTHING, 1_000), Verdict::Wait { .. }));
        assert_eq!(
            silence.look(NOTHING, 1_600),
            Verdict::Warn { until: 1_700, limit_ms: 2_000, remaining_ms: 400 }
        );
        silence.heard(1_700);
        assert!(!expired(silence.look(NOTHING, 2_700)));
        assert!(expired(silence.look(NOTHING, 2_720)), "the next silence has its own limit again");
    }

    #[test]
    fn an_extension_that_comes_before_the_command_runs_is_not_lost() {
        let mut silence = Silence::new(1_000);
        silence.extend(500);
        silence.begin(100);
        assert!(!expired(silence.look(NOTHING, 1_599)));
        assert!(expired(silence.look(NOTHING, 1_600)));
    }

    #[test]
    fn output_that_is_told_late_does_not_undo_what_was_seen_since() {
        let mut silence = begun(0);
        silence.look(Waiting { for_the_bot: 1, for_nobody: 0 }, 500);
        silence.heard(200);
        assert!(!expired(silence.look(NOTHING, 1_499)));
        assert!(expired(silence.look(NOTHING, 1_500)));
    }

    #[test]
    fn a_bot_tells_seldom_and_never_never() {
        for (limit, expected) in [(1, 1), (50, 1), (300, 6), (60_000, 100), (u64::MAX, 100)] {
            assert_eq!(told_every(limit), expected);
        }
    }
}
