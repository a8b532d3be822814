//! Prevents other processes of the same user from tracing keepers and zygotes, and from copying
//! their file descriptors.
//!
//! A command runs as the same user as its keeper. If it could copy the keeper's socket
//! (`pidfd_getfd`), it could send a false report that its tree is extinct.

use std::{fs, io};

use nix::libc;
use nix::sys::prctl::{get_dumpable, set_dumpable};

/// Makes this process and its forked children undumpable, until they call `exec`.
///
/// After that, only a process with `CAP_SYS_PTRACE` has access to its memory and descriptors. The
/// files that the bot reads stay readable: `stat`, `status`, `cmdline`, `cgroup`. Its environment
/// does not.
///
/// With the mount option `hidepid`, `/proc` hides processes that the reader may not trace. The bot
/// would not see this process and would consider it dead. So this function then does nothing.
pub fn become_undumpable() {
    if !hides_processes(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()) {
        // This call cannot fail.
        let _ = set_dumpable(false);
    }
}

/// Runs `work`. If the kernel forbids it, makes this process dumpable for a second attempt.
///
/// Root owns the `/proc` files of an undumpable process, so some work needs a dumpable process. The
/// process is dumpable only during the second attempt. A process that is already dumpable, because
/// of `hidepid`, makes no second attempt, which would fail as well.
pub fn retried_dumpable<T>(work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    work().or_else(|error| {
        let is_forbidden = matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
        if !is_forbidden || get_dumpable() != Ok(false) {
            return Err(error);
        }
        let _ = set_dumpable(true);
        let result = work();
        let _ = set_dumpable(false);
        result
    })
}

/// True if `/proc` is mounted with `hidepid`, by `/proc/self/mountinfo`.
///
/// Of several mounts at one path, the last one is visible.
fn hides_processes(mountinfo: &str) -> bool {
    let proc = mountinfo.lines().rfind(|line| line.split(' ').nth(4) == Some("/proc"));
    let options = proc.into_iter().flat_map(|line| line.split([' ', ',']));
    options.filter_map(|option| option.strip_prefix("hidepid=")).any(|mode| !matches!(mode, "0" | "off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test for all cases, because all threads of the process share the flag.
    #[test]
    fn work_is_retried_only_if_it_is_forbidden_and_the_process_is_undumpable() {
        for (was_dumpable, errno, expected) in [
            (false, libc::EACCES, vec![false, true]),
            (false, libc::EPERM, vec![false, true]),
            (false, libc::EINVAL, vec![false]),
            (true, libc::EACCES, vec![true]),
        ] {
            let attempts = std::cell::RefCell::new(Vec::new());
            set_dumpable(was_dumpable).unwrap();
            let result = retried_dumpable(|| {
                attempts.borrow_mut().push(get_dumpable().unwrap());
                Err::<(), _>(io::Error::from_raw_os_error(errno))
            });
            let is_dumpable = get_dumpable().unwrap();
            set_dumpable(true).unwrap();
            assert_eq!(result.unwrap_err().raw_os_error(), Some(errno));
            assert_eq!((attempts.into_inner(), is_dumpable), (expected, was_dumpable), "{errno}");
        }
    }

    #[test]
    fn proc_hides_processes_only_if_it_is_mounted_with_hidepid() {
        let mounts = |options: &str| {
            format!(
                "22 1 0:21 / / rw - ext4 /dev/vda rw\n\
                 23 22 0:22 / /proc rw,nosuid,nodev,noexec,relatime shared:5 - proc proc {options}\n\
                 24 22 0:23 / /other rw - proc proc rw,hidepid=invisible\n"
            )
        };
        for (options, expected) in [
            ("rw", false),
            ("rw,gid=4", false),
            ("rw,hidepid=0", false),
            ("rw,hidepid=off", false),
            ("rw,gid=4,hidepid=2", true),
            ("rw,hidepid=1,gid=4", true),
            ("rw,hidepid=invisible", true),
            ("rw,hidepid=ptraceable", true),
        ] {
            assert_eq!(hides_processes(&mounts(options)), expected, "{options}");
        }
        assert!(!hides_processes(""));
        let shadowed = format!("{}25 23 0:24 / /proc rw - proc proc rw\n", mounts("rw,hidepid=2"));
        assert!(!hides_processes(&shadowed), "a second mount without hidepid covers the first");
    }
}
