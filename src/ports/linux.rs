//! Finds the process at a port with `/proc`.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use super::table::{self, Listener};
use super::{Stranger, Whose};
use crate::contain::snapshot::Snapshot;
use crate::identity::helpers::is_helper;
use crate::identity::{self, ProcessRef, State, read_stat};

pub fn whose(address: IpAddr, port: u16, keeper: Option<&ProcessRef>) -> Whose {
    let listeners: Vec<Listener> = ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|text| table::listeners(&text).collect::<Vec<_>>())
        .collect();
    let inodes = table::answering(&listeners, address, port);
    // Check the keeper last: while it is alive, no other process has its PID, so the descent found
    // before is correct.
    let judge_holders = |holders: &[Holder]| {
        judge(&inodes, holders, keeper.is_some_and(|keeper| keeper.state() == State::Alive))
    };
    // Usually a process of the tree holds the port. The scan of all processes is slow. The scan of
    // the tree is fast, but misses a process that is reparented meanwhile.
    match judge_holders(&in_tree(&inodes, keeper)) {
        Whose::Tree => Whose::Tree,
        _ => judge_holders(&in_all_processes(&inodes, keeper)),
    }
}

/// A process, and which of the sockets it holds.
#[derive(Debug)]
struct Holder {
    pid: i32,
    /// `None` if its descriptors are unreadable.
    holds: Option<Vec<u64>>,
    is_in_tree: bool,
}

impl Holder {
    fn of(pid: i32, inodes: &[u64], is_in_tree: bool) -> Self {
        let holds = sockets(pid).map(|held| held.into_iter().filter(|it| inodes.contains(it)).collect());
        Self { pid, holds, is_in_tree }
    }
}

/// The processes below the keeper.
fn in_tree(inodes: &[u64], keeper: Option<&ProcessRef>) -> Vec<Holder> {
    let Some(keeper) = keeper.filter(|_| !inodes.is_empty()) else { return Vec::new() };
    let snapshot = Snapshot::take(keeper.pid);
    snapshot.descendants().map(|stat| Holder::of(stat.pid, inodes, true)).collect()
}

/// All processes that hold one of the sockets, and those that are unreadable.
fn in_all_processes(inodes: &[u64], keeper: Option<&ProcessRef>) -> Vec<Holder> {
    if inodes.is_empty() {
        return Vec::new();
    }
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .map(|pid| Holder::of(pid, inodes, false))
        .filter(|holder| holder.holds.as_ref().is_none_or(|held| !held.is_empty()))
        .map(|holder| {
            let is_below = |keeper: &ProcessRef| identity::ancestors(holder.pid).contains(&keeper.pid);
            Holder { is_in_tree: keeper.is_some_and(is_below), ..holder }
        })
        .collect()
}

/// The sockets of a process. `None` if the process exists but is unreadable.
///
/// The threads of a process share its descriptors. If the main thread has ended first,
/// `/proc/PID/fd` is empty, but the folders of the other threads are not. That happens in a program
/// that ends its main thread, and for a moment in every killed process.
fn sockets(pid: i32) -> Option<Vec<u64>> {
    let stat = read_stat(pid).ok();
    if !stat.is_some_and(|stat| stat.state == 'Z' && !stat.is_dead()) {
        return sockets_in(&Path::new("/proc").join(pid.to_string()), pid);
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| sockets_in(&thread.path(), pid)).try_fold(Vec::new(), |mut all, sockets| {
        all.extend(sockets?);
        Some(all)
    })
}

fn sockets_in(process: &Path, pid: i32) -> Option<Vec<u64>> {
    let descriptors = match fs::read_dir(process.join("fd")) {
        Ok(descriptors) => descriptors,
        // Keepers and zygotes are unreadable by design, and hold no ports.
        Err(_) if read_stat(pid).is_ok_and(|stat| is_helper(&stat.comm)) => return Some(Vec::new()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
        Err(_) => return Some(Vec::new()),
    };
    let targets = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let inode = |target: std::path::PathBuf| {
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Some(targets.filter_map(inode).collect())
}

/// A socket that a process of the tree holds belongs to the tree, even if other processes hold it
/// too: it was inherited. A socket without a visible holder belongs to an unreadable process. That
/// is a process of another user and therefore a stranger, unless the tree has an unreadable member.
fn judge(inodes: &[u64], holders: &[Holder], has_tree: bool) -> Whose {
    let in_tree = |holder: &&Holder| has_tree && holder.is_in_tree;
    let has = |holder: &Holder, inode: &u64| holder.holds.as_ref().is_some_and(|held| held.contains(inode));
    let tree_has = |inode: &u64| holders.iter().filter(in_tree).any(|holder| has(holder, inode));
    if inodes.is_empty() {
        return Whose::Unknown;
    }
    let Some(foreign) = inodes.iter().find(|inode| !tree_has(inode)) else { return Whose::Tree };
    match holders.iter().find(|holder| has(holder, foreign)) {
        Some(holder) => Whose::Stranger(Stranger { pid: Some(holder.pid), command: name_of(holder.pid) }),
        None if holders.iter().filter(in_tree).any(|holder| holder.holds.is_none()) => Whose::Unknown,
        None => Whose::Stranger(Stranger::default()),
    }
}

fn name_of(pid: i32) -> Option<String> {
    read_stat(pid).ok().map(|stat| stat.comm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_port_belongs_to_the_tree_only_if_the_tree_holds_every_listener() {
        // No process has this PID, so it has no name.
        let pid = i32::MAX;
        let ours = |inode| Holder { pid, holds: Some(vec![inode]), is_in_tree: true };
        let theirs = |inode| Holder { is_in_tree: false, ..ours(inode) };
        let hidden = |is_in_tree| Holder { pid, holds: None, is_in_tree };
        let named = Whose::Stranger(Stranger { pid: Some(pid), command: None });
        let nameless = Whose::Stranger(Stranger::default());
        let cases = [
            ("held by the tree", vec![1], vec![ours(1)], true, Whose::Tree),
            (
                "inherited from a process outside the tree",
                vec![1],
                vec![theirs(1), ours(1)],
                true,
                Whose::Tree,
            ),
            ("held by another process", vec![1], vec![theirs(1)], true, named.clone()),
            ("another process listens there too", vec![1, 2], vec![ours(1), theirs(2)], true, named.clone()),
            ("held by the tree, but the keeper is gone", vec![1], vec![ours(1)], false, named),
            ("held by another user", vec![1], vec![], true, nameless.clone()),
            (
                "held by another user, and the tree holds another socket",
                vec![1],
                vec![ours(2)],
                true,
                nameless,
            ),
            (
                "perhaps held by a member that became another user",
                vec![1],
                vec![hidden(true)],
                true,
                Whose::Unknown,
            ),
            ("no listener here", vec![], vec![], true, Whose::Unknown),
        ];
        for (name, inodes, holders, has_tree, expected) in cases {
            assert_eq!(judge(&inodes, &holders, has_tree), expected, "{name}");
        }
    }

    #[test]
    fn a_port_belongs_to_a_stranger_unless_the_listener_is_in_the_tree() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let Whose::Stranger(stranger) = whose(Ipv4Addr::LOCALHOST.into(), port, None) else {
            panic!("no stranger was found")
        };
        assert_eq!(stranger.pid, Some(std::process::id().cast_signed()));
        let parent = read_stat(std::process::id().cast_signed()).unwrap().ppid;
        let keeper = ProcessRef::capture(parent).unwrap();
        assert_eq!(whose(Ipv4Addr::LOCALHOST.into(), port, Some(&keeper)), Whose::Tree);
        drop(listener);
        assert_eq!(whose(Ipv4Addr::LOCALHOST.into(), port, Some(&keeper)), Whose::Unknown);
    }
}
