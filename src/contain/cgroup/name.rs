//! Maps the name of a run's cgroup to its keeper and back. Pure.

use std::path::{Component, Path};

use crate::identity::{ProcessRef, boot_id};

const PREFIX: &str = "spawn-owned-";

/// The name of a keeper's cgroup: PID, start token and PID namespace. It is unique until the
/// machine reboots, and no cgroup survives a reboot.
pub fn of(keeper: &ProcessRef) -> String {
    format!("{PREFIX}{}-{}-{}", keeper.pid, keeper.start, keeper.ns)
}

/// The keeper that a directory belongs to. `None` if it is not a run's cgroup.
pub fn keeper(name: &str) -> Option<ProcessRef> {
    let mut fields = name.strip_prefix(PREFIX)?.splitn(3, '-');
    let pid = fields.next()?.parse().ok().filter(|&pid| pid > 0)?;
    let (start, ns) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let keeper = ProcessRef { ns, ..ProcessRef::known(pid, start) };
    // A number can be written in several ways, such as 01. Only one form is valid here.
    (of(&keeper) == name).then_some(keeper)
}

/// Returns whether a recorded path can be that keeper's cgroup: absolute, normalized, and with
/// exactly the right name at the end. The caller must check that it is a cgroup.
pub fn is_path_of(path: &Path, of_keeper: &ProcessRef) -> bool {
    let mut parts = path.components();
    parts.next() == Some(Component::RootDir)
        && parts.clone().count() > 1
        && parts.all(|part| matches!(part, Component::Normal(_)))
        && &*of_keeper.boot == boot_id()
        && path.file_name().is_some_and(|name| name == of(of_keeper).as_str())
        // No program writes a path with a trailing slash, a double slash or a dot component.
        && path.to_str().is_some_and(|text| !text.ends_with('/') && !text.contains("//") && !text.contains("/./"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, start: u64, ns: u64) -> ProcessRef {
        ProcessRef { ns, ..ProcessRef::known(pid, start) }
    }

    #[test]
    fn a_name_maps_back_to_its_keeper() {
        let it = process(4242, 881, 4_026_531_836);
        assert_eq!(of(&it), "spawn-owned-4242-881-4026531836");
        assert_eq!(keeper(&of(&it)), Some(it));
    }

    #[test]
    fn other_names_map_to_no_keeper() {
        for name in [
            "",
            "system.slice",
            "spawn-owned",
            "spawn-owned-",
            "spawn-owned-1",
            "spawn-owned-1-2",
            "spawn-owned-1-2-3-4",
            "spawn-owned-0-2-3",
            "spawn-owned--1-2-3",
            "spawn-owned-01-2-3",
            "spawn-owned-1-+2-3",
            "xspawn-owned-1-2-3",
            "spawn-owned-1-2-3 ",
        ] {
            assert_eq!(keeper(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_recorded_path_must_name_the_recorded_keeper_and_be_normalized() {
        let it = process(7, 8, 9);
        assert!(is_path_of(Path::new("/sys/fs/cgroup/a/spawn-owned-7-8-9"), &it));
        for path in [
            "",
            "/",
            "/sys/fs/cgroup",
            "/spawn-owned-7-8-9",
            "spawn-owned-7-8-9",
            "sys/spawn-owned-7-8-9",
            "/sys/spawn-owned-7-8-9/",
            "/sys/./spawn-owned-7-8-9",
            "/sys//spawn-owned-7-8-9",
            "/sys/../spawn-owned-7-8-9",
            "/sys/spawn-owned-7-8-9/..",
            "/sys/spawn-owned-7-8-9/x",
            "/sys/spawn-owned-7-8-90",
            "/sys/spawn-owned-7-80-9",
            "/sys/spawn-owned-70-8-9",
            "/sys/system.slice",
        ] {
            assert!(!is_path_of(Path::new(path), &it), "{path:?}");
        }
        let before = ProcessRef { boot: "another".into(), ..it };
        assert!(!is_path_of(Path::new("/sys/spawn-owned-7-8-9"), &before), "no cgroup survives a reboot");
    }
}
