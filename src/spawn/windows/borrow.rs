//! Receives a handle from a helper process: the command's end of an IPC channel, or a socket whose
//! handle only Node knows (see `ts/run/ipc.ts`).
//!
//! The helper ([`super::lend`]) sends the value of its handle and waits. The bot duplicates the
//! handle and closes its end of the pipe. Then the helper exits. While our end is open, the helper
//! keeps the handle. If another process kills the helper, the duplication fails. The helper's PID
//! cannot be reused meanwhile: Node has its process open until the event loop handles its exit, and
//! the event loop waits for this call.

use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, IntoRawHandle, OwnedHandle};
use std::sync::mpsc;
use std::time::Duration;

use tokio::net::windows::named_pipe::NamedPipeServer;
use windows_sys::Win32::Foundation::{DUPLICATE_SAME_ACCESS, DuplicateHandle, HANDLE};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcess, PROCESS_DUP_HANDLE};

use super::pipes::{self, Direction};
use crate::errno::Errno;
use crate::runtime;
use crate::spawn::OwnedStream;

const LIMIT: Duration = Duration::from_secs(10);

/// Both ends of a pipe: ours, and the helper's standard input.
pub fn open() -> Result<(OwnedStream, OwnedStream), Errno> {
    pipes::pair(Direction::Both)
}

/// Waits for the helper with this PID, and takes the handle that it sends.
pub fn receive(ours: OwnedStream, helper: u32) -> Result<OwnedStream, Errno> {
    let runtime = runtime::get().map_err(|_| Errno::EAGAIN)?;
    let (sender, receiver) = mpsc::channel();
    runtime.loop_handle.spawn(async move {
        let lent = tokio::time::timeout(LIMIT, receive_handle(ours, helper)).await;
        let _ = sender.send(lent.unwrap_or(Err(Errno::ETIMEDOUT)));
    });
    receiver.recv().unwrap_or(Err(Errno::ECONNRESET))
}

async fn receive_handle(ours: OwnedStream, helper: u32) -> Result<OwnedHandle, Errno> {
    let errno_of = |error: io::Error| match Errno::of(&error) {
        Errno::EPIPE => Errno::ECONNRESET,
        errno => errno,
    };
    // SAFETY: it is the overlapped end of a pipe, and only this task uses it from now on.
    let pipe = unsafe { NamedPipeServer::from_raw_handle(ours.into_raw_handle()) }.map_err(errno_of)?;
    let mut value = [0; size_of::<usize>()];
    loop {
        pipe.readable().await.map_err(errno_of)?;
        match pipe.try_read(&mut value) {
            // The helper writes the value in one call, so one read gets all of it.
            Ok(count) if count == value.len() => break,
            Ok(0) => return Err(Errno::ECONNRESET),
            Ok(_) => return Err(Errno::EPROTO),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(errno_of(error)),
        }
    }
    let lent = duplicate_from(helper, usize::from_ne_bytes(value));
    // Dropping the pipe lets the helper exit, so the duplication must come first.
    drop(pipe);
    lent
}

/// Duplicates a handle of another process. The duplicate is not inheritable.
fn duplicate_from(owner: u32, value: usize) -> Result<OwnedHandle, Errno> {
    let mut copy: HANDLE = std::ptr::null_mut();
    // SAFETY: each call fails if its argument is invalid. Only this function has the returned
    // handles.
    unsafe {
        let process = OpenProcess(PROCESS_DUP_HANDLE, 0, owner);
        if process.is_null() {
            return Err(Errno::last());
        }
        let process = OwnedHandle::from_raw_handle(process);
        let handle = std::ptr::without_provenance_mut(value);
        let (from, to) = (process.as_raw_handle(), GetCurrentProcess());
        if DuplicateHandle(from, handle, to, &raw mut copy, 0, 0, DUPLICATE_SAME_ACCESS) == 0 {
            return Err(Errno::last());
        }
        Ok(OwnedHandle::from_raw_handle(copy))
    }
}
