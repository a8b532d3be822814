//! The decisions of a keeper, the same on every operating system.
//!
//! [`Core`] gets events: a request of the owner or of a control client, a change of the tree, the
//! end of the owner, the passage of time. It answers with actions: calls of the [`ContainedTree`],
//! which it ends, and of the [`Platform`], through which it reports. It has no clock and no I/O of
//! its own. `event_loop` (Linux, macOS) and `windows::keeper_task` wait for the events.
//!
//! The order of the actions is part of the protocol. `Ending` comes before the first signal, the
//! registry has the end before control clients get `Extinct`, and `Extinct` is the last report.

mod platform;

pub use platform::Platform;

use super::control_request::ControlRequest;
use super::leftovers::Leftovers;
use super::protocol::{self, Report, Request};
use crate::contain::Leftover;
use crate::contain::contained_tree::{ContainedTree, Population};
use crate::run::lifecycle::{Action, Event, Lifecycle, Rules};
use crate::run::reason::Ending;
use crate::run::signal::SIGKILL;
use crate::run::{Cause, Ended, Forced, Policy, ProcessInfo, State, Unlisted};
use crate::trace::trace;

/// Pause before an unfinished scan of the tree continues.
const UNFINISHED_MS: u64 = 1;

/// The keeper of one run: its tree, its connections, and what it knows and has reported.
#[derive(Debug)]
pub struct Core<T, P> {
    pub tree: T,
    pub platform: P,
    life: Lifecycle,
    /// The reason of the cancel that ended the run.
    reason: String,
    is_root_reported: bool,
    /// The members that outlived a root that exited by itself.
    leftovers: Leftovers,
    /// The members that needed SIGKILL.
    forced: Forced,
    /// The tree has changed during a scan that takes several turns.
    scan_again: bool,
    /// How the run ended, once it is over.
    end: Option<Ended>,
    /// The owner has received the end, or the registry contains it.
    is_end_known: bool,
}

impl<T: ContainedTree, P: Platform> Core<T, P> {
    pub fn new(tree: T, platform: P, life: Lifecycle) -> Self {
        Self {
            tree,
            platform,
            life,
            reason: String::new(),
            is_root_reported: false,
            leftovers: Leftovers::default(),
            forced: Forced::default(),
            scan_again: false,
            end: None,
            is_end_known: false,
        }
    }

    /// The run is over: its tree is gone, or the keeper has given up on the survivors.
    pub fn is_over(&self) -> bool {
        self.life.is_over()
    }

    /// The tree is being ended, or has ended.
    pub fn is_ending(&self) -> bool {
        self.life.cause().is_some()
    }

    pub fn rules(&self) -> &Rules {
        self.life.rules()
    }

    pub fn has_survivors(&self) -> bool {
        self.end.as_ref().is_some_and(|end| !end.survivors.is_empty())
    }

    pub fn is_end_known(&self) -> bool {
        self.is_end_known
    }

    /// Whether the tree must be scanned in every turn, also without an event.
    pub fn must_scan(&self) -> bool {
        self.life.is_killing() || self.tree.is_unfinished()
    }

    /// Milliseconds until the next [`Core::tick`] is due, if no event comes first.
    pub fn wake_in(&self) -> Option<u64> {
        let deadline = self.life.wake_at().map(|at| at.saturating_sub(self.platform.now()));
        let check = if self.tree.is_unfinished() {
            Some(UNFINISHED_MS)
        } else if self.life.is_killing() {
            Some(T::KILL_PASS_MS)
        } else {
            self.tree.next_check_in()
        };
        [deadline, check].into_iter().flatten().min()
    }

    /// Sets the rules of the run. They do not change an end that has already begun.
    pub fn set_rules(&mut self, rules: Rules) {
        if !self.is_ending() {
            self.life = Lifecycle::new(rules);
        }
    }

    /// The reports that a new control client gets first: what it has missed.
    pub fn missed_reports(&self) -> Vec<Report> {
        let exited = self.tree.root_status().map(Report::RootExited);
        let extinct = self.end.clone().map(Report::Extinct);
        [Some(self.platform.ready()), self.ending(), exited, extinct].into_iter().flatten().collect()
    }

    /// Event: time has passed. Also signals new members of a tree that is being terminated.
    pub fn tick(&mut self) {
        self.apply(Event::Tick);
        // When the kill phase begins, the tree schedules no further pass.
        if !self.is_over() && self.tree.next_check_in() == Some(0) {
            let signalled = self.tree.pass();
            self.note_leftovers(signalled);
        }
    }

    /// Event: the keeper got a termination signal.
    pub fn shut_down(&mut self) {
        self.apply(Event::Shutdown);
    }

    /// Event: the owner is gone. Returns true if the run continues without an owner.
    pub fn owner_gone(&mut self) -> bool {
        self.platform.drop_owner();
        self.apply(Event::OwnerGone);
        self.rules().on_owner_exit == Policy::Keep && self.life.state() < State::Exiting
    }

    /// Event: a request of the owner. False if the request violates the protocol.
    pub fn serve_owner(&mut self, request: &Request) -> bool {
        trace!(key: &self.platform.key(), "received {} from the owner", request.name());
        match *request {
            Request::Started => self.apply(Event::Started),
            Request::Extend { ms } => self.apply(Event::Extend { ms }),
            Request::SetTimeout { timeout } => self.apply(Event::SetTimeout { timeout }),
            Request::IdleTimeout { limit_ms } => self.apply(Event::IdleTimeout { limit_ms }),
            Request::Usage => {
                let usage = Report::Usage(self.tree.usage());
                self.platform.send_to_owner(&[usage]);
            }
            Request::Signal { signal } => {
                if let Err(errno) = self.tree.signal_root(signal) {
                    self.platform.send_to_owner(&[Report::SignalFailed { errno: errno as i32 }]);
                }
            }
            Request::Cancel { signal, grace_ms, reason } => self.cancel(signal, grace_ms, reason),
            Request::AssignRun(_) | Request::Adopt | Request::ControlClient { .. } => return false,
        }
        true
    }

    /// Event: a request of a control client.
    pub fn serve_client(&mut self, client: &P::Client, request: ControlRequest) {
        trace!(key: &self.platform.key(), "received {} from a control client", request.name());
        match request {
            ControlRequest::Cancel { signal, grace_ms, reason } => self.cancel(signal, grace_ms, &reason),
            ControlRequest::Usage => {
                let usage = Report::Usage(self.tree.usage());
                self.platform.answer(client, usage);
            }
            ControlRequest::Adopt => self.adopt(client),
        }
    }

    /// Makes a control client the owner, if the last owner has exited.
    fn adopt(&mut self, client: &P::Client) {
        if self.platform.has_owner() || !self.platform.make_owner(client) {
            trace!(key: &self.platform.key(), "adoption refused: the run has an owner");
            return self.platform.answer(client, Report::Adopted { granted: false });
        }
        trace!(key: &self.platform.key(), "adopted by a control client");
        self.platform.send_to_owner(&[Report::Adopted { granted: true }]);
    }

    /// Cancels the run. Keeps the reason only if this cancel is what begins the end.
    fn cancel(&mut self, signal: i32, grace_ms: u64, reason: &str) {
        if !self.is_ending() {
            reason.clone_into(&mut self.reason);
        }
        self.apply(Event::Cancel { signal, grace_ms });
    }

    /// Event: the tree has changed. Call [`Core::check_tree`] next.
    ///
    /// A scan can take several turns. The change may concern a process that the scan has already
    /// passed, and the kernel does not report it again. Then a second scan follows. Other long
    /// scans are not repeated: a tree that is too large for one turn would keep the keeper awake
    /// all the time.
    pub fn tree_changed(&mut self) {
        self.scan_again |= self.tree.is_unfinished();
    }

    fn scan(&mut self) -> Population {
        let found = self.tree.scan();
        if found != Population::Living || self.tree.is_unfinished() || !std::mem::take(&mut self.scan_again) {
            return found;
        }
        self.tree.scan()
    }

    /// Scans the tree, and reports what has happened to it.
    ///
    /// Call it before the requests of the same turn are served. So a cancel that arrives after the
    /// root's exit finds a run that ended by itself.
    pub fn check_tree(&mut self) {
        if self.is_over() {
            return;
        }
        // Kill before reaping: otherwise a tree that forks faster than the keeper reaps would
        // survive.
        if self.life.is_killing() {
            self.kill();
        }
        let population = self.scan();
        if self.tree.has_shrunk() {
            self.apply(Event::Progress);
        }
        let exited = self.tree.root_status().filter(|_| !self.is_root_reported).map(Report::RootExited);
        self.is_root_reported |= exited.is_some();
        if let Population::Gone(survivors) = population {
            self.step(Event::Empty);
            // One write for both reports: the usual end of a command without children.
            return self.finish(exited, survivors);
        }
        if let Some(exited) = exited {
            self.send(&[exited]);
            if population != Population::Exiting {
                self.root_exited();
            }
        }
        if population == Population::Unreachable {
            self.kill_unreachable();
        }
    }

    /// The root has exited, and members are left.
    fn root_exited(&mut self) {
        if self.rules().on_leader_exit == Policy::Kill && !self.is_ending() {
            self.leftovers = Leftovers::seen_at_exit(self.tree.left_behind());
        }
        self.apply(Event::RootExited);
    }

    /// Records members that got a signal, or are about to get one, as leftovers, if the root exited
    /// by itself.
    fn note_leftovers(&mut self, mut found: Vec<Leftover>) {
        if self.life.cause() == Some(Cause::RootExit) {
            found.retain(|leftover| !leftover.is_root);
            self.leftovers.add(found);
        }
    }

    /// Sends `signal` to the tree.
    ///
    /// Without a grace period, SIGKILL follows at once. Which of the two ends a member is a race
    /// then, so all of them count as forced.
    fn terminate(&mut self, signal: i32) {
        let has_no_grace = self.life.wake_at().is_some_and(|kill_at| kill_at <= self.platform.now());
        let Ok(signalled) = self.tree.terminate(signal) else { return self.kill_unreachable() };
        if has_no_grace {
            self.forced.add(signalled.iter().map(|member| member.process.clone()));
        }
        self.note_leftovers(signalled);
    }

    /// Kills every member once.
    fn kill(&mut self) {
        let killed = self.tree.kill();
        self.forced.add(killed);
    }

    /// Kills a tree that no request to exit can reach, without a grace period.
    fn kill_unreachable(&mut self) {
        self.apply(Event::Cancel { signal: SIGKILL, grace_ms: 0 });
    }

    fn step(&mut self, event: Event) -> Action {
        let step = self.life.step(event, self.platform.now());
        if step.is_notable() {
            trace!(key: &self.platform.key(), "lifecycle: {step}");
        }
        step.action
    }

    /// Applies an event to the lifecycle, and carries out the resulting action.
    fn apply(&mut self, event: Event) {
        let before = self.life.state();
        let action = self.step(event);
        if before < State::Exiting
            && let Some(ending) = self.ending()
        {
            self.send(&[ending]);
        }
        match action {
            Action::Nothing => {}
            Action::Warn { limit_ms, remaining_ms } => {
                self.send(&[Report::Warning { limit_ms, remaining_ms }]);
            }
            Action::Terminate(signal) => self.terminate(signal),
            Action::Kill => self.kill(),
            Action::Finish => {
                let survivors = self.tree.survivors();
                self.finish(None, survivors);
            }
        }
    }

    /// The report that the tree is being ended. `None` if it is not, and if the root exited by
    /// itself, because [`Report::RootExited`] reports that.
    fn ending(&self) -> Option<Report> {
        let cause = self.life.cause().filter(|_| self.life.state() == State::Exiting)?;
        (cause != Cause::RootExit).then(|| Report::Ending { cause, reason: self.reason.clone() })
    }

    /// Sends reports to the owner and to all control clients. If the owner has closed its end, the
    /// next read detects it.
    fn send(&mut self, reports: &[Report]) {
        self.trace_reports(reports);
        self.platform.send_to_owner(reports);
        self.platform.send_to_clients(reports);
    }

    fn trace_reports(&self, reports: &[Report]) {
        for report in reports {
            trace!(key: &self.platform.key(), "send {}", report.name());
        }
    }

    /// Sends the last reports. The run is over.
    ///
    /// Without an owner, the keeper first writes the end to the registry. So a control client that
    /// has received the end finds it there. The scan that found an empty tree has reaped the root,
    /// so the report is true when its receiver reads it.
    fn finish(&mut self, exited: Option<Report>, survivors: Vec<ProcessInfo>) {
        self.tree.close();
        let end = self.end_with(survivors);
        self.end = Some(end.clone());
        let reports: Vec<_> = exited.into_iter().chain([Report::Extinct(end)]).collect();
        self.trace_reports(&reports);
        if self.platform.send_to_owner(&reports) {
            self.is_end_known = true;
        } else {
            self.record_end();
        }
        self.platform.send_to_clients(&reports);
    }

    /// Writes the end to the registry, for the first time or again after a failure.
    pub fn record_end(&mut self) {
        self.is_end_known = self.end.as_ref().is_some_and(|end| self.platform.record_end(end));
    }

    fn end_with(&mut self, mut survivors: Vec<ProcessInfo>) -> Ended {
        let (mut leftovers, mut escaped, unlisted_before) =
            std::mem::take(&mut self.leftovers).without(&survivors);
        let (forced, unlisted_forced) = std::mem::take(&mut self.forced).without(&survivors);
        let unlisted = Unlisted {
            leftovers: protocol::shorten(&mut leftovers).saturating_add(unlisted_before.leftovers),
            escaped: protocol::shorten(&mut escaped).saturating_add(unlisted_before.escaped),
            forced: unlisted_forced,
            survivors: protocol::shorten(&mut survivors),
        };
        Ended {
            ending: Ending::Cause(self.life.cause().unwrap_or(Cause::RootExit)),
            named_reason: self.reason.clone(),
            limit_ms: self.life.limit_ms(),
            force: self.life.force(),
            leftovers,
            escaped,
            forced,
            survivors,
            unlisted,
            status: self.tree.root_status(),
        }
    }
}

#[cfg(test)]
mod tests;
