//! A keeper that receives any messages: its run ends once, when it should, and the keeper reports
//! that.

use spawn_owned::keeper::protocol::{Inbox, Request, decode};
use spawn_owned::run::lifecycle::{Action, Event, Lifecycle, Rules};
use spawn_owned::run::{Policy, State};

/// The first two bytes are the rules and the speed of the clock. Then frames follow, with events of
/// the tree between them.
pub fn check(input: &[u8]) {
    let [rules, pace, bytes @ ..] = input else { return };
    let mut run = Run::new(*rules);
    let mut inbox = Inbox::default();
    for (turn, part) in bytes.chunks(usize::from(pace % 64) + 1).enumerate() {
        inbox.push(part);
        while let Ok(Some(payload)) = inbox.next_payload() {
            run.apply(event_of(decode(&payload)));
        }
        run.advance_clock(u64::from(*pace) * turn as u64);
        // Events of the tree itself. Without them a keeper would only receive requests.
        match part[0] % 16 {
            0 => run.apply(Some(Event::RootExited)),
            1 => run.apply(Some(Event::Progress)),
            2 => run.apply(Some(Event::Shutdown)),
            _ => run.apply(Some(Event::Tick)),
        }
    }
    run.apply(Some(Event::OwnerGone));
    run.end();
}

/// Maps a request to an event, as the keeper does.
fn event_of(request: Result<Request, impl Sized>) -> Option<Event> {
    Some(match request {
        Ok(Request::Started) => Event::Started,
        Ok(Request::Extend { ms }) => Event::Extend { ms },
        Ok(Request::SetTimeout { timeout }) => Event::SetTimeout { timeout },
        Ok(Request::IdleTimeout { limit_ms }) => Event::IdleTimeout { limit_ms },
        Ok(Request::Cancel { signal, grace_ms, .. }) => Event::Cancel { signal, grace_ms },
        Ok(Request::Usage | Request::Signal { .. }) => return None,
        Ok(Request::AssignRun(_) | Request::Adopt | Request::ControlClient { .. }) | Err(_) => {
            Event::OwnerGone
        }
    })
}

struct Run {
    lifecycle: Lifecycle,
    keeps: bool,
    now: u64,
    state: State,
    finished: u32,
}

impl Run {
    fn new(rules: u8) -> Self {
        let policy = |bit: u8| if rules & bit == 0 { Policy::Kill } else { Policy::Keep };
        let rules = Rules {
            on_owner_exit: policy(1),
            on_leader_exit: policy(2),
            grace_ms: [0, 5_000, u64::MAX - 1, u64::MAX][usize::from(rules >> 2) % 4],
            ..Rules::default()
        };
        let lifecycle = Lifecycle::new(rules);
        let state = lifecycle.state();
        Self { lifecycle, keeps: rules.on_owner_exit == Policy::Keep, now: 0, state, finished: 0 }
    }

    fn advance_clock(&mut self, ms: u64) {
        self.now = self.now.saturating_add(ms);
    }

    fn apply(&mut self, event: Option<Event>) {
        let Some(event) = event else { return };
        let cause = self.lifecycle.cause();
        let action = self.lifecycle.on(event, self.now);
        assert!(self.lifecycle.state() >= self.state, "the state went back: {event:?}");
        assert!(
            cause.is_none() || self.lifecycle.cause() == cause,
            "the first cause was replaced: {event:?}"
        );
        if self.state == State::Exited {
            assert_eq!(action, Action::Nothing, "an ended run caused an action");
        }
        self.state = self.lifecycle.state();
        self.finished += u32::from(action == Action::Finish);
    }

    /// The bot is gone. No process exits, but time passes.
    fn end(&mut self) {
        for _ in 0..4 {
            if let Some(at) = self.lifecycle.wake_at() {
                self.now = self.now.max(at);
                self.apply(Some(Event::Tick));
            }
        }
        if !self.keeps {
            assert_eq!(
                self.state,
                State::Exited,
                "after the bot is gone, the run must end, at least by giving up"
            );
        }
        self.apply(Some(Event::Empty));
        assert_eq!((self.state, self.finished), (State::Exited, 1));
    }
}
