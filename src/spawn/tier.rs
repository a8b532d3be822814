//! Whether a run gets a cgroup beside its keeper. Pure.

#[cfg(unix)]
use crate::contain::Limits;
#[cfg(unix)]
use crate::contain::cgroup::{Base, Trouble, WhyNot};
#[cfg(unix)]
use crate::keeper::protocol::InCgroup;

/// What the caller wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tier {
    /// A cgroup if limits are asked for. Not otherwise, by measure: with keepers that waited in cgroups, a run of `/bin/true` took 2.0 ms
    /// instead of 1.5 (p50), and 200 at once 320 to 430 ms instead of 280. Besides, a program may look at its own cgroup for how much memory
    /// it has, as the JVM does: in one of the run's own, to which the controllers need not reach, it would find no limit at all.
    #[default]
    Auto,
    /// Never a cgroup.
    Keeper,
    /// A cgroup, or no run.
    Cgroup,
}

#[cfg(unix)]
impl Tier {
    pub fn wants_cgroup(self, limits: &Limits) -> bool {
        self == Self::Cgroup || !limits.is_none()
    }
}

/// The order for a run that is to have a cgroup, or why there can be none.
#[cfg(unix)]
pub fn order(limits: Limits, base: &Result<Base, WhyNot>) -> Result<InCgroup, Trouble> {
    match base {
        Ok(base) => Ok(InCgroup { base: base.clone(), limits }),
        Err(why) => Err(Trouble::Unavailable(why.clone())),
    }
}

#[cfg(all(target_os = "linux", test))]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_a_cgroup_unasked_and_nobody_is_left_without_who_asked() {
        let none = Limits::default();
        let some = Limits { processes: Some(9), ..none };
        for (tier, limits, expected) in [
            (Tier::Auto, none, false),
            (Tier::Auto, some, true),
            (Tier::Keeper, none, false),
            (Tier::Cgroup, none, true),
            (Tier::Cgroup, some, true),
        ] {
            assert_eq!(tier.wants_cgroup(&limits), expected, "{tier:?} {limits:?}");
        }
        let base = Base { dir: "/c".into(), roomy: None };
        assert_eq!(order(some, &Ok(base.clone())), Ok(InCgroup { base, limits: some }));
        let unavailable = Err(Trouble::Unavailable(WhyNot::NotMounted));
        assert_eq!(order(none, &Err(WhyNot::NotMounted)), unavailable);
    }
}
