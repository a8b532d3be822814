//! Monitors one run until its end, on the native thread.

use std::sync::Arc;

use super::keeper_connection::{Exec, Origin, ReportStream, end_lost};
use super::run::Run;
use super::{OnEvent, RunEvent, count_end};
use crate::counters::Counters;
use crate::errno::Errno;
use crate::identity::ProcessRef;
use crate::keeper::protocol::{Report, is_contradicted};
use crate::run::reason::{Ending, Reason};
use crate::run::{Cause, Deadline, Ended, ExitStatus, Force};
use crate::trace::trace;

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
            self.run.start_deadlines(self.on_event.clone());
            (self.on_event)(RunEvent::Started);
        }
        let mut status = None;
        let ended = self.receive_reports(&mut status).await;
        let ended = self.verified(ended).await;
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
        // Before the entry shows it: from then on no timeout can be set.
        self.run.stop_idle_timeout();
        self.run.entry().exiting();
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
