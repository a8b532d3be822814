//! In every mode: with all the kernel has, and without. The witnesses are how children end, and the end of their input.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::identity::{ProcessRef, State};

const NO_GROUP: Means = Means { pidfd: true, group: false };
const MODES: [Means; 3] =
    [Means { pidfd: true, group: true }, NO_GROUP, Means { pidfd: false, group: false }];

/// `cat` lives until its standard input ends; it needs no sleep to stay, and none to go.
fn cat(group: i32) -> Child {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(group).spawn().unwrap()
}

fn process(child: &Child) -> ProcessRef {
    ProcessRef::capture(child.id().cast_signed()).unwrap()
}

/// Ends it by its end of input, and proves that nothing else has ended it before.
fn assert_unharmed(mut child: Child, mode: Means) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success(), "hit by a signal: {mode:?}");
}

#[test]
fn a_living_process_hears_the_signal_and_its_zombie_is_dead() {
    for mode in MODES {
        let mut child = cat(0);
        let process = process(&child);
        let pin = process.pinned_by(mode).unwrap();
        assert_eq!((pin.signal(0), process.state()), (Ok(()), State::Alive), "{mode:?}");
        pin.signal(libc::SIGUSR1).unwrap();
        // Until it is waited for it is a zombie at most: dead already.
        assert_eq!(pin.wait_exited(None), Ok(true), "{mode:?}");
        assert_eq!(process.state(), State::Exited, "{mode:?}");
        assert_eq!(process.pinned_by(mode).map(drop), Err(Errno::ESRCH), "{mode:?}");
        assert!(pin.stat().unwrap().is_dead(), "{mode:?}");
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1), "{mode:?}");
    }
}

#[test]
fn a_pin_outlives_its_process_and_means_nobody_then() {
    for mode in MODES {
        let child = cat(0);
        let pin = process(&child).pinned_by(mode).unwrap();
        assert_unharmed(child, mode);
        for result in [pin.stat().map(drop), pin.signal(0), pin.signal_group(0)] {
            assert_eq!(result, Err(Errno::ESRCH), "{mode:?}");
        }
        assert_eq!(pin.wait_exited(None), Ok(true), "{mode:?}");
    }
}

#[test]
fn never_signals_a_process_that_merely_has_the_number() {
    for mode in MODES {
        let child = cat(0);
        let other = ProcessRef { start: process(&child).start - 1, ..process(&child) };
        assert_eq!(other.state(), State::Recycled);
        assert_eq!(other.pinned_by(mode).map(drop), Err(Errno::ESRCH), "{mode:?}");
        assert_unharmed(child, mode);
    }
    let child = cat(0);
    let other = ProcessRef { start: process(&child).start - 1, ..process(&child) };
    assert_eq!(other.signal(libc::SIGKILL), Err(Errno::ESRCH));
    assert_eq!(other.signal_group(libc::SIGKILL), Err(Errno::ESRCH));
    assert_unharmed(child, Means::ours());
}

#[test]
fn a_leader_takes_its_group_along_and_nobody_else() {
    for mode in MODES {
        let bystander = cat(0);
        let leader = cat(0);
        let member = cat(leader.id().cast_signed());
        process(&leader).pinned_by(mode).unwrap().signal_group(libc::SIGUSR1).unwrap();
        for mut child in [leader, member] {
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1), "{mode:?}");
        }
        assert_unharmed(bystander, mode);
    }
}

#[test]
fn a_leaders_zombie_still_stands_for_its_group() {
    for mode in MODES {
        let mut leader = cat(0);
        let mut member = cat(leader.id().cast_signed());
        let pin = process(&leader).pinned_by(mode).unwrap();
        drop(leader.stdin.take());
        assert_eq!(pin.wait_exited(None), Ok(true), "{mode:?}");
        pin.signal_group(libc::SIGUSR1).unwrap();
        assert_eq!(member.wait().unwrap().signal(), Some(libc::SIGUSR1), "{mode:?}");
        assert!(leader.wait().unwrap().success(), "{mode:?}");
    }
}

#[test]
fn one_that_merely_is_in_a_group_does_not_speak_for_it() {
    for mode in MODES {
        let leader = cat(0);
        let members = [cat(leader.id().cast_signed()), cat(leader.id().cast_signed())];
        let pin = process(&members[0]).pinned_by(mode).unwrap();
        assert_eq!(pin.signal_group(libc::SIGKILL), Err(Errno::ESRCH), "{mode:?}");
        for child in members.into_iter().chain([leader]) {
            assert_unharmed(child, mode);
        }
    }
}

#[test]
fn waits_as_long_as_it_is_told_and_not_longer_than_the_process_lives() {
    for mode in MODES {
        let mut child = cat(0);
        let pin = process(&child).pinned_by(mode).unwrap();
        for timeout in [Duration::ZERO, Duration::from_millis(15)] {
            assert_eq!(pin.wait_exited(Some(timeout)), Ok(false), "{mode:?}");
        }
        drop(child.stdin.take());
        assert_eq!(pin.wait_exited(Some(Duration::from_secs(60))), Ok(true), "{mode:?}");
        assert!(child.wait().unwrap().success());
        assert_eq!(pin.into_pollable().is_some(), mode.pidfd);
    }
}

#[test]
fn nobody_can_be_pinned_by_a_number_that_nobody_has() {
    for mode in MODES {
        assert_eq!(Pin::open_by(i32::MAX, mode).map(drop), Err(Errno::ESRCH), "{mode:?}");
    }
}

#[test]
fn a_fallback_is_forced_by_its_name() {
    for (list, pidfd, group) in
        [("", true, true), ("pidfd", false, true), ("group", true, false), ("pidfd,group", false, false)]
    {
        assert_eq!(Means::without(list), Means { pidfd, group }, "{list:?}");
    }
}

/// From here on this thread, and what it starts, is refused the call, as by a sandbox.
fn forbid(call: libc::c_long) {
    let call = u32::try_from(call).unwrap();
    let load = u16::try_from(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS).unwrap();
    let is_equal = u16::try_from(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K).unwrap();
    let give = u16::try_from(libc::BPF_RET | libc::BPF_K).unwrap();
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        instruction(load, 0, 0, 0),
        instruction(is_equal, 0, 1, call),
        instruction(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
        instruction(give, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the program is valid and lives until the kernel has copied it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn a_sandbox_that_forbids_pidfds_is_lived_with() {
    let in_sandbox = || {
        let mut child = cat(0);
        forbid(libc::SYS_pidfd_open);
        let pin = process(&child).pinned_by(MODES[0]).unwrap();
        assert!(matches!(pin.hold, Hold::Directory(_)));
        pin.signal(libc::SIGUSR1).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1));
    };
    std::thread::spawn(in_sandbox).join().unwrap();
}

#[test]
fn a_sandbox_that_lets_pidfds_be_opened_and_not_used_is_found_out() {
    let in_sandbox = || {
        assert_eq!(signal_ourselves(), Ok(()));
        forbid(libc::SYS_pidfd_send_signal);
        assert!(is_denied(signal_ourselves().unwrap_err()));
    };
    std::thread::spawn(in_sandbox).join().unwrap();
}
