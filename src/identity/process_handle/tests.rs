//! Every test runs in every mode: with all kernel features, and with the fallbacks. A child's exit
//! status and the end of its input show whether a signal reached it.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::identity::{ProcessRef, State};

const NO_GROUP: Means = Means { pidfd: true, group: false };
const MODES: [Means; 3] =
    [Means { pidfd: true, group: true }, NO_GROUP, Means { pidfd: false, group: false }];

/// Starts `cat`, which lives until its standard input ends. So no test needs a sleep.
fn cat(group: i32) -> Child {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(group).spawn().unwrap()
}

fn process(child: &Child) -> ProcessRef {
    ProcessRef::capture(child.id().cast_signed()).unwrap()
}

/// Ends the child by closing its input, and asserts that no signal has ended it before.
fn assert_unharmed(mut child: Child, mode: Means) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success(), "a signal hit the process: {mode:?}");
}

#[test]
fn a_live_process_gets_the_signal_and_its_zombie_counts_as_dead() {
    for mode in MODES {
        let mut child = cat(0);
        let process = process(&child);
        let handle = process.open_handle_with(mode).unwrap();
        assert_eq!((handle.signal(0), process.state()), (Ok(()), State::Alive), "{mode:?}");
        handle.signal(libc::SIGUSR1).unwrap();
        // Not yet waited for: at most a zombie, which counts as dead.
        assert_eq!(handle.wait_exited(None), Ok(true), "{mode:?}");
        assert_eq!(process.state(), State::Exited, "{mode:?}");
        assert_eq!(process.open_handle_with(mode).map(drop), Err(Errno::ESRCH), "{mode:?}");
        assert!(handle.stat().unwrap().is_dead(), "{mode:?}");
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1), "{mode:?}");
    }
}

#[test]
fn a_handle_of_an_ended_process_reports_esrch() {
    for mode in MODES {
        let child = cat(0);
        let handle = process(&child).open_handle_with(mode).unwrap();
        assert_unharmed(child, mode);
        for result in [handle.stat().map(drop), handle.signal(0), handle.signal_group(0)] {
            assert_eq!(result, Err(Errno::ESRCH), "{mode:?}");
        }
        assert_eq!(handle.wait_exited(None), Ok(true), "{mode:?}");
    }
}

#[test]
fn a_process_that_only_has_the_same_pid_is_never_signalled() {
    for mode in MODES {
        let child = cat(0);
        let other = ProcessRef { start: process(&child).start - 1, ..process(&child) };
        assert_eq!(other.state(), State::Recycled);
        assert_eq!(other.open_handle_with(mode).map(drop), Err(Errno::ESRCH), "{mode:?}");
        assert_unharmed(child, mode);
    }
    let child = cat(0);
    let other = ProcessRef { start: process(&child).start - 1, ..process(&child) };
    assert_eq!(other.signal(libc::SIGKILL), Err(Errno::ESRCH));
    assert_eq!(other.signal_group(libc::SIGKILL), Err(Errno::ESRCH));
    assert_unharmed(child, Means::ours());
}

#[test]
fn signal_group_reaches_the_group_and_no_other_process() {
    for mode in MODES {
        let bystander = cat(0);
        let leader = cat(0);
        let member = cat(leader.id().cast_signed());
        process(&leader).open_handle_with(mode).unwrap().signal_group(libc::SIGUSR1).unwrap();
        for mut child in [leader, member] {
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1), "{mode:?}");
        }
        assert_unharmed(bystander, mode);
    }
}

#[test]
fn signal_group_works_while_the_leader_is_a_zombie() {
    for mode in MODES {
        let mut leader = cat(0);
        let mut member = cat(leader.id().cast_signed());
        let handle = process(&leader).open_handle_with(mode).unwrap();
        drop(leader.stdin.take());
        assert_eq!(handle.wait_exited(None), Ok(true), "{mode:?}");
        handle.signal_group(libc::SIGUSR1).unwrap();
        assert_eq!(member.wait().unwrap().signal(), Some(libc::SIGUSR1), "{mode:?}");
        assert!(leader.wait().unwrap().success(), "{mode:?}");
    }
}

#[test]
fn signal_group_refuses_a_member_that_is_not_the_leader() {
    for mode in MODES {
        let leader = cat(0);
        let members = [cat(leader.id().cast_signed()), cat(leader.id().cast_signed())];
        let handle = process(&members[0]).open_handle_with(mode).unwrap();
        assert_eq!(handle.signal_group(libc::SIGKILL), Err(Errno::ESRCH), "{mode:?}");
        for child in members.into_iter().chain([leader]) {
            assert_unharmed(child, mode);
        }
    }
}

#[test]
fn wait_exited_returns_at_the_timeout_or_when_the_process_ends() {
    for mode in MODES {
        let mut child = cat(0);
        let handle = process(&child).open_handle_with(mode).unwrap();
        for timeout in [Duration::ZERO, Duration::from_millis(15)] {
            assert_eq!(handle.wait_exited(Some(timeout)), Ok(false), "{mode:?}");
        }
        drop(child.stdin.take());
        assert_eq!(handle.wait_exited(Some(Duration::from_secs(60))), Ok(true), "{mode:?}");
        assert!(child.wait().unwrap().success());
        assert_eq!(handle.into_pollable().is_some(), mode.pidfd);
    }
}

#[test]
fn opening_an_unused_pid_reports_esrch() {
    for mode in MODES {
        assert_eq!(ProcessHandle::open_by(i32::MAX, mode).map(drop), Err(Errno::ESRCH), "{mode:?}");
    }
}

#[test]
fn each_fallback_is_forced_by_its_name() {
    for (list, pidfd, group) in
        [("", true, true), ("pidfd", false, true), ("group", true, false), ("pidfd,group", false, false)]
    {
        assert_eq!(Means::without(list), Means { pidfd, group }, "{list:?}");
    }
}

/// Makes the kernel refuse the system call for this thread and its children, as a sandbox does.
fn forbid(call: libc::c_long) {
    let call = u32::try_from(call).unwrap();
    let load = u16::try_from(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS).unwrap();
    let is_equal = u16::try_from(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K).unwrap();
    let return_code = u16::try_from(libc::BPF_RET | libc::BPF_K).unwrap();
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        instruction(load, 0, 0, 0),
        instruction(is_equal, 0, 1, call),
        instruction(return_code, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
        instruction(return_code, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the program is valid and lives until the kernel has copied it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn a_sandbox_that_forbids_pidfds_gets_the_proc_fallback() {
    let in_sandbox = || {
        let mut child = cat(0);
        forbid(libc::SYS_pidfd_open);
        let handle = process(&child).open_handle_with(MODES[0]).unwrap();
        assert!(matches!(handle.descriptor, Descriptor::Directory(_)));
        handle.signal(libc::SIGUSR1).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1));
    };
    std::thread::spawn(in_sandbox).join().unwrap();
}

#[test]
fn a_sandbox_that_forbids_only_pidfd_signals_is_detected() {
    let in_sandbox = || {
        assert_eq!(signal_ourselves(), Ok(()));
        forbid(libc::SYS_pidfd_send_signal);
        assert!(is_denied(signal_ourselves().unwrap_err()));
    };
    std::thread::spawn(in_sandbox).join().unwrap();
}
