//! The N-API bindings: convert, call, convert back. No decision is made here.
//!
//! Every exported function catches panics and turns them into JS errors: nothing we do may crash the bot.

mod convert;
pub mod orphans;
pub mod registry;
pub mod service;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::errno::Errno;
use napi::bindgen_prelude::{Array, Env, Function, Object};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Error, Status};
use napi_derive::napi;

use crate::spawn::{self, LaunchError, Launcher, OwnedStream, Pending, Run, Streams};
use convert::{Begun, Borrowed, Event, Finished, LaunchOptions, Opened};
use registry::{Failure, Registry};

/// Weak: it keeps the event loop alive only while somebody has asked for that with [`Host::ref`].
type Listener = ThreadsafeFunction<Event, (), Event, Status, false, true>;

/// One per JS thread: its runs, and the callback that hears from them.
#[napi]
pub struct Host {
    launcher: Launcher,
    listener: Arc<Listener>,
    /// The same function once more, for `ref` and `unref`, which need it exclusively.
    alive: Listener,
    /// Between `begin` and `finish`.
    pending: Option<Pending>,
    runs: Arc<Mutex<HashMap<u32, Run>>>,
    /// Our ends of streams that nobody has asked for.
    streams: HashMap<i32, OwnedStream>,
    next: u32,
}

#[napi]
impl Host {
    /// `keeper` is the path of the keeper's executable, `stock` the number of keepers to fork ahead.
    #[napi(constructor, catch_unwind)]
    #[allow(clippy::needless_pass_by_value)] // N-API passes values.
    pub fn new(keeper: String, stock: u32, on_event: Function<Event, ()>) -> napi::Result<Self> {
        let listener =
            || on_event.build_threadsafe_function().weak::<true>().callee_handled::<false>().build();
        Ok(Self {
            launcher: Launcher::new(keeper.into(), stock as usize),
            listener: Arc::new(listener()?),
            alive: listener()?,
            pending: None,
            runs: Arc::default(),
            streams: HashMap::new(),
            next: 0,
        })
    }

    /// Makes sure that keepers can be had at all.
    #[napi(catch_unwind)]
    pub fn prepare(&self) -> Result<(), Error<String>> {
        self.launcher.prepare().or_else(|error| refused(error).map(drop))
    }

    /// Makes the streams of a command that is to be started later, and keeps what else it is to get: its owner may close that
    /// meanwhile, and the number would be somebody else's.
    #[napi(catch_unwind)]
    pub fn open_streams(&mut self, stdio: Vec<i32>) -> Opened {
        let (mut ours, mut theirs, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        for (index, slot) in stdio.into_iter().enumerate() {
            let (our_end, their_end) = match slot {
                convert::STREAM => match spawn::stream_pair(index) {
                    Ok((ours, theirs)) => (Some(ours), Some(theirs)),
                    Err(errno) => return Opened::failed(errno),
                },
                0.. => match spawn::duplicate(slot) {
                    Ok(copy) => (None, Some(copy)),
                    Err(errno) => return Opened::failed(errno),
                },
                _ => (None, None),
            };
            slots.push(their_end.as_ref().map_or(slot, |end| convert::lent(spawn::number(end))));
            ours.push(our_end);
            theirs.push(their_end);
        }
        let (fds, theirs) = (self.keep(ours), self.keep(theirs));
        Opened { errno: 0, fds, stdio: slots, theirs }
    }

    /// Begins to start a run: the command is being executed when this returns, and [`Host::finish`] tells the outcome.
    ///
    /// `options` are the values of [`LaunchOptions`], in their order.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)] // N-API passes values.
    pub fn begin(
        &mut self,
        registry: &Registry,
        #[napi(ts_arg_type = "unknown[]")] options: Array,
    ) -> Result<Begun, Error<String>> {
        let invalid = |why: String| Error::new("ERR_INVALID_ARG_VALUE".to_owned(), why);
        let options = LaunchOptions::read(&options).map_err(|error| invalid(error.reason.clone()))?;
        let launch = options.launch(registry.instance.clone()).map_err(invalid)?;
        match self.launcher.begin(launch) {
            Ok(mut pending) => {
                let fds = self.keep(std::mem::take(&mut pending.streams));
                let pid = pending.pid;
                self.pending = Some(pending);
                Ok(Begun { errno: 0, pid, fds })
            }
            Err(error) => {
                let (errno, streams) = refused(error)?;
                Ok(Begun { errno, pid: 0, fds: self.keep(streams) })
            }
        }
    }

    /// Waits, if need be, until the command that was begun runs (errno 0) or has failed to.
    #[napi(catch_unwind)]
    pub fn finish(&mut self) -> Result<Finished, Error<String>> {
        let id = self.next;
        let on_event = self.teller(id);
        let Some(pending) = self.pending.take() else {
            return Ok(Finished { errno: Errno::ESRCH as i32, run: 0 });
        };
        match self.launcher.finish(pending, on_event) {
            Ok(run) => {
                self.next = self.next.wrapping_add(1);
                self.runs().insert(id, run);
                Ok(Finished { errno: 0, run: id })
            }
            Err(error) => Ok(Finished { errno: refused(error)?.0, run: 0 }),
        }
    }

    /// A number for a run that is to be adopted, so that its listener is in place before it says anything.
    #[napi(catch_unwind)]
    pub fn reserve(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next.wrapping_sub(1)
    }

    /// Takes over the run of an entry, under a reserved number.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn adopt<'env>(
        &self,
        env: &'env Env,
        registry: &Registry,
        key: String,
        run: u32,
    ) -> Result<Object<'env>, Error<String>> {
        let (instance, runs, on_event) = (registry.instance.clone(), self.runs.clone(), self.teller(run));
        registry::in_background(env, move || {
            let adopted = spawn::adopt::adopt(&instance, &key, on_event);
            let adopted = adopted.map_err(|error| Failure::new(error.code(), &error))?;
            runs.lock().unwrap_or_else(PoisonError::into_inner).extend(adopted.map(|adopted| (run, adopted)));
            Ok(serde_json::json!({}))
        })
    }

    fn teller(&self, run: u32) -> spawn::OnEvent {
        let listener = self.listener.clone();
        Arc::new(move |event| {
            listener.call(Event::new(run, event), ThreadsafeFunctionCallMode::NonBlocking);
        })
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<u32, Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a stream over to the caller, as a descriptor of its. Until then it is closed with us. -1 if there is none.
    #[napi(catch_unwind)]
    pub fn take_stream(&mut self, stream: i32) -> i32 {
        self.streams.remove(&stream).and_then(|stream| spawn::hand_out(stream).ok()).unwrap_or(-1)
    }

    /// Closes a stream that nobody has taken.
    #[napi(catch_unwind)]
    pub fn close_stream(&mut self, stream: i32) {
        self.streams.remove(&stream);
    }

    /// Two ends over which a helper can lend us an end of a channel: ours, a stream, and its standard input, which is a descriptor as well.
    /// On Windows it is nothing else, and Node's to close.
    #[napi(catch_unwind)]
    pub fn open_borrowing(&mut self) -> Result<Vec<i32>, Error<String>> {
        let (ours, theirs) = spawn::borrow::open().map_err(failed_spawn)?;
        if cfg!(windows) {
            let theirs = spawn::hand_out(theirs).map_err(failed_spawn)?;
            return Ok([self.keep(vec![Some(ours)]), vec![theirs]].concat());
        }
        Ok(self.keep(vec![Some(ours), Some(theirs)]))
    }

    /// Waits for what the helper of this PID lends, and closes our end. It is a stream, to be closed.
    #[napi(catch_unwind)]
    pub fn borrow(&mut self, ours: i32, helper: u32) -> napi::Result<Borrowed> {
        let ours = self.streams.remove(&ours).ok_or_else(|| system_error(Errno::EBADF))?;
        let lent = spawn::borrow::receive(ours, helper).map_err(system_error)?;
        let stream = spawn::number(&lent);
        self.keep(vec![Some(lent)]);
        Ok(Borrowed { stream, slot: convert::lent(stream) })
    }

    fn keep(&mut self, streams: Streams) -> Vec<i32> {
        let numbers = streams.iter().map(|stream| stream.as_ref().map_or(-1, spawn::number)).collect();
        self.streams.extend(streams.into_iter().flatten().map(|stream| (spawn::number(&stream), stream)));
        numbers
    }

    /// Signals the root. Returns an errno, 0 if the request is on its way.
    #[napi(catch_unwind)]
    pub fn signal(&self, run: u32, signal: i32) -> i32 {
        self.ask(run, |run| run.signal(signal))
    }

    /// Ends the tree. Returns an errno, 0 if the request is on its way.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)] // N-API passes values.
    pub fn cancel(&self, run: u32, signal: i32, grace_ms: f64, reason: String) -> i32 {
        self.ask(run, |run| run.cancel(signal, convert::milliseconds(grace_ms), &reason))
    }

    /// The caller has read some of a run's output.
    #[napi(catch_unwind)]
    pub fn heard(&self, run: u32) {
        self.ask(run, |run| {
            run.heard();
            Ok(())
        });
    }

    /// The caller reads the output at this descriptor from here on.
    #[napi(catch_unwind)]
    pub fn reading(&self, run: u32, fd: i32) {
        self.ask(run, |run| {
            run.reading(fd);
            Ok(())
        });
    }

    /// Every deadline of the run comes so much later. Returns an errno, 0 if the request is on its way.
    #[napi(catch_unwind)]
    pub fn extend(&self, run: u32, ms: f64) -> i32 {
        self.ask(run, |run| run.extend(convert::milliseconds(ms)))
    }

    /// Somebody else reads the output at this descriptor from here on.
    #[napi(catch_unwind)]
    pub fn lose(&self, run: u32, fd: i32) {
        self.ask(run, |run| {
            run.lose(fd);
            Ok(())
        });
    }

    /// The output with this name is about to be closed, and its name may be another's in a moment.
    #[napi(catch_unwind)]
    pub fn closing(&self, run: u32, stream: i32) {
        self.ask(run, |run| {
            run.closing(stream);
            Ok(())
        });
    }

    /// Asks what the tree uses; the answer is an event. Returns an errno, 0 if the request is on its way.
    #[napi(catch_unwind)]
    pub fn usage(&self, run: u32) -> i32 {
        self.ask(run, Run::ask_usage)
    }

    /// Changes the size of its terminal. Returns an errno, 0 for success.
    #[napi(catch_unwind)]
    pub fn resize(&self, run: u32, cols: u32, rows: u32) -> i32 {
        self.ask(run, |run| run.resize(convert::size(cols, rows).ok_or(Errno::EINVAL)?))
    }

    /// The name of who is in the foreground of its terminal.
    #[napi(catch_unwind)]
    pub fn foreground(&self, run: u32) -> Option<String> {
        self.runs().get(&run).and_then(Run::foreground)
    }

    /// Forgets a run whose end has been heard.
    #[napi(catch_unwind)]
    pub fn forget(&mut self, run: u32) {
        self.runs().remove(&run);
    }

    /// The process is about to exit, and nobody waits for the native thread: every keeper is told here what it has to know.
    #[napi(catch_unwind)]
    pub fn introduce_all(&self) {
        self.runs().values().for_each(Run::introduce);
    }

    /// Keeps the event loop alive, until `unref`.
    #[napi(js_name = "ref", catch_unwind)]
    pub fn keep_alive(&mut self, env: Env) -> napi::Result<()> {
        #[allow(deprecated)]
        self.alive.refer(&env)
    }

    #[napi(js_name = "unref", catch_unwind)]
    pub fn let_go(&mut self, env: Env) -> napi::Result<()> {
        #[allow(deprecated)]
        self.alive.unref(&env)
    }

    fn ask(&self, run: u32, request: impl FnOnce(&Run) -> Result<(), Errno>) -> i32 {
        match self.runs().get(&run).map(request) {
            Some(Ok(())) => 0,
            Some(Err(errno)) => errno as i32,
            None => Errno::ESRCH as i32,
        }
    }
}

impl Drop for Host {
    /// The JS thread is going away (a worker ended): its runs are treated as when a bot exits.
    fn drop(&mut self) {
        // A finalizer has nobody to catch a panic for it.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.runs().values().for_each(Run::abandon);
            self.launcher.retire();
        }));
    }
}

/// Ends the readable side of an open stream whose writers are gone. Returns an errno, 0 for success.
#[napi(catch_unwind)]
pub fn end_stream(fd: i32) -> i32 {
    spawn::end_stream(fd).err().map_or(0, |errno| errno as i32)
}

/// How often a bot tells at most that it has read something of a run that may be silent for so long.
#[napi(catch_unwind)]
pub fn told_every(limit_ms: f64) -> f64 {
    convert::number(crate::run::silence::told_every(convert::milliseconds(limit_ms)))
}

/// A command that cannot be started is an outcome; everything else is an exception.
fn refused(error: LaunchError) -> Result<(i32, Streams), Error<String>> {
    match error {
        // An errno without a name must not pass for success.
        LaunchError::Refused { errno, streams } => Ok(((errno as i32).max(1), streams)),
        error => Err(Error::new(error.code().to_owned(), error.to_string())),
    }
}

/// With the code that Node's own spawn has if there is no descriptor to be had.
fn failed_spawn(errno: Errno) -> Error<String> {
    let code = format!("{errno:?}");
    let message = format!("spawn {code}");
    Error::new(code, message)
}

fn system_error(errno: Errno) -> Error {
    Error::new(Status::GenericFailure, errno.to_string())
}

/// For the test that a panic becomes a JS error.
#[cfg(feature = "failpoints")]
#[napi(catch_unwind)]
pub fn panic() {
    panic!("a failpoint was hit");
}
