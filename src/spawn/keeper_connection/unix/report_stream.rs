//! What arrives from a keeper and its exec stub, read on the native thread.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::pin;

use nix::errno::Errno;
use nix::libc;
use tokio::io::unix::AsyncFd;

use crate::identity::ProcessRef;
use crate::keeper::channel;
use crate::keeper::protocol::{self, Inbox, Report};
use crate::spawn::run::Run;
use crate::spawn::unix::{EXEC_WAKE_AFTER, refused_with};

/// The reports of a keeper. Open it to read them.
pub struct ReportStream {
    /// Reports that were read already.
    pub received: Vec<Report>,
    pub inbox: Inbox,
}

pub struct OpenReportStream {
    socket: AsyncFd<Run>,
    received: std::vec::IntoIter<Report>,
    inbox: Inbox,
}

impl ReportStream {
    /// Registers the control socket with the event loop. Call it on the native thread.
    pub fn open(self, run: &Run) -> Option<OpenReportStream> {
        // SAFETY: the registered value owns the descriptor.
        let socket = unsafe { AsyncFd::register(run.clone()) }.ok()?;
        Some(OpenReportStream { socket, received: self.received.into_iter(), inbox: self.inbox })
    }
}

impl OpenReportStream {
    /// The next report. `None` if no more can come.
    pub async fn next(&mut self) -> Option<Report> {
        let mut buffer = [0; 1024];
        loop {
            if let Some(report) = self.received.next() {
                return Some(report);
            }
            if let Some(payload) = self.inbox.next_payload().ok()? {
                return protocol::decode(&payload).ok();
            }
            let count = receive(&self.socket, &mut buffer).await?;
            self.inbox.push(&buffer[..count]);
        }
    }
}

/// The launch socket, which closes when `exec` succeeds.
pub struct Exec(pub OwnedFd);

impl Exec {
    /// Waits for the result of `exec`: `None` if it succeeded, usually at once. Wakes the exec stub
    /// now and then, because another process may have stopped it.
    pub async fn refusal(self, root: &ProcessRef) -> Option<Errno> {
        let mut refusal = pin!(refusal(self.0));
        loop {
            match tokio::time::timeout(EXEC_WAKE_AFTER, &mut refusal).await {
                Ok(refusal) => return refusal,
                Err(_) => drop(root.signal(libc::SIGCONT)),
            }
        }
    }
}

async fn refusal(exec: OwnedFd) -> Option<Errno> {
    // SAFETY: the registered value owns the descriptor.
    let socket = unsafe { AsyncFd::register(exec) }.ok()?;
    let mut inbox = Inbox::default();
    let mut buffer = [0; 64];
    while let Some(count) = receive(&socket, &mut buffer).await {
        inbox.push(&buffer[..count]);
        if let Some(payload) = inbox.next_payload().ok()? {
            return Some(refused_with(&payload));
        }
    }
    None
}

/// Waits for the end of file of a socket that carries no data.
pub(super) async fn wait_for_eof(socket: &OwnedFd) -> Option<()> {
    // SAFETY: the descriptor is borrowed, and outlives the registration.
    let socket = unsafe { AsyncFd::register(socket.as_fd()) }.ok()?;
    receive(&socket, &mut [0]).await.map(drop)
}

/// Reads the next bytes. `None` at end of file or on an error.
async fn receive(socket: &AsyncFd<impl AsFd + AsRawFd>, buffer: &mut [u8]) -> Option<usize> {
    loop {
        let mut ready = socket.readable().await.ok()?;
        // Otherwise the event loop was wrong, and the socket is not readable yet.
        if let Ok(result) = ready.try_io(|socket| Ok(channel::receive_now(socket.get_ref(), buffer)?)) {
            return result.ok().filter(|&count| count > 0);
        }
    }
}
