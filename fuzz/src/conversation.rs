//! A keeper that is told anything at all: its run ends when it should, once, and it says so.

use spawn_owned::keeper::protocol::{Inbox, Request, decode};
use spawn_owned::run::lifecycle::{Action, Event, Lifecycle, Rules};
use spawn_owned::run::{Policy, State};

/// The first two bytes are the rules and how fast time goes; then come frames, and between them what happens to the tree.
pub fn check(input: &[u8]) {
    let [rules, pace, bytes @ ..] = input else { return };
    let mut run = Run::new(*rules);
    let mut inbox = Inbox::default();
    for (turn, part) in bytes.chunks(usize::from(pace % 64) + 1).enumerate() {
        inbox.push(part);
        while let Ok(Some(payload)) = inbox.next_payload() {
            run.tell(event_of(decode(&payload)));
        }
        run.pass(u64::from(*pace) * turn as u64);
        // What the tree does of itself, without which no keeper is asked for long.
        match part[0] % 16 {
            0 => run.tell(Some(Event::RootExited)),
            1 => run.tell(Some(Event::Progress)),
            2 => run.tell(Some(Event::Shutdown)),
            _ => run.tell(Some(Event::Tick)),
        }
    }
    run.tell(Some(Event::OwnerGone));
    run.end();
}

/// As the keeper does it.
fn event_of(request: Result<Request, impl Sized>) -> Option<Event> {
    Some(match request {
        Ok(Request::Started) => Event::Started,
        Ok(Request::Extend { ms }) => Event::Extend { ms },
        Ok(Request::Silent { limit_ms }) => Event::Silent { limit_ms },
        Ok(Request::Cancel { signal, grace_ms, .. }) => Event::Cancel { signal, grace_ms },
        Ok(Request::Usage | Request::Signal { .. }) => return None,
        Ok(Request::Own(_) | Request::Adopt) | Err(_) => Event::OwnerGone,
    })
}

struct Run {
    life: Lifecycle,
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
        let life = Lifecycle::new(rules);
        let state = life.state();
        Self { life, keeps: rules.on_owner_exit == Policy::Keep, now: 0, state, finished: 0 }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.saturating_add(ms);
    }

    fn tell(&mut self, event: Option<Event>) {
        let Some(event) = event else { return };
        let cause = self.life.cause();
        let action = self.life.on(event, self.now);
        assert!(self.life.state() >= self.state, "a state never goes back: {event:?}");
        assert!(cause.is_none() || self.life.cause() == cause, "the first cause is the reason: {event:?}");
        if self.state == State::Exited {
            assert_eq!(action, Action::Nothing, "what is over is over");
        }
        self.state = self.life.state();
        self.finished += u32::from(action == Action::Finish);
    }

    /// The bot is gone. Nobody dies; but time passes.
    fn end(&mut self) {
        for _ in 0..4 {
            if let Some(at) = self.life.wake_at() {
                self.now = self.now.max(at);
                self.tell(Some(Event::Tick));
            }
        }
        if !self.keeps {
            assert_eq!(
                self.state,
                State::Exited,
                "a bot that is gone leaves nothing that is not at least given up"
            );
        }
        self.tell(Some(Event::Empty));
        assert_eq!((self.state, self.finished), (State::Exited, 1));
    }
}
