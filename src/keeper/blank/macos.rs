//! What a command inherits from the bot, and where its environment goes.

use std::ffi::c_char;

use nix::libc;
use nix::unistd::Pid;

/// # Safety
///
/// An array that ends with a null pointer, and outlives whatever reads the environment; nobody reads it now.
pub unsafe fn set_environment(variables: *const *const c_char) {
    // SAFETY: the caller's promise. The strings are only read.
    unsafe { *libc::_NSGetEnviron() = variables.cast_mut().cast() };
}

/// Nobody tells another process's resource limits here. A command has those of the time when the zygote was started.
pub fn inherit(_bot: Pid) {}
