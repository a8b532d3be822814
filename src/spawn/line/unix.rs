//! A socket to a keeper that is a process.

mod speech;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use tokio::io::unix::AsyncFd;

use crate::contain::ProcessInfo;
use crate::contain::cgroup::Recorded;
use crate::contain::outside::{self, Target};
use crate::contain::tracer;
use crate::identity::{ProcessRef, State, read_stat};
use crate::keeper::channel;
use crate::keeper::protocol::{self, Inbox, Report, Request};
use crate::keeper::visit::Visit;
use crate::registry::{Entry, Instance, Keeper, Record};
use crate::run::lifecycle::{KILL_LIMIT_MS, ORPHAN_GRACE_MS};
use crate::runtime;
use crate::spawn::run::Run;
use crate::spawn::unix::{EXEC_PATIENCE, refused_with};
pub use crate::spawn::zygote::Origin;
use speech::Speech;

#[derive(Debug)]
pub struct Line {
    speech: Arc<Speech>,
    keeper: ProcessRef,
}

impl Line {
    /// To a keeper that knows its run.
    pub fn new(control: OwnedFd, keeper: ProcessRef) -> Self {
        Self { speech: Speech::new(control, Vec::new()), keeper }
    }

    /// To a keeper that is still to be told what it keeps, by [`Line::introduce`] or with whatever is said first.
    pub fn to_new_keeper(control: OwnedFd, keeper: ProcessRef, own: &Request) -> Self {
        // Nothing in it is longer than what was checked before.
        let introduction = protocol::encode(own).unwrap_or_default();
        Self { speech: Speech::new(control, introduction), keeper }
    }

    /// Never waits. An error means that the keeper is gone, or was stopped and has been asked for more than it will ever hear.
    pub fn ask(&self, request: &Request) -> Result<(), Errno> {
        let frame = protocol::encode(request).map_err(|_| Errno::EINVAL)?;
        if ends_run(request) { self.speech.say_at_last(&frame) } else { self.speech.say(&frame) }
    }

    /// Tells a new keeper what it keeps, unless that was said already.
    pub fn introduce(&self) -> Result<(), Errno> {
        self.speech.begin()
    }

    /// To the root. That it did not arrive is told later.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.ask(&Request::Signal { signal })
    }

    /// Not without an introduction: a keeper that was told where its entry is can write down how its run has ended. Nor before it has heard
    /// what was asked for until now.
    pub fn hang_up(&self) {
        let _ = self.introduce();
        self.speech.end();
    }

    /// Wakes a keeper that has something to do by now. One that is found held still at every look, because it is stopped again and
    /// again, or traced by its own command, which no signal wakes but SIGKILL, is killed: then its tree falls to the zygote.
    pub fn rouse(&self) -> impl Future<Output = ()> + Send + 'static {
        let keeper = self.keeper.clone();
        async move {
            for _ in 0..LOOKS {
                wake(&keeper);
                tokio::time::sleep(BETWEEN_LOOKS).await;
                if !is_held(&keeper) {
                    return;
                }
            }
            kill(&keeper).await;
        }
    }

    /// A command runs as the same user as its keeper, and can stop it. One that was stopped is woken, and one that has not
    /// ended the tree in time is killed: then its tree falls to the zygote.
    #[allow(clippy::unnecessary_wraps)] // Elsewhere there is nobody to be stopped.
    pub fn insist(&self, limit: Duration) -> Option<impl Future<Output = ()> + Send + 'static> {
        let keeper = self.keeper.clone();
        Some(async move {
            wake(&keeper);
            tokio::time::sleep(limit).await;
            kill(&keeper).await;
        })
    }
}

fn ends_run(request: &Request) -> bool {
    matches!(
        request,
        Request::Cancel { .. } | Request::Silent { .. } | Request::Signal { signal: libc::SIGKILL }
    )
}

/// A person who looks into a keeper with a debugger holds it for a moment, too.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// How long a process that was killed usually takes to die.
const DYING: Duration = Duration::from_millis(50);

/// One of its tree may hold it at its exit.
async fn kill(keeper: &ProcessRef) {
    let _ = keeper.signal(libc::SIGKILL);
    for _ in 0..LOOKS {
        tokio::time::sleep(DYING).await;
        if keeper.state() != State::Alive {
            return;
        }
        tracer::kill_own_tracer(keeper);
    }
}

fn is_held(keeper: &ProcessRef) -> bool {
    read_stat(keeper.pid).is_ok_and(|stat| stat.start == keeper.start && matches!(stat.state, 'T' | 't'))
}

/// Who is not stopped does not notice.
fn wake(keeper: &ProcessRef) {
    let _ = keeper.signal(libc::SIGCONT);
}

/// The control socket.
impl AsFd for Run {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line().speech.control.as_fd()
    }
}

impl AsRawFd for Run {
    fn as_raw_fd(&self) -> RawFd {
        self.line().speech.control.as_raw_fd()
    }
}

/// Hears a keeper, once it is opened.
pub struct Ear {
    /// What the keeper has said already.
    pub heard: Vec<Report>,
    pub inbox: Inbox,
}

pub struct OpenEar {
    socket: AsyncFd<Run>,
    heard: std::vec::IntoIter<Report>,
    inbox: Inbox,
}

impl Ear {
    /// To be called on the native thread.
    pub fn open(self, run: &Run) -> Option<OpenEar> {
        // SAFETY: the descriptor is owned by what is registered.
        let socket = unsafe { AsyncFd::register(run.clone()) }.ok()?;
        Some(OpenEar { socket, heard: self.heard.into_iter(), inbox: self.inbox })
    }
}

impl OpenEar {
    /// The next report; `None` when there can be no more.
    pub async fn next(&mut self) -> Option<Report> {
        let mut buffer = [0; 1024];
        loop {
            if let Some(report) = self.heard.next() {
                return Some(report);
            }
            if let Some(payload) = self.inbox.next_payload().ok()? {
                return protocol::decode(&payload).ok();
            }
            let count = receive(&self.socket, &mut buffer).await?;
            self.inbox.push(&buffer[..count]);
        }
    }
}

/// Closes when the command is executed.
pub struct Exec(pub OwnedFd);

impl Exec {
    /// Waits until the command was executed (`None`, usually at once), or has failed to be. Somebody may have stopped the blank, which
    /// is a process like any other; then it is woken.
    pub async fn refusal(self, root: &ProcessRef) -> Option<Errno> {
        let mut refusal = pin!(refusal(self.0));
        loop {
            match tokio::time::timeout(EXEC_PATIENCE, &mut refusal).await {
                Ok(refusal) => return refusal,
                Err(_) => drop(root.signal(libc::SIGCONT)),
            }
        }
    }
}

async fn refusal(exec: OwnedFd) -> Option<Errno> {
    // SAFETY: the descriptor is owned by what is registered.
    let socket = unsafe { AsyncFd::register(exec) }.ok()?;
    let mut inbox = Inbox::default();
    let mut buffer = [0; 64];
    while let Some(count) = receive(&socket, &mut buffer).await {
        inbox.push(&buffer[..count]);
        if let Some(payload) = inbox.next_payload().ok()? {
            return Some(refused_with(&payload));
        }
    }
    None
}

/// Asks a keeper that has no owner to take us for it. `ESRCH` if it is dead, too.
pub fn take_over(
    keeper: &Keeper,
    root: &ProcessRef,
    _record: &Record,
    _entry: &Entry,
) -> Result<(Line, Ear), Errno> {
    let mut visit = Visit::start(&keeper.start_token, &keeper.address, root)?;
    let heard = visit.adopt()?;
    let line = Line::new(visit.socket, keeper.start_token.clone());
    Ok((line, Ear { heard, inbox: visit.inbox }))
}

/// It is the one that was recorded.
pub fn note_keeper(_owner: &Instance, _record: &Record) {}

/// The keeper is gone, so the tree has lost its parent. It has come to the zygote, which ends all of it. If there is no
/// zygote either, everything that can be proven to be ours goes from here.
pub async fn end_lost(
    run: &Run,
    origin: Option<&Origin>,
    root: ProcessRef,
    run_id: String,
    cgroup: Option<String>,
) -> Vec<ProcessInfo> {
    let grace = Duration::from_millis(ORPHAN_GRACE_MS);
    let limit = Duration::from_millis(KILL_LIMIT_MS);
    if let Some(Ok(gone)) = origin.map(Origin::orphans_gone) {
        let _ = tokio::time::timeout(grace + limit, ended(&gone)).await;
    }
    let keeper = run.line().keeper.clone();
    let end = move || {
        let cgroup = cgroup.as_deref().map(|path| Recorded { path, keeper: &keeper });
        let target = Target { cgroup, ..Target::spawned(&root, &run_id) };
        outside::end_tree(&target, libc::SIGTERM, grace, limit).survivors
    };
    match runtime::get() {
        Ok(runtime) => runtime.run(end).await.unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

/// Waits for the end of a socket on which nothing is ever said.
async fn ended(socket: &OwnedFd) -> Option<()> {
    // SAFETY: the descriptor is borrowed, and outlives the registration.
    let socket = unsafe { AsyncFd::register(socket.as_fd()) }.ok()?;
    receive(&socket, &mut [0]).await.map(drop)
}

/// The next bytes. `None` at the end, or when there can be no more.
async fn receive(socket: &AsyncFd<impl AsFd + AsRawFd>, buffer: &mut [u8]) -> Option<usize> {
    loop {
        let mut ready = socket.readable().await.ok()?;
        // Else it was not ready after all.
        if let Ok(result) = ready.try_io(|socket| Ok(channel::receive_now(socket.get_ref(), buffer)?)) {
            return result.ok().filter(|&count| count > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::protocol::Own;
    use crate::run::Policy;

    const OWN: Request = Request::Own(Own {
        run_id: "r",
        preview: "",
        on_owner_exit: Policy::Kill,
        on_leader_exit: Policy::Kill,
        grace_ms: 5,
        timeout: None,
        registry: "",
        key: "k",
    });

    /// A line to a new keeper, and what has arrived there when `say` has spoken.
    fn heard(say: impl FnOnce(&Line)) -> Vec<Vec<u8>> {
        let (ours, theirs) = channel::pair().unwrap();
        say(&Line::to_new_keeper(ours, ProcessRef::known(1, 1), &OWN));
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
    fn nothing_gets_ahead_of_the_rules_and_they_are_told_once() {
        let cancel = Request::Cancel { signal: 15, grace_ms: 0, reason: "" };
        let asked_first = heard(|line| {
            line.ask(&cancel).unwrap();
            line.introduce().unwrap();
            line.ask(&Request::Usage).unwrap();
        });
        assert_eq!(asked_first, [payload(&OWN), payload(&cancel), payload(&Request::Usage)]);
        let told_first = heard(|line| {
            line.introduce().unwrap();
            line.signal(9).unwrap();
        });
        assert_eq!(told_first, [payload(&OWN), payload(&Request::Signal { signal: 9 })]);
    }

    #[test]
    fn what_a_full_socket_has_no_room_for_is_said_later_and_in_order() {
        const MANY: i32 = 2000;
        let (ours, theirs) = channel::pair().unwrap();
        let line = Line::new(ours, ProcessRef::known(1, 1));
        for signal in 0..MANY {
            line.signal(signal).unwrap();
        }
        let (mut inbox, mut buffer, mut heard) = (Inbox::default(), [0; 4096], 0);
        while heard < MANY {
            let count = channel::receive(&theirs, &mut buffer, &mut Vec::new()).unwrap();
            inbox.push(&buffer[..count]);
            while let Some(payload) = inbox.next_payload().unwrap() {
                assert_eq!(protocol::decode(&payload), Ok(Request::Signal { signal: heard }));
                heard += 1;
            }
        }
    }

    /// A line to a keeper that reads nothing, and has been asked for more than it can be; and the keeper's end.
    fn crowded() -> (Line, OwnedFd) {
        let (ours, theirs) = channel::pair().unwrap();
        let line = Line::new(ours, ProcessRef::known(1, 1));
        assert!((0..100_000).any(|_| line.signal(15) == Err(Errno::EAGAIN)));
        (line, theirs)
    }

    /// The last of what arrives until the line is closed.
    fn last_heard(theirs: &OwnedFd) -> Vec<u8> {
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
    fn a_run_can_be_ended_whatever_else_its_keeper_was_asked_for() {
        for last in [
            Request::Cancel { signal: 15, grace_ms: 0, reason: "" },
            Request::Silent { limit_ms: 5 },
            Request::Signal { signal: 9 },
        ] {
            let (line, theirs) = crowded();
            assert_eq!(line.ask(&last), Ok(()));
            assert_eq!(line.ask(&Request::Usage), Err(Errno::EAGAIN), "that can wait");
            // What was promised is said, also when nobody wants to hear the answer.
            line.hang_up();
            assert_eq!(line.ask(&last), Err(Errno::EPIPE));
            assert_eq!(last_heard(&theirs), payload(&last));
        }
    }

    #[test]
    fn who_asks_a_stopped_keeper_for_ever_is_told_so() {
        let (line, _theirs) = crowded();
        assert!((0..100_000).any(|_| line.signal(9) == Err(Errno::EAGAIN)));
    }

    #[test]
    fn a_keeper_is_not_left_without_its_rules() {
        assert_eq!(heard(Line::hang_up), [payload(&OWN)]);
    }
}
