//! What a command inherits from the bot on macOS, and how its environment is set.

use std::ffi::c_char;

use nix::libc;
use nix::unistd::Pid;

/// Replaces the environment of this process.
///
/// # Safety
///
/// `variables` ends with a null pointer and outlives every reader of the environment. No thread
/// reads the environment during the call.
pub unsafe fn set_environment(variables: *const *const c_char) {
    // SAFETY: the caller guarantees it. The C library only reads the strings.
    unsafe { *libc::_NSGetEnviron() = variables.cast_mut().cast() };
}

/// No-op: macOS cannot read the resource limits of another process. The command keeps the limits
/// that the bot had when it started the zygote.
pub fn inherit(_bot: Pid) {}
