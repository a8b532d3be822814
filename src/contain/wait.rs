//! Waits for this process's own children and signals them by PID. The kernel does not reuse a
//! child's PID before *this process* has reaped it.

use nix::errno::Errno;
use nix::libc;

use crate::identity::trace_signal;
use crate::run::ExitStatus;

/// Children of every kind. macOS has only one kind.
#[cfg(target_os = "linux")]
const ANY_KIND: libc::c_int = libc::__WALL;
#[cfg(target_os = "macos")]
const ANY_KIND: libc::c_int = 0;

/// Waits for one child by PID. `None` if it has not ended.
pub fn wait_for(child: i32, flags: libc::c_int) -> Option<ExitStatus> {
    ended(child, flags | libc::WNOHANG)
}

/// Blocks until a child is a zombie, after the kernel has reported its exit. The report may come a
/// moment before that.
#[cfg(target_os = "macos")]
pub fn wait_for_exiting(child: i32, flags: libc::c_int) -> Option<ExitStatus> {
    ended(child, flags)
}

/// Reaps any dead child. Only for a process that owns all its children: in a bot, libuv waits for
/// some of them.
///
/// To wait for each child by PID would take one system call per living child for each death.
#[cfg(target_os = "linux")]
pub fn wait_for_any() -> Option<(i32, ExitStatus)> {
    waited(libc::P_ALL, 0, libc::WNOHANG | libc::WEXITED | ANY_KIND)
}

/// Like [`wait_for_any`], but the child stays a zombie. Returns the oldest one, on each call again.
#[cfg(target_os = "linux")]
pub fn peek_at_any() -> Option<(i32, ExitStatus)> {
    waited(libc::P_ALL, 0, libc::WNOHANG | libc::WEXITED | libc::WNOWAIT | ANY_KIND)
}

/// Returns any child that was stopped, once per stop. Only for a process that owns all its
/// children.
#[cfg(target_os = "linux")]
pub fn any_stopped() -> Option<i32> {
    waited(libc::P_ALL, 0, libc::WNOHANG | libc::WSTOPPED).map(|(child, _)| child)
}

fn ended(child: i32, flags: libc::c_int) -> Option<ExitStatus> {
    waited(libc::P_PID, child, flags | libc::WEXITED | ANY_KIND).map(|(_, status)| status)
}

/// Calls `waitid`. nix's `waitid` fails for a death by a real-time signal, and does not exist on
/// macOS.
fn waited(which: libc::idtype_t, child: i32, flags: libc::c_int) -> Option<(i32, ExitStatus)> {
    // SAFETY: all zeroes is a valid siginfo_t, and the kernel fills it in. si_pid stays 0 if there
    // is no child to report.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        if libc::waitid(which, child.cast_unsigned(), &raw mut info, flags) != 0 || info.si_pid() == 0 {
            return None;
        }
        Some((info.si_pid(), status(info.si_code, info.si_status())))
    }
}

/// Converts a `waitid` result. macOS returns more bits of the `exit` argument than `wait` does, and
/// further bits above them.
fn status(code: i32, status: i32) -> ExitStatus {
    if code == libc::CLD_EXITED {
        ExitStatus::Code((status & 0xff).into())
    } else {
        ExitStatus::Signal(status & 0x7f)
    }
}

/// Returns whether a child was stopped since the last call.
#[cfg(target_os = "macos")]
pub fn has_stopped(child: i32) -> bool {
    waited(libc::P_PID, child, libc::WNOHANG | libc::WSTOPPED).is_some()
}

/// Signals by PID. Only for unreaped children, and for a group that such a child leads.
pub fn kill(pid: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes two integers. The caller guarantees that the PID still means its own
    // child.
    let sent = Errno::result(unsafe { libc::kill(pid, signal) }).map(drop);
    trace_signal(pid, signal, sent);
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_status_has_the_value_that_a_shell_shows() {
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
