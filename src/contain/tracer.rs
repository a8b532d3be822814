//! Who holds a keeper that is to die.
//!
//! A command runs as the same user as its keeper, and may trace it. A tracer can have its tracee wait for it at its exit: then SIGKILL has
//! done all it can, and the tracee is neither dead nor heard of again until the tracer lets go of it, or is gone.

use crate::identity::ProcessRef;

/// Kills whoever traces this keeper, if it is of the keeper's own tree. To be asked only if that tree is to be ended: whoever was sent
/// SIGKILL as its keeper. A stranger, such as the debugger of a person, is left alone. True if there was somebody to be killed.
///
/// The tracer is pinned before its line of descent is read, and the keeper is seen to be itself after that: it had its number all the
/// while, so the line led to it and to nobody else.
#[cfg(target_os = "linux")]
pub fn kill_own_tracer(keeper: &ProcessRef) -> bool {
    use super::SIGKILL;
    use super::snapshot::Snapshot;
    use crate::identity::{State, tracer_of};

    let Some(tracer) = tracer_of(keeper.pid) else { return false };
    let below = Snapshot::take(keeper.pid);
    let Some(pin) = below.get(tracer).and_then(|tracer| below.pinned(tracer).ok()) else { return false };
    keeper.state() == State::Alive && pin.signal(SIGKILL).is_ok()
}

/// Nobody can hold a process there that is to die.
#[cfg(not(target_os = "linux"))]
pub fn kill_own_tracer(_keeper: &ProcessRef) -> bool {
    false
}
