//! The containment mechanisms of this system, for people: which are available, and why others are
//! missing.

use serde::Serialize;

#[cfg(windows)]
use super::Limits;
#[cfg(target_os = "linux")]
use super::cgroup;
#[cfg(windows)]
use super::job::Job;
#[cfg(target_os = "linux")]
use crate::identity;

/// One containment mechanism of this system.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    pub name: &'static str,
    pub available: bool,
    /// What the mechanism does, or why it is missing and how to get it.
    pub why: String,
}

impl Capability {
    fn new(name: &'static str, found: Result<&str, String>) -> Self {
        Self { name, available: found.is_ok(), why: found.map_or_else(|why| why, str::to_owned) }
    }
}

#[cfg(target_os = "linux")]
pub fn detect() -> Vec<Capability> {
    let keeper = "the keeper is a child subreaper, so it also adopts processes that leave the run's session";
    let cgroup = cgroup::find().map(|_| "runs with `containment: 'cgroup'` or limits get their own cgroup");
    let group = identity::has_group_handles()
        .map(|()| "groups are signalled through a pidfd, never by PID")
        .map_err(|errno| {
            format!("{errno}: groups are signalled by PID, right after an identity check; use Linux 6.9 or later for pidfds")
        });
    let pidfd = identity::has_process_handles()
        .map(|()| "processes are signalled through a pidfd, never by PID")
        .map_err(|errno| {
            format!("{errno}: processes are signalled by PID, right after an identity check; use Linux 5.3 or later for pidfds")
        });
    vec![
        Capability::new("keeper", Ok(keeper)),
        Capability::new("cgroup", cgroup.map_err(|why| why.to_string())),
        Capability::new("pidfd", pidfd),
        Capability::new("pidfd-group", group),
    ]
}

#[cfg(target_os = "macos")]
pub fn detect() -> Vec<Capability> {
    let keeper = "the keeper follows every fork and exit in its tree (kqueue)";
    let cgroup = "macOS has no cgroups: no limits, and a daemon that clears its environment between two scans may escape";
    vec![Capability::new("keeper", Ok(keeper)), Capability::new("cgroup", Err(cgroup.to_owned()))]
}

#[cfg(windows)]
pub fn detect() -> Vec<Capability> {
    let job = "each run has its own Job Object from its first instruction, and no member can leave it";
    let found = Job::create(None, Limits::default()).map(|_| job).map_err(|error| error.to_string());
    vec![
        Capability::new("job", found),
        Capability::new("handle", Ok("an open handle keeps Windows from reusing a process's PID")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_capability_has_a_reason() {
        let missing = Capability::new("cgroup", Err("nothing is mounted".into()));
        assert_eq!(
            missing,
            Capability { name: "cgroup", available: false, why: "nothing is mounted".into() }
        );
        assert!(detect().iter().all(|capability| !capability.why.is_empty()));
    }
}
