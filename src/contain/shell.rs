//! Decides how to end interactive shells, which ignore SIGTERM.
//!
//! A shell at a terminal ignores SIGTERM, so that a careless `kill 0` does not end it. It exits
//! when its terminal is closed, which the kernel reports with SIGHUP. Without a SIGHUP, each cancel
//! of a shell would last the whole grace period.
//!
//! SIGHUP must come last. The shell forwards it to its jobs, and when a session leader dies, the
//! kernel sends SIGHUP to the foreground group. The jobs must first get their own grace period
//! after SIGTERM.
//!
//! One check of a shell is not enough. While bash forks, it blocks SIGTERM instead of ignoring it.
//! A SIGTERM that arrives then is lost when bash ignores it again. Bash may also start the next
//! command at that moment. So each process with a terminal is checked until it exits or the grace
//! period ends.
//!
//! Pure: `ignored` returns the signals that a PID ignores, one bit each, if they can be read.

use nix::libc;

use crate::identity::stat::Stat;

/// What a process does with a signal at this moment, as far as it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    Receives,
    /// The kernel discards the signal. This can change: a shell's child ignores what the shell
    /// ignores until it calls exec.
    Ignores,
    /// An interactive shell, which exits when its terminal is closed.
    ExitsOnHangUp,
}

/// Returns what the process does with `signal`. A process without a terminal is not checked: it
/// receives the signal once, whether it ignores it or not.
pub fn disposition(stat: &Stat, signal: i32, ignored: impl Fn(i32) -> Option<u64>) -> Disposition {
    if stat.terminal == 0 {
        return Disposition::Receives;
    }
    ignored(stat.pid).map_or(Disposition::Receives, |ignored| disposition_of_mask(ignored, signal))
}

/// Derives the disposition from the mask of ignored signals. A shell with job control must ignore
/// SIGTTOU to take its terminal back from a job. Few other programs ignore it.
fn disposition_of_mask(ignored: u64, signal: i32) -> Disposition {
    let ignores = |signal: i32| (1..=64).contains(&signal) && ignored >> (signal - 1) & 1 == 1;
    match ignores(signal) {
        false => Disposition::Receives,
        true if ignores(libc::SIGTTOU) && !ignores(libc::SIGHUP) => Disposition::ExitsOnHangUp,
        true => Disposition::Ignores,
    }
}

#[cfg(test)]
mod tests {
    use super::Disposition::{ExitsOnHangUp, Ignores, Receives};
    use super::*;

    // Values from `/proc/PID/status`.
    const BASH: u64 = 0x0038_4004;
    const DASH: u64 = 0x0038_4000;
    const ZSH: u64 = 0x0038_4000;
    const NOTHING: u64 = 0;
    const IGNORES_SIGTERM: u64 = 1 << 14;
    const NODE: u64 = 0x1000;

    #[test]
    fn only_interactive_shells_need_a_hang_up() {
        for (who, mask, signal, expected) in [
            ("bash -i", BASH, libc::SIGTERM, ExitsOnHangUp),
            ("dash -i", DASH, libc::SIGTERM, ExitsOnHangUp),
            ("zsh -i", ZSH, libc::SIGTERM, ExitsOnHangUp),
            ("bash -i receives SIGINT", BASH, libc::SIGINT, Receives),
            ("bash -i under nohup", BASH | 1, libc::SIGTERM, Ignores),
            ("a program that merely ignores SIGTERM", IGNORES_SIGTERM, libc::SIGTERM, Ignores),
            ("a program", NOTHING, libc::SIGTERM, Receives),
            ("node", NODE, libc::SIGTERM, Receives),
            ("signal 0", u64::MAX, 0, Receives),
            ("an invalid signal", u64::MAX, 65, Receives),
        ] {
            assert_eq!(disposition_of_mask(mask, signal), expected, "{who}");
        }
    }
}
