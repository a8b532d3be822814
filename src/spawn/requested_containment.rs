//! Decides whether a run gets a cgroup besides its keeper. Pure.

#[cfg(unix)]
use crate::contain::Limits;
#[cfg(unix)]
use crate::contain::cgroup::{Base, CgroupError, WhyNot};
#[cfg(unix)]
use crate::keeper::protocol::InCgroup;

/// The containment that the caller requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RequestedContainment {
    /// A cgroup only if the run has limits. Two reasons against a cgroup for every run:
    ///
    /// - Cost. With keepers that waited in cgroups, `/bin/true` took 2.0 ms instead of 1.5 ms
    ///   (p50), and 200 runs at once took 320 to 430 ms instead of 280 ms.
    /// - A program may read its memory limit from its own cgroup, as the JVM does. A cgroup of the
    ///   run without controllers would show no limit at all.
    #[default]
    Auto,
    /// Never a cgroup.
    Keeper,
    /// A cgroup. Without one the launch fails.
    Cgroup,
}

#[cfg(unix)]
impl RequestedContainment {
    pub fn wants_cgroup(self, limits: &Limits) -> bool {
        self == Self::Cgroup || !limits.is_none()
    }
}

/// The request for a keeper with a cgroup, or why there can be none.
#[cfg(unix)]
pub fn cgroup_request(limits: Limits, base: &Result<Base, WhyNot>) -> Result<InCgroup, CgroupError> {
    match base {
        Ok(base) => Ok(InCgroup { base: base.clone(), limits }),
        Err(why) => Err(CgroupError::Unavailable(why.clone())),
    }
}

#[cfg(all(target_os = "linux", test))]
mod tests {
    use super::*;

    #[test]
    fn a_run_gets_a_cgroup_if_and_only_if_the_caller_requests_one_or_sets_limits() {
        let none = Limits::default();
        let some = Limits { processes: Some(9), ..none };
        for (requested, limits, expected) in [
            (RequestedContainment::Auto, none, false),
            (RequestedContainment::Auto, some, true),
            (RequestedContainment::Keeper, none, false),
            (RequestedContainment::Cgroup, none, true),
            (RequestedContainment::Cgroup, some, true),
        ] {
            assert_eq!(requested.wants_cgroup(&limits), expected, "{requested:?} {limits:?}");
        }
        let base = Base { dir: "/c".into(), roomy: None };
        assert_eq!(cgroup_request(some, &Ok(base.clone())), Ok(InCgroup { base, limits: some }));
        let unavailable = Err(CgroupError::Unavailable(WhyNot::NotMounted));
        assert_eq!(cgroup_request(none, &Err(WhyNot::NotMounted)), unavailable);
    }
}
