//! A run that was started, as its owner holds it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::errno::Errno;
use tokio::task::AbortHandle;

use super::RawStream;
use super::line::Line;
use super::silence::Listening;
use crate::keeper::protocol::Request;
use crate::pty::{Size, Terminal};
use crate::registry::Entry;
use crate::run::lifecycle::REPORT_LIMIT_MS;
use crate::runtime::Runtime;

const PATIENCE: Duration = Duration::from_millis(REPORT_LIMIT_MS);

/// What can be asked of a run. Dropping it changes nothing.
#[derive(Debug, Clone)]
pub struct Run(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    line: Line,
    abandoned: AtomicBool,
    /// By how much its deadlines were moved.
    extended_ms: AtomicU64,
    watchdog: Mutex<Option<Watchdog>>,
    runtime: &'static Runtime,
    entry: Entry,
    grace_ms: u64,
    /// Whether it may be silent for so long only.
    listening: Option<Listening>,
    terminal: Option<Arc<Terminal>>,
}

#[derive(Debug)]
struct Watchdog {
    /// `None`: later than can be counted.
    bites_at: Option<Instant>,
    task: AbortHandle,
}

impl Run {
    pub(super) fn new(
        line: Line,
        runtime: &'static Runtime,
        entry: Entry,
        grace_ms: u64,
        listening: Option<Listening>,
        terminal: Option<Arc<Terminal>>,
    ) -> Self {
        Self(Arc::new(Inner {
            line,
            abandoned: AtomicBool::new(false),
            extended_ms: AtomicU64::new(0),
            watchdog: Mutex::new(None),
            runtime,
            entry,
            grace_ms,
            listening,
            terminal,
        }))
    }

    #[cfg(unix)]
    pub(super) fn line(&self) -> &Line {
        &self.0.line
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.0.entry
    }

    pub(super) fn listening(&self) -> Option<&Listening> {
        self.0.listening.as_ref()
    }

    pub(super) fn terminal(&self) -> Option<&Terminal> {
        self.0.terminal.as_deref()
    }

    /// `ENOTTY` if it has no terminal, `EIO` if that is gone.
    pub fn resize(&self, size: Size) -> Result<(), Errno> {
        self.terminal().ok_or(Errno::ENOTTY)?.resize(size)
    }

    /// The name of who is in the foreground of its terminal.
    pub fn foreground(&self) -> Option<String> {
        self.terminal()?.foreground()
    }

    /// The bot has read some of its output.
    pub fn heard(&self) {
        self.0.entry.heard();
        if let Some(listening) = self.listening() {
            listening.heard();
        }
    }

    /// The bot reads the output at this descriptor from here on.
    pub fn reading(&self, fd: RawStream) {
        if let Some(listening) = self.listening() {
            listening.reading(fd);
        }
    }

    /// Every deadline that it has comes so much later.
    pub fn extend(&self, ms: u64) -> Result<(), Errno> {
        if let Some(listening) = self.listening() {
            listening.extend(ms);
        }
        // Noted before the keeper knows: one that is just held still is not killed for a deadline that is none any more.
        let note = |change: fn(u64, u64) -> u64| {
            let extended = &self.0.extended_ms;
            let _ = extended.fetch_update(Ordering::AcqRel, Ordering::Acquire, |was| Some(change(was, ms)));
        };
        note(u64::saturating_add);
        self.ask(&Request::Extend { ms }).inspect_err(|_| note(u64::saturating_sub))
    }

    pub(super) fn extended(&self) -> Duration {
        Duration::from_millis(self.0.extended_ms.load(Ordering::Acquire))
    }

    /// What the tree uses is told later, by [`super::RunEvent::Usage`].
    pub fn ask_usage(&self) -> Result<(), Errno> {
        self.ask(&Request::Usage)
    }

    /// Somebody else reads the output at this descriptor from here on.
    pub fn lose(&self, fd: RawStream) {
        if let Some(listening) = self.listening() {
            listening.lose(fd);
        }
    }

    /// The output with this name is about to be closed.
    pub fn closing(&self, fd: RawStream) {
        if let Some(listening) = self.listening() {
            listening.closing(fd);
        }
    }

    /// It has been silent for too long.
    pub(super) fn silent(&self, limit_ms: u64) {
        // A keeper that cannot be told is dead, which its listener notices. One that was stopped hears it when it is woken.
        let _ = self.ask(&Request::Silent { limit_ms });
        // How long the end may take is for its answer to say: a cancel may have been faster, and have given more time.
        self.0.runtime.loop_handle.spawn(self.rouse_keeper());
    }

    /// What its keeper has to know is said by now, should nobody get to say it later.
    pub fn introduce(&self) {
        let _ = self.0.line.introduce();
    }

    /// Its keeper has begun to end the tree, and gives it the run's own grace.
    pub(super) fn ending(&self) {
        self.watch(Duration::from_millis(self.0.grace_ms).saturating_add(PATIENCE));
    }

    /// Sends a signal to the root. That it did not arrive is told later, by [`super::RunEvent::SignalFailed`].
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.0.line.signal(signal)
    }

    /// Ends the tree. It is over within the grace and a bounded time after it, also if the keeper does not do its part.
    pub fn cancel(&self, signal: i32, grace_ms: u64, reason: &str) -> Result<(), Errno> {
        let asked = self.ask(&Request::Cancel { signal, grace_ms, reason });
        self.watch(Duration::from_millis(grace_ms).saturating_add(PATIENCE));
        asked
    }

    /// A keeper that has not ended the tree in time is made to, see [`Line::insist`].
    fn watch(&self, limit: Duration) {
        let bites_at = Instant::now().checked_add(limit);
        let mut watchdog = self.watchdog();
        // A second request never prolongs the first.
        if watchdog.as_ref().is_some_and(|former| former.bites_at <= bites_at && former.bites_at.is_some()) {
            return;
        }
        let Some(insist) = self.0.line.insist(limit) else { return };
        let task = self.0.runtime.loop_handle.spawn(insist);
        let former = watchdog.replace(Watchdog { bites_at, task: task.abort_handle() });
        if let Some(former) = former {
            former.task.abort();
        }
    }

    pub(super) fn rouse_keeper(&self) -> impl Future<Output = ()> + Send + 'static {
        self.0.line.rouse()
    }

    /// The run's end has been heard.
    pub(super) fn over(&self) {
        if let Some(watchdog) = self.watchdog().take() {
            watchdog.task.abort();
        }
    }

    fn watchdog(&self) -> MutexGuard<'_, Option<Watchdog>> {
        self.0.watchdog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the run as if the bot had died: its keeper does what `onOwnerExit` says, and nobody here cares.
    pub fn abandon(&self) {
        self.0.abandoned.store(true, Ordering::Release);
        if let Some(terminal) = self.terminal() {
            terminal.hang_up();
        }
        self.hang_up();
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.0.abandoned.load(Ordering::Acquire)
    }

    /// Ends the conversation.
    pub(super) fn hang_up(&self) {
        self.0.line.hang_up();
    }

    pub(super) fn ask(&self, request: &Request) -> Result<(), Errno> {
        self.0.line.ask(request)
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::identity::ProcessRef;
    use crate::keeper::channel;
    use crate::registry::Somewhere;
    use crate::registry::import::tests::ours;
    use crate::run::signal::SIGTERM;
    use crate::runtime;

    const GRACE_MS: u64 = 10_000;
    const CANCELS: u64 = 60_000;

    type Told<'a> = &'a [&'a dyn Fn(&Run)];

    /// What a run is told, and which grace its keeper has from then on until it is killed.
    #[test]
    fn what_is_heard_after_a_cancel_may_shorten_its_grace_but_a_silence_does_not() {
        let cancel = |run: &Run| run.cancel(SIGTERM, CANCELS, "manual-cancel").unwrap();
        let silent = |run: &Run| run.silent(1);
        let hasty = |run: &Run| run.cancel(SIGTERM, 0, "manual-cancel").unwrap();
        let cases: [(&str, Told, Option<u64>); 7] = [
            ("a silence", &[&silent], None),
            ("a silence, answered", &[&silent, &Run::ending], Some(GRACE_MS)),
            ("a cancel", &[&cancel], Some(CANCELS)),
            ("a silence while it is cancelled", &[&cancel, &silent], Some(CANCELS)),
            ("a cancel while it is silent", &[&silent, &cancel], Some(CANCELS)),
            ("a second cancel", &[&cancel, &hasty], Some(0)),
            ("a second one that has more time", &[&hasty, &cancel], Some(0)),
        ];
        let Somewhere(instance) = &Somewhere::new("silence");
        for (index, (name, told, grace_ms)) in cases.into_iter().enumerate() {
            let (ours_end, _theirs) = channel::pair().unwrap();
            let entry = instance.begin(ours(4242 + i32::try_from(index).unwrap()), false).unwrap();
            // No system has such a number: there is nobody to be woken, or killed.
            let line = Line::new(ours_end, ProcessRef::known(i32::MAX, 1));
            let run = Run::new(line, runtime::get().unwrap(), entry, GRACE_MS, None, None);
            let before = Instant::now();
            for tell in told {
                tell(&run);
            }
            let limit = |ms: u64| Duration::from_millis(ms) + PATIENCE;
            let bites_at = run.watchdog().as_ref().and_then(|watchdog| watchdog.bites_at);
            let after = grace_ms.map(|ms| before + limit(ms)..=Instant::now() + limit(ms));
            match (bites_at, after) {
                (None, None) => {}
                (Some(at), Some(expected)) => assert!(expected.contains(&at), "{name}"),
                other => panic!("{name}: {other:?}"),
            }
            run.over();
        }
    }
}
