//! Connections to a keeper that only a test reads.

use super::*;
use crate::keeper::channel;
use crate::keeper::protocol::{AssignRun, Inbox};
use crate::run::Policy;

const RULES: Request = Request::AssignRun(AssignRun {
    run_id: "r",
    cookie_key: "",
    on_owner_exit: Policy::Kill,
    on_leader_exit: Policy::Kill,
    grace_ms: 5,
    timeout: None,
    registry: "",
    key: "k",
});

/// Creates a connection to a new keeper, and returns the messages that arrive after `use_it`.
fn received(use_it: impl FnOnce(&KeeperConnection)) -> Vec<Vec<u8>> {
    let (ours, theirs) = channel::pair().unwrap();
    use_it(&KeeperConnection::to_new_keeper(ours, ProcessRef::known(1, 1), &RULES));
    let (mut inbox, mut buffer) = (Inbox::default(), [0; 1024]);
    while let Ok(count @ 1..) = channel::receive(&theirs, &mut buffer, &mut Vec::new()) {
        inbox.push(&buffer[..count]);
    }
    std::iter::from_fn(|| inbox.next_payload().unwrap()).collect()
}

fn payload(request: &Request) -> Vec<u8> {
    protocol::payload(request).unwrap()
}

#[test]
fn no_request_overtakes_the_rules_and_the_rules_are_sent_once() {
    let cancel = Request::Cancel { signal: 15, grace_ms: 0, reason: "" };
    let request_first = received(|connection| {
        connection.send(&cancel).unwrap();
        connection.send_rules().unwrap();
        connection.send(&Request::Usage).unwrap();
    });
    assert_eq!(request_first, [payload(&RULES), payload(&cancel), payload(&Request::Usage)]);
    let rules_first = received(|connection| {
        connection.send_rules().unwrap();
        connection.signal(9).unwrap();
    });
    assert_eq!(rules_first, [payload(&RULES), payload(&Request::Signal { signal: 9 })]);
}

#[test]
fn requests_that_do_not_fit_into_the_socket_are_sent_later_in_order() {
    const MANY: i32 = 2000;
    let (ours, theirs) = channel::pair().unwrap();
    let connection = KeeperConnection::new(ours, ProcessRef::known(1, 1));
    for signal in 0..MANY {
        connection.signal(signal).unwrap();
    }
    let (mut inbox, mut buffer, mut next_signal) = (Inbox::default(), [0; 4096], 0);
    while next_signal < MANY {
        let count = channel::receive(&theirs, &mut buffer, &mut Vec::new()).unwrap();
        inbox.push(&buffer[..count]);
        while let Some(payload) = inbox.next_payload().unwrap() {
            assert_eq!(protocol::decode(&payload), Ok(Request::Signal { signal: next_signal }));
            next_signal += 1;
        }
    }
}

/// A connection to a keeper that reads nothing and whose send queue is full, and the keeper's
/// end.
fn with_full_queue() -> (KeeperConnection, OwnedFd) {
    let (ours, theirs) = channel::pair().unwrap();
    let connection = KeeperConnection::new(ours, ProcessRef::known(1, 1));
    assert!((0..100_000).any(|_| connection.signal(15) == Err(Errno::EAGAIN)));
    (connection, theirs)
}

/// The last message that arrives before the connection closes.
fn last_received(theirs: &OwnedFd) -> Vec<u8> {
    let (mut inbox, mut buffer, mut last) = (Inbox::default(), [0; 4096], Vec::new());
    while let Ok(count @ 1..) = channel::receive(theirs, &mut buffer, &mut Vec::new()) {
        inbox.push(&buffer[..count]);
        while let Some(payload) = inbox.next_payload().unwrap() {
            last = payload;
        }
    }
    last
}

#[test]
fn a_full_queue_still_accepts_a_request_that_ends_the_run() {
    for last in [
        Request::Cancel { signal: 15, grace_ms: 0, reason: "" },
        Request::IdleTimeout { limit_ms: 5 },
        Request::Signal { signal: 9 },
    ] {
        let (connection, theirs) = with_full_queue();
        assert_eq!(connection.send(&last), Ok(()));
        assert_eq!(connection.send(&Request::Usage), Err(Errno::EAGAIN), "this request does not end the run");
        // The queued request still arrives after the disconnect.
        connection.disconnect();
        assert_eq!(connection.send(&last), Err(Errno::EPIPE));
        assert_eq!(last_received(&theirs), payload(&last));
    }
}

#[test]
fn a_stopped_keeper_makes_endless_requests_fail_with_eagain() {
    let (connection, _theirs) = with_full_queue();
    assert!((0..100_000).any(|_| connection.signal(9) == Err(Errno::EAGAIN)));
}

#[test]
fn a_disconnect_sends_the_rules_first() {
    assert_eq!(received(KeeperConnection::disconnect), [payload(&RULES)]);
}
