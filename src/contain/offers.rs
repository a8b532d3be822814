//! What this system has to hold trees together with, and what is missing and why, for people who look into it.

use serde::Serialize;

#[cfg(windows)]
use super::Limits;
#[cfg(target_os = "linux")]
use super::cgroup;
#[cfg(windows)]
use super::job::Job;
#[cfg(target_os = "linux")]
use crate::identity;

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Offer {
    pub name: &'static str,
    pub available: bool,
    /// What it is good for, or why it is not to be had and what would change that.
    pub why: String,
}

impl Offer {
    fn new(name: &'static str, found: Result<&str, String>) -> Self {
        Self { name, available: found.is_ok(), why: found.map_or_else(|why| why, str::to_owned) }
    }
}

#[cfg(target_os = "linux")]
pub fn offers() -> Vec<Offer> {
    let keeper = "a run's parent is a child subreaper: whatever leaves its session comes back to it";
    let cgroup =
        cgroup::find().map(|_| "runs with `containment: 'cgroup'` or limits get a cgroup of their own");
    let group = identity::pins_groups()
        .map(|()| "a group is signalled through a descriptor, and never by number")
        .map_err(|errno| {
            format!("{errno}: groups are signalled by number, right after a look; Linux 6.9 has better")
        });
    let pidfd = identity::pins_processes()
        .map(|()| "a process is signalled through a descriptor, and never by number")
        .map_err(|errno| {
            format!("{errno}: processes are signalled by number, right after a look; Linux 5.3 has better")
        });
    vec![
        Offer::new("keeper", Ok(keeper)),
        Offer::new("cgroup", cgroup.map_err(|why| why.to_string())),
        Offer::new("pidfd", pidfd),
        Offer::new("pidfd-group", group),
    ]
}

#[cfg(target_os = "macos")]
pub fn offers() -> Vec<Offer> {
    let keeper = "a run's parent follows every fork and exit of its tree, wherever that goes";
    let cgroup =
        "macOS has none: no limits, and a daemon that clears its environment while nobody looks may escape";
    vec![Offer::new("keeper", Ok(keeper)), Offer::new("cgroup", Err(cgroup.to_owned()))]
}

#[cfg(windows)]
pub fn offers() -> Vec<Offer> {
    let job = "a run is in a Job Object of its own from its first instruction, which nobody leaves";
    let found = Job::create(None, Limits::default()).map(|_| job).map_err(|error| error.to_string());
    vec![
        Offer::new("job", found),
        Offer::new("handle", Ok("an open handle pins a process: its number is nobody else's")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_why_something_is_missing() {
        let missing = Offer::new("cgroup", Err("nothing is mounted".into()));
        assert_eq!(missing, Offer { name: "cgroup", available: false, why: "nothing is mounted".into() });
        assert!(offers().iter().all(|offer| !offer.why.is_empty()));
    }
}
