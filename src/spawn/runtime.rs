//! The native threads: one listens to all runs, the other does what may take its time.
//!
//! Neither touches SIGCHLD: tokio is used for descriptors and timers only, so a blocked event loop does not delay it and it
//! does not delay the event loop. Both are started at once, at the first spawn, where a failure is still the caller's to
//! hear. Later, when the process may be out of threads, no new one is needed.

use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

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
