//! What a command inherits from the bot without being told.
//!
//! A plain child gets this from its parent at the moment of the fork. Ours descends from the zygote, which got it from the
//! bot when *it* was started. What may have changed since is settled in three ways: the umask and the working directory are
//! sent along, resource limits and priority are fetched by the blank (`keeper::blank`), and a zygote with other credentials
//! must not be used any more: a bot that has dropped its privileges must not start commands with the old ones.

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Gid, Uid, getresgid, getresuid};

#[derive(Debug, PartialEq, Eq)]
pub struct Credentials {
    users: [Uid; 3],
    groups: [Gid; 3],
    more_groups: Vec<libc::gid_t>,
}

impl Credentials {
    pub fn now() -> nix::Result<Self> {
        let (user, group) = (getresuid()?, getresgid()?);
        Ok(Self {
            users: [user.real, user.effective, user.saved],
            groups: [group.real, group.effective, group.saved],
            more_groups: supplementary_groups()?,
        })
    }
}

/// nix's `getgroups` reads a file in `/proc` first; on the way to every spawn that is too much.
fn supplementary_groups() -> nix::Result<Vec<libc::gid_t>> {
    let mut groups = [0; 64];
    // SAFETY: the array has as many places as we say.
    let count = unsafe {
        match libc::getgroups(64, groups.as_mut_ptr()) {
            -1 if Errno::last() == Errno::EINVAL => {
                return nix::unistd::getgroups().map(|all| all.into_iter().map(Gid::as_raw).collect());
            }
            count => Errno::result(count)?,
        }
    };
    Ok(groups[..usize::try_from(count).unwrap_or(0)].to_vec())
}

/// Reads the process's umask, which has no call to read it: only one that replaces it.
///
/// The replacement is the value seen last, so nothing changes at all unless the bot has changed it meanwhile; then the
/// new one is restored at once. `last` must not be shared between callers that run at the same time.
pub fn umask(last: &mut u32) -> u32 {
    // SAFETY: takes and returns an integer.
    let current = unsafe { libc::umask(*last) };
    if current != *last {
        // SAFETY: as above.
        unsafe { libc::umask(current) };
        *last = current;
    }
    current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_umask_and_leaves_it_alone() {
        // SAFETY: takes and returns an integer.
        let original = unsafe { libc::umask(0o027) };
        for mut last in [0, 0o027, 0o777] {
            assert_eq!(umask(&mut last), 0o027);
            assert_eq!(umask(&mut last), 0o027);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { libc::umask(original) }, 0o027);
    }
}
