//! Waiting for our own children, and signalling them by number. Nobody else can have the number before *we* have waited for it.

use nix::errno::Errno;
use nix::libc;

use crate::run::ExitStatus;

/// Children of every kind; on macOS there is one.
#[cfg(target_os = "linux")]
const ANY_KIND: libc::c_int = libc::__WALL;
#[cfg(target_os = "macos")]
const ANY_KIND: libc::c_int = 0;

/// Waits for one child by number. `None` if it has not ended.
pub fn wait_for(child: i32, flags: libc::c_int) -> Option<ExitStatus> {
    ended(child, flags | libc::WNOHANG)
}

/// The same for one of which the kernel has said that it has ended. It may say so a moment before there is a zombie to wait for.
#[cfg(target_os = "macos")]
pub fn wait_for_leaving(child: i32, flags: libc::c_int) -> Option<ExitStatus> {
    ended(child, flags)
}

/// Any child that has ended. Only for a process whose children are all its own business: those of a bot are libuv's, too.
///
/// To ask for each by number would be a system call for every living one, whenever one of them ends.
#[cfg(target_os = "linux")]
pub fn wait_for_any() -> Option<(i32, ExitStatus)> {
    waited(libc::P_ALL, 0, libc::WNOHANG | libc::WEXITED | ANY_KIND)
}

/// Any child that has been stopped, told once for each time. Likewise.
#[cfg(target_os = "linux")]
pub fn any_stopped() -> Option<i32> {
    waited(libc::P_ALL, 0, libc::WNOHANG | libc::WSTOPPED).map(|(child, _)| child)
}

fn ended(child: i32, flags: libc::c_int) -> Option<ExitStatus> {
    waited(libc::P_PID, child, flags | libc::WEXITED | ANY_KIND).map(|(_, status)| status)
}

/// Not nix's `waitid`, which takes an end by a real-time signal for an error, and does not exist on macOS.
fn waited(which: libc::idtype_t, child: i32, flags: libc::c_int) -> Option<(i32, ExitStatus)> {
    // SAFETY: all zeroes is a valid siginfo_t, and the kernel fills it in; si_pid stays 0 if there is nobody to tell of.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        if libc::waitid(which, child.cast_unsigned(), &raw mut info, flags) != 0 || info.si_pid() == 0 {
            return None;
        }
        Some((info.si_pid(), status(info.si_code, info.si_status())))
    }
}

/// macOS passes more bits of what was given to `exit` than `wait` ever has, and others of its own above them.
fn status(code: i32, status: i32) -> ExitStatus {
    if code == libc::CLD_EXITED {
        ExitStatus::Code((status & 0xff).into())
    } else {
        ExitStatus::Signal(status & 0x7f)
    }
}

/// Whether a child of ours has been stopped since this was last asked.
#[cfg(target_os = "macos")]
pub fn has_stopped(child: i32) -> bool {
    waited(libc::P_PID, child, libc::WNOHANG | libc::WSTOPPED).is_some()
}

/// Only for children of ours that were not waited for, and for the group such a child leads.
pub fn kill(pid: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes two integers; the caller guarantees that the number still means our own child.
    Errno::result(unsafe { libc::kill(pid, signal) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_what_every_shell_says_it_is() {
        for (code, raw, expected) in [
            (libc::CLD_EXITED, 0, ExitStatus::Code(0)),
            (libc::CLD_EXITED, 255, ExitStatus::Code(255)),
            (libc::CLD_EXITED, 0x0123_4503, ExitStatus::Code(3)),
            (libc::CLD_KILLED, 9, ExitStatus::Signal(9)),
            (libc::CLD_KILLED, 0x0100_000f, ExitStatus::Signal(15)),
            (libc::CLD_DUMPED, 6, ExitStatus::Signal(6)),
            (libc::CLD_KILLED, 64, ExitStatus::Signal(64)),
        ] {
            assert_eq!(status(code, raw), expected, "{code} {raw:#x}");
        }
    }
}
