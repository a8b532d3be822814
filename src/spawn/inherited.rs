//! What a command inherits from the bot without being told.
//!
//! A plain child gets this from its parent at the moment of the fork. Ours descends from the zygote, which got it from the
//! bot when *it* was started. What may have changed since is settled in three ways: the umask and the working directory are
//! sent along, resource limits and priority are fetched by the blank (`keeper::blank`), and a zygote with other credentials
//! must not be used any more: a bot that has dropped its privileges must not start commands with the old ones.

use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Gid, Uid};

/// How many of a process's users the system tells.
#[cfg(target_os = "linux")]
const TOLD: usize = 3;
#[cfg(target_os = "macos")]
const TOLD: usize = 2;

#[derive(Debug, PartialEq, Eq)]
pub struct Credentials {
    users: [Uid; TOLD],
    groups: [Gid; TOLD],
    more_groups: Vec<libc::gid_t>,
}

impl Credentials {
    pub fn now() -> nix::Result<Self> {
        let (users, groups) = users_and_groups()?;
        Ok(Self { users, groups, more_groups: supplementary_groups()? })
    }
}

/// Real, effective and saved.
#[cfg(target_os = "linux")]
fn users_and_groups() -> nix::Result<([Uid; TOLD], [Gid; TOLD])> {
    let (user, group) = (nix::unistd::getresuid()?, nix::unistd::getresgid()?);
    Ok(([user.real, user.effective, user.saved], [group.real, group.effective, group.saved]))
}

/// Real and effective; the saved ones are not told.
#[cfg(target_os = "macos")]
#[allow(clippy::unnecessary_wraps)] // Elsewhere it may fail.
fn users_and_groups() -> nix::Result<([Uid; TOLD], [Gid; TOLD])> {
    Ok(([Uid::current(), Uid::effective()], [Gid::current(), Gid::effective()]))
}

/// nix's `getgroups` reads a file in `/proc` first; on the way to every spawn that is too much.
fn supplementary_groups() -> nix::Result<Vec<libc::gid_t>> {
    let mut groups = [0; 64];
    // SAFETY: the array has as many places as we say.
    let count = unsafe {
        match libc::getgroups(64, groups.as_mut_ptr()) {
            -1 if Errno::last() == Errno::EINVAL => return many_groups(),
            count => Errno::result(count)?,
        }
    };
    Ok(groups[..usize::try_from(count).unwrap_or(0)].to_vec())
}

#[cfg(target_os = "linux")]
fn many_groups() -> nix::Result<Vec<libc::gid_t>> {
    nix::unistd::getgroups().map(|all| all.into_iter().map(Gid::as_raw).collect())
}

/// The kernel knows no more than 16 of anybody's.
#[cfg(target_os = "macos")]
fn many_groups() -> nix::Result<Vec<libc::gid_t>> {
    Err(Errno::EINVAL)
}

/// Reads the process's umask, which has no call to read it: only one that replaces it.
///
/// The first time it is read elsewhere. After that the replacement is the value seen last, so nothing changes at all
/// unless the bot has changed it meanwhile; then the new one is restored at once. One lock for the process, as there is one
/// umask: two callers that replaced each other's value would lose it.
pub fn umask() -> nix::Result<libc::mode_t> {
    static LAST: Mutex<Option<libc::mode_t>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(expected) = *last else {
        let mask = read_umask().ok_or(Errno::ENOSYS)?;
        *last = Some(mask);
        return Ok(mask);
    };
    // SAFETY: takes and returns an integer.
    let current = unsafe { libc::umask(expected) };
    if current != expected {
        // SAFETY: as above.
        unsafe { libc::umask(current) };
        *last = Some(current);
    }
    Ok(current)
}

#[cfg(target_os = "linux")]
fn read_umask() -> Option<libc::mode_t> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(mask.trim(), 8).ok()
}

/// There is no other way to it. What another thread creates in that moment has fewer permissions than it should, never more.
#[cfg(target_os = "macos")]
#[allow(clippy::unnecessary_wraps)] // Elsewhere it may not be found.
fn read_umask() -> Option<libc::mode_t> {
    // SAFETY: both take and return an integer.
    unsafe {
        let mask = libc::umask(0o077);
        libc::umask(mask);
        Some(mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_umask_and_leaves_it_alone() {
        // SAFETY: takes and returns an integer.
        let set = |mask| unsafe { libc::umask(mask) };
        for mask in [0o027, 0o027, 0o777, 0, 0o022] {
            set(mask);
            assert_eq!((umask(), umask()), (Ok(mask), Ok(mask)));
            assert_eq!(set(mask), mask, "it was left alone");
        }
    }
}
