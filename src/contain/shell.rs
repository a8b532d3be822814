//! Interactive shells, which do not hear what everybody else hears.
//!
//! A shell at a terminal ignores SIGTERM, so that a careless `kill 0` does not end it; it ends when its terminal is closed, and
//! is told so by SIGHUP. Without that, every cancel of one would wait out the whole grace. Asking it the way it expects is only
//! right when all others are gone, though: it passes the SIGHUP on to its jobs, and with the leader of a session the kernel
//! hangs up whoever is in the foreground. Those are to have their own grace, for SIGTERM.

use nix::libc;

use crate::identity::ignored_signals;
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
    ignored_signals(stat.pid).map_or(Hearing::Hears, |ignored| hears(ignored, signal))
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
}
