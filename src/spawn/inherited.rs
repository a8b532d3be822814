//! What a command inherits from the bot without being told.
//!
//! A plain child gets these from its parent at the moment of the fork. Ours descends from the zygote, which got them
//! from the bot when *it* was started; if the bot has changed them since, that zygote must not be used any more. Above
//! all: a bot that has dropped its privileges must not start commands with the old ones.

use nix::libc;
use nix::sys::resource::{Resource, getrlimit, rlim_t};
use nix::unistd::{Gid, Uid, getgroups, getresgid, getresuid};

#[derive(Debug, PartialEq, Eq)]
pub struct Inherited {
    users: [Uid; 3],
    groups: [Gid; 3],
    more_groups: Vec<Gid>,
    nice: i32,
    limits: Vec<(rlim_t, rlim_t)>,
}

const LIMITS: [Resource; 12] = [
    Resource::RLIMIT_AS,
    Resource::RLIMIT_CORE,
    Resource::RLIMIT_CPU,
    Resource::RLIMIT_DATA,
    Resource::RLIMIT_FSIZE,
    Resource::RLIMIT_MEMLOCK,
    Resource::RLIMIT_MSGQUEUE,
    Resource::RLIMIT_NICE,
    Resource::RLIMIT_NOFILE,
    Resource::RLIMIT_NPROC,
    Resource::RLIMIT_RTPRIO,
    Resource::RLIMIT_STACK,
];

impl Inherited {
    /// As it is now. About twenty system calls that touch nothing: a few microseconds.
    pub fn now() -> nix::Result<Self> {
        let (user, group) = (getresuid()?, getresgid()?);
        // SAFETY: takes two integers. Of the calling thread, which is the one that would fork.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        Ok(Self {
            users: [user.real, user.effective, user.saved],
            groups: [group.real, group.effective, group.saved],
            more_groups: getgroups()?,
            nice,
            limits: LIMITS.into_iter().map(getrlimit).collect::<nix::Result<_>>()?,
        })
    }
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
    fn notices_a_change_of_limits() {
        let before = Inherited::now().unwrap();
        assert_eq!(before, Inherited::now().unwrap());
        let (soft, hard) = getrlimit(Resource::RLIMIT_CORE).unwrap();
        // Another process per test: nextest gives each its own, so this leaks nowhere.
        let changed = if soft == 0 { hard.min(4096) } else { 0 };
        if changed == soft {
            eprintln!("RLIMIT_CORE cannot be changed here; nothing to compare");
            return;
        }
        nix::sys::resource::setrlimit(Resource::RLIMIT_CORE, changed, hard).unwrap();
        assert_ne!(before, Inherited::now().unwrap());
    }

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
