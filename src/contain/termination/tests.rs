use super::Step::{HangUp, Nudge, Signal, Wake};
use super::*;

/// From `/proc/PID/status` of a `bash -i`.
const BASH: u64 = 0x0038_4004;
const NOTHING: u64 = 0;
const IGNORES_SIGTERM: u64 = 1 << 14;

/// A process in a pass: PID, start token, and the signals it ignores, if they can be read. All have
/// a terminal except [`DAEMON`] and [`WORKER`].
type Seen = (i32, u64, Option<u64>);
/// The processes that a pass finds, and what it sends to them.
type Pass = (&'static [Seen], &'static [(i32, Step)]);

const SHELL: Seen = (10, 1, Some(BASH));
/// The same shell while it forks.
const FORKING: Seen = (10, 1, Some(NOTHING));
const JOB: Seen = (11, 1, Some(NOTHING));
const STUBBORN: Seen = (12, 1, Some(IGNORES_SIGTERM));
const UNREADABLE: Seen = (13, 1, None);
/// Without a terminal, so its ignored signals are not read.
const DAEMON: Seen = (14, 1, Some(BASH));
const WORKER: Seen = (15, 1, Some(NOTHING));

fn stats(seen: &[Seen]) -> Vec<Stat> {
    let stat = |&(pid, start, _): &Seen| {
        let terminal = if pid == DAEMON.0 || pid == WORKER.0 { 0 } else { 34816 };
        Stat { pid, terminal, start, ..Stat::default() }
    };
    seen.iter().map(stat).collect()
}

fn pass(termination: &mut Termination, seen: &[Seen]) -> Vec<(i32, Step)> {
    let members = stats(seen);
    let members: Vec<&Stat> = members.iter().collect();
    let ignored = |pid: i32| seen.iter().find(|(other, ..)| *other == pid)?.2;
    let steps = termination.plan(&members, ignored);
    for (stat, step) in &steps {
        termination.note(stat, *step);
    }
    let now = Instant::now();
    termination.passed(&members, !steps.is_empty(), now, now);
    steps.into_iter().map(|(stat, step)| (stat.pid, step)).collect()
}

fn check(cases: &[(&str, &[Pass])]) {
    for (name, passes) in cases {
        let mut termination = Termination::new(libc::SIGTERM, Instant::now());
        for (index, (seen, expected)) in passes.iter().enumerate() {
            assert_eq!(pass(&mut termination, seen), *expected, "{name}, pass {index}");
        }
    }
}

#[test]
fn each_member_is_signalled_once_whenever_it_appears() {
    check(&[
        ("no member", &[(&[], &[]), (&[], &[])]),
        ("a member that stays", &[(&[DAEMON], &[(14, Signal)]), (&[DAEMON], &[]), (&[DAEMON], &[])]),
        (
            "a member that appears later",
            &[(&[DAEMON], &[(14, Signal)]), (&[DAEMON, WORKER], &[(15, Signal)]), (&[WORKER], &[])],
        ),
        ("a member that one pass missed", &[(&[WORKER], &[(15, Signal)]), (&[], &[]), (&[WORKER], &[])]),
        ("the plan keeps the order of the members", &[(&[WORKER, DAEMON], &[(15, Signal), (14, Signal)])]),
        (
            "another process with the same PID",
            &[(&[(15, 1, None)], &[(15, Signal)]), (&[(15, 2, None)], &[(15, Signal)])],
        ),
    ]);
}

/// The shell runs `exec bash` after it has recorded the first SIGHUP.
#[test]
fn a_shell_that_stays_receives_sighup_again_at_growing_intervals() {
    let mut termination = Termination::new(libc::SIGTERM, Instant::now());
    assert_eq!(pass(&mut termination, &[SHELL]), [(10, Wake)]);
    let hang_ups: Vec<usize> =
        (0..200).filter(|_| pass(&mut termination, &[SHELL]) == [(10, HangUp)]).collect();
    assert_eq!(hang_ups, [0, 32, 64, 128]);
}

#[test]
fn a_shell_receives_sighup_when_only_shells_are_left() {
    check(&[
        (
            "a shell alone",
            &[(&[SHELL], &[(10, Wake)]), (&[SHELL], &[(10, HangUp)]), (&[SHELL], &[(10, Nudge)]), (&[], &[])],
        ),
        (
            "its job gets its grace period first",
            &[
                (&[SHELL, JOB], &[(10, Wake), (11, Signal)]),
                (&[SHELL, JOB], &[]),
                (&[SHELL], &[(10, HangUp)]),
            ],
        ),
        (
            "a job that ignores the signal gets its grace period first",
            &[
                (&[SHELL, STUBBORN], &[(10, Wake), (12, Wake)]),
                (&[SHELL, STUBBORN], &[]),
                (&[SHELL], &[(10, HangUp)]),
            ],
        ),
        (
            "a process without the terminal gets its grace period first",
            &[
                (&[SHELL, DAEMON], &[(10, Wake), (14, Signal)]),
                (&[SHELL, DAEMON], &[]),
                (&[SHELL], &[(10, HangUp)]),
            ],
        ),
        (
            "a process whose ignored signals cannot be read is signalled",
            &[(&[SHELL, UNREADABLE], &[(10, Wake), (13, Signal)]), (&[SHELL], &[(10, HangUp)])],
        ),
        (
            "a job that appears later is signalled once",
            &[
                (&[SHELL], &[(10, Wake)]),
                (&[SHELL, JOB], &[(11, Signal)]),
                (&[SHELL, JOB], &[]),
                (&[SHELL], &[(10, HangUp)]),
            ],
        ),
        (
            "a job that has not called exec looks like a shell, and is signalled after exec",
            &[
                (&[SHELL], &[(10, Wake)]),
                (&[SHELL, (11, 1, Some(BASH))], &[(10, HangUp), (11, HangUp)]),
                (&[SHELL, JOB], &[(11, Signal)]),
                (&[SHELL], &[(10, Nudge)]),
            ],
        ),
        (
            "a process that no longer ignores the signal is signalled",
            &[(&[STUBBORN], &[(12, Wake)]), (&[(12, 1, Some(NOTHING))], &[(12, Signal)]), (&[STUBBORN], &[])],
        ),
        (
            "a shell that was signalled while it forked has lost the signal",
            &[(&[FORKING], &[(10, Signal)]), (&[SHELL], &[(10, HangUp)]), (&[SHELL], &[(10, Nudge)])],
        ),
        (
            "a shell that forks in every other pass is signalled once",
            &[
                (&[SHELL], &[(10, Wake)]),
                (&[FORKING], &[(10, Signal)]),
                (&[SHELL], &[(10, HangUp)]),
                (&[FORKING], &[]),
                (&[SHELL], &[(10, Nudge)]),
            ],
        ),
        (
            "another shell has the PID of the first",
            &[
                (&[SHELL], &[(10, Wake)]),
                (&[SHELL], &[(10, HangUp)]),
                (&[(10, 2, Some(BASH))], &[(10, HangUp)]),
            ],
        ),
    ]);
}

#[test]
fn a_member_that_could_not_be_signalled_is_retried() {
    let mut termination = Termination::new(libc::SIGTERM, Instant::now());
    let members = stats(&[WORKER]);
    for _ in 0..2 {
        assert_eq!(termination.plan(&[&members[0]], |_| None), [(&members[0], Signal)]);
    }
    termination.note(&members[0], Signal);
    assert_eq!(termination.plan(&[&members[0]], |_| None), []);
}

/// Whether the pass found a new member and its duration, whether a member died after it, and the
/// expected pause. Durations in milliseconds.
type Pace = ((bool, f64), bool, f64);

#[test]
fn pauses_grow_and_passes_never_take_a_whole_processor() {
    let new = (true, 0.0);
    let none = (false, 0.0);
    let cases: &[(&str, &[Seen], &[Pace])] = &[
        ("a new member", &[WORKER], &[(new, false, 1.0), (new, false, 1.0)]),
        (
            "no new member",
            &[WORKER],
            &[
                (new, false, 1.0),
                (none, false, 2.0),
                (none, false, 4.0),
                (none, false, 8.0),
                (none, false, 16.0),
                (none, false, 32.0),
                (none, false, 64.0),
                (none, false, 100.0),
                (none, false, 100.0),
            ],
        ),
        (
            "a new member again",
            &[WORKER],
            &[(new, false, 1.0), (none, false, 2.0), (new, false, 1.0), (none, false, 2.0)],
        ),
        (
            "a death",
            &[WORKER],
            &[(new, false, 1.0), (none, false, 2.0), (none, true, 1.0), (none, false, 2.0)],
        ),
        (
            "a member with a terminal",
            &[JOB],
            &[
                (new, false, 1.0),
                (none, false, 2.0),
                (none, false, 4.0),
                (none, false, 8.0),
                (none, false, 10.0),
            ],
        ),
        (
            "many members, and new ones in each pass",
            &[WORKER],
            &[
                ((true, 5.0), false, 10.0),
                ((true, 5.0), true, 10.0),
                ((true, 5.0), false, 10.0),
                ((true, 5.0), false, 10.0),
                ((true, 5.0), false, 10.0),
                ((true, 5.0), false, 10.0),
                ((true, 5.0), false, 10.0),
                ((true, 5.0), false, 100.0),
                ((true, 5.0), true, 100.0),
                ((true, 0.0), true, 1.0),
            ],
        ),
        (
            "frozen for an hour within a pass",
            &[WORKER],
            &[((true, 3_600_000.0), false, 1000.0), (new, false, 1.0)],
        ),
    ];
    for (name, seen, passes) in cases {
        let now = Instant::now();
        let members = stats(seen);
        let members: Vec<&Stat> = members.iter().collect();
        let mut termination = Termination::new(libc::SIGTERM, now);
        assert_eq!(termination.next_pass(), now, "the first pass is due immediately");
        for (index, ((found_new, cost), died, expected)) in passes.iter().enumerate() {
            let ended = now + Duration::from_secs_f64(cost / 1e3);
            termination.passed(&members, *found_new, now, ended);
            if *died {
                termination.member_died();
            }
            let pause = (termination.next_pass() - ended).as_secs_f64() * 1e3;
            assert!((pause - expected).abs() < 0.001, "{name}, pass {index}: {pause} ms");
        }
    }
}

#[test]
fn identities_of_dead_processes_are_dropped_and_those_of_living_ones_stay() {
    let mut termination = Termination::new(libc::SIGTERM, Instant::now());
    let worker = |pid: usize| Stat { pid: i32::try_from(pid).unwrap(), start: 1, ..Stat::default() };
    for pid in 0..CLEANUP_SIZE {
        termination.forget_dead(|_, _| panic!("there are few identities"));
        termination.note(&worker(pid), Signal);
    }
    termination.forget_dead(|pid, start| pid == 7 && start == 1);
    assert_eq!(termination.sent.len(), 1);
    assert_eq!(termination.plan(&[&worker(7)], |_| None), []);
}
