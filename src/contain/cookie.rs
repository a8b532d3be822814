//! The cookie: one environment variable that every process of a run inherits.

#[cfg(unix)]
use std::io;
#[cfg(target_os = "linux")]
use std::{fs, path::Path};

#[cfg(target_os = "linux")]
use nix::libc;

#[cfg(unix)]
use crate::identity::stat::Stat;

/// Holds the ids of all runs a process belongs to, outermost first, separated by colons.
pub const VARIABLE: &str = "SPAWN_OWNED_RUN";

/// The cookie for a run whose owner's own cookie is `outer` (owners may nest).
pub fn append(outer: Option<&str>, run_id: &str) -> String {
    match outer {
        Some(outer) if !outer.is_empty() => format!("{outer}:{run_id}"),
        _ => run_id.to_owned(),
    }
}

/// The run ids in `environ` (NUL-separated, as in `/proc/PID/environ`): the elements of the list in exactly this variable.
pub fn run_ids(environ: &[u8]) -> Vec<String> {
    environ
        .split(|&byte| byte == 0)
        .filter_map(|pair| pair.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"="))
        .flat_map(|list| list.split(|&byte| byte == b':'))
        // What is not text is nobody's id.
        .filter_map(|id| str::from_utf8(id).ok().filter(|id| !id.is_empty()).map(str::to_owned))
        .collect()
}

/// Whether we are in this run ourselves.
pub fn is_around_us(run_id: &str) -> bool {
    std::env::var(VARIABLE).is_ok_and(|list| list.split(':').any(|id| id == run_id))
}

/// The runs this process belongs to now. An environment that we must not read (another user's), or that is gone (a zombie's), is
/// nobody's. If its main thread has ended, its other threads are asked: they share one environment. Fails if it could not be read
/// for a reason of ours, such as want of descriptors.
#[cfg(target_os = "linux")]
pub fn carried_by(stat: &Stat) -> io::Result<Vec<String>> {
    let pid = stat.pid;
    if stat.state != 'Z' || stat.is_dead() {
        return carried(Path::new(&format!("/proc/{pid}/environ")));
    }
    for task in gone_is_none(fs::read_dir(format!("/proc/{pid}/task")))?.into_iter().flatten() {
        let ids = carried(&task?.path().join("environ"))?;
        if !ids.is_empty() {
            return Ok(ids);
        }
    }
    Ok(Vec::new())
}

/// The runs this process belongs to now, as far as the kernel says: it hides the environment of other users' processes and of the
/// system's own programs, which are then nobody's.
#[cfg(target_os = "macos")]
#[allow(clippy::unnecessary_wraps)] // Elsewhere it takes a descriptor.
pub fn carried_by(stat: &Stat) -> io::Result<Vec<String>> {
    use crate::identity::macos::arguments;

    Ok(arguments(stat.pid, |arguments| run_ids(arguments.environment())).unwrap_or_default())
}

#[cfg(target_os = "linux")]
fn carried(file: &Path) -> io::Result<Vec<String>> {
    Ok(gone_is_none(fs::read(file))?.map(|environ| run_ids(&environ)).unwrap_or_default())
}

#[cfg(target_os = "linux")]
fn gone_is_none<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH | libc::EACCES | libc::EPERM) => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_owners_append() {
        assert_eq!(append(None, "b"), "b");
        assert_eq!(append(Some(""), "b"), "b");
        assert_eq!(append(Some("a"), "b"), "a:b");
        assert_eq!(append(Some("a:b"), "c"), "a:b:c");
    }

    #[test]
    fn matches_a_whole_element_of_exactly_that_variable() {
        for environ in ["SPAWN_OWNED_RUN=r1", "A=1\0SPAWN_OWNED_RUN=r0:r1:r2\0B=2\0", "SPAWN_OWNED_RUN=r1:r0"]
        {
            assert!(run_ids(environ.as_bytes()).iter().any(|id| id == "r1"), "{environ:?}");
        }
    }

    #[test]
    fn never_matches_a_part_of_an_id_or_another_variable() {
        for environ in [
            "",
            "SPAWN_OWNED_RUN=r11",
            "SPAWN_OWNED_RUN=ar1",
            "SPAWN_OWNED_RUN=",
            "SPAWN_OWNED_RUN",
            "SPAWN_OWNED_RUNS=r1",
            "MY_SPAWN_OWNED_RUN=r1",
            "OTHER=SPAWN_OWNED_RUN=r1",
            "OTHER=\nSPAWN_OWNED_RUN=r1",
            "spawn_owned_run=r1",
        ] {
            assert!(run_ids(environ.as_bytes()).iter().all(|id| id != "r1"), "{environ:?}");
        }
    }

    #[test]
    fn an_empty_element_or_one_that_is_not_text_is_no_id() {
        assert_eq!(run_ids(b"SPAWN_OWNED_RUN="), [""; 0]);
        assert_eq!(run_ids(b"SPAWN_OWNED_RUN=:a::\xff:b:"), ["a", "b"]);
    }
}
