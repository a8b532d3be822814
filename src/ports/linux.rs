//! By what `/proc` shows.

use std::fs;
use std::net::IpAddr;

use super::table::{self, Listener};
use super::{Stranger, Whose};
use crate::contain::snapshot::Snapshot;
use crate::identity::{self, ProcessRef, State, read_stat};

pub fn whose(address: IpAddr, port: u16, keeper: Option<&ProcessRef>) -> Whose {
    let listeners: Vec<Listener> = ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|text| table::listeners(&text).collect::<Vec<_>>())
        .collect();
    let inodes = table::answering(&listeners, address, port);
    // As long as the keeper lives, its number is nobody else's, and whoever descended from that number descended from it: hence last.
    let judged = |holders: &[Holder]| {
        judge(&inodes, holders, keeper.is_some_and(|keeper| keeper.state() == State::Alive))
    };
    // Nearly always the port is the tree's. To look at everybody takes a while, and who changes parents is missed by a look at the tree.
    match judged(&in_tree(&inodes, keeper)) {
        Whose::Tree => Whose::Tree,
        _ => judged(&everywhere(&inodes, keeper)),
    }
}

/// A process, and which of the sockets it holds.
#[derive(Debug)]
struct Holder {
    pid: i32,
    /// `None`: it does not let us look.
    holds: Option<Vec<u64>>,
    is_in_tree: bool,
}

impl Holder {
    fn of(pid: i32, inodes: &[u64], is_in_tree: bool) -> Self {
        let holds = sockets(pid).map(|held| held.into_iter().filter(|it| inodes.contains(it)).collect());
        Self { pid, holds, is_in_tree }
    }
}

/// Those below the keeper.
fn in_tree(inodes: &[u64], keeper: Option<&ProcessRef>) -> Vec<Holder> {
    let Some(keeper) = keeper.filter(|_| !inodes.is_empty()) else { return Vec::new() };
    let snapshot = Snapshot::take(keeper.pid);
    snapshot.everybody().map(|stat| Holder::of(stat.pid, inodes, true)).collect()
}

/// All who hold one of them, and those below the keeper who may.
fn everywhere(inodes: &[u64], keeper: Option<&ProcessRef>) -> Vec<Holder> {
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

/// The sockets of a process. `None` if it is there, and we may not look.
fn sockets(pid: i32) -> Option<Vec<u64>> {
    let descriptors = match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(descriptors) => descriptors,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
        Err(_) => return Some(Vec::new()),
    };
    let targets = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let inode = |target: std::path::PathBuf| {
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Some(targets.filter_map(inode).collect())
}

/// A socket that is held by somebody of the tree is the tree's, whoever else has it: it was handed down. One that nobody is seen to hold
/// may be held by whoever does not let us look: another user, who is a stranger, unless the tree has such a member.
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
    fn a_port_is_the_trees_only_if_all_who_may_answer_are_in_it() {
        // No such process: it has no name.
        let pid = i32::MAX;
        let ours = |inode| Holder { pid, holds: Some(vec![inode]), is_in_tree: true };
        let theirs = |inode| Holder { is_in_tree: false, ..ours(inode) };
        let hidden = |is_in_tree| Holder { pid, holds: None, is_in_tree };
        let named = Whose::Stranger(Stranger { pid: Some(pid), command: None });
        let nameless = Whose::Stranger(Stranger::default());
        let cases = [
            ("ours", vec![1], vec![ours(1)], true, Whose::Tree),
            ("handed down by a stranger", vec![1], vec![theirs(1), ours(1)], true, Whose::Tree),
            ("somebody else's", vec![1], vec![theirs(1)], true, named.clone()),
            ("shared with a stranger's own", vec![1, 2], vec![ours(1), theirs(2)], true, named.clone()),
            ("ours, but the keeper is gone", vec![1], vec![ours(1)], false, named),
            ("another user's", vec![1], vec![], true, nameless.clone()),
            ("another user's, and ours holds another", vec![1], vec![ours(2)], true, nameless),
            (
                "perhaps of one of ours who became another user",
                vec![1],
                vec![hidden(true)],
                true,
                Whose::Unknown,
            ),
            ("of nobody here", vec![], vec![], true, Whose::Unknown),
        ];
        for (name, inodes, holders, has_tree, expected) in cases {
            assert_eq!(judge(&inodes, &holders, has_tree), expected, "{name}");
        }
    }

    #[test]
    fn our_own_port_is_found_and_is_a_strangers_to_any_run() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let Whose::Stranger(stranger) = whose(Ipv4Addr::LOCALHOST.into(), port, None) else {
            panic!("nobody was found")
        };
        assert_eq!(stranger.pid, Some(std::process::id().cast_signed()));
        let parent = read_stat(std::process::id().cast_signed()).unwrap().ppid;
        let keeper = ProcessRef::capture(parent).unwrap();
        assert_eq!(whose(Ipv4Addr::LOCALHOST.into(), port, Some(&keeper)), Whose::Tree);
        drop(listener);
        assert_eq!(whose(Ipv4Addr::LOCALHOST.into(), port, Some(&keeper)), Whose::Unknown);
    }
}
