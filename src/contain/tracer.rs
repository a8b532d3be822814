//! Kills a tracer that keeps a keeper from dying.
//!
//! A command runs as the same user as its keeper, so it can trace the keeper. A tracer can stop its
//! tracee at exit. Then SIGKILL has no further effect: the tracee is not reaped until the tracer
//! detaches or exits.

use crate::identity::ProcessRef;

/// Kills the process that traces this keeper, if it is in the keeper's own tree. Returns true if it
/// was signalled.
///
/// Call it only if the tree must end, after the keeper received SIGKILL. A tracer outside the tree,
/// such as a person's debugger, is not killed.
///
/// The tracer's handle is opened before its chain of parents is read, and the keeper's identity is
/// checked after that. So the keeper had its PID during the whole time, and the chain led to this
/// keeper.
#[cfg(target_os = "linux")]
pub fn kill_own_tracer(keeper: &ProcessRef) -> bool {
    use super::SIGKILL;
    use super::snapshot::Snapshot;
    use crate::identity::{State, tracer_of};

    let Some(tracer) = tracer_of(keeper.pid) else { return false };
    let below = Snapshot::take(keeper.pid);
    let Some(handle) = below.get(tracer).and_then(|tracer| below.open_handle(tracer).ok()) else {
        return false;
    };
    keeper.state() == State::Alive && handle.signal(SIGKILL).is_ok()
}

/// No-op: only on Linux can a tracer keep a killed process from dying.
#[cfg(not(target_os = "linux"))]
pub fn kill_own_tracer(_keeper: &ProcessRef) -> bool {
    false
}
