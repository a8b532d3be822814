//! Decides where a run's cgroup may be created, or why it cannot. Pure: the caller passes what
//! `/proc` and the cgroup file system contain.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Environment variable. With the value `off`, no cgroups are used.
pub const SWITCH: &str = "SPAWN_OWNED_CGROUP";

/// This process's own cgroup, as a directory below a cgroup mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub mount: PathBuf,
    pub dir: PathBuf,
}

/// What was read about one cgroup directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    pub path: PathBuf,
    pub kind: Kind,
    /// systemd has delegated this cgroup, so processes in it may create cgroups.
    pub delegated: bool,
    /// This process may create a cgroup here and put its own processes into it.
    pub may_create: bool,
    /// The cgroup itself contains processes.
    pub has_processes: bool,
}

/// `cgroup.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The root of the hierarchy, which has no such file.
    Root,
    Domain,
    /// Threaded, or a type of later kernels. Not usable for the run's processes.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub switched_off: bool,
    pub managed_by_systemd: bool,
    /// This process's own cgroup and its ancestors, up to the mount point.
    pub levels: Vec<Level>,
}

/// The cgroups in which run cgroups are created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// This process's own cgroup.
    pub dir: PathBuf,
    /// A cgroup in which limits can be set. A cgroup that contains processes cannot enable
    /// controllers, and `dir` contains this process. `None` if no other cgroup is available.
    pub roomy: Option<PathBuf>,
}

/// Why runs cannot have cgroups here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhyNot {
    SwitchedOff,
    NotMounted,
    /// `/proc/self/cgroup` has no line for version 2.
    ForeignProcess,
    Removed,
    /// cgroup v2 is mounted, but without the part that contains this process.
    OutOfSight {
        cgroup: String,
    },
    Threaded {
        dir: PathBuf,
    },
    NotDelegated {
        unit: String,
    },
    NotWritable {
        dir: PathBuf,
    },
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SwitchedOff => write!(f, "{SWITCH}=off disables cgroups: remove that variable"),
            Self::NotMounted => {
                write!(f, "no cgroup v2 file system is mounted: mount one, or boot with cgroup v2")
            }
            Self::ForeignProcess => write!(
                f,
                "/proc/self/cgroup has no cgroup v2 entry for this process: boot with a kernel and an init that use cgroup v2"
            ),
            Self::Removed => write!(f, "the cgroup of this process was removed: restart the bot"),
            Self::OutOfSight { cgroup } => write!(
                f,
                "the cgroup of this process ({cgroup}) is not in the part of the cgroup file system that is mounted here: give \
                 the container its own cgroup namespace"
            ),
            Self::Threaded { dir } => write!(
                f,
                "{} is a threaded cgroup, which cannot contain other processes: start the bot in another cgroup",
                dir.display()
            ),
            Self::NotDelegated { unit } => write!(
                f,
                "systemd manages {unit} and has not delegated it: set Delegate=yes in the unit (for limits: \
                 Delegate=memory pids and DelegateSubgroup=bot)"
            ),
            Self::NotWritable { dir } => write!(
                f,
                "cannot create a cgroup in {}: mount it read-write, and give the directory and its cgroup.procs to the bot's user",
                dir.display()
            ),
        }
    }
}

/// Returns this process's own cgroup in each mount that shows it, read-write mounts first.
pub fn candidates(mountinfo: &str, own: &str) -> Result<Vec<Candidate>, WhyNot> {
    let cgroup = own.lines().find_map(|line| line.strip_prefix("0::")).ok_or(WhyNot::ForeignProcess)?;
    if cgroup.ends_with(" (deleted)") {
        return Err(WhyNot::Removed);
    }
    let mounts: Vec<_> = mountinfo.lines().filter_map(cgroup2_mount).collect();
    if mounts.is_empty() {
        return Err(WhyNot::NotMounted);
    }
    let mut seen: Vec<_> = mounts
        .iter()
        .enumerate()
        // A mount that is covered by a later mount cannot be reached.
        .filter(|(index, mount)| mounts[index + 1..].iter().all(|later| later.point != mount.point))
        .filter_map(|(_, mount)| {
            let below = below(&mount.root, cgroup)?;
            let point = PathBuf::from(&mount.point);
            let dir = if below.is_empty() { point.clone() } else { point.join(below) };
            Some((mount.read_only, Candidate { mount: point, dir }))
        })
        .collect();
    seen.sort_by_key(|(read_only, _)| *read_only);
    if seen.is_empty() {
        return Err(WhyNot::OutOfSight { cgroup: cgroup.to_owned() });
    }
    Ok(seen.into_iter().map(|(_, candidate)| candidate).collect())
}

struct Mount {
    root: String,
    point: String,
    read_only: bool,
}

/// Parses a line such as `36 35 98:0 /root /mount/point rw,noatime master:1 - cgroup2 source
/// options`. The number of fields before the dash varies.
fn cgroup2_mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    if after.split(' ').next() != Some("cgroup2") {
        return None;
    }
    let mut fields = before.split(' ').skip(3);
    let (root, point) = (unescaped(fields.next()?)?, unescaped(fields.next()?)?);
    let read_only = fields.next()?.split(',').any(|option| option == "ro");
    Some(Mount { root, point, read_only })
}

/// Decodes the octal escapes for space, tab, newline and backslash, such as `\040`.
fn unescaped(field: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let code =
            tail.get(..3).filter(|code| first == b'\\' && code.iter().all(|b| (b'0'..b'8').contains(b)));
        let code = code.and_then(|code| u8::from_str_radix(str::from_utf8(code).ok()?, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8(bytes).ok()
}

/// The path of `cgroup` relative to `root`, without a leading slash. `None` if it is not below
/// `root`. Both are relative to the cgroup namespace; a path outside of it starts with `/..` and
/// has no name here.
fn below<'a>(root: &str, cgroup: &'a str) -> Option<&'a str> {
    if cgroup.split('/').chain(root.split('/')).any(|part| part == "..") {
        return None;
    }
    match cgroup.strip_prefix(root.trim_end_matches('/'))? {
        "" => Some(""),
        below => below.strip_prefix('/'),
    }
}

/// Decides whether, and where, a run may have a cgroup without permission from a manager.
///
/// Under systemd each cgroup has one manager. Only a delegated cgroup may be used: this process's
/// own cgroup or one above it is marked as delegated, and no other unit is in between. A user's
/// services are below `user@1000.service`, which is delegated, but to the user's systemd and not to
/// the services. Without systemd, as in containers, write permission is enough.
pub fn judge(facts: &Facts) -> Result<Base, WhyNot> {
    let own = facts.levels.first().ok_or(WhyNot::ForeignProcess)?;
    if facts.switched_off {
        return Err(WhyNot::SwitchedOff);
    }
    if own.kind == Kind::Other {
        return Err(WhyNot::Threaded { dir: own.path.clone() });
    }
    // In a container systemd itself may be invisible while its units are visible.
    let is_managed = facts.managed_by_systemd || facts.levels.iter().any(|level| is_unit(&level.path));
    let area = if is_managed { delegated(&facts.levels)? } else { &facts.levels[..] };
    let area = within_our_run(area);
    if !own.may_create {
        return Err(WhyNot::NotWritable { dir: own.path.clone() });
    }
    let is_roomy = |level: &&Level| {
        level.may_create && (level.kind == Kind::Root || level.kind == Kind::Domain && !level.has_processes)
    };
    let roomy = area.iter().find(is_roomy).map(|level| level.path.clone());
    Ok(Base { dir: own.path.clone(), roomy })
}

/// The levels up to the delegated one.
fn delegated(levels: &[Level]) -> Result<&[Level], WhyNot> {
    for (index, level) in levels.iter().enumerate() {
        if level.delegated {
            return Ok(&levels[..=index]);
        }
        if is_unit(&level.path) {
            return Err(WhyNot::NotDelegated { unit: name(&level.path) });
        }
    }
    Err(WhyNot::NotDelegated { unit: levels.last().map(|level| name(&level.path)).unwrap_or_default() })
}

/// If this process is itself in a run, the levels up to that run's cgroup. A cgroup above it would
/// escape that run's limits.
fn within_our_run(levels: &[Level]) -> &[Level] {
    let of_a_run = |level: &Level| super::name::keeper(&name(&level.path)).is_some();
    levels.iter().position(of_a_run).map_or(levels, |index| &levels[..=index])
}

/// Returns whether the directory name is that of a systemd unit that has a cgroup.
fn is_unit(path: &Path) -> bool {
    let kinds = ["service", "scope", "slice", "socket", "mount", "swap"];
    path.extension().is_some_and(|extension| kinds.iter().any(|kind| extension == *kind))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The controller names in `cgroup.controllers` or `cgroup.subtree_control`.
pub fn names(file: &str) -> impl Iterator<Item = &str> {
    file.split_ascii_whitespace()
}

/// Returns whether `cgroup.events` reports a process in the cgroup or below it. `None` if the text
/// has no valid `populated` line.
pub fn populated(events: &str) -> Option<bool> {
    events.lines().find_map(|line| match line.strip_prefix("populated ")? {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
