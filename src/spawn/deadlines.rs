//! The bot's side of a run's timeouts.
//!
//! The keeper enforces the overall timeout. The bot only wakes a keeper that does not: the command
//! runs as the same user and can stop it. The bot enforces the idle timeout, because it reads the
//! output. Both are tasks of the native thread.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::output_monitor::OutputMonitor;
use super::{OnEvent, RawStream};

/// How much later than the deadline a keeper may act before the bot wakes it.
const OVERDUE: Duration = Duration::from_millis(250);

/// The timeouts of one run.
#[derive(Debug)]
pub struct Deadlines {
    created: Instant,
    /// Created when the run first has an idle timeout.
    output_monitor: OnceLock<OutputMonitor>,
    inner: Mutex<Inner>,
}

pub struct Inner {
    pub phase: Phase,
    /// When to wake the keeper. `None` without an overall timeout.
    pub alarm: Option<Alarm>,
    pub wake_task: Option<AbortHandle>,
    /// The run has an idle timeout.
    pub is_idle_limited: bool,
    pub idle_task: Option<AbortHandle>,
}

/// Which tasks may run.
pub enum Phase {
    /// The command does not run yet: none.
    Starting,
    /// Both. Warnings go to this callback.
    Running(OnEvent),
    /// The tree is being ended: only the one that wakes the keeper.
    Ending,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Inner").field("alarm", &self.alarm).finish_non_exhaustive()
    }
}

impl Deadlines {
    /// The timeouts of a run that is being started. The monitor belongs to its idle timeout.
    pub fn new(timeout: Option<Duration>, output_monitor: Option<OutputMonitor>) -> Self {
        let inner = Inner {
            phase: Phase::Starting,
            alarm: timeout.map(|timeout| Alarm::new(Duration::ZERO, timeout)),
            wake_task: None,
            is_idle_limited: output_monitor.is_some(),
            idle_task: None,
        };
        let output_monitor = output_monitor.map_or_else(OnceLock::new, OnceLock::from);
        Self { created: Instant::now(), output_monitor, inner: Mutex::new(inner) }
    }

    pub fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The age of this object, for [`Alarm`].
    pub fn now(&self) -> Duration {
        self.created.elapsed()
    }

    pub fn output_monitor(&self) -> Option<&OutputMonitor> {
        self.output_monitor.get()
    }

    /// Sets the limit of the idle timeout, from now on.
    pub fn limit_idle_time(&self, limit_ms: u64, outputs: impl Iterator<Item = RawStream>) {
        self.output_monitor.get_or_init(|| OutputMonitor::new(limit_ms, outputs)).set_limit(limit_ms);
    }

    /// Extends the overall timeout by `ms`, or takes an extension back.
    pub fn extend(&self, ms: u64, change: fn(Duration, Duration) -> Duration) {
        if let Some(alarm) = &mut self.inner().alarm {
            alarm.extended = change(alarm.extended, Duration::from_millis(ms));
        }
    }

    /// Time until the keeper is overdue; zero if it is. `None` without an overall timeout.
    pub fn wake_in(&self) -> Option<Duration> {
        let now = self.now();
        self.inner().alarm.as_mut().map(|alarm| alarm.wait(now).unwrap_or_default())
    }
}

impl Inner {
    /// The tree is being ended: the timeouts do not change any more.
    pub fn on_ending(&mut self) {
        self.phase = Phase::Ending;
        self.stop_idle_task();
    }

    pub fn stop_idle_task(&mut self) {
        self.idle_task.take().as_ref().inspect(|task| task.abort());
    }

    pub fn stop_wake_task(&mut self) {
        self.wake_task.take().as_ref().inspect(|task| task.abort());
    }
}

/// When the bot wakes a keeper because of the overall deadline. Pure: times are ages of the run.
#[derive(Debug)]
pub struct Alarm {
    since: Duration,
    timeout: Duration,
    extended: Duration,
    /// The bot has woken the keeper, and does so again then.
    again_at: Duration,
}

impl Alarm {
    pub fn new(since: Duration, timeout: Duration) -> Self {
        Self { since, timeout, extended: Duration::ZERO, again_at: Duration::ZERO }
    }

    /// Time to sleep. `None`: wake the keeper now, and again after another timeout.
    fn wait(&mut self, now: Duration) -> Option<Duration> {
        let limit = self.timeout.saturating_add(self.extended).saturating_add(OVERDUE);
        let wait = self.since.saturating_add(limit).max(self.again_at).saturating_sub(now);
        if !wait.is_zero() {
            return Some(wait);
        }
        self.again_at = now.saturating_add(self.timeout).saturating_add(OVERDUE);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bot_wakes_a_keeper_at_its_deadline_and_not_before() {
        let s = Duration::from_secs;
        let late = |at| Some(s(at) + OVERDUE);
        let mut alarm = Alarm::new(s(0), s(10));
        let mut wait = |now, extended| {
            alarm.extended = extended;
            alarm.wait(now)
        };
        assert_eq!(wait(s(0), s(0)), late(10));
        assert_eq!(wait(s(10), s(2)), late(2), "a short extension");
        assert_eq!(wait(s(12), s(1_000)), late(998), "a long extension");
        assert_eq!(wait(s(1_010) + OVERDUE, s(1_000)), None);
        assert_eq!(
            wait(s(1_010) + OVERDUE, s(1_000)),
            late(10),
            "again after another timeout, in case the keeper was stopped again"
        );
        assert_eq!(wait(s(1_011), s(Duration::MAX.as_secs())).map(|wait| wait > s(1 << 40)), Some(true));
        assert_eq!(Alarm::new(s(100), s(10)).wait(s(101)), late(9), "a timeout that was set later");
    }
}
