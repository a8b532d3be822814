//! The one native thread that listens to all runs.
//!
//! It never touches SIGCHLD and waits for nobody: tokio is used for descriptors and timers only, on a thread of its
//! own, so a blocked event loop does not delay it and it does not delay the event loop.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle};

static HANDLE: OnceLock<Handle> = OnceLock::new();

/// The running runtime; starts it the first time.
pub fn handle() -> std::io::Result<&'static Handle> {
    if let Some(handle) = HANDLE.get() {
        return Ok(handle);
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("spawn-owned".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    // Two threads that start it at once both get a running one; the second merely idles.
    Ok(HANDLE.get_or_init(|| handle))
}
