//! A started run, as its owner holds it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::errno::Errno;
use tokio::task::AbortHandle;

use super::deadlines::{Alarm, Deadlines, Inner as DeadlineState, Phase};
use super::keeper_connection::KeeperConnection;
use super::output_monitor::OutputMonitor;
use super::{OnEvent, RawStream};
use crate::keeper::protocol::Request;
use crate::pty::{Size, Terminal};
use crate::registry::Entry;
use crate::run::lifecycle::{REPORT_LIMIT_MS, Timeout};
use crate::runtime::Runtime;
use crate::trace::trace;

/// Time between the end of the grace and the kill of a keeper that has not reported the end.
const REPORT_LIMIT: Duration = Duration::from_millis(REPORT_LIMIT_MS);

/// A handle to control a run. Dropping it changes nothing.
#[derive(Debug, Clone)]
pub struct Run(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connection: KeeperConnection,
    abandoned: AtomicBool,
    watchdog: Mutex<Option<Watchdog>>,
    runtime: &'static Runtime,
    entry: Entry,
    grace_ms: u64,
    deadlines: Deadlines,
    terminal: Option<Arc<Terminal>>,
}

#[derive(Debug)]
struct Watchdog {
    /// When the keeper is killed. `None`: so late that an `Instant` cannot hold it.
    kills_at: Option<Instant>,
    task: AbortHandle,
}

impl Run {
    pub(super) fn new(
        connection: KeeperConnection,
        runtime: &'static Runtime,
        entry: Entry,
        grace_ms: u64,
        deadlines: Deadlines,
        terminal: Option<Arc<Terminal>>,
    ) -> Self {
        Self(Arc::new(Inner {
            connection,
            abandoned: AtomicBool::new(false),
            watchdog: Mutex::new(None),
            runtime,
            entry,
            grace_ms,
            deadlines,
            terminal,
        }))
    }

    pub(super) fn connection(&self) -> &KeeperConnection {
        &self.0.connection
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.0.entry
    }

    pub(super) fn output_monitor(&self) -> Option<&OutputMonitor> {
        self.0.deadlines.output_monitor()
    }

    pub(super) fn terminal(&self) -> Option<&Terminal> {
        self.0.terminal.as_deref()
    }

    /// Resizes the run's terminal. `ENOTTY` if the run has no terminal, `EIO` if the terminal is
    /// closed.
    pub fn resize(&self, size: Size) -> Result<(), Errno> {
        self.terminal().ok_or(Errno::ENOTTY)?.resize(size)
    }

    /// The name of the foreground process of the run's terminal.
    pub fn foreground(&self) -> Option<String> {
        self.terminal()?.foreground()
    }

    /// Restarts the idle timeout: the bot has read output of the run.
    pub fn output_read(&self) {
        self.0.entry.note_output();
        if let Some(monitor) = self.output_monitor() {
            monitor.output_read();
        }
    }

    /// Notes that the bot reads the output at this file descriptor from now on.
    pub fn reading(&self, fd: RawStream) {
        if let Some(monitor) = self.output_monitor() {
            monitor.reading(fd);
        }
    }

    /// Extends every deadline of the run by `ms`.
    pub fn extend(&self, ms: u64) -> Result<(), Errno> {
        if let Some(monitor) = self.output_monitor() {
            monitor.extend(ms);
        }
        // Count the extension before the keeper gets it. Otherwise the wake task could kill a
        // keeper that is stopped at the moment, because of a deadline that was already extended.
        let deadlines = &self.0.deadlines;
        deadlines.extend(ms, Duration::saturating_add);
        self.send(&Request::Extend { ms }).inspect_err(|_| deadlines.extend(ms, Duration::saturating_sub))
    }

    /// Replaces the overall timeout. It counts from now. `None` removes it. Fails if the tree is
    /// being ended. If the keeper cannot get the request, the former timeout stays.
    pub fn set_timeout(&self, timeout: Option<Timeout>) -> Result<(), Errno> {
        let deadlines = &self.0.deadlines;
        let mut inner = deadlines.inner();
        if matches!(inner.phase, Phase::Ending) {
            return Err(Errno::ESRCH);
        }
        // Before the send: the task must not kill a stopped keeper because of the former timeout.
        inner.stop_wake_task();
        let sent = self.send_timeout(&inner, timeout);
        if sent.is_ok() {
            inner.alarm =
                timeout.map(|timeout| Alarm::new(deadlines.now(), Duration::from_millis(timeout.after_ms)));
        }
        self.start_wake_task(&mut inner);
        sent
    }

    fn send_timeout(&self, inner: &DeadlineState, timeout: Option<Timeout>) -> Result<(), Errno> {
        // A keeper without a deadline does not know that the command runs.
        if matches!(inner.phase, Phase::Running(_)) {
            self.send(&Request::Started)?;
        }
        self.send(&Request::SetTimeout { timeout })
    }

    /// Replaces the idle timeout. It counts from now. `None` removes it. `outputs` are the bot's
    /// ends of the outputs, if the run had none before.
    pub fn set_idle_timeout(&self, limit_ms: Option<u64>, outputs: impl Iterator<Item = RawStream>) {
        let deadlines = &self.0.deadlines;
        let mut inner = deadlines.inner();
        inner.stop_idle_task();
        inner.is_idle_limited = limit_ms.is_some();
        if let Some(limit_ms) = limit_ms {
            deadlines.limit_idle_time(limit_ms, outputs);
        }
        self.start_idle_task(&mut inner);
    }

    /// Starts the timeouts: the command runs.
    pub(super) fn start_deadlines(&self, on_event: OnEvent) {
        let mut inner = self.0.deadlines.inner();
        inner.phase = Phase::Running(on_event);
        // Without a deadline the keeper does not need this message, so do not wake it. If the send
        // fails, the keeper is dead, and the next read shows that.
        if inner.alarm.is_some() {
            let _ = self.send(&Request::Started);
        }
        self.start_wake_task(&mut inner);
        self.start_idle_task(&mut inner);
    }

    /// Starts the task that wakes the keeper at the overall deadline, and kills it if SIGCONT does
    /// not help. It repeats, because the caller may extend the deadline meanwhile.
    fn start_wake_task(&self, inner: &mut DeadlineState) {
        if !matches!(inner.phase, Phase::Running(_)) || inner.alarm.is_none() {
            return;
        }
        let run = self.clone();
        let task = async move {
            while let Some(wait) = run.0.deadlines.wake_in() {
                if wait.is_zero() {
                    run.wake_or_kill_keeper().await;
                } else {
                    tokio::time::sleep(wait).await;
                }
            }
        };
        inner.wake_task = Some(self.0.runtime.loop_handle.spawn(task).abort_handle());
    }

    /// Starts the task that enforces the idle timeout.
    fn start_idle_task(&self, inner: &mut DeadlineState) {
        let Phase::Running(on_event) = &inner.phase else { return };
        if !inner.is_idle_limited {
            return;
        }
        let (run, on_event) = (self.clone(), on_event.clone());
        let task = async move {
            if let Some(monitor) = run.output_monitor() {
                monitor.listen(&run, &on_event).await;
            }
        };
        inner.idle_task = Some(self.0.runtime.loop_handle.spawn(task).abort_handle());
    }

    /// Requests the resource usage of the tree. The answer is [`super::RunEvent::Usage`].
    pub fn request_usage(&self) -> Result<(), Errno> {
        self.send(&Request::Usage)
    }

    /// Notes that another reader reads the output at this file descriptor from now on.
    pub fn hand_over(&self, fd: RawStream) {
        if let Some(monitor) = self.output_monitor() {
            monitor.hand_over(fd);
        }
    }

    /// Notes that the bot is about to close the output with this descriptor or handle.
    pub fn closing(&self, fd: RawStream) {
        if let Some(monitor) = self.output_monitor() {
            monitor.closing(fd);
        }
    }

    /// Ends the run because its idle timeout has expired.
    pub(super) fn idle_timed_out(&self, limit_ms: u64) {
        // If the send fails, the keeper is dead, and the run monitor notices that. A stopped keeper
        // reads the request after SIGCONT.
        let _ = self.send(&Request::IdleTimeout { limit_ms });
        // The keeper's `Ending` report sets the time limit, not this call: a cancel may have come
        // first, with a longer grace.
        self.0.runtime.loop_handle.spawn(self.wake_or_kill_keeper());
    }

    /// Sends the rules to the keeper now, because the process may exit before the native thread
    /// does it.
    pub fn send_rules(&self) {
        let _ = self.traced("AssignRun", || self.0.connection.send_rules());
    }

    /// Starts the watchdog: the keeper begins to terminate the tree, with the run's own grace.
    pub(super) fn on_ending(&self) {
        self.watch(Duration::from_millis(self.0.grace_ms).saturating_add(REPORT_LIMIT));
    }

    /// Sends a signal to the root process. [`super::RunEvent::SignalFailed`] reports a failed
    /// delivery.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.traced("Signal", || self.0.connection.signal(signal))
    }

    /// Terminates the tree. The tree ends within the grace plus a fixed limit, even if the keeper
    /// is stopped or hangs.
    pub fn cancel(&self, signal: i32, grace_ms: u64, reason: &str) -> Result<(), Errno> {
        let sent = self.send(&Request::Cancel { signal, grace_ms, reason });
        self.watch(Duration::from_millis(grace_ms).saturating_add(REPORT_LIMIT));
        sent
    }

    /// Kills the keeper if it has not ended the tree within `limit`, see
    /// [`KeeperConnection::kill_after`].
    fn watch(&self, limit: Duration) {
        let kills_at = Instant::now().checked_add(limit);
        let mut watchdog = self.watchdog();
        // A later request never moves the limit to a later time.
        if watchdog.as_ref().is_some_and(|former| former.kills_at <= kills_at && former.kills_at.is_some()) {
            return;
        }
        let Some(kill_after) = self.0.connection.kill_after(limit) else { return };
        let task = self.0.runtime.loop_handle.spawn(kill_after);
        let former = watchdog.replace(Watchdog { kills_at, task: task.abort_handle() });
        if let Some(former) = former {
            former.task.abort();
        }
    }

    pub(super) fn wake_or_kill_keeper(&self) -> impl Future<Output = ()> + Send + 'static {
        self.0.connection.wake_or_kill()
    }

    /// Stops the idle timeout: the tree is being ended.
    pub(super) fn stop_idle_timeout(&self) {
        self.0.deadlines.inner().on_ending();
    }

    /// Stops the watchdog and the timeouts: the run has ended.
    pub(super) fn on_end(&self) {
        let mut deadlines = self.0.deadlines.inner();
        deadlines.on_ending();
        deadlines.stop_wake_task();
        drop(deadlines);
        if let Some(watchdog) = self.watchdog().take() {
            watchdog.task.abort();
        }
    }

    fn watchdog(&self) -> MutexGuard<'_, Option<Watchdog>> {
        self.0.watchdog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Disconnects from the keeper as if the bot had died: the keeper applies `onOwnerExit`, and
    /// this process reports no more events.
    pub fn abandon(&self) {
        self.0.abandoned.store(true, Ordering::Release);
        if let Some(terminal) = self.terminal() {
            terminal.hang_up();
        }
        self.disconnect();
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.0.abandoned.load(Ordering::Acquire)
    }

    /// Closes the connection to the keeper.
    pub(super) fn disconnect(&self) {
        self.0.connection.disconnect();
    }

    pub(super) fn send(&self, request: &Request) -> Result<(), Errno> {
        self.traced(request.name(), || self.0.connection.send(request))
    }

    /// Traces a request before it is sent, so that its line precedes what the keeper does then.
    fn traced(&self, name: &str, send: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let key = self.0.entry.key();
        trace!(key: key, "send {name} to the keeper");
        send().inspect_err(|errno| trace!(key: key, "could not send {name}: {errno:?}"))
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
