//! The processes below one, as they were seen.

use std::collections::HashMap;
use std::fs;
use std::io::Read;

use nix::errno::Errno;

use super::tree;
use super::wait::kill;
use crate::identity::stat::Stat;
use crate::identity::{Pin, ProcessRef, pids, read_stat};

/// A list of children is read up to here at a time. It may grow faster than it is read; the next look finds the rest.
const LIST_LIMIT: u64 = 16 << 10;

pub struct Snapshot {
    me: i32,
    seen: HashMap<i32, Stat>,
}

impl Snapshot {
    /// Everything below `me`, the calling process (of another one it can only be read), or, on a kernel without `children` files, everything there is.
    pub fn take(me: i32) -> Self {
        let mut seen = HashMap::new();
        let Some(mut pending) = children_of(me) else {
            return Self { me, seen: all_processes().into_iter().map(|stat| (stat.pid, stat)).collect() };
        };
        while let Some(pid) = pending.pop() {
            if seen.contains_key(&pid) {
                continue;
            }
            if let Ok(stat) = read_stat(pid) {
                pending.extend(children_of(pid).unwrap_or_default());
                seen.insert(pid, stat);
            }
        }
        Self { me, seen }
    }

    pub fn has_seen(&self, pid: i32) -> bool {
        self.seen.contains_key(&pid)
    }

    pub fn get(&self, pid: i32) -> Option<&Stat> {
        self.seen.get(&pid)
    }

    /// Every descendant, the dead that nobody has waited for among them.
    pub fn everybody(&self) -> impl Iterator<Item = &Stat> {
        self.seen.values().filter(|stat| tree::branch_of(stat.pid, self.me, &self.seen).is_some())
    }

    /// Every living descendant whose branch (the child of ours it comes from) is wanted.
    pub fn members(&self, wanted: impl Fn(i32) -> bool) -> Vec<&Stat> {
        self.seen
            .values()
            .filter(|stat| {
                !stat.is_dead() && tree::branch_of(stat.pid, self.me, &self.seen).is_some_and(&wanted)
            })
            .collect()
    }

    /// Signals a member. Only for a snapshot of what is below ourselves.
    pub fn signal(&self, stat: &Stat, signal: i32) -> Result<(), Errno> {
        if stat.ppid == self.me {
            return kill(stat.pid, signal);
        }
        self.pinned(stat)?.signal(signal)
    }

    /// Holds on to a member. If it is not ourselves it is below, whoever asks has to see after that that they are still who they were.
    ///
    /// Its pidfd is opened first, and pins it. Then its line of descent is read again: each ancestor must be the very process
    /// that was seen, up to a child of ours. So at the time of reading the pinned process did descend from us. Without that,
    /// a stranger's child would be taken for ours if the stranger had got the number of a member that died while we looked.
    pub fn pinned(&self, stat: &Stat) -> Result<Pin, Errno> {
        let pinned = ProcessRef::known(stat.pid, stat.start).pinned()?;
        let descends = tree::still_descends(stat.pid, self.me, &self.seen, |pid| read_stat(pid).ok());
        if descends { Ok(pinned) } else { Err(Errno::ESRCH) }
    }
}

/// The children of `me`, dead or alive.
pub fn children(me: i32) -> Vec<i32> {
    children_of(me).unwrap_or_else(|| {
        all_processes().into_iter().filter(|stat| stat.ppid == me).map(|stat| stat.pid).collect()
    })
}

/// The children of every thread of a process. `None` if this kernel has no such files (CONFIG_PROC_CHILDREN).
fn children_of(pid: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    let mut supported = false;
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let mut list = String::new();
        let read = fs::File::open(task.path().join("children"))
            .and_then(|file| file.take(LIST_LIMIT).read_to_string(&mut list));
        if read.is_ok() {
            supported = true;
            // A number that was cut off at the limit would be another one.
            let whole = list.rfind(' ').map_or("", |end| &list[..end]);
            children.extend(whole.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    supported.then_some(children)
}

fn all_processes() -> Vec<Stat> {
    pids().unwrap_or_default().into_iter().filter_map(|pid| read_stat(pid).ok()).collect()
}
