//! A snapshot of all processes below a given process.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{self, Read};

use nix::errno::Errno;

use super::tree;
use super::wait::kill;
use crate::identity::stat::Stat;
use crate::identity::{ProcessHandle, ProcessRef, pids, read_stat};

/// Buffer size for one read. The kernel returns at most one page per read.
const CHUNK: usize = 16 << 10;

/// Maximum length of a list of children: the kernel has at most 4,194,304 PIDs of up to seven
/// digits. A list may grow while it is read.
const LONGEST_LIST: usize = 40 << 20;

/// Process handles that a batch of signals holds open at the same time. The keeper may have few
/// descriptors.
pub const HANDLES_PER_BATCH: usize = 128;

pub struct Snapshot {
    me: i32,
    seen: HashMap<i32, Stat>,
    /// The PIDs in the order of discovery: parents before their children.
    order: Vec<i32>,
}

impl Snapshot {
    /// Takes a snapshot of all processes below `me`. On a kernel without `children` files it
    /// contains all processes of the system.
    ///
    /// `me` should be the calling process. A snapshot of another process can be read, but not
    /// signalled.
    pub fn take(me: i32) -> Self {
        Self::take_branches(me, |_| true)
    }

    /// The same, without unwanted children of `me` and the processes below them.
    pub fn take_branches(me: i32, wanted: impl Fn(i32) -> bool) -> Self {
        let mut snapshot = Self { me, seen: HashMap::new(), order: Vec::new() };
        match children_of(me, Threads::Unknown) {
            Some(mut branches) => {
                branches.retain(|&child| wanted(child));
                snapshot.walk(branches.into());
            }
            None => {
                for stat in all_processes() {
                    snapshot.add(stat);
                }
            }
        }
        snapshot
    }

    fn walk(&mut self, mut pending: VecDeque<i32>) {
        while let Some(pid) = pending.pop_front() {
            if !self.seen.contains_key(&pid)
                && let Ok(stat) = read_stat(pid)
            {
                let threads = if stat.threads == 1 { Threads::One } else { Threads::Unknown };
                pending.extend(children_of(pid, threads).unwrap_or_default());
                self.add(stat);
            }
        }
    }

    fn add(&mut self, stat: Stat) {
        self.order.push(stat.pid);
        self.seen.insert(stat.pid, stat);
    }

    pub fn has_seen(&self, pid: i32) -> bool {
        self.seen.contains_key(&pid)
    }

    pub fn get(&self, pid: i32) -> Option<&Stat> {
        self.seen.get(&pid)
    }

    /// All descendants, including zombies.
    pub fn descendants(&self) -> impl Iterator<Item = &Stat> {
        let branches = tree::branches(self.me, &self.seen);
        self.seen.values().filter(move |stat| branches.contains_key(&stat.pid))
    }

    /// All living descendants whose branch is wanted, parents before children. The branch is the
    /// child of `me` from which a process descends.
    pub fn members(&self, wanted: impl Fn(i32) -> bool) -> Vec<&Stat> {
        let branches = tree::branches(self.me, &self.seen);
        let is_wanted =
            |stat: &&Stat| !stat.is_dead() && branches.get(&stat.pid).is_some_and(|&branch| wanted(branch));
        self.order.iter().filter_map(|pid| self.seen.get(pid)).filter(is_wanted).collect()
    }

    /// Signals a member. Only for a snapshot of the calling process.
    pub fn signal(&self, stat: &Stat, signal: i32) -> Result<(), Errno> {
        if stat.ppid == self.me {
            return kill(stat.pid, signal);
        }
        self.open_handle(stat)?.signal(signal)
    }

    /// Sends all `signals` to each member, in this order. Returns the members that received the
    /// first one, and those that may not be signalled (`EPERM`). Only for a snapshot of the calling
    /// process.
    ///
    /// It opens the handles of a whole batch first, and then sends one signal after the other to
    /// all of them. So no member can react to another's death before it receives its own signal.
    pub fn send<'a>(&self, members: &[&'a Stat], signals: &[i32]) -> Vec<&'a Stat> {
        let mut done = Vec::new();
        for batch in members.chunks(HANDLES_PER_BATCH) {
            let handles = self.handles(batch);
            for (index, &signal) in signals.iter().enumerate() {
                for (stat, handle) in &handles {
                    let sent = match handle {
                        // A direct child: its PID is not reused before the caller reaps it.
                        None => kill(stat.pid, signal),
                        Some(handle) => handle.signal(signal),
                    };
                    if index == 0 && matches!(sent, Ok(()) | Err(Errno::EPERM)) {
                        done.push(*stat);
                    }
                }
            }
        }
        done
    }

    /// Opens a handle for each member, or `None` for a direct child. Skips members that cannot be
    /// opened or no longer descend from the caller.
    fn handles<'a>(&self, batch: &[&'a Stat]) -> Vec<(&'a Stat, Option<ProcessHandle>)> {
        let is_child = |stat: &Stat| stat.ppid == self.me;
        let open = |&stat: &&'a Stat| {
            if is_child(stat) {
                Some((stat, None))
            } else {
                Some((stat, Some(ProcessHandle::open(stat.pid).ok()?)))
            }
        };
        // All handles are open before the chains of parents are read, see `open_handle`. So each
        // process is read once for the whole batch.
        let mut handles: Vec<_> = batch.iter().filter_map(open).collect();
        let deep = handles.iter().filter(|(_, handle)| handle.is_some()).map(|(stat, _)| stat.pid);
        let below = tree::verified_descendants(deep, self.me, &self.seen, |pid| read_stat(pid).ok());
        handles.retain(|(stat, handle)| handle.is_none() || below.contains(&stat.pid));
        handles
    }

    /// Opens a handle to a member. If `me` is not the calling process, the caller must check
    /// afterwards that `me` still is the same process.
    ///
    /// It opens the pidfd first and then reads the chain of parents again. Each ancestor must be
    /// the process in the snapshot, up to a child of `me`. So the process behind the handle did
    /// descend from `me` at the time of the read. Without this check, a member's PID could be
    /// reused during the snapshot, and the new process's child would look like a member.
    pub fn open_handle(&self, stat: &Stat) -> Result<ProcessHandle, Errno> {
        let handle = ProcessRef::known(stat.pid, stat.start).open_handle()?;
        let descends = tree::still_descends(stat.pid, self.me, &self.seen, |pid| read_stat(pid).ok());
        if descends { Ok(handle) } else { Err(Errno::ESRCH) }
    }
}

/// Returns the children of `me`, the calling process, dead or alive. `me` must have one thread. An
/// error does not mean that there are none.
///
/// The list contains every process that was a child at the time of the call. The kernel appends
/// children at the end, continues a read after the last returned child, and removes only reaped
/// children. The caller reaps none meanwhile.
pub fn children(me: i32) -> io::Result<Vec<i32>> {
    let mut children = Vec::new();
    match add_children(&format!("/proc/{me}/task/{me}/children"), &mut children) {
        // A kernel without these files. Without `/proc` the list of processes fails too.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let stats = pids()?.into_iter().filter_map(|pid| read_stat(pid).ok());
            Ok(stats.filter(|stat| stat.ppid == me).map(|stat| stat.pid).collect())
        }
        read => read.map(|()| children),
    }
}

/// Returns the children of a process with any number of threads, dead or alive. Some may be
/// missing, see [`children_of`].
pub fn children_of_all_threads(pid: i32) -> Vec<i32> {
    children_of(pid, Threads::Unknown).unwrap_or_else(|| {
        let stats = pids().unwrap_or_default().into_iter().filter_map(|pid| read_stat(pid).ok());
        stats.filter(|stat| stat.ppid == pid).map(|stat| stat.pid).collect()
    })
}

/// How many threads to read. Each thread has its own list of children.
#[derive(Clone, Copy)]
enum Threads {
    /// Only the main thread. A thread that starts now is not read.
    One,
    Unknown,
}

/// Returns the children of all threads of a process. `None` if this kernel has no such files
/// (CONFIG_PROC_CHILDREN).
///
/// For another process the list may be incomplete. If a child is reaped right after it was
/// returned, the kernel finds its position by counting, but the list has become shorter. The next
/// snapshot finds the missing ones.
fn children_of(pid: i32, threads: Threads) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    if let Threads::One = threads {
        add_children(&format!("/proc/{pid}/task/{pid}/children"), &mut children).ok()?;
        return Some(children);
    }
    let mut supported = false;
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        supported |= add_children(&task.path().join("children").to_string_lossy(), &mut children).is_ok();
    }
    supported.then_some(children)
}

/// Adds the PIDs in one `children` file.
fn add_children(path: &str, children: &mut Vec<i32>) -> io::Result<()> {
    let mut file = fs::File::open(path)?;
    let mut list = Vec::new();
    let mut chunk = [0; CHUNK];
    while list.len() < LONGEST_LIST {
        match file.read(&mut chunk)? {
            0 => break,
            count => list.extend_from_slice(&chunk[..count]),
        }
    }
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    // A space follows each PID. Without the space the PID may be truncated, and would mean another
    // process.
    let whole = list.iter().rposition(|byte| !is_digit(byte)).map_or(&[][..], |end| &list[..end]);
    let parse_pid = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<i32>().ok();
    children.extend(whole.split(|byte| !is_digit(byte)).filter_map(parse_pid));
    Ok(())
}

fn all_processes() -> Vec<Stat> {
    let mut all: Vec<_> =
        pids().unwrap_or_default().into_iter().filter_map(|pid| read_stat(pid).ok()).collect();
    // A parent is never younger than its child.
    all.sort_by_key(|stat| (stat.start, stat.pid));
    all
}
