//! The cookie: one environment variable that every process of a run inherits.

use std::fs;
use std::path::Path;

use crate::identity::read_stat;

/// Holds the ids of all runs a process belongs to, outermost first, separated by colons.
pub const VARIABLE: &str = "SPAWN_OWNED_RUN";

/// The cookie for a run whose owner's own cookie is `outer` (owners may nest).
pub fn append(outer: Option<&str>, run_id: &str) -> String {
    match outer {
        Some(outer) if !outer.is_empty() => format!("{outer}:{run_id}"),
        _ => run_id.to_owned(),
    }
}

/// True if `environ` (NUL-separated, as in `/proc/PID/environ`) carries the run id as a whole element of the list
/// in exactly this variable.
pub fn carries(environ: &[u8], run_id: &str) -> bool {
    !run_id.is_empty()
        && environ
            .split(|&byte| byte == 0)
            .filter_map(|pair| pair.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"="))
            .any(|list| list.split(|&byte| byte == b':').any(|id| id == run_id.as_bytes()))
}

/// Whether this process carries the run id now. An environment that cannot be read (another user's, a zombie's) is unknown,
/// hence not ours. If its main thread has ended, its other threads are asked: they share one
/// environment.
pub fn carried_by(pid: i32, run_id: &str) -> bool {
    let carried = |file: &Path| fs::read(file).is_ok_and(|environ| carries(&environ, run_id));
    if carried(Path::new(&format!("/proc/{pid}/environ"))) {
        return true;
    }
    read_stat(pid).is_ok_and(|stat| stat.state == 'Z' && !stat.is_dead())
        && fs::read_dir(format!("/proc/{pid}/task"))
            .is_ok_and(|tasks| tasks.flatten().any(|task| carried(&task.path().join("environ"))))
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
            assert!(carries(environ.as_bytes(), "r1"), "{environ:?}");
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
            assert!(!carries(environ.as_bytes(), "r1"), "{environ:?}");
        }
        assert!(!carries(b"SPAWN_OWNED_RUN=", ""));
    }
}
