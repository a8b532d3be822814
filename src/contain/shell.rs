//! Interactive shells, which do not hear what everybody else hears.
//!
//! A shell at a terminal ignores SIGTERM, so that a careless `kill 0` does not end it; it ends when its terminal is closed, and
//! is told so by SIGHUP. Without that, every cancel of one would wait out the whole grace. Asking it the way it expects is only
//! right when all others are gone, though: it passes the SIGHUP on to its jobs, and with the leader of a session the kernel
//! hangs up whoever is in the foreground. Those are to have their own grace, for SIGTERM.
//!
//! Pure: `ignored` tells by its PID which signals somebody ignores, one bit for each, if that can be seen; `send` sends one.

use std::collections::HashSet;

use nix::libc;

use super::SIGCONT;
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
    pub fn of(members: &[&Stat], signal: i32, ignored: impl Fn(i32) -> Option<u64>) -> Option<Self> {
        members.iter().find(|stat| stat.terminal != 0)?;
        let hearing = members.iter().filter(|stat| hearing(stat, signal, &ignored) == Hearing::Hears);
        Some(Self { signal, asked: hearing.map(|stat| name(stat)).collect(), hung_up: HashSet::new() })
    }

    /// Tells the shells that did not hear it that their terminal is being closed, once nobody but them is left. What they have started
    /// since is asked like all others before.
    pub fn again(
        &mut self,
        members: &[&Stat],
        ignored: impl Fn(i32) -> Option<u64>,
        mut send: impl FnMut(&Stat, i32),
    ) {
        let (mut deaf, mut others) = (Vec::new(), 0);
        for &stat in members {
            match hearing(stat, self.signal, &ignored) {
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
fn hearing(stat: &Stat, signal: i32, ignored: impl Fn(i32) -> Option<u64>) -> Hearing {
    if stat.terminal == 0 {
        return Hearing::Hears;
    }
    ignored(stat.pid).map_or(Hearing::Hears, |ignored| hears(ignored, signal))
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

    /// Whom a look finds: its PID, when it was started, and what it ignores, if that can be seen. Everybody has a terminal but [`DAEMON`].
    type Seen = (i32, u64, Option<u64>);
    /// Who was sent what, in order.
    type Sent = &'static [(i32, i32)];
    /// Who is there, and what they are sent.
    type Look = (&'static [Seen], Sent);

    const SHELL: Seen = (10, 1, Some(BASH));
    /// The same one while it forks.
    const FORKING: Seen = (10, 1, Some(NOTHING));
    const JOB: Seen = (11, 1, Some(NOTHING));
    const STUBBORN: Seen = (12, 1, Some(IGNORES_SIGTERM));
    const UNSEEN: Seen = (13, 1, None);
    const DAEMON: Seen = (14, 1, Some(BASH));

    const HANG_UP: Sent = &[(10, libc::SIGHUP), (10, SIGCONT)];
    const NUDGE: Sent = &[(10, libc::SIGWINCH)];

    fn stats(seen: &[Seen]) -> Vec<Stat> {
        let stat = |&(pid, start, _): &Seen| {
            let terminal = if pid == DAEMON.0 { 0 } else { 34816 };
            Stat { pid, terminal, start, ..Stat::default() }
        };
        seen.iter().map(stat).collect()
    }

    fn mask(seen: &[Seen]) -> impl Fn(i32) -> Option<u64> {
        |pid| seen.iter().find(|(other, ..)| *other == pid)?.2
    }

    fn asking(seen: &[Seen]) -> Option<Asking> {
        Asking::of(&stats(seen).iter().collect::<Vec<_>>(), libc::SIGTERM, mask(seen))
    }

    #[test]
    fn nobody_is_asked_again_where_there_is_no_terminal() {
        for (seen, expected) in
            [(&[][..], false), (&[DAEMON], false), (&[SHELL], true), (&[DAEMON, JOB], true)]
        {
            assert_eq!(asking(seen).is_some(), expected, "{seen:?}");
        }
    }

    /// Each: who is there when all are asked, and the looks after that.
    #[test]
    fn a_shell_is_hung_up_when_nobody_else_is_left_and_nobody_is_asked_twice() {
        let cases: &[(&str, &[Seen], &[Look])] = &[
            ("alone", &[SHELL], &[(&[SHELL], HANG_UP), (&[SHELL], NUDGE), (&[SHELL], NUDGE), (&[], &[])]),
            ("its job has its grace first", &[SHELL, JOB], &[(&[SHELL, JOB], &[]), (&[SHELL], HANG_UP)]),
            (
                "a job that hears nothing has it, too",
                &[SHELL, STUBBORN],
                &[(&[SHELL, STUBBORN], &[]), (&[SHELL], HANG_UP)],
            ),
            (
                "so has who has left the terminal",
                &[SHELL, DAEMON],
                &[(&[SHELL, DAEMON], &[]), (&[SHELL], HANG_UP)],
            ),
            (
                "who cannot be looked at was asked like everybody",
                &[SHELL, UNSEEN],
                &[(&[SHELL, UNSEEN], &[]), (&[SHELL], HANG_UP)],
            ),
            (
                "a job that was started since is asked, and once",
                &[SHELL],
                &[
                    (&[SHELL, JOB], &[(11, libc::SIGTERM), (11, SIGCONT)]),
                    (&[SHELL, JOB], &[]),
                    (&[SHELL], HANG_UP),
                ],
            ),
            (
                "a child of it that is no command yet is taken for a shell, and asked when it is one",
                &[SHELL],
                &[
                    (
                        &[SHELL, (11, 1, Some(BASH))],
                        &[(10, libc::SIGHUP), (10, SIGCONT), (11, libc::SIGHUP), (11, SIGCONT)],
                    ),
                    (&[SHELL, JOB], &[(11, libc::SIGTERM), (11, SIGCONT)]),
                    (&[SHELL], NUDGE),
                ],
            ),
            (
                "one that was asked while it forked, and has lost that",
                &[FORKING],
                &[(&[FORKING], &[]), (&[SHELL], HANG_UP), (&[SHELL], NUDGE)],
            ),
            (
                "one that forks at every other look is not asked twice",
                &[SHELL],
                &[
                    (&[FORKING], &[(10, libc::SIGTERM), (10, SIGCONT)]),
                    (&[SHELL], HANG_UP),
                    (&[FORKING], &[]),
                    (&[SHELL], NUDGE),
                ],
            ),
            (
                "another with the number of the first",
                &[SHELL],
                &[(&[SHELL], HANG_UP), (&[(10, 2, Some(BASH))], HANG_UP)],
            ),
        ];
        for (name, first, looks) in cases {
            let mut asking = asking(first).unwrap();
            for (number, (seen, expected)) in looks.iter().enumerate() {
                let mut sent = Vec::new();
                let members = stats(seen);
                let send = |stat: &Stat, signal| sent.push((stat.pid, signal));
                asking.again(&members.iter().collect::<Vec<_>>(), mask(seen), send);
                assert_eq!(sent, *expected, "{name}, look {number}");
            }
        }
    }
}
