//! The completion port to which all jobs post messages about their members, and its thread.
//!
//! Windows does not guarantee that every message arrives. So a message is only a reason to check
//! the job.

use std::collections::HashMap;
use std::os::windows::io::{AsHandle, AsRawHandle, FromRawHandle, OwnedHandle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::UnboundedSender;
use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::IO::{
    CreateIoCompletionPort, GetQueuedCompletionStatus, PostQueuedCompletionStatus,
};
use windows_sys::Win32::System::SystemServices::JOB_OBJECT_MSG_NEW_PROCESS;
use windows_sys::Win32::System::Threading::INFINITE;

use super::Message;
use super::member_handles::MemberHandles;
use crate::contain::job::Job;
use crate::errno::Errno;
use crate::runtime;

/// The message that [`Subscription::catch_up`] posts. Jobs never post this value.
const CAUGHT_UP: u32 = u32::MAX;

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
    /// Handles of the members. The port's thread opens new members here at once, before they exit.
    members: Arc<MemberHandles>,
    /// A [`Message::Changed`] is in the keeper's queue. A second one would only fill the queue.
    is_notified: Arc<AtomicBool>,
}

/// Delivers a job's messages to its keeper, until it is dropped.
#[derive(Debug)]
pub struct Subscription {
    port: Arc<Port>,
    key: usize,
    is_notified: Arc<AtomicBool>,
}

impl Subscription {
    /// Call it before each check of the job: a later change then causes a new message.
    pub fn before_check(&self) {
        self.is_notified.store(false, Ordering::Release);
    }

    /// Posts a message that arrives as [`Message::CaughtUp`], after all messages that the job has
    /// posted before. False if that failed.
    pub fn catch_up(&self) -> bool {
        // SAFETY: the port is open, and the call passes no structure.
        let posted = unsafe {
            PostQueuedCompletionStatus(
                self.port.handle.as_raw_handle(),
                CAUGHT_UP,
                self.key,
                std::ptr::null_mut(),
            )
        };
        posted != 0
    }
}

/// The port, once its thread runs.
static PORT: Mutex<Option<Arc<Port>>> = Mutex::new(None);

/// Returns the port. The first call creates it and its thread. If that fails, the next call tries
/// again.
pub fn open() -> Result<Arc<Port>, Errno> {
    open_in(&PORT, |port| {
        let started = runtime::thread("spawn-owned-jobs").spawn(move || port.serve());
        started.map(drop).map_err(|_| Errno::EAGAIN)
    })
}

/// Returns the port in `slot`. If there is none, creates one, and stores it after `start` has
/// started its thread.
///
/// A port without a thread must not be stored: a keeper that subscribes to it would wait for
/// messages that never arrive. Without a subscription, a keeper checks its job at intervals.
fn open_in(
    slot: &Mutex<Option<Arc<Port>>>,
    start: impl FnOnce(Arc<Port>) -> Result<(), Errno>,
) -> Result<Arc<Port>, Errno> {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(port) = &*slot {
        return Ok(port.clone());
    }
    let port = Arc::new(Port::new()?);
    start(port.clone())?;
    Ok(slot.insert(port).clone())
}

impl Port {
    fn new() -> Result<Self, Errno> {
        // SAFETY: the call creates a new port that is not associated with a file.
        let handle = unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, std::ptr::null_mut(), 0, 1) };
        if handle.is_null() {
            return Err(Errno::last());
        }
        // SAFETY: the call above has just created this handle. No other code knows it.
        let handle = unsafe { OwnedHandle::from_raw_handle(handle) };
        Ok(Self { handle, listeners: Mutex::default() })
    }

    /// Sends a [`Message`] through `messages` when a process has entered or left the job.
    pub fn listen(
        self: &Arc<Self>,
        job: &Job,
        members: Arc<MemberHandles>,
        messages: UnboundedSender<Message>,
    ) -> Result<Subscription, Errno> {
        let is_notified = Arc::new(AtomicBool::new(false));
        let key = {
            let mut listeners = self.listeners();
            listeners.next += 1;
            let key = listeners.next;
            listeners.by_key.insert(key, Listener { messages, members, is_notified: is_notified.clone() });
            key
        };
        let subscription = Subscription { port: self.clone(), key, is_notified };
        job.report_to(self.handle.as_handle(), key)?;
        Ok(subscription)
    }

    fn serve(&self) {
        loop {
            let (mut message, mut key, mut pid) = (0, 0, std::ptr::null_mut());
            // SAFETY: this port has an open handle, and the pointers point to local variables. Jobs
            // pass a PID in the third one, which is never used as an address.
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
            self.dispatch(message, key, pid.addr());
        }
    }

    fn dispatch(&self, message: u32, key: usize, pid: usize) {
        // Release the lock before `add`, which makes system calls.
        let members = self.listeners().by_key.get(&key).map(|listener| listener.members.clone());
        if let (JOB_OBJECT_MSG_NEW_PROCESS, Some(members), Ok(pid)) = (message, members, i32::try_from(pid)) {
            members.add(pid);
        }
        if let Some(listener) = self.listeners().by_key.get(&key) {
            if message == CAUGHT_UP {
                let _ = listener.messages.send(Message::CaughtUp);
            } else if !listener.is_notified.swap(true, Ordering::AcqRel) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_whose_thread_does_not_start_is_not_used_and_the_next_call_creates_another() {
        let slot = Mutex::new(None);
        assert_eq!(open_in(&slot, |_| Err(Errno::EAGAIN)).err(), Some(Errno::EAGAIN));
        assert!(slot.lock().unwrap().is_none());
        let mut started = 0;
        let first = open_in(&slot, |_| {
            started += 1;
            Ok(())
        });
        let second = open_in(&slot, |_| Err(Errno::EAGAIN));
        assert!(Arc::ptr_eq(&first.unwrap(), &second.unwrap()));
        assert_eq!(started, 1);
    }
}
