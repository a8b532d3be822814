//! Where a run's cgroup may be made, or why nowhere. Pure: what `/proc` and the cgroup file system say goes in.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Makes us do without cgroups: `off`.
pub const SWITCH: &str = "SPAWN_OWNED_CGROUP";

/// Our own cgroup, as a directory below a place where the file system is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub mount: PathBuf,
    pub dir: PathBuf,
}

/// What was seen of one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    pub path: PathBuf,
    pub kind: Kind,
    /// systemd says that whoever runs here may make cgroups of its own.
    pub delegated: bool,
    /// We may make one here, and put a process of ours into it.
    pub may_create: bool,
    /// Processes are in this very cgroup.
    pub has_processes: bool,
}

/// `cgroup.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The root of the whole hierarchy has no such file.
    Root,
    Domain,
    /// Threaded in one way or another, or something that later kernels have: no place for processes of ours.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub switched_off: bool,
    pub managed_by_systemd: bool,
    /// Our own cgroup, and its ancestors up to the mount.
    pub levels: Vec<Level>,
}

/// Where runs get their cgroups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Our own cgroup.
    pub dir: PathBuf,
    /// Where limits can be set: a cgroup that has processes of its own cannot divide its resources, and ours has us. `None` if
    /// there is no other in reach.
    pub roomy: Option<PathBuf>,
}

/// Why runs get no cgroups here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhyNot {
    SwitchedOff,
    NotMounted,
    /// No line of version 2 in `/proc/self/cgroup`.
    NoneOfOurs,
    Removed,
    /// Mounted, but not the part that we are in.
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
            Self::SwitchedOff => write!(f, "cgroups are switched off by {SWITCH}: remove that variable"),
            Self::NotMounted => write!(f, "no cgroup v2 file system is mounted: mount one, or boot with it"),
            Self::NoneOfOurs => write!(f, "the kernel names no cgroup v2 for this process"),
            Self::Removed => write!(f, "the cgroup of this process was removed: restart the bot"),
            Self::OutOfSight { cgroup } => write!(
                f,
                "the cgroup of this process ({cgroup}) is not in the part of the file system that is mounted here: give the \
                 container a cgroup namespace of its own"
            ),
            Self::Threaded { dir } => write!(
                f,
                "{} is a threaded cgroup, which cannot hold processes of its own: start the bot in another one",
                dir.display()
            ),
            Self::NotDelegated { unit } => write!(
                f,
                "systemd manages {unit} and has not delegated it: set Delegate=yes in the unit (with limits: \
                 Delegate=memory pids and DelegateSubgroup=bot)"
            ),
            Self::NotWritable { dir } => write!(
                f,
                "no cgroup can be made in {}: mount it read-write and give it, and its cgroup.procs, to the bot's user",
                dir.display()
            ),
        }
    }
}

/// Our own cgroup in every place where it can be seen, those mounted read-write first.
pub fn candidates(mountinfo: &str, own: &str) -> Result<Vec<Candidate>, WhyNot> {
    let cgroup = own.lines().find_map(|line| line.strip_prefix("0::")).ok_or(WhyNot::NoneOfOurs)?;
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
        // What was mounted over cannot be reached.
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

/// `36 35 98:0 /root /mount/point rw,noatime master:1 - cgroup2 source options`; the fields before the dash vary in number.
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

/// Blank, tab, newline and backslash are written as `\040` and so on.
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

/// The path of `cgroup` seen from `root`, without a slash at its start. `None` if it is not below it: both are relative to our
/// cgroup namespace, and what is outside of that begins with `/..` and cannot be named.
fn below<'a>(root: &str, cgroup: &'a str) -> Option<&'a str> {
    if cgroup.split('/').chain(root.split('/')).any(|part| part == "..") {
        return None;
    }
    match cgroup.strip_prefix(root.trim_end_matches('/'))? {
        "" => Some(""),
        below => below.strip_prefix('/'),
    }
}

/// Whether, and where, a run may get a cgroup without asking anybody.
///
/// Under systemd every cgroup has one manager. Ours to use is only what was delegated: our own cgroup or one above it carries
/// that mark, and no unit lies in between. (A user's services are below `user@1000.service`, which is delegated, but to the user's
/// own systemd and not to them.) Without systemd, as in containers, whoever may write, may.
pub fn judge(facts: &Facts) -> Result<Base, WhyNot> {
    let own = facts.levels.first().ok_or(WhyNot::NoneOfOurs)?;
    if facts.switched_off {
        return Err(WhyNot::SwitchedOff);
    }
    if own.kind == Kind::Other {
        return Err(WhyNot::Threaded { dir: own.path.clone() });
    }
    // In a container the manager may be out of sight, and its units are not.
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

/// The levels up to the one that was delegated.
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

/// The levels up to the run that we are a part of ourselves, if we are: nobody gets out of its limits by having others.
fn within_our_run(levels: &[Level]) -> &[Level] {
    let of_a_run = |level: &Level| super::name::keeper(&name(&level.path)).is_some();
    levels.iter().position(of_a_run).map_or(levels, |index| &levels[..=index])
}

/// What systemd gives a cgroup to.
fn is_unit(path: &Path) -> bool {
    let kinds = ["service", "scope", "slice", "socket", "mount", "swap"];
    path.extension().is_some_and(|extension| kinds.iter().any(|kind| extension == *kind))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The names in `cgroup.controllers` or `cgroup.subtree_control`.
pub fn names(file: &str) -> impl Iterator<Item = &str> {
    file.split_ascii_whitespace()
}

/// Whether `cgroup.events` says that a process lives in the cgroup, or below it. A file that does not say is not understood.
pub fn populated(events: &str) -> Option<bool> {
    events.lines().find_map(|line| match line.strip_prefix("populated ")? {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
