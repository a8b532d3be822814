//! The bot's control pipe: a named pipe through which control clients reach the bot's runs.
//!
//! The pipe has the default access rights. So only this user and administrators can write to it,
//! and both may end the user's processes anyway. A client first names its run, and the server then
//! forwards its requests to that run's keeper.

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
use crate::keeper::control_request::ControlRequest;
use crate::keeper::protocol::{self, Inbox, Report, Request};

/// Timeout for a client's first message, and for sending it the last reports.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Delay before retrying a failed pipe creation.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The keeper of each run, by the run's key.
static KEEPERS: OnceLock<Mutex<HashMap<String, UnboundedSender<Message>>>> = OnceLock::new();

fn keepers() -> MutexGuard<'static, HashMap<String, UnboundedSender<Message>>> {
    KEEPERS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Control clients can reach the run while this value exists.
#[derive(Debug)]
pub struct Listed {
    key: String,
    keeper: UnboundedSender<Message>,
}

pub fn list(key: &str, keeper: UnboundedSender<Message>) -> Listed {
    keepers().insert(key.to_owned(), keeper.clone());
    Listed { key: key.to_owned(), keeper }
}

impl Drop for Listed {
    /// Removes the run, unless another keeper of this bot has taken it over.
    fn drop(&mut self) {
        let mut keepers = keepers();
        if keepers.get(&self.key).is_some_and(|keeper| keeper.same_channel(&self.keeper)) {
            keepers.remove(&self.key);
        }
    }
}

/// The name of the control pipe. Each copy of the addon has its own pipe.
///
/// The name contains the bot's PID and start token. It does not prove who the server is: a client
/// asks Windows for the server's PID.
pub fn address() -> &'static str {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    ADDRESS.get_or_init(|| {
        let me = std::process::id().cast_signed();
        format!("{}{}", prefix(me, identity::me().map_or(0, |me| me.start)), random())
    })
}

/// The first part of the name of a bot's control pipe.
pub fn prefix(pid: i32, start: u64) -> String {
    format!(r"\\.\pipe\spawn-owned-{pid}-{start}-")
}

/// A random text of 128 bits, which is unique and which other processes cannot guess.
pub fn random() -> String {
    let number = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", number(), number())
}

/// Starts the server, on the first call. If it fails, runs still start, but control clients cannot
/// connect.
pub fn open(handle: &Handle) {
    static OPEN: OnceLock<()> = OnceLock::new();
    OPEN.get_or_init(|| {
        handle.spawn(accept_clients(|is_first| create(address(), is_first)));
    });
}

/// Creates instances of the pipe with `create`, and serves each client that connects.
async fn accept_clients(create: impl Fn(bool) -> io::Result<NamedPipeServer>) {
    // The last instance that was created. It stays open until the next one exists, so that the name
    // stays ours.
    let mut last: Option<Arc<NamedPipeServer>> = None;
    loop {
        let Ok(server) = create(last.is_none()) else {
            tokio::time::sleep(RETRY_DELAY).await;
            continue;
        };
        let server = Arc::new(server);
        last = Some(server.clone());
        match server.connect().await {
            Ok(()) => drop(tokio::spawn(serve(server))),
            // The client disconnected at once.
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
}

/// Creates an instance of the pipe.
///
/// If another process already has a pipe of this name, a further instance would join that pipe. The
/// first instance must not: with `is_first`, the creation fails then.
fn create(address: &str, is_first: bool) -> io::Result<NamedPipeServer> {
    ServerOptions::new().first_pipe_instance(is_first).create(address)
}

/// Serves one client until it disconnects or the run is over.
///
/// A client that sends no first message is disconnected after [`CLIENT_TIMEOUT`].
async fn serve(pipe: Arc<NamedPipeServer>) {
    let mut inbox = Inbox::default();
    let first = tokio::time::timeout(CLIENT_TIMEOUT, next_payload(&pipe, &mut inbox)).await;
    let Ok(Some(payload)) = first else { return };
    let Ok(Request::ControlClient { key }) = protocol::decode(&payload) else { return };
    let Some(keeper) = keepers().get(key).cloned() else { return };
    let (reports, outgoing) = unbounded_channel();
    if keeper.send(Message::ClientConnected(reports.clone())).is_err() {
        return;
    }
    let sender = tokio::spawn(send_reports(pipe.clone(), outgoing));
    while let Some(request) = next_request(&pipe, &mut inbox).await {
        if keeper.send(Message::ClientRequest(request, reports.clone())).is_err() {
            // The run is over. Give the last reports time to reach the client.
            drop(reports);
            let _ = tokio::time::timeout(CLIENT_TIMEOUT, sender).await;
            return;
        }
    }
    // The client has disconnected, or has violated the protocol and gets no more reports.
    sender.abort();
}

async fn send_reports(pipe: Arc<NamedPipeServer>, mut outgoing: UnboundedReceiver<Report>) {
    while let Some(report) = outgoing.recv().await {
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

async fn next_request(pipe: &NamedPipeServer, inbox: &mut Inbox) -> Option<ControlRequest> {
    ControlRequest::decode(&next_payload(pipe, inbox).await?)
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

#[cfg(test)]
mod tests {
    use tokio::net::windows::named_pipe::ClientOptions;

    use super::*;

    #[test]
    fn the_pipe_is_created_as_the_first_instance_until_one_exists() {
        let name = format!("{}{}", prefix(0, 0), random());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (attempts, mut attempted) = unbounded_channel();
            let (pipe, failures) = (name.clone(), Mutex::new(2));
            tokio::spawn(accept_clients(move |is_first| {
                attempts.send(is_first).unwrap();
                let mut failures = failures.lock().unwrap();
                if *failures > 0 {
                    *failures -= 1;
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                create(&pipe, is_first)
            }));
            for _ in 0..3 {
                assert_eq!(attempted.recv().await, Some(true));
            }
            let _client = ClientOptions::new().open(&name).unwrap();
            assert_eq!(attempted.recv().await, Some(false));
        });
    }
}
