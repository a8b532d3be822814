//! Traces signals.

use nix::errno::Errno;

use crate::run::signal::Name;
use crate::trace::{self, trace};

/// Traces a signal that was sent, or why it was not. A negative PID means a group.
pub(crate) fn trace_signal(pid: i32, signal: i32, sent: Result<(), Errno>) {
    // 0 is no signal, only a check.
    if !trace::is_on() || signal == 0 {
        return;
    }
    let (signal, group) = (Name(signal), if pid < 0 { "group " } else { "" });
    match sent {
        Ok(()) => trace!("signal: {signal} to {group}{}", pid.unsigned_abs()),
        Err(errno) => trace!("signal: {signal} to {group}{} failed: {errno:?}", pid.unsigned_abs()),
    }
}
