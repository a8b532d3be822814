//! Getting a handle from a helper process: how an IPC channel's end comes to the command, and a socket whose handle only Node knows (see
//! `ts/ipc.ts`).
//!
//! The helper ([`super::lend`]) tells the number of its handle and waits; we take the handle out of it, and close our end, at which the
//! helper exits. Nothing is between the two that could go wrong silently: as long as our end is open the helper keeps the handle, and if it
//! is killed there is nothing to be taken. Its PID stays its own all the time, because Node has its process open until the event loop
//! hears of its exit, and the event loop waits for us.

use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, IntoRawHandle, OwnedHandle};
use std::sync::mpsc;
use std::time::Duration;

use tokio::net::windows::named_pipe::NamedPipeServer;
use windows_sys::Win32::Foundation::{DUPLICATE_SAME_ACCESS, DuplicateHandle, HANDLE};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcess, PROCESS_DUP_HANDLE};

use super::pipes::{self, Way};
use crate::errno::Errno;
use crate::runtime;
use crate::spawn::OwnedStream;

const LIMIT: Duration = Duration::from_secs(10);

/// Two ends of a pipe: ours, and the helper's standard input.
pub fn open() -> Result<(OwnedStream, OwnedStream), Errno> {
    pipes::pair(Way::Both)
}

/// Waits for the helper, the process of this PID, and takes the handle that it lends.
pub fn receive(ours: OwnedStream, helper: u32) -> Result<OwnedStream, Errno> {
    let runtime = runtime::get().map_err(|_| Errno::EAGAIN)?;
    let (tell, told) = mpsc::channel();
    runtime.loop_handle.spawn(async move {
        let lent = tokio::time::timeout(LIMIT, lent(ours, helper)).await;
        let _ = tell.send(lent.unwrap_or(Err(Errno::ETIMEDOUT)));
    });
    told.recv().unwrap_or(Err(Errno::ECONNRESET))
}

async fn lent(ours: OwnedStream, helper: u32) -> Result<OwnedHandle, Errno> {
    let of = |error: io::Error| match Errno::of(&error) {
        Errno::EPIPE => Errno::ECONNRESET,
        errno => errno,
    };
    // SAFETY: it is a pipe's end, to be waited for without waiting, and nobody else's from here on.
    let pipe = unsafe { NamedPipeServer::from_raw_handle(ours.into_raw_handle()) }.map_err(of)?;
    let mut number = [0; size_of::<usize>()];
    loop {
        pipe.readable().await.map_err(of)?;
        match pipe.try_read(&mut number) {
            // It is written at once, and so comes at once.
            Ok(count) if count == number.len() => break,
            Ok(0) => return Err(Errno::ECONNRESET),
            Ok(_) => return Err(Errno::EPROTO),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(of(error)),
        }
    }
    let lent = take(helper, usize::from_ne_bytes(number));
    // Only now it may go.
    drop(pipe);
    lent
}

/// A handle of ours, inherited by nobody, for what that process has under this number.
fn take(owner: u32, number: usize) -> Result<OwnedHandle, Errno> {
    let mut copy: HANDLE = std::ptr::null_mut();
    // SAFETY: each call fails if its argument means nothing; what they return is ours alone.
    unsafe {
        let process = OpenProcess(PROCESS_DUP_HANDLE, 0, owner);
        if process.is_null() {
            return Err(Errno::last());
        }
        let process = OwnedHandle::from_raw_handle(process);
        let handle = std::ptr::without_provenance_mut(number);
        let (from, to) = (process.as_raw_handle(), GetCurrentProcess());
        if DuplicateHandle(from, handle, to, &raw mut copy, 0, 0, DUPLICATE_SAME_ACCESS) == 0 {
            return Err(Errno::last());
        }
        Ok(OwnedHandle::from_raw_handle(copy))
    }
}
