//! Where jobs tell that somebody has come or gone: one completion port, and one thread that waits at it.
//!
//! The system does not promise that every message arrives. They are a reason to look at the job, and no more.

use std::collections::HashMap;
use std::os::windows::io::{AsHandle, AsRawHandle, FromRawHandle, OwnedHandle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::mpsc::UnboundedSender;
use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::IO::{CreateIoCompletionPort, GetQueuedCompletionStatus};
use windows_sys::Win32::System::Threading::INFINITE;

use super::Message;
use crate::contain::job::Job;
use crate::errno::Errno;

#[derive(Debug)]
pub struct Port {
    handle: OwnedHandle,
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    next: usize,
    by_key: HashMap<usize, Listener>,
}

#[derive(Debug)]
struct Listener {
    messages: UnboundedSender<Message>,
    /// It was told, and has not looked yet: to be told again would only fill its queue.
    is_told: Arc<AtomicBool>,
}

/// Somebody who is told when something happens in a job, until this is dropped.
#[derive(Debug)]
pub struct Subscription {
    port: &'static Port,
    key: usize,
    is_told: Arc<AtomicBool>,
}

impl Subscription {
    /// From here on what happens is news.
    pub fn looking(&self) {
        self.is_told.store(false, Ordering::Release);
    }
}

static PORT: OnceLock<Port> = OnceLock::new();

/// The port; made, with its thread, the first time.
pub fn open() -> Result<&'static Port, Errno> {
    if let Some(port) = PORT.get() {
        return Ok(port);
    }
    // SAFETY: a port of its own, for no file yet.
    let handle = unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, std::ptr::null_mut(), 0, 1) };
    if handle.is_null() {
        return Err(Errno::last());
    }
    // SAFETY: it was just made, and is ours alone.
    let handle = unsafe { OwnedHandle::from_raw_handle(handle) };
    let mut is_first = false;
    let port = PORT.get_or_init(|| {
        is_first = true;
        Port { handle, listeners: Mutex::default() }
    });
    if is_first {
        let started = std::thread::Builder::new().name("spawn-owned-jobs".into()).spawn(|| port.serve());
        // Without it runs are looked at from time to time all the same.
        started.map_err(|_| Errno::EAGAIN)?;
    }
    Ok(port)
}

impl Port {
    /// Tells `listener` when somebody has come into the job or gone.
    pub fn listen(
        &'static self,
        job: &Job,
        listener: UnboundedSender<Message>,
    ) -> Result<Subscription, Errno> {
        let is_told = Arc::new(AtomicBool::new(false));
        let key = {
            let mut listeners = self.listeners();
            listeners.next += 1;
            let key = listeners.next;
            listeners.by_key.insert(key, Listener { messages: listener, is_told: is_told.clone() });
            key
        };
        let subscription = Subscription { port: self, key, is_told };
        job.tell(self.handle.as_handle(), key)?;
        Ok(subscription)
    }

    fn serve(&self) {
        loop {
            let (mut message, mut key, mut pid) = (0, 0, std::ptr::null_mut());
            // SAFETY: the port is never closed, and the pointers are to locals. What comes as the third is a number, not an address.
            let got = unsafe {
                GetQueuedCompletionStatus(
                    self.handle.as_raw_handle(),
                    &raw mut message,
                    &raw mut key,
                    &raw mut pid,
                    INFINITE,
                )
            };
            if got == 0 {
                return;
            }
            if let Some(listener) = self.listeners().by_key.get(&key)
                && !listener.is_told.swap(true, Ordering::AcqRel)
            {
                let _ = listener.messages.send(Message::Changed);
            }
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.port.listeners().by_key.remove(&self.key);
    }
}
