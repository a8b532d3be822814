//! The zygote: forks keepers before the bot needs them, and ends the trees of killed keepers.
//!
//! It accepts three requests:
//! - `k`: fork a keeper. The answer is an errno and the keeper's PID ([`FORKED`]). If the errno is
//!   0, it includes the bot's ends of two new sockets: one to the keeper, one to its exec stub.
//! - `c` with an order ([`InCgroup`]) and a socket: the same for a run with a cgroup. The zygote
//!   answers over that socket.
//! - `o` with a keeper's PID and a file descriptor: keep the descriptor open until the keeper is
//!   dead and no process of its tree is left.
//!
//! It knows nothing about runs. It exits when the bot and its last keeper have exited.

use std::iter;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{ForkResult, Pid, fork, getppid, setsid};

use super::protocol::{self, InCgroup};
use super::signals::Signals;
use super::{HELLO, channel, control_socket, event_loop, signals, title};
use crate::contain::cgroup::{self, Base};
use crate::contain::inside::{self, KILL_PASS_MS};
use crate::contain::orphans::Family;
use crate::contain::termination::ms_until;
use crate::identity::helpers::ZYGOTE_NAME;
use crate::run::lifecycle::{Action, Event, Lifecycle, Rules, Step};
use crate::trace::{self, trace};

pub const FORK: u8 = b'k';
pub const FORK_IN_CGROUP: u8 = b'c';
pub const ORPHANS: u8 = b'o';

/// Length of an answer: an errno and a PID.
pub const FORKED: usize = 8;

/// Interval at which the zygote checks for lost keepers after the bot has exited. It may be long:
/// lost keepers are rare, and so are runs that outlive their bot.
const CHECK_EVERY_MS: u64 = 10_000;

/// Maximum length of a request: two paths, and a few more bytes.
const MAX_REQUEST: usize = 2 * 4096 + 64;

pub fn serve(socket: OwnedFd) -> Result<(), Errno> {
    let bot = getppid();
    title::locate();
    title::set(ZYGOTE_NAME, &format!("spawn-owned-keeper zygote of {bot}"));
    // Leave the bot's session: Ctrl-C in the bot's terminal must reach only the bot, which decides
    // what happens to its runs.
    setsid()?;
    inside::become_subreaper()?;
    let signals = signals::listen_for_children()?;
    trace!("zygote of bot {bot} is ready");
    channel::send_message(&socket, &HELLO, &[])?;
    // After the hello, so the bot does not wait while the zygote removes old sockets.
    control_socket::sweep();
    let mut zygote = Zygote {
        socket: Some(socket),
        signals: Some(signals),
        bot,
        family: Family::mine(),
        ending: None,
        waiting: Vec::new(),
        answer: None,
        base: None,
        must_sweep: false,
        may_be_more: false,
        started_at: Instant::now(),
    };
    while zygote.socket.is_some() || zygote.family.has_keepers() || zygote.ending.is_some() {
        zygote.turn();
    }
    trace!("zygote exits: the bot and all keepers are gone");
    Ok(())
}

struct Zygote {
    /// The connection to the bot; `None` after the bot has exited.
    socket: Option<OwnedFd>,
    /// `None` only in a child that is about to become a keeper.
    signals: Option<Signals>,
    bot: Pid,
    family: Family,
    /// The lifecycle by which the orphans end; `None` if there are none.
    ending: Option<Lifecycle>,
    /// PIDs of keepers, each with a file descriptor to close when its whole tree is gone.
    waiting: Vec<(i32, OwnedFd)>,
    /// The socket for the answer to the current order.
    answer: Option<OwnedFd>,
    /// Where keepers create cgroups; `None` before the first such order.
    base: Option<Base>,
    /// A keeper was killed, and may have left its cgroup.
    must_sweep: bool,
    /// More children have died than one turn could reap.
    may_be_more: bool,
    started_at: Instant,
}

impl Zygote {
    fn turn(&mut self) {
        let (signalled, bot_ready) = self.sleep();
        if signalled {
            self.signals.as_ref().map(Signals::take);
        }
        if bot_ready {
            self.handle_request();
        }
        // Reap in every turn: the bot can see a keeper's death and send `o` before SIGCHLD arrives
        // here.
        let reaped = self.family.reap();
        self.may_be_more = reaped.may_be_more;
        // The bot has exited in this turn, or it exited earlier and the interval has elapsed.
        let is_check_due = self.socket.is_none() && (bot_ready || !signalled);
        self.must_sweep |= reaped.left_something || self.has_lost_keeper(reaped.has_orphan || is_check_due);
        if self.must_sweep && self.family.has_orphans() && self.ending.is_none() {
            self.ending = Some(Lifecycle::new(Rules { grace_ms: u64::MAX, ..Rules::default() }));
            self.apply(Event::OwnerGone);
        }
        if self.ending.is_some() {
            self.end_orphans();
        }
        if self.ending.is_none() {
            if std::mem::take(&mut self.must_sweep) {
                self.sweep();
            }
            let family = &self.family;
            self.waiting.retain(|(keeper, _)| family.has_keeper(*keeper));
        }
    }

    /// True if a keeper is dead and the kernel does not report its death, see [`Family::has_lost`].
    ///
    /// It checks the keepers that the bot has named in an `o` request. With `check_all` it checks
    /// all keepers: after the death of an unexpected orphan, and at intervals without a bot.
    fn has_lost_keeper(&mut self, check_all: bool) -> bool {
        if self.ending.is_some() {
            return false;
        }
        let lost = self.waiting.iter().filter(|(keeper, _)| self.family.has_lost(*keeper)).count();
        lost > 0 || check_all && self.family.has_lost_any()
    }

    /// Sleeps until an event. Returns whether a signal has arrived, and whether the bot's socket is
    /// readable.
    fn sleep(&self) -> (bool, bool) {
        let now = self.now();
        let until = match &self.ending {
            Some(ending) if ending.is_killing() => {
                ending.wake_at().map(|at| at.saturating_sub(now).min(KILL_PASS_MS))
            }
            Some(ending) => {
                let tick = ending.wake_at().map(|at| at.saturating_sub(now));
                [tick, self.family.next_pass().map(ms_until)].into_iter().flatten().min()
            }
            None => self.socket.is_none().then_some(CHECK_EVERY_MS),
        };
        let until = if self.may_be_more { Some(0) } else { until };
        let timeout =
            until.map_or(PollTimeout::NONE, |ms| PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX));
        let watched = [self.signals.as_ref().map(AsFd::as_fd), self.socket.as_ref().map(AsFd::as_fd)];
        let mut fds: Vec<_> =
            watched.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let _ = poll(&mut fds, timeout);
        let ready = |index: usize| fds.get(index).and_then(PollFd::any).unwrap_or(false);
        (ready(0), ready(1))
    }

    fn end_orphans(&mut self) {
        if self.family.has_orphans() {
            self.apply(Event::Tick);
            if self.ending.as_ref().is_some_and(Lifecycle::is_killing) {
                self.family.kill_orphans();
            }
            if self.family.next_pass().is_some_and(|at| at <= Instant::now()) {
                self.family.pass();
            }
        } else {
            self.stop_ending();
        }
    }

    fn stop_ending(&mut self) {
        self.ending = None;
        self.family.stop_terminating();
    }

    fn apply(&mut self, event: Event) {
        let now = self.now();
        let step = self.ending.as_mut().map(|ending| ending.step(event, now));
        if let Some(step) = step.filter(Step::is_notable) {
            trace!("lifecycle of orphans: {step}");
        }
        match step.map(|step| step.action) {
            Some(Action::Terminate(signal)) => self.family.terminate_orphans(signal),
            Some(Action::Kill) => self.family.kill_orphans(),
            // The zygote does not wait for orphans that it cannot kill. The bot finds them itself.
            Some(Action::Finish) => self.stop_ending(),
            Some(Action::Nothing | Action::Warn { .. }) | None => {}
        }
    }

    fn handle_request(&mut self) {
        let Some(socket) = &self.socket else { return };
        let (mut request, mut fds) = ([0; MAX_REQUEST], Vec::new());
        match channel::receive_message(socket, &mut request, &mut fds) {
            Ok(1..) if request[0] == FORK => self.fork_keeper(),
            Ok(count @ 2..) if request[0] == FORK_IN_CGROUP => {
                self.fork_keeper_in_cgroup(&request[1..count], fds.pop());
            }
            Ok(5..) if request[0] == ORPHANS => {
                let keeper = i32::from_le_bytes([request[1], request[2], request[3], request[4]]);
                trace!("received a request to report when the orphans of keeper {keeper} are gone");
                self.waiting.extend(fds.pop().map(|fd| (keeper, fd)));
            }
            // The bot has exited, or the peer is not a bot. Keepers detect the bot's exit
            // themselves. Wake those that are stopped.
            _ => self.bot_gone(),
        }
    }

    fn bot_gone(&mut self) {
        trace!("the bot is gone");
        self.socket = None;
        self.family.wake_keepers();
    }

    /// Forks a keeper with a cgroup, and answers over the socket that came with the order.
    ///
    /// For an invalid order it only closes that socket. The bot reads end of file.
    fn fork_keeper_in_cgroup(&mut self, order: &[u8], answer: Option<OwnedFd>) {
        let Ok(order) = protocol::decode::<InCgroup>(order) else { return };
        self.answer = answer;
        let forked = self.try_to_fork_keeper(Some(&order));
        let _ = self.answer.take().map(|answer| send_answer(&answer, &forked));
        // After the answer, so the first run does not wait for the sweep.
        if self.base.is_none() {
            self.base = Some(order.base);
            self.sweep();
        }
    }

    /// Removes the cgroups of dead keepers.
    fn sweep(&self) {
        let dirs = self.base.iter().flat_map(|base| iter::once(&base.dir).chain(&base.roomy));
        for dir in dirs {
            cgroup::sweep(dir);
        }
    }

    fn fork_keeper(&mut self) {
        let forked = self.try_to_fork_keeper(None);
        let Some(socket) = &self.socket else { return };
        if send_answer(socket, &forked).is_err() {
            self.bot_gone();
        }
    }

    /// Forks a keeper. Returns its PID and the bot's ends of the sockets to it and its exec stub.
    ///
    /// Each end must have exactly one holder. Otherwise the death of a process would not cause an
    /// end of file. So the keeper closes the bot's ends and all sockets of the zygote, the bot gets
    /// its own ends, and the zygote keeps none.
    fn try_to_fork_keeper(&mut self, order: Option<&InCgroup>) -> Result<Ends, Errno> {
        let (bots_control, control) = channel::pair()?;
        let (bots_launch, launch) = channel::pair()?;
        // SAFETY: this process has one thread, so the child may call any function.
        match unsafe { fork() }? {
            ForkResult::Child => {
                drop((bots_control, bots_launch));
                (self.socket, self.signals, self.answer) = (None, None, None);
                self.waiting.clear();
                trace::set_role(trace::Role::Keeper);
                let failed = event_loop::keep(control, launch, self.bot, order).is_err();
                // SAFETY: `_exit` takes an integer and does not return. It runs no exit handlers,
                // which belong to the zygote.
                unsafe { libc::_exit(i32::from(failed)) };
            }
            ForkResult::Parent { child } => {
                trace!("forked keeper {child}");
                self.family.add(child.as_raw());
                Ok((child.as_raw(), bots_control, bots_launch))
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A keeper's PID, and the bot's ends of the sockets to it and to its exec stub.
type Ends = (i32, OwnedFd, OwnedFd);

fn send_answer(socket: &OwnedFd, forked: &Result<Ends, Errno>) -> Result<(), Errno> {
    let answer = |errno: i32, pid: i32, fds: &[_]| {
        let mut bytes = [0; FORKED];
        bytes[..4].copy_from_slice(&errno.to_le_bytes());
        bytes[4..].copy_from_slice(&pid.to_le_bytes());
        channel::send_message(socket, &bytes, fds)
    };
    match forked {
        Ok((pid, control, launch)) => answer(0, *pid, &[control.as_raw_fd(), launch.as_raw_fd()]),
        Err(errno) => answer(*errno as i32, 0, &[]),
    }
}
