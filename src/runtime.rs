//! The native threads: one listens to all runs, the other does what may take its time.
//!
//! Neither touches SIGCHLD: tokio is used for descriptors and timers only, so a blocked event loop does not delay it and it
//! does not delay the event loop. Both are started at once, at the first spawn, where a failure is still the caller's to
//! hear. Later, when the process may be out of threads, no new one is needed.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
pub struct Runtime {
    pub loop_handle: Handle,
    jobs: Sender<Job>,
}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// The running threads; starts them the first time.
pub fn get() -> std::io::Result<&'static Runtime> {
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let event_loop = Builder::new_current_thread().enable_all().build()?;
    let loop_handle = event_loop.handle().clone();
    let (jobs, queue) = channel::<Job>();
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    thread("spawn-owned-job").spawn(move || queue.into_iter().for_each(run_job))?;
    thread("spawn-owned").spawn(move || event_loop.block_on(std::future::pending::<()>()))?;
    // Two threads that start it at once both get a running one; the second merely idles.
    Ok(RUNTIME.get_or_init(|| Runtime { loop_handle, jobs }))
}

/// Runs something that blocks for long on a thread of its own; if there is none to be had, after whatever else is to be done.
pub fn in_background(job: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // A thread that cannot be started takes its closure with it, so the job is in a place of its own.
    let job = Arc::new(Mutex::new(Some(job)));
    let run = |job: &Mutex<Option<_>>| {
        let job = job.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(job) = job {
            run_job(Box::new(job));
        }
    };
    let shared = job.clone();
    if std::thread::Builder::new().name("spawn-owned-bg".into()).spawn(move || run(&shared)).is_err() {
        let queued = get()?.jobs.send(Box::new(move || run(&job)));
        queued.map_err(|_| std::io::Error::other("the native thread is gone"))?;
    }
    Ok(())
}

impl Runtime {
    /// Runs something that blocks, after whatever else is to be done. `None` if it could not be.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = oneshot::channel();
        self.jobs.send(Box::new(move || drop(done.send(job())))).ok()?;
        result.await.ok()
    }
}

/// A job that panics must not take the others with it.
fn run_job(job: Job) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
}
