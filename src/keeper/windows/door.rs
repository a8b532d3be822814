//! The bot's door: a named pipe at which others may ask for one of its runs.
//!
//! The pipe has the system's usual rights: whoever may write to it is this user, or an administrator, who may end its processes anyway.
//! A visitor says which run it wants to talk to, and is passed on to whoever holds that.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::net::windows::named_pipe::{NamedPipeServer, ServerOptions};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Message;
use crate::identity;
use crate::keeper::protocol::{self, Inbox, Report, Request};

/// How long a visitor may take to say what it wants, and to hear our last words.
const PATIENCE: Duration = Duration::from_secs(2);
/// Before the door is opened again that could not be.
const PAUSE: Duration = Duration::from_millis(100);

/// Who holds which run, by its key.
static HELD: OnceLock<Mutex<HashMap<String, UnboundedSender<Message>>>> = OnceLock::new();

fn held() -> MutexGuard<'static, HashMap<String, UnboundedSender<Message>>> {
    HELD.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run that visitors can ask for, until this is dropped.
#[derive(Debug)]
pub struct Listed {
    key: String,
    keeper: UnboundedSender<Message>,
}

pub fn list(key: &str, keeper: UnboundedSender<Message>) -> Listed {
    held().insert(key.to_owned(), keeper.clone());
    Listed { key: key.to_owned(), keeper }
}

impl Drop for Listed {
    /// Whoever has taken it over from us stays.
    fn drop(&mut self) {
        let mut held = held();
        if held.get(&self.key).is_some_and(|keeper| keeper.same_channel(&self.keeper)) {
            held.remove(&self.key);
        }
    }
}

/// Where it is: each copy of the addon has its own. The name says whose it is; who sits there is asked of the system.
pub fn address() -> &'static str {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    ADDRESS.get_or_init(|| {
        let me = std::process::id().cast_signed();
        format!("{}{}", prefix(me, identity::me().map_or(0, |me| me.start)), random())
    })
}

/// With what the address of a bot's door begins.
pub fn prefix(pid: i32, start: u64) -> String {
    format!(r"\\.\pipe\spawn-owned-{pid}-{start}-")
}

/// Something that nobody else has, and nobody can guess.
pub fn random() -> String {
    let number = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", number(), number())
}

/// Opens it, the first time. Not to be able to is no reason to start nothing: only those who come from elsewhere are not served.
pub fn open(handle: &Handle) {
    static OPEN: OnceLock<()> = OnceLock::new();
    OPEN.get_or_init(|| {
        handle.spawn(async {
            // If somebody else has that name, that is none of ours, and we would be one of theirs.
            let mut options = ServerOptions::new();
            options.first_pipe_instance(true);
            loop {
                // The next one is there before the last one is served: there is always one to knock at.
                let opened = options.create(address());
                options.first_pipe_instance(false);
                let connected = match opened {
                    Ok(server) => server.connect().await.map(|()| server),
                    Err(error) => Err(error),
                };
                match connected {
                    Ok(server) => drop(tokio::spawn(receive(Arc::new(server)))),
                    // Out of something, or whoever knocked was gone at once.
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
        });
    });
}

/// One visitor, until it goes, or the run is over.
///
/// Anybody may connect, and say nothing: that one is not waited for.
async fn receive(pipe: Arc<NamedPipeServer>) {
    let mut inbox = Inbox::default();
    let first = tokio::time::timeout(PATIENCE, next_payload(&pipe, &mut inbox)).await;
    let Ok(Some(payload)) = first else { return };
    let Ok(Request::Visit { key }) = protocol::decode(&payload) else { return };
    let Some(keeper) = held().get(key).cloned() else { return };
    let (reports, told) = unbounded_channel();
    if keeper.send(Message::Visitor(reports.clone())).is_err() {
        return;
    }
    let speaking = tokio::spawn(speak(pipe.clone(), told));
    while let Some(payload) = next_payload(&pipe, &mut inbox).await {
        if keeper.send(Message::Wished(payload, reports.clone())).is_err() {
            // The run is over. Its last words may be on their way.
            drop(reports);
            let _ = tokio::time::timeout(PATIENCE, speaking).await;
            return;
        }
    }
    // It has gone, and hears nothing.
    speaking.abort();
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
