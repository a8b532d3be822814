//! The process that forks keepers, ahead of their use, and cleans up after those that were killed.
//!
//! It understands three requests. `k`: fork a keeper; the answer is an errno and, if that is 0, the bot's ends of two new
//! sockets, one to a keeper and one to the blank process it keeps (see [`super::keep`]). `c` with an order ([`InCgroup`]) and a
//! socket: the same for a run with a cgroup, answered over that socket. `o` with a keeper's PID and a descriptor: hold that
//! descriptor until nothing of what that keeper has left behind exists. It knows nothing of runs, and stays until its last
//! keeper is gone, bot or no bot.

use std::iter;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{ForkResult, Pid, fork, getppid, setsid};

use super::keep::KILL_PASS_MS;
use super::protocol::{self, InCgroup};
use super::signals::Signals;
use super::{HELLO, address, channel, keep, signals, title};
use crate::contain::cgroup::{self, Base};
use crate::contain::inside;
use crate::contain::orphans::Family;
use crate::run::lifecycle::{Action, Event, Lifecycle, Rules};

pub const FORK: u8 = b'k';
pub const FORK_IN_CGROUP: u8 = b'c';
pub const ORPHANS: u8 = b'o';

/// How often keepers are looked at that nobody else looks after: one that has died unseen is rare, and so are runs that outlive their bot.
const LOOK_EVERY_MS: u64 = 10_000;

/// A request is no longer than that: two paths, and a little more.
const LONGEST: usize = 2 * 4096 + 64;

pub fn serve(socket: OwnedFd) -> Result<(), Errno> {
    let bot = getppid();
    title::locate();
    title::set(super::process::ZYGOTE_NAME, &format!("spawn-owned-keeper zygote of {bot}"));
    // Out of the bot's session: Ctrl-C in the bot's terminal is for the bot, which decides what becomes of its runs.
    setsid()?;
    inside::become_subreaper()?;
    let signals = signals::listen_for_children()?;
    channel::send_message(&socket, &HELLO, &[])?;
    // Said before that: nobody waits for what others have left to be swept up.
    address::sweep();
    let mut zygote = Zygote {
        socket: Some(socket),
        signals: Some(signals),
        bot,
        family: Family::mine(),
        ending: None,
        waiting: Vec::new(),
        answer: None,
        base: None,
        unswept: false,
        may_be_more: false,
        born: Instant::now(),
    };
    while zygote.socket.is_some() || zygote.family.has_keepers() || zygote.ending.is_some() {
        zygote.turn();
    }
    Ok(())
}

struct Zygote {
    /// `None` once the bot is gone.
    socket: Option<OwnedFd>,
    /// Always there, but in a keeper that is about to be one.
    signals: Option<Signals>,
    bot: Pid,
    family: Family,
    /// The orphans are being ended.
    ending: Option<Lifecycle>,
    /// Who wants to know that a keeper, and all that it kept, is gone.
    waiting: Vec<(i32, OwnedFd)>,
    /// Where the order that is being carried out is answered.
    answer: Option<OwnedFd>,
    /// Where keepers make cgroups, once one was asked to.
    base: Option<Base>,
    /// A keeper was killed, and may have left its cgroup.
    unswept: bool,
    /// More have died than could be counted at once.
    may_be_more: bool,
    born: Instant,
}

impl Zygote {
    fn turn(&mut self) {
        let (signalled, spoken) = self.sleep();
        if signalled {
            self.signals.as_ref().map(Signals::take);
        }
        if spoken {
            self.listen();
        }
        // Whatever woke us: the death of a keeper may have been seen by the bot before we had our signal.
        let reaped = self.family.reap();
        self.may_be_more = reaped.may_be_more;
        // The bot has gone in this very turn, or has been gone for a while in which nothing has happened.
        let is_alone = self.socket.is_none() && (spoken || !signalled);
        self.unswept |= reaped.left_something || self.has_lost_keeper(reaped.has_orphan || is_alone);
        if self.unswept && self.family.has_orphans() && self.ending.is_none() {
            self.ending = Some(Lifecycle::new(Rules { grace_ms: u64::MAX, ..Rules::default() }));
            self.tell(Event::OwnerGone);
        }
        if self.ending.is_some() {
            self.end_orphans();
        }
        if self.ending.is_none() {
            if std::mem::take(&mut self.unswept) {
                self.sweep();
            }
            let family = &self.family;
            self.waiting.retain(|(keeper, _)| family.has_keeper(*keeper));
        }
    }

    /// Whether a keeper is dead of whose death nothing tells us, see [`Family::has_lost`]. Usually the bot asks for what it has left. All
    /// are looked at when an orphan has died of which we knew nothing, and, if there is no bot that could ask, from time to time.
    fn has_lost_keeper(&mut self, may_be_any: bool) -> bool {
        if self.ending.is_some() {
            return false;
        }
        let asked_for = self.waiting.iter().filter(|(keeper, _)| self.family.has_lost(*keeper)).count();
        asked_for > 0 || may_be_any && self.family.has_lost_any()
    }

    fn sleep(&self) -> (bool, bool) {
        let now = self.now();
        let until = match &self.ending {
            Some(ending) => ending.wake_at().map(|at| {
                let at = at.saturating_sub(now);
                if ending.is_killing() { at.min(KILL_PASS_MS) } else { at }
            }),
            None => self.socket.is_none().then_some(LOOK_EVERY_MS),
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
            self.tell(Event::Tick);
            if self.ending.as_ref().is_some_and(Lifecycle::is_killing) {
                self.family.kill_orphans();
            }
        } else {
            self.ending = None;
        }
    }

    fn tell(&mut self, event: Event) {
        let now = self.now();
        match self.ending.as_mut().map(|ending| ending.on(event, now)) {
            Some(Action::Terminate(signal)) => self.family.terminate_orphans(signal),
            Some(Action::Kill) => self.family.kill_orphans(),
            // What cannot be killed is not waited for; the bot finds it in its own way.
            Some(Action::Finish) => self.ending = None,
            Some(Action::Nothing | Action::Warn { .. }) | None => {}
        }
    }

    fn listen(&mut self) {
        let Some(socket) = &self.socket else { return };
        let (mut request, mut fds) = ([0; LONGEST], Vec::new());
        match channel::receive_message(socket, &mut request, &mut fds) {
            Ok(1..) if request[0] == FORK => self.fork_keeper(),
            Ok(count @ 2..) if request[0] == FORK_IN_CGROUP => {
                self.fork_keeper_in_cgroup(&request[1..count], fds.pop());
            }
            Ok(5..) if request[0] == ORPHANS => {
                let keeper = i32::from_le_bytes([request[1], request[2], request[3], request[4]]);
                self.waiting.extend(fds.pop().map(|fd| (keeper, fd)));
            }
            // The bot is gone, or what speaks to us is none. Keepers see that for themselves, if nobody has stopped them.
            _ => {
                self.socket = None;
                self.family.wake_keepers();
            }
        }
    }

    /// An order that cannot be read, or has nowhere to be answered, closes the socket that came with it, which is an answer.
    fn fork_keeper_in_cgroup(&mut self, order: &[u8], answer: Option<OwnedFd>) {
        let Ok(order) = protocol::decode::<InCgroup>(order) else { return };
        self.answer = answer;
        let forked = self.try_to_fork_keeper(Some(&order));
        let _ = self.answer.take().map(|answer| tell_forked(&answer, &forked));
        // Answered before that: the first run has no reason to wait for what others have left.
        if self.base.is_none() {
            self.base = Some(order.base);
            self.sweep();
        }
    }

    fn sweep(&self) {
        let places = self.base.iter().flat_map(|base| iter::once(&base.dir).chain(&base.roomy));
        for place in places {
            cgroup::sweep(place);
        }
    }

    fn fork_keeper(&mut self) {
        let forked = self.try_to_fork_keeper(None);
        let Some(socket) = &self.socket else { return };
        if tell_forked(socket, &forked).is_err() {
            self.socket = None;
            self.family.wake_keepers();
        }
    }

    /// The bot's ends of the sockets to a new keeper and its blank.
    ///
    /// Every end has one holder in the end, or a process's death would not be seen as an end of file: the keeper drops the
    /// bot's and all of ours, the bot gets its own, and we keep none.
    fn try_to_fork_keeper(&mut self, order: Option<&InCgroup>) -> Result<Ends, Errno> {
        let (bots_control, control) = channel::pair()?;
        let (bots_launch, launch) = channel::pair()?;
        // SAFETY: this process has one thread, so the child may do whatever we may.
        match unsafe { fork() }? {
            ForkResult::Child => {
                drop((bots_control, bots_launch));
                (self.socket, self.signals, self.answer) = (None, None, None);
                self.waiting.clear();
                let failed = keep::keep(control, launch, self.bot, order).is_err();
                // SAFETY: ends this process without running anybody's exit handlers, as a fork should.
                unsafe { libc::_exit(i32::from(failed)) };
            }
            ForkResult::Parent { child } => self.family.add(child.as_raw()),
        }
        Ok((bots_control, bots_launch))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The bot's ends of the sockets to a keeper and its blank.
type Ends = (OwnedFd, OwnedFd);

fn tell_forked(socket: &OwnedFd, forked: &Result<Ends, Errno>) -> Result<(), Errno> {
    match forked {
        Ok((control, launch)) => {
            channel::send_message(socket, &0i32.to_le_bytes(), &[control.as_raw_fd(), launch.as_raw_fd()])
        }
        Err(errno) => channel::send_message(socket, &(*errno as i32).to_le_bytes(), &[]),
    }
}
