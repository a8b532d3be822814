//! Waiting, on the native thread, for the exit of a process that need not be our child.

#[cfg(unix)]
use std::os::fd::OwnedFd;
#[cfg(windows)]
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

#[cfg(unix)]
use tokio::io::{Interest, unix::AsyncFd};

#[cfg(unix)]
use super::ProcessHandle;
use super::{ProcessRef, State};

/// Delay between two checks where no event reports the exit.
const INTERVAL: Duration = Duration::from_millis(200);

/// A process, and what reports its exit.
pub struct ExitWatch {
    pub process: ProcessRef,
    /// Readable when the process has exited. `None` if this system has no such descriptor.
    #[cfg(unix)]
    pidfd: Option<AsyncFd<OwnedFd>>,
}

#[cfg(unix)]
impl ExitWatch {
    pub fn new(process: ProcessRef) -> Self {
        let pidfd = process.open_handle().ok().and_then(ProcessHandle::into_pollable);
        // For reading only: nothing can be written to a pidfd, and a kqueue cannot watch for that.
        // SAFETY: the `AsyncFd` owns the descriptor that it registers.
        let register = |pidfd| unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }.ok();
        Self { pidfd: pidfd.and_then(register), process }
    }

    pub async fn exited(&self) {
        if let Some(pidfd) = &self.pidfd
            && pidfd.readable().await.is_ok()
        {
            return;
        }
        poll_until_exited(&self.process).await;
    }

    /// Whether the process group that this process has led has members, also after its exit. `None`
    /// if the kernel cannot tell that group from a later one with the same ID.
    pub fn has_group(&self) -> Option<bool> {
        super::group_has_members(self.pidfd.as_ref()?.get_ref())
    }
}

#[cfg(windows)]
impl ExitWatch {
    pub fn new(process: ProcessRef) -> Self {
        Self { process }
    }

    pub async fn exited(&self) {
        if exit_event(&self.process).await.is_none() {
            poll_until_exited(&self.process).await;
        }
    }

    /// `None`: Windows has no process groups.
    #[allow(clippy::unused_self)] // As on the other systems.
    pub fn has_group(&self) -> Option<bool> {
        None
    }
}

/// Waits until a process has exited.
pub async fn exited(process: &ProcessRef) {
    ExitWatch::new(process.clone()).exited().await;
}

async fn poll_until_exited(process: &ProcessRef) {
    while process.state() == State::Alive {
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Waits for the system's callback. `None` if the process cannot be opened for that.
#[cfg(windows)]
async fn exit_event(process: &ProcessRef) -> Option<()> {
    let handle = process.open_handle().ok()?;
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let sender = Mutex::new(Some(sender));
    let on_exit = move || {
        if let Some(sender) = sender.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = sender.send(());
        }
    };
    // Rust drops `_wait` before `handle`: the system never waits for a closed handle.
    let _wait = handle.on_exit(on_exit).ok()?;
    receiver.await.ok()
}
