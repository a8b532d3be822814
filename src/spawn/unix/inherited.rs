//! What a command inherits from the bot implicitly.
//!
//! A plain child gets this from its parent at the fork. Our command descends from the zygote, which
//! got it from the bot when the zygote was started. For changes since then there are three ways.
//! The bot sends the umask and the working directory with the command. The exec stub reads resource
//! limits and priority (`keeper::exec_stub`). A zygote with other credentials is not used any more:
//! a bot that has dropped its privileges must not start commands with the old ones.

use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Gid, Uid};

/// How many user IDs of a process the system returns.
#[cfg(target_os = "linux")]
const ID_COUNT: usize = 3;
#[cfg(target_os = "macos")]
const ID_COUNT: usize = 2;

#[derive(Debug, PartialEq, Eq)]
pub struct Credentials {
    users: [Uid; ID_COUNT],
    groups: [Gid; ID_COUNT],
    more_groups: Vec<libc::gid_t>,
}

impl Credentials {
    pub fn now() -> nix::Result<Self> {
        let (users, groups) = users_and_groups()?;
        Ok(Self { users, groups, more_groups: supplementary_groups()? })
    }
}

/// Real, effective and saved IDs.
#[cfg(target_os = "linux")]
fn users_and_groups() -> nix::Result<([Uid; ID_COUNT], [Gid; ID_COUNT])> {
    let (user, group) = (nix::unistd::getresuid()?, nix::unistd::getresgid()?);
    Ok(([user.real, user.effective, user.saved], [group.real, group.effective, group.saved]))
}

/// Real and effective IDs. macOS does not return the saved ones.
#[cfg(target_os = "macos")]
#[allow(clippy::unnecessary_wraps)] // On Linux this can fail.
fn users_and_groups() -> nix::Result<([Uid; ID_COUNT], [Gid; ID_COUNT])> {
    Ok(([Uid::current(), Uid::effective()], [Gid::current(), Gid::effective()]))
}

/// Calls `getgroups` directly: nix reads a file in `/proc` first, which is too slow for every
/// spawn.
fn supplementary_groups() -> nix::Result<Vec<libc::gid_t>> {
    let mut groups = [0; 64];
    // SAFETY: the array has as many elements as the call gets as its size.
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

/// The macOS kernel stores at most 16 groups per process.
#[cfg(target_os = "macos")]
fn many_groups() -> nix::Result<Vec<libc::gid_t>> {
    Err(Errno::EINVAL)
}

/// Returns the process's umask. There is no system call to read it, only one that replaces it.
///
/// The first call reads it in another way. Later calls replace it by the value seen last, so
/// nothing changes unless the bot has changed it meanwhile; then this restores the bot's value at
/// once. There is one lock per process, because there is one umask: two callers that replace each
/// other's value would lose it.
pub fn umask() -> nix::Result<libc::mode_t> {
    static LAST: Mutex<Option<libc::mode_t>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(expected) = *last else {
        let mask = read_umask()?;
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

/// Reads the umask from `/proc`. `ENOSYS` if the kernel is too old (before 4.7).
#[cfg(target_os = "linux")]
fn read_umask() -> nix::Result<libc::mode_t> {
    let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    let status = std::fs::read_to_string("/proc/self/status").map_err(errno)?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:")).ok_or(Errno::ENOSYS)?;
    u32::from_str_radix(mask.trim(), 8).map_err(|_| Errno::ENOSYS)
}

/// Replaces and restores the umask: macOS has no other way. A file that another thread creates in
/// between gets fewer permissions than it should, never more.
#[cfg(target_os = "macos")]
#[allow(clippy::unnecessary_wraps)] // On Linux it is read from a file.
fn read_umask() -> nix::Result<libc::mode_t> {
    // SAFETY: both take and return an integer.
    unsafe {
        let mask = libc::umask(0o077);
        libc::umask(mask);
        Ok(mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn umask_returns_the_umask_and_does_not_change_it() {
        // SAFETY: takes and returns an integer.
        let set = |mask| unsafe { libc::umask(mask) };
        for mask in [0o027, 0o027, 0o777, 0, 0o022] {
            set(mask);
            assert_eq!((umask(), umask()), (Ok(mask), Ok(mask)));
            assert_eq!(set(mask), mask, "the umask is unchanged");
        }
    }
}
