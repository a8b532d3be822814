//! Waiting for our own children, and signalling them by number. Nobody else can have the number before *we* have waited for it.

use nix::errno::Errno;
use nix::libc;

use crate::run::ExitStatus;

/// Children of every kind; on macOS there is one.
#[cfg(target_os = "linux")]
const ANY_KIND: libc::c_int = libc::__WALL;
#[cfg(target_os = "macos")]
const ANY_KIND: libc::c_int = 0;

/// Waits for one child by number, never for "any". `None` if it has not ended.
pub fn wait_for(child: i32, flags: libc::c_int) -> Option<ExitStatus> {
    ended(child, flags | libc::WNOHANG)
}

/// The same for one of which the kernel has said that it has ended. It may say so a moment before there is a zombie to wait for.
#[cfg(target_os = "macos")]
pub fn wait_for_leaving(child: i32, flags: libc::c_int) -> Option<ExitStatus> {
    ended(child, flags)
}

/// Not nix's `waitid`, which takes an end by a real-time signal for an error, and does not exist on macOS.
fn ended(child: i32, flags: libc::c_int) -> Option<ExitStatus> {
    // SAFETY: all zeroes is a valid siginfo_t, and the kernel fills it in; si_pid stays 0 if nobody has ended.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = flags | libc::WEXITED | ANY_KIND;
        if libc::waitid(libc::P_PID, child.cast_unsigned(), &raw mut info, flags) != 0 || info.si_pid() == 0 {
            return None;
        }
        Some(status(info.si_code, info.si_status()))
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
pub fn has_stopped(child: i32) -> bool {
    // SAFETY: as above.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WSTOPPED | libc::WNOHANG;
        libc::waitid(libc::P_PID, child.cast_unsigned(), &raw mut info, flags) == 0 && info.si_pid() != 0
    }
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
