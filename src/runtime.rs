//! The native threads: one runs the event loop of all runs, the other runs jobs that block.
//!
//! Neither touches SIGCHLD: tokio handles only descriptors and timers. So these threads and Node's
//! event loop do not delay each other. Both threads start together at the first spawn, where the
//! caller still gets an error. Later, when the process may be out of threads, no new one is needed.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Handles of the native threads.
#[derive(Debug)]
pub struct Runtime {
    pub loop_handle: Handle,
    jobs: Sender<Job>,
}

/// Stack size: the default of the standard library.
const STACK: usize = 2 << 20;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// The running threads. Starts them at the first call.
pub fn get() -> std::io::Result<&'static Runtime> {
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let event_loop = Builder::new_current_thread().enable_all().build()?;
    let loop_handle = event_loop.handle().clone();
    let (jobs, queue) = channel::<Job>();
    thread("spawn-owned-job").spawn(move || queue.into_iter().for_each(run_job))?;
    thread("spawn-owned").spawn(move || event_loop.block_on(std::future::pending::<()>()))?;
    // If two threads start it at the same time, both get the same one, and the other one stays
    // idle.
    Ok(RUNTIME.get_or_init(|| Runtime { loop_handle, jobs }))
}

/// A builder for a new thread, with a fixed stack size. Without one the standard library calls
/// `getenv("RUST_MIN_STACK")`, see [`crate::start_environment`].
#[allow(clippy::disallowed_methods)] // The only place that creates threads.
pub fn thread(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.into()).stack_size(STACK)
}

/// Runs a blocking job on its own thread. If no thread can be started, queues it for the job
/// thread.
pub fn in_background(job: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // A thread that fails to start drops its closure, so the job itself is stored outside of it.
    let job = Arc::new(Mutex::new(Some(job)));
    let run = |job: &Mutex<Option<_>>| {
        let job = job.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(job) = job {
            run_job(Box::new(job));
        }
    };
    let shared = job.clone();
    if thread("spawn-owned-bg").spawn(move || run(&shared)).is_err() {
        let queued = get()?.jobs.send(Box::new(move || run(&job)));
        queued.map_err(|_| std::io::Error::other("the native job thread has ended"))?;
    }
    Ok(())
}

impl Runtime {
    /// Runs a blocking job on the job thread, after all queued jobs. `None` if it did not finish.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = oneshot::channel();
        self.jobs.send(Box::new(move || drop(done.send(job())))).ok()?;
        result.await.ok()
    }
}

/// Catches a panic, so that the job thread goes on.
fn run_job(job: Job) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
}
