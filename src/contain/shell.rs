//! Interactive shells, which do not hear what everybody else hears.
//!
//! A shell at a terminal ignores SIGTERM, so that a careless `kill 0` does not end it; it ends when its terminal is closed, and
//! is told so by SIGHUP. Without that, every cancel of one would wait out the whole grace. Asking it the way it expects is only
//! right when all others are gone, though: it passes the SIGHUP on to its jobs, and with the leader of a session the kernel
//! hangs up whoever is in the foreground. Those are to have their own grace, for SIGTERM.

use std::collections::HashSet;

use nix::libc;

use super::SIGCONT;
use crate::identity::ignored_signals;
use crate::identity::stat::Stat;

/// A signal that everybody was asked to end with, who has heard it, and which shells were hung up, by PID and start.
///
/// What one look at a shell says is no answer: while bash forks it does not ignore SIGTERM, but blocks it, and what comes then is
/// lost when it ignores it again; and it may start the next command in the very moment in which everybody is asked. So whoever has a
/// terminal is looked at until it is gone, or the grace is over.
#[derive(Debug)]
pub struct Asking {
    signal: i32,
    asked: HashSet<(i32, u64)>,
    hung_up: HashSet<(i32, u64)>,
}

impl Asking {
    /// Before all of them are asked. `None` if nobody has a terminal: then there is no shell among them that would have to be asked again.
    pub fn of(members: &[&Stat], signal: i32) -> Option<Self> {
        members.iter().find(|stat| stat.terminal != 0)?;
        let hearing = members.iter().filter(|stat| hearing(stat, signal) == Hearing::Hears);
        Some(Self { signal, asked: hearing.map(|stat| name(stat)).collect(), hung_up: HashSet::new() })
    }

    /// Tells the shells that did not hear it that their terminal is being closed, once nobody but them is left. What they have started
    /// since is asked like all others before.
    pub fn again(&mut self, members: &[&Stat], send: impl Fn(&Stat, i32)) {
        let (mut deaf, mut others) = (Vec::new(), 0);
        for &stat in members {
            match hearing(stat, self.signal) {
                // A command that a shell is about to execute is as deaf as the shell, and is not asked before it is that command.
                Hearing::AwaitsHangUp => deaf.push(stat),
                Hearing::Hears if self.asked.insert(name(stat)) => {
                    others += 1;
                    send(stat, self.signal);
                    send(stat, SIGCONT);
                }
                Hearing::Hears | Hearing::Ignores => others += 1,
            }
        }
        if others == 0 {
            for stat in deaf {
                if self.hung_up.insert(name(stat)) {
                    send(stat, libc::SIGHUP);
                    send(stat, SIGCONT);
                } else {
                    // Bash takes note of it, and may have looked for such notes the moment before it waits for a key. Then it sleeps until
                    // something wakes it: a signal that it hears, and that means no harm to anybody.
                    send(stat, libc::SIGWINCH);
                }
            }
        }
    }
}

fn name(stat: &Stat) -> (i32, u64) {
    (stat.pid, stat.start)
}

/// What a signal comes to with somebody, as far as can be seen at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    Hears,
    /// It would be lost. That need not stay so: the child of a shell ignores what the shell does until it becomes its command.
    Ignores,
    /// A shell at a terminal, which ends when that is closed.
    AwaitsHangUp,
}

/// How `signal` would be taken. Whoever has no terminal is not looked at: it is asked once, like everybody where there are no shells.
fn hearing(stat: &Stat, signal: i32) -> Hearing {
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
