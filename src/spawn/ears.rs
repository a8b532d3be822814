//! Listening to one run until its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::line::{Ear, Exec, Origin, end_lost};
use super::run::Run;
use super::{Extinct, OnEvent, RunEvent};
use crate::contain::ProcessInfo;
use crate::errno::Errno;
use crate::identity::ProcessRef;
use crate::keeper::protocol::{End, Report, Request};
use crate::observe::counters::Counters;
use crate::run::reason::{Ending, Reason};
use crate::run::{Cause, Deadline, ExitStatus, Force};
use crate::runtime;

/// How much later than it should a deadline may be kept before we help.
const OVERDUE: Duration = Duration::from_millis(250);

pub struct Ears {
    pub run: Run,
    /// `None` if the command was executed long ago.
    pub exec: Option<Exec>,
    /// `None` once it is listened to.
    pub ear: Option<Ear>,
    pub root: ProcessRef,
    /// What holds it beside its keeper: the directory of its cgroup, or the name of its job.
    pub held_by: Option<String>,
    /// `None` for an adopted run: another bot's zygote is none of ours.
    pub origin: Option<Origin>,
    pub run_id: String,
    /// Whoever listens for silence, while that means something.
    pub silence: Option<AbortHandle>,
    /// Its overall deadline, if it has one that is told to its keeper here.
    pub timeout: Option<Duration>,
    pub counters: Arc<Counters>,
    pub on_event: OnEvent,
}

impl Ears {
    pub async fn listen(mut self) {
        if let Some(exec) = self.exec.take() {
            if let Some(errno) = exec.refusal(&self.root).await {
                self.run.entry().over();
                self.end_terminal();
                self.counters.refused();
                return (self.on_event)(RunEvent::Refused(errno));
            }
            self.counters.spawned();
            self.run.entry().started();
            // Without a deadline it makes no difference to the keeper, and need not be woken. One that cannot be told is dead,
            // which shows at once.
            if self.timeout.is_some() {
                let _ = self.run.ask(&Request::Started);
            }
            (self.on_event)(RunEvent::Started);
        }
        self.silence = self.listen_for_silence();
        let awake = self.keep_the_keeper_awake();
        let heard = self.hear().await;
        [self.silence.take(), awake].iter().flatten().for_each(AbortHandle::abort);
        self.run.over();
        let last = match heard {
            Some((status, end)) => extinct(status, end),
            // We have hung up ourselves, and the run is its keeper's business.
            None if self.run.is_abandoned() => return self.run.entry().abandon(),
            None => {
                // Usually it is dead. If it merely talks nonsense, this tells it that we are through with it.
                self.run.hang_up();
                let survivors = self.end_from_outside().await;
                lost(survivors)
            }
        };
        last.count(&self.counters);
        // Written down before it is told: whoever hears of the end finds no entry any more.
        self.run.entry().over();
        self.end_terminal();
        (self.on_event)(RunEvent::Extinct(last));
    }

    /// Nothing of the tree exists: what it has left in its terminal is passed on, and then that is closed.
    fn end_terminal(&self) {
        if let Some(terminal) = self.run.terminal() {
            terminal.over();
        }
    }

    /// On its own, until it is aborted.
    fn listen_for_silence(&self) -> Option<AbortHandle> {
        self.run.listening()?;
        let (run, on_event) = (self.run.clone(), self.on_event.clone());
        let task = async move {
            if let Some(listening) = run.listening() {
                listening.listen(&run, &on_event).await;
            }
        };
        Some(runtime::get().ok()?.loop_handle.spawn(task).abort_handle())
    }

    /// A command runs as the same user as its keeper and can stop it, and a keeper that is stopped keeps no deadline. So it is woken
    /// when its time has come, and killed if that is in vain; and again, should it have been moved by then. Until it is aborted.
    fn keep_the_keeper_awake(&self) -> Option<AbortHandle> {
        let mut alarm = Alarm::new(self.timeout?);
        let (run, began) = (self.run.clone(), Instant::now());
        let task = async move {
            loop {
                match alarm.wait(began.elapsed(), run.extended()) {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => run.rouse_keeper().await,
                }
            }
        };
        Some(runtime::get().ok()?.loop_handle.spawn(task).abort_handle())
    }

    /// Passes on what the keeper says; returns its last word and how the root ended, or `None` if it died without one.
    async fn hear(&mut self) -> Option<(Option<ExitStatus>, End)> {
        let mut ear = self.ear.take()?.open(&self.run)?;
        let mut root_exit = None;
        loop {
            let report = ear.next().await?;
            match report {
                Report::Extinct(end) => return Some((root_exit, end)),
                // Not for an owner's ears.
                Report::Ready { .. } | Report::Adopted { .. } => return None,
                #[cfg(unix)]
                Report::NoCgroup(_) => return None,
                Report::Warning { limit_ms, remaining_ms } => {
                    let deadline = Deadline::Overall;
                    (self.on_event)(RunEvent::Warning { deadline, limit_ms, remaining_ms });
                }
                Report::Usage(usage) => (self.on_event)(RunEvent::Usage(usage)),
                Report::Ending { cause, reason } => self.ending(cause, &reason),
                Report::RootExited(status) => {
                    root_exit = Some(status);
                    // What it wrote before it ended is to be found before its end is heard of.
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

    fn ending(&mut self, cause: Cause, asked: &str) {
        self.run.entry().exiting();
        self.silence.take().as_ref().inspect(|task| task.abort());
        match cause {
            Cause::OverallTimeout => self.counters.timed_out(Deadline::Overall),
            Cause::NoOutputTimeout => self.counters.timed_out(Deadline::NoOutput),
            _ => {}
        }
        // Whoever cancels looks after that, with a grace of its own.
        if cause != Cause::Cancel {
            self.run.ending();
        }
        let reason = Reason::of(Ending::Kept(cause), asked, None, 0);
        (self.on_event)(RunEvent::Ending(cause, reason));
    }

    /// Its keeper has died without a last word.
    async fn end_from_outside(&self) -> Vec<ProcessInfo> {
        let (root, run_id, held_by) = (self.root.clone(), self.run_id.clone(), self.held_by.clone());
        end_lost(&self.run, self.origin.as_ref(), root, run_id, held_by).await
    }
}

/// When a keeper has to be awake because of the run's overall deadline. Pure: how long the run has been running goes in.
struct Alarm {
    timeout: Duration,
    at: Duration,
}

impl Alarm {
    fn new(timeout: Duration) -> Self {
        Self { timeout, at: timeout.saturating_add(OVERDUE) }
    }

    /// How long to wait until the next look. `None`: it is time now, and another timeout later again.
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

/// As its keeper has told it.
fn extinct(status: Option<ExitStatus>, end: End) -> Extinct {
    let ending = Ending::Kept(end.cause);
    Extinct {
        ending,
        reason: Reason::of(ending, &end.reason, status, end.escaped.len()),
        limit_ms: end.limit_ms,
        force: end.force,
        escaped: end.escaped,
        survivors: end.survivors,
    }
}

/// Nobody was left to tell; it was ended from outside.
fn lost(survivors: Vec<ProcessInfo>) -> Extinct {
    let (ending, force) = (Ending::Lost, Force::Kill);
    let reason = Reason::of(ending, "", None, 0);
    Extinct { ending, reason, limit_ms: 0, force, escaped: Vec::new(), survivors }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_is_woken_at_its_deadline_and_not_before() {
        let s = Duration::from_secs;
        let late = |at| Some(s(at) + OVERDUE);
        let mut alarm = Alarm::new(s(10));
        assert_eq!(alarm.wait(s(0), s(0)), late(10));
        assert_eq!(alarm.wait(s(10), s(2)), late(2), "it was moved by a little");
        assert_eq!(alarm.wait(s(12), s(1_000)), late(998), "and by a lot");
        assert_eq!(alarm.wait(s(1_010) + OVERDUE, s(1_000)), None);
        assert_eq!(
            alarm.wait(s(1_010) + OVERDUE, s(1_000)),
            late(10),
            "and once more, should it have slept again"
        );
        assert_eq!(
            alarm.wait(s(1_011), s(Duration::MAX.as_secs())).map(|wait| wait > s(1 << 40)),
            Some(true)
        );
    }
}
