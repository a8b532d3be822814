//! One step of a lifecycle, as text for the trace.

use std::fmt;

use super::{Action, Event, Phase, Timeout};
use crate::run::Cause;
use crate::run::signal::Name;

/// An event and its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub(super) event: Event,
    pub(super) from: Phase,
    pub(super) to: Phase,
    pub(super) cause: Option<Cause>,
    pub action: Action,
}

impl Step {
    /// False for the many ticks and deaths of members that change nothing.
    pub fn is_notable(&self) -> bool {
        !matches!(self.event, Event::Tick | Event::Progress)
            || self.action != Action::Nothing
            || name(self.from) != name(self.to)
    }
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Running => "running",
        Phase::Lingering => "lingering",
        Phase::Terminating { .. } => "terminating",
        Phase::Killing { .. } => "killing",
        Phase::Over => "over",
    }
}

/// For example `cancel (SIGTERM, grace 5000 ms): running -> terminating (cancel), send SIGTERM`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.event {
            Event::Started => f.write_str("command started"),
            Event::RootExited => f.write_str("root exited"),
            Event::Empty => f.write_str("tree is empty"),
            Event::Cancel { signal, grace_ms } => {
                write!(f, "cancel ({}, grace {grace_ms} ms)", Name(signal))
            }
            Event::IdleTimeout { limit_ms } => write!(f, "no output for {limit_ms} ms"),
            Event::Extend { ms } => write!(f, "deadline extended by {ms} ms"),
            Event::SetTimeout { timeout: Some(Timeout { after_ms, .. }) } => {
                write!(f, "new deadline in {after_ms} ms")
            }
            Event::SetTimeout { timeout: None } => f.write_str("deadline removed"),
            Event::OwnerGone => f.write_str("owner gone"),
            Event::Shutdown => f.write_str("keeper got a termination signal"),
            Event::Progress => f.write_str("members died"),
            Event::Tick => f.write_str("timer"),
        }?;
        let (from, to) = (name(self.from), name(self.to));
        if from == to {
            write!(f, ": still {to}")?;
        } else {
            write!(f, ": {from} -> {to}")?;
        }
        if let Some(cause) = self.cause {
            write!(f, " ({})", cause.name())?;
        }
        match self.action {
            Action::Nothing => Ok(()),
            Action::Warn { remaining_ms, .. } => write!(f, ", warn: deadline in {remaining_ms} ms"),
            Action::Terminate(signal) => write!(f, ", send {} to the tree", Name(signal)),
            Action::Kill => f.write_str(", kill the tree"),
            Action::Finish => f.write_str(", report the end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::lifecycle::{Lifecycle, Rules};
    use crate::run::signal::{SIGKILL, SIGTERM};

    #[test]
    fn a_step_says_event_phases_cause_and_action() {
        let timeout = Some(Timeout { after_ms: 100, signal: SIGTERM });
        let mut life = Lifecycle::new(Rules { timeout, grace_ms: 50, ..Rules::default() });
        for (event, now, expected) in [
            (Event::Started, 0, "command started: starting -> running"),
            (Event::Tick, 80, "timer: still running, warn: deadline in 20 ms"),
            (Event::Tick, 100, "timer: running -> terminating (overall-timeout), send SIGTERM to the tree"),
            (
                Event::Cancel { signal: SIGKILL, grace_ms: 0 },
                110,
                "cancel (SIGKILL, grace 0 ms): terminating -> killing (overall-timeout), kill the tree",
            ),
            (Event::Empty, 120, "tree is empty: killing -> over (overall-timeout), report the end"),
        ] {
            let step = life.step(event, now);
            assert_eq!(step.to_string(), expected);
            assert!(step.is_notable(), "{step}");
        }
    }

    #[test]
    fn ticks_and_deaths_that_change_nothing_are_not_notable() {
        let mut life = Lifecycle::new(Rules::default());
        assert!(!life.step(Event::Tick, 0).is_notable());
        life.step(Event::Cancel { signal: SIGKILL, grace_ms: 0 }, 1);
        assert!(!life.step(Event::Progress, 2).is_notable(), "it only moves the time to give up");
        assert!(life.step(Event::OwnerGone, 3).is_notable());
    }
}
