//! What a command inherits from the bot, and where its environment goes.

use std::ffi::c_char;
use std::{fs, ptr};

use nix::libc;
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

// SAFETY: the C library defines it, as an array that ends with a null pointer.
unsafe extern "C" {
    /// `execvp` looks the file up in the PATH it finds here.
    static mut environ: *const *const c_char;
}

/// Resource limits are numbered from 0; Linux has 16.
const RLIMIT_COUNT: u8 = 16;
const NO_LIMIT: libc::rlimit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };

const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// # Safety
///
/// An array that ends with a null pointer, and outlives whatever reads the environment; nobody reads it now.
pub unsafe fn set_environment(variables: *const *const c_char) {
    // SAFETY: the caller's promise.
    unsafe { environ = variables };
}

/// Takes over the bot's resource limits, processors and OOM score as they are now; ours are from the time when the
/// zygote was started.
/// What we may not have (only root raises a limit) stays as it is.
pub fn inherit(bot: Pid) {
    for limit in 0..RLIMIT_COUNT {
        // Its type differs between C libraries.
        let limit = limit.into();
        let (mut theirs, mut ours) = (NO_LIMIT, NO_LIMIT);
        // SAFETY: prlimit reads or writes the structures passed, which live here.
        unsafe {
            if libc::prlimit(bot.as_raw(), limit, ptr::null(), &raw mut theirs) == 0
                && libc::prlimit(0, limit, ptr::null(), &raw mut ours) == 0
                && (theirs.rlim_cur, theirs.rlim_max) != (ours.rlim_cur, ours.rlim_max)
            {
                libc::prlimit(0, limit, &raw const theirs, ptr::null_mut());
            }
        }
    }
    if let (Ok(theirs), Ok(ours)) = (sched_getaffinity(bot), sched_getaffinity(Pid::from_raw(0)))
        && theirs != ours
    {
        let _ = sched_setaffinity(Pid::from_raw(0), &theirs);
    }
    if let (Ok(theirs), Ok(ours)) = (fs::read(format!("/proc/{bot}/oom_score_adj")), fs::read(OOM_SCORE))
        && theirs != ours
    {
        let _ = fs::write(OOM_SCORE, theirs);
    }
}
