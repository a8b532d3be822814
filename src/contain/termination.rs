//! Tracks which members of a tree have received the termination signal, and when to search for new
//! ones. Pure.
//!
//! Between the first signal and SIGKILL, members can still fork, call `setsid` and `exec`. So the
//! caller lists the tree repeatedly. Each listing is a *pass*: [`Termination::plan`] returns what
//! to send to each member, and [`Termination::note`] records it by PID and start token. `setsid`
//! and `exec` change neither, so each member receives the signal exactly once. A signal to a whole
//! process group cannot be recorded like this, because its members at that moment are not known.
//!
//! Interactive shells ignore SIGTERM. [`super::shell`] explains what they receive instead, and
//! when.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nix::libc;

use super::SIGCONT;
use super::shell::{Disposition, disposition};
use crate::identity::stat::Stat;

/// Pause after a pass that found a new member, and after a member's death. It doubles with each
/// pass that finds none.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Maximum pause while a member has a terminal, because no event reports the end of a shell's last
/// job.
const LONGEST_PAUSE_AT_TERMINAL: Duration = Duration::from_millis(10);

/// The pause is at least this many times the duration of the pass. So a tree that does not exit
/// costs at most a twentieth of a processor.
const IDLE_PER_PASS: u32 = 20;
/// The same for the first passes, because most late processes appear immediately.
const IDLE_PER_EARLY_PASS: u32 = 2;
const EARLY_PASSES: u32 = 8;
/// Upper bound for a pause that results from the duration of a pass. The clock continues while a
/// container is frozen, so a pass can seem to take an hour.
const LONGEST_IDLE: Duration = Duration::from_secs(1);

/// A shell that was nudged this often has lost its SIGHUP, and receives another one. Bash only
/// records the signal, and loses that record if it runs `exec bash` at that moment. Each further
/// SIGHUP follows after twice as many nudges.
const NUDGES_PER_HANG_UP: u32 = 32;

/// Number of recorded identities at which those of dead processes are dropped.
const CLEANUP_SIZE: usize = 4096;

/// PID and start token, which together distinguish a process from a later one with the same PID.
type Identity = (i32, u64);

/// What a member receives in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The termination signal, then SIGCONT so that a stopped process handles it.
    Signal,
    /// Only SIGCONT, to a process that ignores the termination signal.
    Wake,
    /// SIGHUP and SIGCONT, to an interactive shell.
    HangUp,
    /// SIGWINCH, to a shell that received SIGHUP. Bash only records SIGHUP, and may check the
    /// record just before it waits for a key. Then it sleeps until another signal arrives. SIGWINCH
    /// is harmless.
    Nudge,
}

impl Step {
    pub const ALL: [Self; 4] = [Self::Signal, Self::Wake, Self::HangUp, Self::Nudge];

    /// The signals to send, in this order.
    pub fn signals(self, signal: i32) -> Vec<i32> {
        match self {
            Self::Signal => vec![signal, SIGCONT],
            Self::Wake => vec![SIGCONT],
            Self::HangUp => vec![libc::SIGHUP, SIGCONT],
            Self::Nudge => vec![libc::SIGWINCH],
        }
    }
}

/// What a member has received so far. A member with an entry has received SIGCONT.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    signalled: bool,
    /// Number of SIGHUP and SIGWINCH steps that it received.
    shell_signals: u32,
}

impl Sent {
    /// The next step for a shell when only shells are left.
    fn next_for_shell(self) -> Step {
        let sent = self.shell_signals;
        let has_lost_hang_up = sent >= NUDGES_PER_HANG_UP && sent.is_power_of_two();
        if sent == 0 || has_lost_hang_up { Step::HangUp } else { Step::Nudge }
    }
}

/// The phase between the first signal and SIGKILL, for one tree.
#[derive(Debug)]
pub struct Termination {
    signal: i32,
    sent: HashMap<Identity, Sent>,
    cleanup_at: usize,
    pause: Duration,
    /// Early passes that are left.
    early_passes: u32,
    is_first: bool,
    cost: Duration,
    last_pass: Instant,
}

impl Termination {
    /// Starts the phase. The first pass is due immediately.
    pub fn new(signal: i32, now: Instant) -> Self {
        Self {
            signal,
            sent: HashMap::new(),
            cleanup_at: CLEANUP_SIZE,
            pause: Duration::ZERO,
            early_passes: EARLY_PASSES,
            is_first: true,
            cost: Duration::ZERO,
            last_pass: now,
        }
    }

    /// For passes that list every process of the system. Their cost does not depend on the tree, so
    /// there are no early passes.
    #[must_use]
    pub fn with_system_wide_passes(self) -> Self {
        Self { early_passes: 0, ..self }
    }

    pub fn signal(&self) -> i32 {
        self.signal
    }

    /// Returns what to send to each living member now, in the order of `members`.
    ///
    /// `members` must have parents before their children. Otherwise a shell script starts its next
    /// command when the current one dies.
    ///
    /// `ignored` returns the signals that a process ignores, one bit each, if they can be read.
    pub fn plan<'a>(
        &self,
        members: &[&'a Stat],
        ignored: impl Fn(i32) -> Option<u64>,
    ) -> Vec<(&'a Stat, Step)> {
        let dispositions: Vec<_> =
            members.iter().map(|&stat| (stat, disposition(stat, self.signal, &ignored))).collect();
        // A shell forwards SIGHUP to its jobs, which must keep their grace period. So it receives
        // SIGHUP only when nothing but shells is left. Not in the first pass: a process that looks
        // like a shell may be a shell's child that has not called exec yet.
        let only_shells = !self.is_first
            && dispositions.iter().all(|(_, disposition)| *disposition == Disposition::ExitsOnHangUp);
        let step = |stat: &Stat, disposition| {
            let sent = self.sent.get(&identity(stat));
            match disposition {
                Disposition::Receives => sent.is_none_or(|sent| !sent.signalled).then_some(Step::Signal),
                Disposition::ExitsOnHangUp if only_shells => {
                    Some(sent.copied().unwrap_or_default().next_for_shell())
                }
                // The kernel would discard the signal. A shell's child ignores the same signals as
                // the shell until it calls exec. It receives the signal after that.
                Disposition::ExitsOnHangUp | Disposition::Ignores => sent.is_none().then_some(Step::Wake),
            }
        };
        dispositions
            .into_iter()
            .filter_map(|(stat, disposition)| Some((stat, step(stat, disposition)?)))
            .collect()
    }

    /// Records a step that was sent to a member. Do not record a failed one: the next pass retries
    /// it.
    pub fn note(&mut self, stat: &Stat, step: Step) {
        let sent = self.sent.entry(identity(stat)).or_default();
        sent.signalled |= step == Step::Signal;
        sent.shell_signals =
            sent.shell_signals.saturating_add(u32::from(matches!(step, Step::HangUp | Step::Nudge)));
    }

    /// Drops the identities of dead processes when there are many. A tree can fork for its whole
    /// grace period.
    pub fn forget_dead(&mut self, is_alive: impl Fn(i32, u64) -> bool) {
        if self.sent.len() >= self.cleanup_at {
            self.sent.retain(|&(pid, start), _| is_alive(pid, start));
            self.cleanup_at = CLEANUP_SIZE.max(2 * self.sent.len());
        }
    }

    /// Records the end of a pass over these members.
    pub fn passed(&mut self, members: &[&Stat], found_new: bool, began: Instant, ended: Instant) {
        let at_terminal = members.iter().any(|stat| stat.terminal != 0);
        let longest = if at_terminal { LONGEST_PAUSE_AT_TERMINAL } else { LONGEST_PAUSE };
        self.pause = if found_new { FIRST_PAUSE } else { (self.pause * 2).clamp(FIRST_PAUSE, longest) };
        self.early_passes = self.early_passes.saturating_sub(1);
        self.is_first = false;
        self.cost = ended.saturating_duration_since(began);
        self.last_pass = ended;
    }

    /// Records a member's death. Its children have a new parent now and may become visible.
    pub fn member_died(&mut self) {
        self.pause = self.pause.min(FIRST_PAUSE);
    }

    /// When the next pass is due.
    pub fn next_pass(&self) -> Instant {
        let idle = if self.early_passes > 0 { IDLE_PER_EARLY_PASS } else { IDLE_PER_PASS };
        self.last_pass + self.pause.max(self.cost.saturating_mul(idle).min(LONGEST_IDLE))
    }
}

fn identity(stat: &Stat) -> Identity {
    (stat.pid, stat.start)
}

/// Milliseconds until `at`, rounded up. If rounded down, poll would return before `at` again and
/// again. 0 if `at` has passed.
pub fn ms_until(at: Instant) -> u64 {
    let left = at.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
    u64::try_from(left).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
