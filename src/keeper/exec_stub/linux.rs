//! What a command inherits from the bot on Linux, and how its environment is set.

use std::ffi::c_char;
use std::{fs, ptr};

use nix::libc;
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::keeper::undumpable::retried_dumpable;

// SAFETY: the C library defines it, as an array that ends with a null pointer.
unsafe extern "C" {
    /// The environment. `execvp` reads PATH from here.
    static mut environ: *const *const c_char;
}

/// The number of resource limits of Linux. Their ids are 0 to 15.
const RLIMIT_COUNT: u8 = 16;
const NO_LIMIT: libc::rlimit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };

const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// Replaces the environment of this process.
///
/// # Safety
///
/// `variables` ends with a null pointer and outlives every reader of the environment. No thread
/// reads the environment during the call.
pub unsafe fn set_environment(variables: *const *const c_char) {
    // SAFETY: the caller guarantees it.
    unsafe { environ = variables };
}

/// Copies the bot's current resource limits, CPU affinity and OOM score.
///
/// The stub's own values date from the start of the zygote. A value that the kernel does not allow
/// stays unchanged: only root can raise a limit.
pub fn inherit(bot: Pid) {
    for limit in 0..RLIMIT_COUNT {
        // The type of the parameter differs between C libraries.
        let limit = limit.into();
        let (mut theirs, mut ours) = (NO_LIMIT, NO_LIMIT);
        // SAFETY: prlimit reads or writes only the structures passed, which are local variables.
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
        let _ = retried_dumpable(|| fs::write(OOM_SCORE, &theirs));
    }
}
