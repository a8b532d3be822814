//! The name of a run's cgroup leads back to its keeper, and to nobody else. Pure.

use std::path::{Component, Path};

use crate::identity::{ProcessRef, boot_id};

const PREFIX: &str = "spawn-owned-";

/// PID, start token and PID namespace: unique while the machine is up, and no cgroup outlives that.
pub fn of(keeper: &ProcessRef) -> String {
    format!("{PREFIX}{}-{}-{}", keeper.pid, keeper.start, keeper.ns)
}

/// The keeper to which a directory belongs. `None` if it is not one of ours.
pub fn keeper(name: &str) -> Option<ProcessRef> {
    let mut numbers = name.strip_prefix(PREFIX)?.splitn(3, '-');
    let pid = numbers.next()?.parse().ok().filter(|&pid| pid > 0)?;
    let (start, ns) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    let keeper = ProcessRef { ns, ..ProcessRef::known(pid, start) };
    // Numbers have other spellings; a name has one.
    (of(&keeper) == name).then_some(keeper)
}

/// Whether a recorded path can be that keeper's: absolute, without detours, and with just its name at the end. Whether there is a
/// cgroup, and whose file system it is in, is for the kernel to say.
pub fn is_path_of(path: &Path, of_keeper: &ProcessRef) -> bool {
    let mut parts = path.components();
    parts.next() == Some(Component::RootDir)
        && parts.clone().count() > 1
        && parts.all(|part| matches!(part, Component::Normal(_)))
        && &*of_keeper.boot == boot_id()
        && path.file_name().is_some_and(|name| name == of(of_keeper).as_str())
        // A slash at the end, or two of them, or a dot: nobody has written that down but by hand.
        && path.to_str().is_some_and(|text| !text.ends_with('/') && !text.contains("//") && !text.contains("/./"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, start: u64, ns: u64) -> ProcessRef {
        ProcessRef { ns, ..ProcessRef::known(pid, start) }
    }

    #[test]
    fn a_name_leads_back_to_its_keeper() {
        let it = process(4242, 881, 4_026_531_836);
        assert_eq!(of(&it), "spawn-owned-4242-881-4026531836");
        assert_eq!(keeper(&of(&it)), Some(it));
    }

    #[test]
    fn nothing_else_is_taken_for_one_of_ours() {
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
    fn a_recorded_path_must_name_the_recorded_keeper_and_take_no_detour() {
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
        assert!(!is_path_of(Path::new("/sys/spawn-owned-7-8-9"), &before), "no cgroup survives a boot");
    }
}
