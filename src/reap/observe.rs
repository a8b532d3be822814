//! Looks at the processes that an entry names, and says in facts what was seen.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;

use crate::errno::Errno;

use super::classify::{Boot, Facts, Group, Keeper, Lease, Namespace, Owner, Protected, Root};
use crate::contain::cookie;
use crate::contain::outside::{GroupState, Scan, Target};
use crate::identity::{self, ProcessRef, State, read_stat};
use crate::registry::{self, Containment, Record, import, now_ms};

/// Below this the system's own processes live. On Windows those are the idle process and the system itself; the other numbers are given out
/// from the lowest one on that is free, and mean nothing.
pub(super) const LOWEST_PID: i32 = if cfg!(windows) { 8 } else { 100 };

pub struct Observer<'a> {
    me: &'a ProcessRef,
    /// The bot on whose behalf we look, if that is another one.
    bot: Option<ProcessRef>,
    steal_from_live: bool,
    ancestors: Vec<i32>,
    now: u64,
    /// Whether an entry is ours on paper only: nobody in this process looks after it.
    is_loose: &'a dyn Fn(&Record) -> bool,
    /// Many entries have the same owner.
    owners: RefCell<HashMap<ProcessRef, State>>,
    /// Every process, once. `None` inside: that was not possible.
    scan: OnceCell<Option<Scan>>,
}

impl<'a> Observer<'a> {
    pub fn new(
        me: &'a ProcessRef,
        bot_pid: i32,
        steal_from_live: bool,
        is_loose: &'a dyn Fn(&Record) -> bool,
    ) -> Self {
        Self {
            me,
            bot: if bot_pid == me.pid { None } else { ProcessRef::capture(bot_pid).ok() },
            steal_from_live,
            ancestors: identity::ancestors(me.pid),
            now: now_ms(),
            is_loose,
            owners: RefCell::default(),
            scan: OnceCell::new(),
        }
    }

    /// Whether it is worth a closer look: most that are looked for are long gone.
    pub fn may_be_there(&self, record: &Record) -> bool {
        let Some(root) = &record.start_token else { return true };
        self.scan().is_none_or(|scan| scan.may_have(&target(record, root)))
    }

    pub fn look_at(&self, record: &Record) -> Facts {
        let token = record.start_token.as_ref();
        let root = token.map_or_else(|| old_root(record), |token| judged(self.state(token)));
        let owner = self.owner(record);
        let (group, carriers) = self.group(record, root, owner);
        Facts {
            owner,
            lease: match record.lease_expires_at_ms {
                None => Lease::None,
                Some(until) if until > self.now => Lease::Valid,
                Some(_) => Lease::Expired,
            },
            steal_from_live: self.steal_from_live,
            boot: token.map_or(Boot::Unknown, |token| {
                if *token.boot == *identity::boot_id() { Boot::Same } else { Boot::Other }
            }),
            namespace: token.map_or(Namespace::Unknown, |token| {
                if token.ns == identity::pid_namespace() { Namespace::Same } else { Namespace::Other }
            }),
            root,
            group,
            keeper: record.keeper.as_ref().map_or(Keeper::None, |keeper| self.keeper(&keeper.start_token)),
            carriers,
            service: record.service.is_some(),
            // An end that has left something alive is none.
            state: match &record.exit {
                Some(exit) if exit.survivors > 0 => registry::State::Exiting,
                _ => record.state,
            },
            protected: self.protected(record),
        }
    }

    pub fn owner(&self, record: &Record) -> Owner {
        let Some(owner) = &record.bot_start_token else { return self.old_owner(record) };
        if owner == self.me || Some(owner) == self.bot.as_ref() {
            return if (self.is_loose)(record) { Owner::Dead } else { Owner::Me };
        }
        // That somebody answers for a run is not for one look to deny.
        let mut owners = self.owners.borrow_mut();
        match *owners.entry(owner.clone()).or_insert_with(|| owner.state()) {
            State::Alive => Owner::Alive,
            State::Exited | State::Recycled => Owner::Dead,
            State::Unknown => Owner::Unknown,
        }
    }

    /// An old entry names its owner by number at most. Whoever has that number now is the owner only if it was there when the
    /// entry was made; and no old file is one of a bot that is running this code, so without a number there is none.
    fn old_owner(&self, record: &Record) -> Owner {
        let started = |pid| read_stat(pid).map(|stat| (stat.is_dead(), identity::started_at_ms(stat.start)));
        if record.bot_pid <= 0 {
            return Owner::Dead;
        }
        match started(record.bot_pid) {
            Ok((true, _)) | Err(Errno::ESRCH | Errno::ENOENT) => Owner::Dead,
            Ok((false, Some(at))) if at > record.started_at.saturating_add(import::WINDOW_MS) => Owner::Dead,
            Ok((false, Some(_))) if record.bot_pid == self.me.pid => Owner::Me,
            Ok((false, Some(_))) => Owner::Alive,
            Ok((false, None)) | Err(_) => Owner::Unknown,
        }
    }

    /// The group, and whether anybody carries the run's cookie. Only of interest when nobody answers for the run.
    fn group(&self, record: &Record, root: Root, owner: Owner) -> (Group, bool) {
        if owner == Owner::Me || root == Root::Unknown {
            return (Group::NotLed, false);
        }
        let Some(root) = &record.start_token else { return (Group::NotLed, false) };
        let Some(scan) = self.scan() else {
            // Not being able to look is not the same as seeing nothing.
            return (Group::Unproven, false);
        };
        let target = target(record, root);
        if !scan.may_have(&target) {
            return (if target.leads_group { Group::Empty } else { Group::NotLed }, false);
        }
        // What was spawned is found by its cookie, or by its job.
        let is_job = record.containment == Containment::Job;
        let carriers = if target.run_id.is_some() || is_job {
            match scan.has_living(&target) {
                // As above.
                Err(_) if is_job => return (Group::Unproven, false),
                living => living.unwrap_or(false),
            }
        } else {
            false
        };
        if !target.leads_group {
            return (Group::NotLed, carriers);
        }
        let group = match scan.group_state(&target) {
            GroupState::Empty => Group::Empty,
            GroupState::Ours => Group::Ours,
            GroupState::Unproven => Group::Unproven,
        };
        (group, carriers)
    }

    /// One of here that cannot be looked at may be alive, and then it is to be asked.
    fn keeper(&self, process: &ProcessRef) -> Keeper {
        match self.state(process) {
            State::Alive => Keeper::Alive,
            State::Unknown if process.without_a_look().is_none() => Keeper::Alive,
            _ => Keeper::Dead,
        }
    }

    /// What has become of a process. It was recorded before we looked at all processes: if it was not among them, it is gone.
    fn state(&self, process: &ProcessRef) -> State {
        self.scan().map_or_else(|| process.state(), |scan| scan.state(process))
    }

    fn scan(&self) -> Option<&Scan> {
        self.scan.get_or_init(|| Scan::take().ok()).as_ref()
    }

    fn protected(&self, record: &Record) -> Option<Protected> {
        match record.pid {
            pid if pid == self.me.pid || Self::belongs_to(record) => Some(Protected::Ourselves),
            #[cfg(unix)]
            1 => Some(Protected::PidOne),
            pid if self.ancestors.contains(&pid) => Some(Protected::Ancestor),
            pid if pid < LOWEST_PID => Some(Protected::Low),
            _ => None,
        }
    }

    /// Whether we are a part of the run: whatever carries its cookie may be our own.
    fn belongs_to(record: &Record) -> bool {
        record.keeper.is_some() && cookie::is_around_us(&record.run_id)
    }
}

/// How a record's tree is found without its keeper.
pub fn target<'a>(record: &'a Record, root: &'a ProcessRef) -> Target<'a> {
    let kept = record.containment.has_keeper();
    Target {
        root,
        leads_group: record.pgid == Some(record.pid),
        run_id: kept.then_some(record.run_id.as_str()),
        members: &record.members,
        #[cfg(unix)]
        cgroup: record.recorded_cgroup(),
        #[cfg(windows)]
        job: record.job.as_deref(),
    }
}

/// The process of an old entry, if its age agrees: then it is named by its identity from here on.
pub fn identify_old(record: &Record) -> Option<ProcessRef> {
    let process = ProcessRef::capture(record.pid).ok()?;
    let started = identity::started_at_ms(process.start)?;
    import::agrees(record.started_at, started).then_some(process)
}

fn old_root(record: &Record) -> Root {
    let stat = match read_stat(record.pid) {
        Ok(stat) if stat.is_dead() => return Root::Exited,
        Ok(stat) => stat,
        Err(Errno::ESRCH | Errno::ENOENT) => return Root::Exited,
        Err(_) => return Root::Unknown,
    };
    match identity::started_at_ms(stat.start) {
        Some(at) if import::agrees(record.started_at, at) => Root::Alive,
        Some(at) if record.started_at > 0 && at > record.started_at => Root::Recycled,
        _ => Root::Unknown,
    }
}

fn judged(state: State) -> Root {
    match state {
        State::Alive => Root::Alive,
        State::Exited => Root::Exited,
        State::Recycled => Root::Recycled,
        State::Unknown => Root::Unknown,
    }
}
