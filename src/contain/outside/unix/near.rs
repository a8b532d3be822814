//! A scan of only those processes that may belong to given trees, found by descent and by group.
//!
//! Its cost depends on the trees, and hardly on the number of processes on the host. The search for
//! members of a group makes one short system call per process and opens no file.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::OnceLock;
use std::{fs, io, iter};

use nix::errno::Errno;
use nix::unistd::{Pid, getpgid};

use super::Target;
use super::claim::Known;
use super::scan::{Row, Scan, seen};
use crate::contain::cookie::Carried;
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, is_group_empty, pids};

impl Scan {
    /// Scans every process that may belong to the target. For a spawned run these are all
    /// processes, because each may carry its cookie. The environment of processes older than its
    /// root is not read.
    pub(super) fn near(target: &Target, known: &Known) -> io::Result<Self> {
        if target.spawned || target.cgroup.is_some() {
            return Self::take_since(target.root.start);
        }
        let seeds = iter::once(target.root.pid)
            .chain(target.members.iter().map(|member| member.pid))
            .chain(known.keys().copied());
        // The kernel can answer this without a list of processes.
        let has_group = target.leads_group && !is_group_empty(target.root.pid);
        let group = in_groups(&has_group.then_some(target.root.pid).into_iter().collect())?;
        Self::from_seeds(seeds.chain(group))
    }

    /// Scans these processes, the members of these groups, and the descendants of both, without
    /// their cookies. A process that lost its parent is found only if it is in one of the two
    /// lists.
    pub fn below_each<'a>(
        processes: impl IntoIterator<Item = &'a ProcessRef>,
        groups: impl IntoIterator<Item = i32>,
    ) -> io::Result<Self> {
        let here = processes.into_iter().filter(|process| process.state_without_lookup().is_none());
        let grouped = in_groups(&groups.into_iter().collect())?;
        Self::from_seeds(here.map(|process| process.pid).chain(grouped))
    }

    fn from_seeds(seeds: impl IntoIterator<Item = i32>) -> io::Result<Self> {
        if !can_list_children() {
            return Self::take_since(u64::MAX);
        }
        // This process and its ancestors, because the caller must know whether one is in the
        // target's group.
        let mut rows = above(std::process::id().cast_signed())?;
        let off_limits: HashSet<i32> = rows.keys().copied().collect();
        let mut pending: Vec<i32> = seeds.into_iter().collect();
        while let Some(pid) = pending.pop() {
            if rows.contains_key(&pid) {
                continue;
            }
            let Some(stat) = seen(pid)? else { continue };
            if !stat.is_dead() {
                pending.extend(children(&stat)?);
            }
            rows.insert(pid, stat);
        }
        let rows = rows.into_values().map(|stat| Row { stat, carried: Carried::Nothing });
        Ok(Self::of(rows.collect(), off_limits))
    }
}

/// A process and its ancestors. If one exits during the reads, the chain ends there. The next scan
/// finds its new ancestors.
fn above(process: i32) -> io::Result<HashMap<i32, Stat>> {
    let mut found = HashMap::new();
    let mut next = process;
    while next > 0 && !found.contains_key(&next) {
        let Some(stat) = seen(next)? else { break };
        next = stat.ppid;
        found.insert(stat.pid, stat);
    }
    Ok(found)
}

/// Returns the PIDs in these groups.
fn in_groups(groups: &HashSet<i32>) -> io::Result<Vec<i32>> {
    if groups.is_empty() {
        return Ok(Vec::new());
    }
    // A process that exits meanwhile is in no group. If the kernel refuses to answer, the caller
    // examines the process itself.
    let is_in = |pid: &i32| match getpgid(Some(Pid::from_raw(*pid))) {
        Ok(group) => groups.contains(&group.as_raw()),
        Err(errno) => errno != Errno::ESRCH,
    };
    Ok(pids()?.into_iter().filter(is_in).collect())
}

/// Returns the children of all threads of a process, dead or alive. Empty if the process is gone.
fn children(parent: &Stat) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for task in gone_is_none(fs::read_dir(format!("/proc/{}/task", parent.pid)))?.into_iter().flatten() {
        // The thread, or the whole process, may have ended since it was listed.
        let Some(task) = gone_is_none(task)? else { continue };
        let Some(list) = gone_is_none(fs::read_to_string(task.path().join("children")))? else { continue };
        found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Ok(found)
}

fn gone_is_none<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ESRCH) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Returns whether this kernel lists the children of a process (`CONFIG_PROC_CHILDREN`).
fn can_list_children() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| Path::new("/proc/thread-self/children").exists())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::contain::outside::GroupState;

    /// A shell that leads a group, runs the script, and prints a line after that. It exits at end
    /// of input.
    fn leader(script: &str) -> (Child, ProcessRef) {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{script}\necho up; read end")]).process_group(0);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let root = ProcessRef::capture(shell.id().cast_signed()).unwrap();
        (shell, root)
    }

    fn ended(mut shell: Child, root: &ProcessRef) {
        let _ = root.signal_group(nix::libc::SIGKILL);
        shell.wait().unwrap();
    }

    fn registered(root: &ProcessRef) -> Target<'_> {
        Target { leads_group: true, spawned: false, ..Target::spawned(root, None) }
    }

    #[test]
    fn a_scan_near_a_tree_contains_its_descendants_its_group_and_our_ancestors_only() {
        // The second `sleep` has lost its parent and is still in the group.
        let (shell, root) = leader("sleep 100 >/dev/null & (sleep 100 >/dev/null &)");
        let target = registered(&root);
        let near = Scan::near(&target, &Known::new()).unwrap();
        let all = Scan::take().unwrap();
        assert_eq!(near.living(&target).unwrap().len(), 3);
        assert_eq!(near.living(&target).unwrap().len(), all.living(&target).unwrap().len());
        assert_eq!(near.group_state(&target), GroupState::Ours);
        // Descent alone does not find the process that lost its parent.
        let below = Scan::below_each([&root], []).unwrap();
        assert_eq!(below.living(&target).unwrap().len(), 2);
        let ours = above(std::process::id().cast_signed()).unwrap().len();
        assert!(below.all_processes().len() <= 2 + ours, "{:?}", below.all_processes());
        ended(shell, &root);
        assert_eq!(Scan::near(&target, &Known::new()).unwrap().living(&target).unwrap(), []);
    }

    #[test]
    fn a_scan_ignores_the_pid_of_a_process_from_another_boot() {
        let (shell, root) = leader("");
        let other = ProcessRef { boot: "another".into(), ..root.clone() };
        assert!(
            Scan::below_each([&other], []).unwrap().all_processes().iter().all(|stat| stat.pid != root.pid)
        );
        ended(shell, &root);
    }
}
