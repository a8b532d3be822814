use std::os::fd::OwnedFd;

use super::*;
use crate::identity::ProcessRef;
use crate::keeper::channel;
use crate::registry::import::tests::ours;
use crate::registry::{Instance, TestRegistry};
use crate::run::signal::SIGTERM;
use crate::runtime;

const GRACE_MS: u64 = 10_000;
const CANCEL_GRACE_MS: u64 = 60_000;

type Requests<'a> = &'a [&'a dyn Fn(&Run)];

/// A run without processes. Also returns the keeper's end of the connection.
fn run_of(instance: &Instance, pid: i32, timeout: Option<Duration>) -> (Run, OwnedFd) {
    let (ours_end, theirs) = channel::pair().unwrap();
    let entry = instance.begin(ours(pid), false).unwrap();
    // No system has this PID, so there is no process to wake or kill.
    let connection = KeeperConnection::new(ours_end, ProcessRef::known(i32::MAX, 1));
    let deadlines = Deadlines::new(timeout, None);
    (Run::new(connection, runtime::get().unwrap(), entry, GRACE_MS, deadlines, None), theirs)
}

#[test]
fn a_timeout_that_the_keeper_cannot_get_does_not_replace_the_former() {
    let TestRegistry(instance) = &TestRegistry::new("full-queue");
    let (run, _theirs) = run_of(instance, 4242, Some(Duration::from_secs(100)));
    run.start_deadlines(Arc::new(|_| {}));
    // The keeper is stopped and reads nothing.
    while run.request_usage().is_ok() {}
    for timeout in [None, Some(Timeout { after_ms: 1_000_000, signal: SIGTERM })] {
        assert_eq!(run.set_timeout(timeout), Err(Errno::EAGAIN));
        let wake_in = run.0.deadlines.wake_in().unwrap();
        assert!(wake_in <= Duration::from_secs(101), "{wake_in:?}");
        assert!(run.0.deadlines.inner().wake_task.is_some(), "{timeout:?}");
    }
    run.on_end();
}

/// Which requests set or shorten the time after which the keeper is killed.
#[test]
fn a_later_cancel_may_shorten_the_grace_but_an_idle_timeout_does_not() {
    let cancel = |run: &Run| run.cancel(SIGTERM, CANCEL_GRACE_MS, "manual-cancel").unwrap();
    let idle = |run: &Run| run.idle_timed_out(1);
    let urgent = |run: &Run| run.cancel(SIGTERM, 0, "manual-cancel").unwrap();
    let cases: [(&str, Requests, Option<u64>); 7] = [
        ("an idle timeout", &[&idle], None),
        ("an idle timeout, and the keeper answers", &[&idle, &Run::on_ending], Some(GRACE_MS)),
        ("a cancel", &[&cancel], Some(CANCEL_GRACE_MS)),
        ("an idle timeout after a cancel", &[&cancel, &idle], Some(CANCEL_GRACE_MS)),
        ("a cancel after an idle timeout", &[&idle, &cancel], Some(CANCEL_GRACE_MS)),
        ("a second cancel with a shorter grace", &[&cancel, &urgent], Some(0)),
        ("a second cancel with a longer grace", &[&urgent, &cancel], Some(0)),
    ];
    let TestRegistry(instance) = &TestRegistry::new("idle");
    for (index, (name, requests, grace_ms)) in cases.into_iter().enumerate() {
        let (run, _theirs) = run_of(instance, 4242 + i32::try_from(index).unwrap(), None);
        let before = Instant::now();
        for request in requests {
            request(&run);
        }
        let limit = |ms: u64| Duration::from_millis(ms) + REPORT_LIMIT;
        let kills_at = run.watchdog().as_ref().and_then(|watchdog| watchdog.kills_at);
        let after = grace_ms.map(|ms| before + limit(ms)..=Instant::now() + limit(ms));
        match (kills_at, after) {
            (None, None) => {}
            (Some(at), Some(expected)) => assert!(expected.contains(&at), "{name}"),
            other => panic!("{name}: {other:?}"),
        }
        run.on_end();
    }
}
