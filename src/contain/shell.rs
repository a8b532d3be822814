//! Interactive shells, which do not hear what everybody else hears.
//!
//! A shell at a terminal ignores SIGTERM, so that a careless `kill 0` does not end it; it ends when its terminal is closed, and
//! is told so by SIGHUP. Without that, every cancel of one would wait out the whole grace. Asking it the way it expects is only
//! right when all others are gone, though: it passes the SIGHUP on to its jobs, and with the leader of a session the kernel
//! hangs up whoever is in the foreground. Those are to have their own grace, for SIGTERM.

use std::fs;

use nix::libc;

use crate::identity::stat::Stat;

/// What a signal comes to with somebody, as far as can be seen at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    Hears,
    /// It would be lost. That need not stay so: the child of a shell ignores what the shell does until it becomes its command.
    Ignores,
    /// A shell at a terminal, which ends when that is closed.
    AwaitsHangUp,
}

/// How `signal` would be taken. Whoever has no terminal is not looked at: it is asked once, like everybody where there are no shells.
pub fn hearing(stat: &Stat, signal: i32) -> Hearing {
    if stat.terminal == 0 {
        return Hearing::Hears;
    }
    let status = fs::read_to_string(format!("/proc/{}/status", stat.pid)).unwrap_or_default();
    ignored(&status).map_or(Hearing::Hears, |ignored| hears(ignored, signal))
}

/// The mask of the signals that a process ignores, from `/proc/PID/status`.
fn ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Who does job control has to ignore SIGTTOU, or could not take its terminal back from a job; hardly anybody else does.
fn hears(ignored: u64, signal: i32) -> Hearing {
    let ignores = |signal: i32| (1..=64).contains(&signal) && ignored >> (signal - 1) & 1 == 1;
    match ignores(signal) {
        false => Hearing::Hears,
        true if ignores(libc::SIGTTOU) && !ignores(libc::SIGHUP) => Hearing::AwaitsHangUp,
        true => Hearing::Ignores,
    }
}

#[cfg(test)]
mod tests {
    use super::Hearing::{AwaitsHangUp, Hears, Ignores};
    use super::*;

    // As `/proc/PID/status` had them.
    const BASH: u64 = 0x0038_4004;
    const DASH: u64 = 0x0038_4000;
    const ZSH: u64 = 0x0038_4000;
    const NOTHING: u64 = 0;
    const IGNORES_SIGTERM: u64 = 1 << 14;
    const NODE: u64 = 0x1000;

    #[test]
    fn only_shells_at_a_terminal_are_hung_up() {
        for (who, mask, signal, expected) in [
            ("bash -i", BASH, libc::SIGTERM, AwaitsHangUp),
            ("dash -i", DASH, libc::SIGTERM, AwaitsHangUp),
            ("zsh -i", ZSH, libc::SIGTERM, AwaitsHangUp),
            ("bash -i hears SIGINT", BASH, libc::SIGINT, Hears),
            ("bash -i under nohup", BASH | 1, libc::SIGTERM, Ignores),
            ("a program that merely ignores SIGTERM", IGNORES_SIGTERM, libc::SIGTERM, Ignores),
            ("a program", NOTHING, libc::SIGTERM, Hears),
            ("node", NODE, libc::SIGTERM, Hears),
            ("no signal at all", u64::MAX, 0, Hears),
            ("a number that is none", u64::MAX, 65, Hears),
        ] {
            assert_eq!(hears(mask, signal), expected, "{who}");
        }
    }

    #[test]
    fn reads_the_mask_by_its_name() {
        let status = "Name:\tSigIgn:\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000384004\nSigCgt:\t1\n";
        assert_eq!(ignored(status), Some(BASH));
        assert_eq!(ignored("Name:\tx\n"), None);
        assert_eq!(ignored("SigIgn:\tnonsense\n"), None);
    }
}
