//! Monitors one run until its end, on the native thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::keeper_connection::{Exec, Origin, ReportStream, end_lost};
use super::run::Run;
use super::{OnEvent, RunEvent, count_end};
use crate::counters::Counters;
use crate::errno::Errno;
use crate::identity::ProcessRef;
use crate::keeper::protocol::{Report, Request, is_contradicted};
use crate::run::reason::{Ending, Reason};
use crate::run::{Cause, Deadline, Ended, ExitStatus, Force};
use crate::runtime;
use crate::trace::trace;

/// How much later than the deadline a keeper may act before the bot wakes it.
const OVERDUE: Duration = Duration::from_millis(250);

/// Everything the native thread needs to monitor one run.
pub struct RunMonitor {
    pub run: Run,
    /// The pending `exec`. `None` for an adopted run, whose command was executed long ago.
    pub exec: Option<Exec>,
    /// The keeper's reports. `None` once [`RunMonitor::listen`] reads them.
    pub reports: Option<ReportStream>,
    pub root: ProcessRef,
    /// What contains the run besides its keeper: the cgroup's directory, or the job's name.
    pub held_by: Option<String>,
    /// The zygote of the keeper. `None` for an adopted run: its zygote belongs to another bot.
    pub origin: Option<Origin>,
    /// The cookie key in the environment of the run's members.
    pub cookie_key: Option<String>,
    /// The task that enforces the idle timeout, until the tree begins to end.
    pub idle_task: Option<AbortHandle>,
    /// The overall timeout, if the bot sends it to the keeper.
    pub timeout: Option<Duration>,
    pub counters: Arc<Counters>,
    pub on_event: OnEvent,
}

impl RunMonitor {
    pub async fn listen(mut self) {
        if let Some(exec) = self.exec.take() {
            if let Some(errno) = exec.refusal(&self.root).await {
                trace!(key: self.run.entry().key(), "exec failed: {errno:?}");
                self.run.entry().remove();
                self.close_terminal();
                self.counters.refused();
                return (self.on_event)(RunEvent::Refused(errno));
            }
            trace!(key: self.run.entry().key(), "exec succeeded: root {} runs the command", self.root.pid);
            self.counters.spawned();
            self.run.entry().started();
            // Without a deadline the keeper does not need this message, so do not wake it. If the
            // send fails, the keeper is dead, and the next read shows that.
            if self.timeout.is_some() {
                let _ = self.run.send(&Request::Started);
            }
            (self.on_event)(RunEvent::Started);
        }
        self.idle_task = self.start_idle_task();
        let wake_task = self.start_wake_task();
        let mut status = None;
        let ended = self.receive_reports(&mut status).await;
        let ended = self.verified(ended).await;
        [self.idle_task.take(), wake_task].iter().flatten().for_each(AbortHandle::abort);
        self.run.on_end();
        let ended = match ended {
            Some(ended) => ended,
            // This process has disconnected, and the keeper alone decides about the run.
            None if self.run.is_abandoned() => return self.run.entry().abandon(),
            None => {
                trace!(key: self.run.entry().key(), "lost the keeper: end the tree from outside");
                // Usually the keeper is dead. If it sent an invalid report instead, this
                // disconnects it.
                self.run.disconnect();
                let outside = self.end_from_outside().await;
                Ended { ending: Ending::KeeperLost, status, force: Force::Kill, ..outside }
            }
        };
        count_end(&ended, &self.counters);
        // Drop the entry before the event: a listener of the end must not find the entry.
        self.run.entry().remove();
        self.close_terminal();
        (self.on_event)(RunEvent::Extinct(ended));
    }

    /// The tree is extinct: passes on the rest of the terminal's output, then closes the terminal.
    fn close_terminal(&self) {
        if let Some(terminal) = self.run.terminal() {
            terminal.finish();
        }
    }

    /// Starts the task that enforces the idle timeout. The caller aborts it.
    fn start_idle_task(&self) -> Option<AbortHandle> {
        self.run.output_monitor()?;
        let (run, on_event) = (self.run.clone(), self.on_event.clone());
        let task = async move {
            if let Some(monitor) = run.output_monitor() {
                monitor.listen(&run, &on_event).await;
            }
        };
        Some(runtime::get().ok()?.loop_handle.spawn(task).abort_handle())
    }

    /// Starts the task that wakes the keeper at the overall deadline, and kills it if SIGCONT does
    /// not help. The caller aborts it.
    ///
    /// The command runs as the same user as its keeper and can stop it. A stopped keeper enforces
    /// no deadline. The task repeats, because the caller may extend the deadline meanwhile.
    fn start_wake_task(&self) -> Option<AbortHandle> {
        let mut alarm = Alarm::new(self.timeout?);
        let (run, started) = (self.run.clone(), Instant::now());
        let task = async move {
            loop {
                match alarm.wait(started.elapsed(), run.extended()) {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => run.wake_or_kill_keeper().await,
                }
            }
        };
        Some(runtime::get().ok()?.loop_handle.spawn(task).abort_handle())
    }

    /// Passes the keeper's reports on. Returns its final report, or `None` if the keeper died without
    /// one. `root_exit` gets the root's exit status as soon as it is known.
    async fn receive_reports(&mut self, root_exit: &mut Option<ExitStatus>) -> Option<Ended> {
        let mut reports = self.reports.take()?.open(&self.run)?;
        loop {
            let report = reports.next().await?;
            trace!(key: self.run.entry().key(), "received {} from the keeper", report.name());
            match report {
                Report::Extinct(ended) => return Some(Ended { status: *root_exit, ..ended }),
                // A keeper never sends these to an owner: treat the keeper as broken.
                Report::Ready { .. } | Report::Adopted { .. } | Report::NoRoot { .. } => return None,
                #[cfg(unix)]
                Report::NoCgroup(_) => return None,
                Report::Warning { limit_ms, remaining_ms } => {
                    let deadline = Deadline::Overall;
                    (self.on_event)(RunEvent::Warning { deadline, limit_ms, remaining_ms });
                }
                Report::Usage(usage) => (self.on_event)(RunEvent::Usage(usage)),
                Report::Ending { cause, reason } => self.on_ending(cause, &reason),
                Report::RootExited(status) => {
                    *root_exit = Some(status);
                    // Read the rest of the terminal's output first: the bot must get it before the
                    // exit.
                    if let Some(terminal) = self.run.terminal() {
                        terminal.catch_up();
                    }
                    (self.on_event)(RunEvent::RootExited(status));
                }
                Report::SignalFailed { errno } => {
                    (self.on_event)(RunEvent::SignalFailed(Errno::from_raw(errno)));
                }
            }
        }
    }

    /// Checks the final report against the root process.
    ///
    /// A report that no process is left is false if the root is alive. Then this kills the keeper
    /// and returns `None`, so the run counts as lost.
    async fn verified(&self, ended: Option<Ended>) -> Option<Ended> {
        if ended.as_ref().is_some_and(|ended| is_contradicted(ended, &self.root)) {
            self.run.connection().kill_keeper().await;
            return None;
        }
        ended
    }

    fn on_ending(&mut self, cause: Cause, requested: &str) {
        self.run.entry().exiting();
        self.idle_task.take().as_ref().inspect(|task| task.abort());
        match cause {
            Cause::OverallTimeout => self.counters.timed_out(Deadline::Overall),
            Cause::NoOutputTimeout => self.counters.timed_out(Deadline::NoOutput),
            _ => {}
        }
        // A cancel has started the watchdog already, with its own grace.
        if cause != Cause::Cancel {
            self.run.on_ending();
        }
        let reason = Reason::of(Ending::Cause(cause), requested, None, 0);
        (self.on_event)(RunEvent::Ending(cause, reason));
    }

    /// Ends the tree without its keeper, which died without a final report.
    async fn end_from_outside(&self) -> Ended {
        let (root, key, held_by) = (self.root.clone(), self.cookie_key.clone(), self.held_by.clone());
        end_lost(&self.run, self.origin.as_ref(), root, key, held_by).await
    }
}

/// When the bot wakes a keeper because of the overall deadline. Pure: the caller passes the run's
/// age.
struct Alarm {
    timeout: Duration,
    at: Duration,
}

impl Alarm {
    fn new(timeout: Duration) -> Self {
        Self { timeout, at: timeout.saturating_add(OVERDUE) }
    }

    /// Time to sleep. `None`: wake the keeper now, and again after another timeout.
    fn wait(&mut self, now: Duration, extended: Duration) -> Option<Duration> {
        self.at = self.at.max(self.timeout.saturating_add(extended).saturating_add(OVERDUE));
        let wait = self.at.saturating_sub(now);
        if !wait.is_zero() {
            return Some(wait);
        }
        self.at = now.saturating_add(self.timeout).saturating_add(OVERDUE);
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
        let mut alarm = Alarm::new(s(10));
        assert_eq!(alarm.wait(s(0), s(0)), late(10));
        assert_eq!(alarm.wait(s(10), s(2)), late(2), "a short extension");
        assert_eq!(alarm.wait(s(12), s(1_000)), late(998), "a long extension");
        assert_eq!(alarm.wait(s(1_010) + OVERDUE, s(1_000)), None);
        assert_eq!(
            alarm.wait(s(1_010) + OVERDUE, s(1_000)),
            late(10),
            "again after another timeout, in case the keeper was stopped again"
        );
        assert_eq!(
            alarm.wait(s(1_011), s(Duration::MAX.as_secs())).map(|wait| wait > s(1 << 40)),
            Some(true)
        );
    }
}
