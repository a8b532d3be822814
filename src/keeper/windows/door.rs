//! The bot's door: a named pipe at which others may ask for one of its runs.
//!
//! The pipe has the system's usual rights: whoever may write to it is this user, or an administrator, who may end its processes anyway.
//! A visitor says which run it wants to talk to, and is passed on to whoever holds that.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::net::windows::named_pipe::{NamedPipeServer, ServerOptions};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Message;
use crate::identity;
use crate::keeper::protocol::{self, Inbox, Report, Request};

/// Who holds which run, by its key.
static HELD: OnceLock<Mutex<HashMap<String, UnboundedSender<Message>>>> = OnceLock::new();

fn held() -> MutexGuard<'static, HashMap<String, UnboundedSender<Message>>> {
    HELD.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run that visitors can ask for, until this is dropped.
#[derive(Debug)]
pub struct Listed {
    key: String,
}

pub fn list(key: &str, keeper: UnboundedSender<Message>) -> Listed {
    held().insert(key.to_owned(), keeper);
    Listed { key: key.to_owned() }
}

impl Drop for Listed {
    fn drop(&mut self) {
        held().remove(&self.key);
    }
}

/// Where it is. The name says whose it is; who sits there is asked of the system.
pub fn address() -> String {
    let start = identity::me().map_or(0, |me| me.start);
    format!(r"\\.\pipe\spawn-owned-{}-{start}", std::process::id())
}

/// Opens it, the first time. Not to be able to is no reason to start nothing: only those who come from elsewhere are not served.
pub fn open(handle: &Handle) {
    static OPEN: OnceLock<()> = OnceLock::new();
    OPEN.get_or_init(|| {
        handle.spawn(async {
            // If somebody else has that name, that is none of ours, and we would be one of theirs.
            let mut next = ServerOptions::new().first_pipe_instance(true).create(address());
            while let Ok(server) = next {
                if server.connect().await.is_err() {
                    return;
                }
                // The next one is there before this one is served: there is always one to knock at.
                next = ServerOptions::new().create(address());
                tokio::spawn(receive(Arc::new(server)));
            }
        });
    });
}

/// One visitor, until it goes, or the run is over.
async fn receive(pipe: Arc<NamedPipeServer>) {
    let mut inbox = Inbox::default();
    let Some(payload) = next_payload(&pipe, &mut inbox).await else { return };
    let Ok(Request::Visit { key }) = protocol::decode(&payload) else { return };
    let Some(keeper) = held().get(key).cloned() else { return };
    let (reports, told) = unbounded_channel();
    if keeper.send(Message::Visitor(reports.clone())).is_err() {
        return;
    }
    let speaking = tokio::spawn(speak(pipe.clone(), told));
    while let Some(payload) = next_payload(&pipe, &mut inbox).await {
        if keeper.send(Message::Wished(payload, reports.clone())).is_err() {
            break;
        }
    }
    drop(reports);
    // Its last words may be on their way, if it is still there to hear them.
    let _ = speaking.await;
}

async fn speak(pipe: Arc<NamedPipeServer>, mut told: UnboundedReceiver<Report>) {
    while let Some(report) = told.recv().await {
        let is_last = matches!(report, Report::Extinct(_));
        let Ok(frame) = protocol::encode(&report) else { return };
        if write(&pipe, &frame).await.is_err() || is_last {
            return;
        }
    }
}

async fn write(pipe: &NamedPipeServer, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        pipe.writable().await?;
        match pipe.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn next_payload(pipe: &NamedPipeServer, inbox: &mut Inbox) -> Option<Vec<u8>> {
    let mut buffer = [0; 1024];
    loop {
        if let Some(payload) = inbox.next_payload().ok()? {
            return Some(payload);
        }
        pipe.readable().await.ok()?;
        match pipe.try_read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => inbox.push(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}
