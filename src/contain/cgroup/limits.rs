//! Sets a run's resource limits. The decision which controllers to enable is pure.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::place::names;
use super::{CgroupError, cgroup_error, files};
use crate::contain::Limits;

/// A cgroup controller: the part of the kernel that limits one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Controller {
    Memory,
    Pids,
}

impl Controller {
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Memory => "memory.max",
            Self::Pids => "pids.max",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Limits {
    fn wanted(&self) -> impl Iterator<Item = (Controller, u64)> {
        let all = [(Controller::Memory, self.memory_bytes), (Controller::Pids, self.processes)];
        all.into_iter().filter_map(|(controller, limit)| Some((controller, limit?)))
    }

    /// Enables the controllers for the children of a cgroup, given by its directory and path.
    pub(super) fn enable(&self, dir: &OwnedFd, path: &Path) -> Result<(), CgroupError> {
        let failed = |step: &str, errno| cgroup_error(path, step, errno);
        let read = |name: &str| files::read(dir, name).map_err(|errno| failed(name, errno));
        let (available, enabled) = (read("cgroup.controllers")?, read("cgroup.subtree_control")?);
        for controller in missing(self, &available, &enabled, path)? {
            match files::write(dir, "cgroup.subtree_control", &format!("+{controller}")) {
                // Processes are in the cgroup, or entered it meanwhile.
                Err(Errno::EBUSY | Errno::EOPNOTSUPP) => {
                    return Err(CgroupError::NoRoom { controller, dir: path.to_owned() });
                }
                written => written.map_err(|errno| failed("cgroup.subtree_control", errno))?,
            }
        }
        Ok(())
    }

    /// Writes the limits into a run's cgroup while it is still empty.
    pub(super) fn apply(&self, dir: &impl AsFd, path: &Path) -> Result<(), CgroupError> {
        for (controller, limit) in self.wanted() {
            let file = controller.file();
            files::write(dir, file, &limit.to_string()).map_err(|errno| cgroup_error(path, file, errno))?;
            if controller == Controller::Memory {
                // Otherwise the kernel swaps out what exceeds the limit. A kernel without swap has
                // no such file.
                let _ = files::write(dir, "memory.swap.max", "0");
            }
        }
        Ok(())
    }

    /// The error that no available cgroup can enable the controller.
    pub(super) fn no_room(&self, dir: &Path) -> CgroupError {
        let controller = self.wanted().next().map_or(Controller::Memory, |(controller, _)| controller);
        CgroupError::NoRoom { controller, dir: dir.to_owned() }
    }
}

/// The controllers that must be enabled in a cgroup, according to its files.
fn missing(
    limits: &Limits,
    available: &str,
    enabled: &str,
    dir: &Path,
) -> Result<Vec<Controller>, CgroupError> {
    let has = |file: &str, controller: Controller| names(file).any(|name| name == controller.name());
    let mut missing = Vec::new();
    for (controller, _) in limits.wanted() {
        if !has(available, controller) {
            return Err(CgroupError::NoController { controller, dir: PathBuf::from(dir) });
        }
        if !has(enabled, controller) {
            missing.push(controller);
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Limits = Limits { memory_bytes: Some(1 << 20), processes: Some(9) };
    const PIDS: Limits = Limits { memory_bytes: None, processes: Some(9) };

    #[test]
    fn only_controllers_that_are_needed_and_not_enabled_yet_are_enabled() {
        let ask = |limits, enabled| missing(limits, "cpu memory pids", enabled, Path::new("/c"));
        assert_eq!(ask(&BOTH, "cpu"), Ok(vec![Controller::Memory, Controller::Pids]));
        assert_eq!(ask(&BOTH, "memory"), Ok(vec![Controller::Pids]));
        assert_eq!(ask(&PIDS, ""), Ok(vec![Controller::Pids]));
        assert_eq!(ask(&PIDS, "pids"), Ok(vec![]));
        assert_eq!(ask(&Limits::default(), ""), Ok(vec![]));
    }

    #[test]
    fn a_limit_that_cannot_be_set_is_an_error() {
        for (available, controller) in
            [("", Controller::Memory), ("hugetlb", Controller::Memory), ("memory pidsx", Controller::Pids)]
        {
            let expected = Err(CgroupError::NoController { controller, dir: "/c".into() });
            assert_eq!(missing(&BOTH, available, "memory pids", Path::new("/c")), expected, "{available:?}");
        }
    }

    /// Uses plain files: it checks what is written where, not what the kernel does with it.
    #[test]
    fn limits_are_written_only_into_the_files_of_their_controllers() {
        let dir = std::env::temp_dir().join(format!("spawn-owned-limits-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        for (file, text) in [
            ("cgroup.controllers", "memory pids\n"),
            ("cgroup.subtree_control", ""),
            ("memory.max", ""),
            ("pids.max", ""),
        ] {
            std::fs::write(dir.join(file), text).unwrap();
        }
        let fd = files::directory(&dir).unwrap();
        let text = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
        PIDS.enable(&fd, &dir).unwrap();
        PIDS.apply(&fd, &dir).unwrap();
        assert_eq!(
            [text("cgroup.subtree_control"), text("pids.max"), text("memory.max")],
            ["+pids", "9", ""]
        );
        BOTH.apply(&fd, &dir).unwrap();
        assert_eq!([text("pids.max"), text("memory.max")], ["9", "1048576"]);
        // A missing file is not created.
        std::fs::remove_file(dir.join("memory.max")).unwrap();
        assert_eq!(BOTH.apply(&fd, &dir), Err(cgroup_error(&dir, "memory.max", Errno::ENOENT)));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
