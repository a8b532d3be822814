//! The N-API bindings: convert, call, convert back. No decision is made here.
//!
//! Every exported function catches panics and turns them into JS errors, so that a bug here cannot
//! crash the bot.

mod background;
mod convert;
pub mod launch_options;
pub mod orphans;
pub mod processes;
mod reap_plan;
pub mod registry;
pub mod service;
pub mod streams;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::errno::Errno;
use napi::bindgen_prelude::{Array, Env, Function, Object};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Error, Status};
use napi_derive::napi;

use crate::contain::cookie;
use crate::run::lifecycle::Timeout;
use crate::spawn::{self, Launch, LaunchError, Launcher, OwnedStream, Pending, Run, Streams};
use crate::{start_environment, trace};
use background::{Failure, in_background};
use convert::{Begun, Event, Finished, limit};
use registry::Registry;

/// The version of this addon. It must equal the version of the JavaScript that loads it.
#[napi]
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of the interface between JavaScript and addon. `INTERFACE` in ts/native/load-addon.ts must be
/// the same. It distinguishes builds of the same version in a checkout. Raise it with every change
/// of a signature here or of `LaunchOptions`.
#[napi]
pub const INTERFACE: u32 = 5;

/// Weak: it keeps the event loop alive only between [`Host::ref`] and `unref`.
type Listener = ThreadsafeFunction<Event, (), Event, Status, false, true>;

struct Listeners {
    events: Arc<Listener>,
    /// The same function again for `ref` and `unref`, which need exclusive access.
    alive: Listener,
}

/// The runs of one JS thread, and the callback that gets their events.
#[napi]
pub struct Host {
    launcher: Launcher,
    /// `None` until [`Host::listen`], and after [`Host::stop_listening`].
    listeners: Option<Listeners>,
    /// Between `begin` and `finish`.
    pending: Option<Pending>,
    runs: Arc<Mutex<HashMap<u32, Run>>>,
    /// Our ends of streams that JavaScript has not taken.
    streams: HashMap<i32, OwnedStream>,
    next: u32,
}

#[napi]
impl Host {
    /// `keeper` is the path of the keeper's executable, `stock` the number of keepers to fork in
    /// advance.
    #[napi(constructor, catch_unwind)]
    #[allow(clippy::needless_pass_by_value)] // N-API passes values.
    pub fn new(keeper: String, stock: u32) -> Self {
        Self {
            launcher: Launcher::new(keeper.into(), stock as usize),
            listeners: None,
            pending: None,
            runs: Arc::default(),
            streams: HashMap::new(),
            next: 0,
        }
    }

    /// Sets the callback that gets the events. Call it before a run begins.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)] // N-API passes values.
    pub fn listen(&mut self, on_event: Function<Event, ()>) -> napi::Result<()> {
        let listener =
            || on_event.build_threadsafe_function().weak::<true>().callee_handled::<false>().build();
        self.listeners = Some(Listeners { events: Arc::new(listener()?), alive: listener()? });
        Ok(())
    }

    /// Releases the callback. Call it when no run is left.
    #[napi(catch_unwind)]
    pub fn stop_listening(&mut self) {
        self.listeners = None;
    }

    /// Checks that keepers can be started.
    #[napi(catch_unwind)]
    pub fn prepare(&self) -> Result<(), Error<String>> {
        self.launcher.prepare().or_else(|error| refused(error).map(drop))
    }

    /// Starts a run: when this returns, the command is being executed. [`Host::finish`] returns the
    /// result.
    ///
    /// `options` are values in the order of [`launch_options::launch_option_names`]. `stdio` has
    /// for each of the command's descriptors one of ours, or -1 closed, -2 `/dev/null`, -3 a new
    /// stream. `outputs` are our ends of the outputs that [`Host::open_streams`] created.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)] // N-API passes values.
    pub fn begin(
        &mut self,
        registry: &Registry,
        #[napi(ts_arg_type = "unknown[]")] options: Array,
        stdio: Vec<i32>,
        outputs: Vec<i32>,
    ) -> Result<Begun, Error<String>> {
        let invalid = |why: String| Error::new("ERR_INVALID_ARG_VALUE".to_owned(), why);
        let launch = Launch {
            owner: registry.instance.clone(),
            cookie_key: cookie::new_key(),
            options: launch_options::read(&options).map_err(invalid)?,
            stdio: convert::stdio(&stdio).map_err(invalid)?,
            outputs,
        };
        match self.launcher.begin(launch) {
            Ok(mut pending) => {
                let fds = self.store_streams(std::mem::take(&mut pending.streams));
                let pid = pending.pid;
                self.pending = Some(pending);
                Ok(Begun { errno: 0, pid, fds })
            }
            Err(error) => {
                let (errno, streams) = refused(error)?;
                Ok(Begun { errno, pid: 0, fds: self.store_streams(streams) })
            }
        }
    }

    /// Waits if necessary until the command runs (errno 0) or `exec` has failed.
    #[napi(catch_unwind)]
    pub fn finish(&mut self) -> Result<Finished, Error<String>> {
        let id = self.next;
        let on_event = self.event_callback(id);
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

    /// Reserves an ID for a run to adopt, so that its listener is ready before the first event.
    #[napi(catch_unwind)]
    pub fn reserve(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next.wrapping_sub(1)
    }

    /// Adopts the run of an entry, under a reserved ID.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn adopt<'env>(
        &self,
        env: &'env Env,
        registry: &Registry,
        key: String,
        run: u32,
    ) -> Result<Object<'env>, Error<String>> {
        let (instance, runs, on_event) =
            (registry.instance.clone(), self.runs.clone(), self.event_callback(run));
        in_background(env, move || {
            let adopted = spawn::adopt::adopt(&instance, &key, on_event);
            let adopted = adopted.map_err(|error| Failure::new(error.code(), &error))?;
            runs.lock().unwrap_or_else(PoisonError::into_inner).extend(adopted.map(|adopted| (run, adopted)));
            Ok(serde_json::json!({}))
        })
    }

    fn event_callback(&self, run: u32) -> spawn::OnEvent {
        let listener = self.listeners.as_ref().map(|listeners| listeners.events.clone());
        Arc::new(move |event| {
            if let Some(listener) = &listener {
                listener.call(Event::new(run, event), ThreadsafeFunctionCallMode::NonBlocking);
            }
        })
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<u32, Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals the root process. Returns an errno, or 0 if the request was sent.
    #[napi(catch_unwind)]
    pub fn signal(&self, run: u32, signal: i32) -> i32 {
        self.with_run(run, |run| run.signal(signal))
    }

    /// Terminates the tree. Returns an errno, or 0 if the request was sent.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)] // N-API passes values.
    pub fn cancel(&self, run: u32, signal: i32, grace_ms: f64, reason: String) -> i32 {
        self.with_run(run, |run| run.cancel(signal, convert::milliseconds(grace_ms), &reason))
    }

    /// Restarts the idle timeout: the caller has read output of the run.
    #[napi(catch_unwind)]
    pub fn output_read(&self, run: u32) {
        self.with_run(run, |run| {
            run.output_read();
            Ok(())
        });
    }

    /// Notes that the caller reads the output at this descriptor from now on.
    #[napi(catch_unwind)]
    pub fn reading(&self, run: u32, fd: i32) {
        self.with_run(run, |run| {
            run.reading(fd);
            Ok(())
        });
    }

    /// Extends every deadline of the run. Returns an errno, or 0 if the request was sent.
    #[napi(catch_unwind)]
    pub fn extend(&self, run: u32, ms: f64) -> i32 {
        self.with_run(run, |run| run.extend(convert::milliseconds(ms)))
    }

    /// Replaces the overall timeout, from now on; 0 removes it. Returns an errno, or 0 if the
    /// request was sent.
    #[napi(catch_unwind)]
    pub fn set_overall_timeout(&self, run: u32, after_ms: f64, signal: i32) -> i32 {
        let timeout = limit(after_ms).map(|after_ms| Timeout { after_ms, signal });
        self.with_run(run, |run| run.set_timeout(timeout))
    }

    /// Replaces the idle timeout, from now on; 0 removes it. `outputs` are the caller's ends of the
    /// outputs.
    #[napi(catch_unwind)]
    pub fn set_idle_timeout(&self, run: u32, limit_ms: f64, outputs: Vec<i32>) {
        self.with_run(run, |run| {
            run.set_idle_timeout(limit(limit_ms), outputs.into_iter());
            Ok(())
        });
    }

    /// Notes that another reader reads the output at this descriptor from now on.
    #[napi(catch_unwind)]
    pub fn hand_over(&self, run: u32, fd: i32) {
        self.with_run(run, |run| {
            run.hand_over(fd);
            Ok(())
        });
    }

    /// Notes that the caller is about to close this stream. Its descriptor or handle can be reused
    /// at once.
    #[napi(catch_unwind)]
    pub fn closing(&self, run: u32, stream: i32) {
        self.with_run(run, |run| {
            run.closing(stream);
            Ok(())
        });
    }

    /// Requests the resource usage of the tree; the answer is an event. Returns an errno, or 0 if
    /// the request was sent.
    #[napi(catch_unwind)]
    pub fn usage(&self, run: u32) -> i32 {
        self.with_run(run, Run::request_usage)
    }

    /// Changes the size of the run's terminal. Returns an errno, or 0.
    #[napi(catch_unwind)]
    pub fn resize(&self, run: u32, cols: u32, rows: u32) -> i32 {
        self.with_run(run, |run| run.resize(convert::size(cols, rows).ok_or(Errno::EINVAL)?))
    }

    /// The name of the foreground process of the run's terminal.
    #[napi(catch_unwind)]
    pub fn foreground(&self, run: u32) -> Option<String> {
        self.runs().get(&run).and_then(Run::foreground)
    }

    /// Removes a run that has ended.
    #[napi(catch_unwind)]
    pub fn forget(&mut self, run: u32) {
        self.runs().remove(&run);
    }

    /// Sends the rules to every keeper now: the process is about to exit, and does not wait for the
    /// native thread.
    #[napi(catch_unwind)]
    pub fn send_all_rules(&self) {
        self.runs().values().for_each(Run::send_rules);
    }

    /// Keeps the event loop alive until `unref`.
    #[napi(js_name = "ref", catch_unwind)]
    pub fn keep_alive(&mut self, env: Env) -> napi::Result<()> {
        #[allow(deprecated)]
        self.listeners.as_mut().map_or(Ok(()), |listeners| listeners.alive.refer(&env))
    }

    #[napi(js_name = "unref", catch_unwind)]
    pub fn let_go(&mut self, env: Env) -> napi::Result<()> {
        #[allow(deprecated)]
        self.listeners.as_mut().map_or(Ok(()), |listeners| listeners.alive.unref(&env))
    }

    fn with_run(&self, run: u32, request: impl FnOnce(&Run) -> Result<(), Errno>) -> i32 {
        match self.runs().get(&run).map(request) {
            Some(Ok(())) => 0,
            Some(Err(errno)) => errno as i32,
            None => Errno::ESRCH as i32,
        }
    }
}

impl Drop for Host {
    /// The JS thread ends (a worker has exited). Its runs get the same treatment as when a bot
    /// exits.
    fn drop(&mut self) {
        // Node does not catch a panic of a finalizer.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.runs().values().for_each(Run::abandon);
            self.launcher.retire();
        }));
    }
}

/// Sets the variables that the native code reads, in the order of the names from `start_variables`.
/// JavaScript calls it first after it has loaded the addon. Then starts the trace. Returns why there
/// is none, if the variable requests one.
#[napi(catch_unwind)]
pub fn capture_environment(values: Vec<Option<String>>) -> Option<String> {
    start_environment::report_panics();
    let mut values = values.into_iter();
    start_environment::capture(start_environment::NAMES.map(|_| values.next().flatten()));
    trace::start(start_environment::variable(trace::VARIABLE)).err()
}

/// The names of the environment variables that the native code reads.
#[napi(catch_unwind)]
pub fn start_variables() -> Vec<&'static str> {
    start_environment::NAMES.to_vec()
}

/// The shortest interval in milliseconds at which the bot calls `outputRead` for a run with this idle
/// timeout.
#[napi(catch_unwind)]
pub fn output_report_interval(limit_ms: f64) -> f64 {
    convert::number(crate::run::idle_timeout::report_interval(convert::milliseconds(limit_ms)))
}

/// Separates a command that cannot be started, which is a result, from all other errors, which
/// throw.
fn refused(error: LaunchError) -> Result<(i32, Streams), Error<String>> {
    match error {
        // An unknown errno may be 0, which must not look like success.
        LaunchError::Refused { errno, streams } => Ok(((errno as i32).max(1), streams)),
        error => Err(Error::new(error.code().to_owned(), error.to_string())),
    }
}

/// Lets a test check that a panic becomes a JS error.
#[cfg(feature = "failpoints")]
#[napi(catch_unwind)]
pub fn panic() {
    panic!("a failpoint was hit");
}
