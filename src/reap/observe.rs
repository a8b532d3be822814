//! Checks the processes that a registry entry names, and returns the result as facts.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;

use crate::errno::Errno;

use super::classify::{
    Boot, Facts, Group, Keeper, Lease, Namespace, Owner, Protected, Root, Via, depends_on_members,
};
use crate::contain::cookie;
use crate::contain::outside::{GroupState, Scan, Target};
#[cfg(unix)]
use crate::identity::is_group_empty;
use crate::identity::{self, ProcessRef, State, read_stat};
use crate::registry::{self, Containment, Record, import, now_ms};

/// PIDs below this belong to the system. On Windows these are the idle and the system process only;
/// Windows assigns all other PIDs from the lowest free one, so a low PID means nothing there.
pub(super) const LOWEST_PID: i32 = if cfg!(windows) { 8 } else { 100 };

/// Checks entries for one plan, with one scan of all processes at most.
pub struct Observer<'a> {
    me: &'a ProcessRef,
    /// The bot for which this observes, if it is not this process.
    bot: Option<ProcessRef>,
    steal_from_live: bool,
    ancestors: Vec<i32>,
    now: u64,
    /// Whether an entry names this process as the owner, but nothing in this process supervises it.
    is_unsettled: &'a dyn Fn(&Record) -> bool,
    /// Cached states of owners, because many entries have the same owner.
    owners: RefCell<HashMap<ProcessRef, State>>,
    /// All processes, read once and only if an entry needs them. The inner `None`: the scan failed.
    scan: OnceCell<Option<Scan>>,
    /// The lowest start time of the roots in question. An older process carries none of their
    /// cookies.
    oldest: u64,
}

impl<'a> Observer<'a> {
    pub fn new(
        me: &'a ProcessRef,
        bot_pid: i32,
        steal_from_live: bool,
        is_unsettled: &'a dyn Fn(&Record) -> bool,
    ) -> Self {
        Self {
            me,
            bot: if bot_pid == me.pid { None } else { ProcessRef::capture(bot_pid).ok() },
            steal_from_live,
            ancestors: identity::ancestors(me.pid),
            now: now_ms(),
            is_unsettled,
            owners: RefCell::default(),
            scan: OnceCell::new(),
            oldest: 0,
        }
    }

    /// Limits the observer to these entries.
    pub fn concerning<'r>(mut self, records: impl Iterator<Item = &'r Record>) -> Self {
        let roots = records.filter_map(|record| record.start_token.as_ref());
        self.oldest = roots
            .filter(|root| root.state_without_lookup().is_none())
            .map(|root| root.start)
            .min()
            .unwrap_or(0);
        self
    }

    /// Whether processes of the run may exist. A cheap check first: most runs that are checked again
    /// are gone.
    pub fn may_have_processes(&self, record: &Record) -> bool {
        let Some(root) = &record.start_token else { return true };
        self.scan().is_none_or(|scan| scan.may_have(&target(record, root)))
    }

    /// Waits a short time for exiting processes that may be the last ones of the run.
    pub fn wait_for_exiting(&self, record: &Record) {
        if let (Some(root), Some(scan)) = (&record.start_token, self.scan()) {
            scan.wait_for_exiting(&target(record, root));
        }
    }

    /// Checks the processes of an entry.
    pub fn facts(&self, record: &Record) -> Facts {
        let token = record.start_token.as_ref();
        let root = token.map_or_else(|| old_root(record), |token| root_state(self.state(token)));
        let owner = self.owner(record);
        let mut facts =
            Facts {
                owner,
                lease: match record.lease_expires_at_ms {
                    None => Lease::None,
                    Some(until) if until > self.now => Lease::Valid,
                    Some(_) => Lease::Expired,
                },
                steal_from_live: self.steal_from_live,
                boot: token.map_or(Boot::Unknown, |token| {
                    if token.is_of_this_boot() { Boot::Same } else { Boot::Other }
                }),
                namespace: token.map_or(Namespace::Unknown, |token| {
                    if token.is_of_this_namespace() { Namespace::Same } else { Namespace::Other }
                }),
                root,
                group: Group::Unknown,
                keeper: record.keeper.as_ref().map_or(Keeper::None, |keeper| {
                    keeper_state(&keeper.start_token, self.state(&keeper.start_token))
                }),
                carriers: false,
                keyless: record.containment.has_keeper() && record.cookie_key.is_none(),
                service: record.service.is_some(),
                // A recorded end that left survivors does not count as an end.
                state: match &record.exit {
                    Some(exit) if exit.survivors > 0 => registry::State::Exiting,
                    _ => record.state,
                },
                protected: self.protected(record),
            };
        // Windows lists all processes in one system call, and a job lists its members, so this is
        // always cheap there.
        if cfg!(windows) || depends_on_members(&facts) {
            (facts.group, facts.carriers) = self.group(record, root, owner);
        }
        facts
    }

    /// The state of the entry's owner.
    pub fn owner(&self, record: &Record) -> Owner {
        let Some(owner) = &record.bot_start_token else { return self.old_owner(record) };
        if owner == self.me || Some(owner) == self.bot.as_ref() {
            return if (self.is_unsettled)(record) { Owner::Dead } else { Owner::Me };
        }
        // Checked directly and not in the scan: one scan does not prove that an owner is dead.
        let mut owners = self.owners.borrow_mut();
        match *owners.entry(owner.clone()).or_insert_with(|| owner.state()) {
            State::Alive => Owner::Alive,
            State::Exited | State::Recycled => Owner::Dead,
            State::Unknown => Owner::Unknown,
        }
    }

    /// The owner of an entry of an old format, which has at most the owner's PID. The process that
    /// has this PID now is the owner only if it started before the entry was made. A bot that runs
    /// this code writes no old format, so an entry without a PID has no live owner.
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

    /// The group, and whether a live process carries the run's key. Relevant only if the run has no
    /// owner. If the root is unknown, nothing can be proven by it, so this does not search.
    fn group(&self, record: &Record, root: Root, owner: Owner) -> (Group, bool) {
        if owner == Owner::Me || root == Root::Unknown {
            return (Group::NotLed, false);
        }
        let Some(token) = &record.start_token else { return (Group::NotLed, false) };
        let target = target(record, token);
        if let Some(known) = without_a_scan(&target, root) {
            return known;
        }
        let Some(scan) = self.scan() else {
            // A failed scan does not prove that the group is empty.
            return (Group::Unproven, false);
        };
        if !scan.may_have(&target) {
            return (if target.leads_group { Group::Empty } else { Group::NotLed }, false);
        }
        // Members of a spawned run are found by the cookie key, or by the job.
        let is_job = record.containment == Containment::Job;
        let carriers = if target.spawned || is_job {
            match scan.has_living(&target) {
                // A failed query does not prove that the job is empty.
                Err(_) if is_job => return (Group::Unproven, false),
                living => living.unwrap_or(false),
            }
        } else {
            false
        };
        if !target.leads_group {
            return (Group::NotLed, carriers);
        }
        (group_of(scan, &target), carriers)
    }

    /// The state of a process. It was recorded before the scan, so if the scan does not contain it,
    /// it is gone.
    fn state(&self, process: &ProcessRef) -> State {
        let scan = self.scan.get().and_then(Option::as_ref);
        scan.map_or_else(|| process.state(), |scan| scan.state(process))
    }

    fn scan(&self) -> Option<&Scan> {
        self.scan.get_or_init(|| Scan::take_since(self.oldest).ok()).as_ref()
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

    /// Whether this process may be a part of the run. Then the carriers of its key may be our own
    /// processes.
    fn belongs_to(record: &Record) -> bool {
        record.keeper.is_some() && cookie::is_around_us(&record.run_id, record.cookie_key.as_deref())
    }
}

/// The group, and whether a process carries the run's cookie, if no scan is necessary for that.
/// Either the root is alive, and is itself the proof of both. Or the root was only registered, and
/// the kernel reports that its group is empty; a registered run has no cookie.
#[cfg(unix)]
fn without_a_scan(target: &Target, root: Root) -> Option<(Group, bool)> {
    let none = if target.leads_group { Group::Empty } else { Group::NotLed };
    match root {
        Root::Alive if target.leads_group => {
            let scan = Scan::below_each([target.root], []).ok()?;
            Some((group_of(&scan, target), target.cookie_key.is_some()))
        }
        Root::Alive => Some((Group::NotLed, target.cookie_key.is_some())),
        _ if target.spawned || target.cgroup.is_some() => None,
        // The kernel reused the PID, so the group was empty at that time.
        Root::Recycled => Some((none, false)),
        _ => (!target.leads_group || is_group_empty(target.root.pid)).then_some((none, false)),
    }
}

#[cfg(windows)]
fn without_a_scan(_target: &Target, _root: Root) -> Option<(Group, bool)> {
    None
}

fn group_of(scan: &Scan, target: &Target) -> Group {
    match scan.group_state(target) {
        GroupState::Empty => Group::Empty,
        GroupState::Ours => Group::Ours,
        GroupState::Unproven => Group::Unproven,
    }
}

/// How to end the run of an entry now, whatever its owner.
pub fn via(record: &Record) -> Via {
    let keeper = record.keeper.as_ref().map(|keeper| &keeper.start_token);
    Via::of(keeper.map_or(Keeper::None, |keeper| keeper_state(keeper, keeper.state())))
}

/// A keeper of this namespace that is unreadable may be alive, so it counts as alive.
fn keeper_state(process: &ProcessRef, state: State) -> Keeper {
    match state {
        State::Alive => Keeper::Alive,
        State::Unknown if process.state_without_lookup().is_none() => Keeper::Alive,
        State::Unknown | State::Exited | State::Recycled => Keeper::Dead,
    }
}

/// The data to find a run's tree without its keeper.
pub fn target<'a>(record: &'a Record, root: &'a ProcessRef) -> Target<'a> {
    let kept = record.containment.has_keeper();
    Target {
        root,
        leads_group: record.pgid == Some(record.pid),
        spawned: kept,
        alone: record.is_owner_itself(),
        cookie_key: record.cookie_key.as_deref().filter(|_| kept),
        members: &record.members,
        #[cfg(unix)]
        cgroup: record.recorded_cgroup(),
        #[cfg(windows)]
        job: record.job.as_deref(),
    }
}

/// The process of an entry of an old format, if its start time matches the entry. The result is a
/// verified identity.
pub fn identify_old(record: &Record) -> Option<ProcessRef> {
    let process = ProcessRef::capture(record.pid).ok()?;
    let started = identity::started_at_ms(process.start)?;
    import::agrees(record.started_at, started).then_some(process)
}

/// The state of the process of an entry of an old format.
pub fn old_root(record: &Record) -> Root {
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

fn root_state(state: State) -> Root {
    match state {
        State::Alive => Root::Alive,
        State::Exited => Root::Exited,
        State::Recycled => Root::Recycled,
        State::Unknown => Root::Unknown,
    }
}
