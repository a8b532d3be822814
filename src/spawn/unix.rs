//! Starting a run through a keeper.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::socket::{AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, send, shutdown, socketpair};
use nix::sys::stat::Mode;
use tokio::io::unix::AsyncFd;

use super::inherited::{self, Inherited};
use super::zygote::{self, Zygote};
use super::{Ending, Launch, LaunchError, Launched, RunEvent, Stdio, runtime};
use crate::contain::{cookie, outside};
use crate::identity::ProcessRef;
use crate::keeper::channel;
use crate::keeper::protocol::{self, Inbox, MAX_FDS, Report, Request, Slot, Start};
use crate::run::lifecycle::{KILL_LIMIT_MS, ORPHAN_GRACE_MS};

/// How long a keeper may take to say whether the command runs. A file on a slow disk is not an error; a keeper that
/// somebody has stopped is.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Called on the native thread, once per event; the last is always [`RunEvent::Extinct`].
pub type OnEvent = Box<dyn Fn(RunEvent) + Send + Sync>;

/// Starts runs. One per process is enough; it is safe to share.
#[derive(Debug)]
pub struct Launcher {
    keeper: PathBuf,
    /// Give each keeper a process of its own instead of forking it from the zygote.
    cold: bool,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    zygote: Option<Zygote>,
    umask: u32,
}

/// A run that was started: what can still be asked of it. Dropping this changes nothing.
#[derive(Debug, Clone)]
pub struct Run {
    control: Arc<OwnedFd>,
}

impl Launcher {
    pub fn new(keeper: PathBuf, cold: bool) -> Self {
        Self { keeper, cold, shared: Mutex::default() }
    }

    /// Starts a command. Blocks until it runs, or has failed to.
    pub fn launch(&self, launch: &Launch, on_event: OnEvent) -> Result<Launched, LaunchError> {
        // Whatever can fail for lack of a thread fails before anything is started.
        let runtime = runtime::handle().map_err(|_| LaunchError::Refused(Errno::EAGAIN))?;
        let plumbing = Plumbing::lay(&launch.stdio)?;
        let env = format!(
            "{}{}={}\0",
            launch.env,
            cookie::VARIABLE,
            cookie::append(std::env::var(cookie::VARIABLE).ok().as_deref(), &launch.run_id)
        );
        let (control, theirs) =
            socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
                .map_err(LaunchError::Refused)?;
        // The request is on its way while the keeper is being forked.
        let (umask, cold) = self.start_keeper(theirs)?;
        let request = Request::Start(Start {
            run_id: &launch.run_id,
            preview: &launch.preview,
            file: &launch.file,
            argv: &launch.argv,
            env: &env,
            cwd: launch.cwd.as_deref(),
            uid: launch.uid,
            gid: launch.gid,
            umask,
            stdio: plumbing.slots,
            on_owner_exit: launch.on_owner_exit,
            on_leader_exit: launch.on_leader_exit,
            grace_ms: launch.grace_ms,
            timeout: launch.timeout,
        });
        let frame = protocol::encode(&request).map_err(LaunchError::TooLong)?;
        // A request that did not arrive whole starts nothing; the keeper sees the socket close and ends.
        channel::send_all(&control, &frame, &plumbing.sent).map_err(LaunchError::Refused)?;
        // Our copies of the command's ends: its own are the only ones from here on.
        drop(plumbing.theirs);
        drop(plumbing.base);

        let mut inbox = Inbox::default();
        match answer(&control, &mut inbox) {
            Ok(Report::Started { pid, start }) => {
                let control = Arc::new(control);
                let root = ProcessRef::known(pid, start);
                let ears = Ears {
                    control: control.clone(),
                    inbox,
                    root,
                    run_id: launch.run_id.clone(),
                    cold,
                    on_event,
                };
                runtime.spawn(ears.listen());
                Ok(Launched { run: Run { control }, pid, streams: plumbing.streams })
            }
            Ok(Report::SpawnFailed { errno }) => {
                cold.map(zygote::reap);
                Err(LaunchError::Command { errno: Errno::from_raw(errno), streams: plumbing.streams })
            }
            Ok(other) => Err(self.lost(launch, cold, &format!("answered out of turn: {other:?}"))),
            Err(why) => Err(self.lost(launch, cold, &why)),
        }
    }

    /// Has a keeper serve the socket, and says what the command's umask is to be.
    fn start_keeper(&self, control: OwnedFd) -> Result<(u32, Option<Child>), LaunchError> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let umask = inherited::umask(&mut shared.umask);
        if self.cold {
            return Ok((umask, Some(zygote::start_cold(&self.keeper, control)?)));
        }
        let now = Inherited::now().map_err(LaunchError::Refused)?;
        if let Some(zygote) = &shared.zygote
            && zygote.inherited == now
            && zygote.fork_keeper(&control).is_ok()
        {
            return Ok((umask, None));
        }
        // None yet, or one that no longer stands for this bot, or one that somebody has killed.
        shared.zygote = None;
        let zygote = shared.zygote.insert(Zygote::start(&self.keeper, now)?);
        zygote.fork_keeper(&control).map_err(|errno| LaunchError::KeeperBroken {
            path: self.keeper.clone(),
            why: errno.to_string(),
        })?;
        Ok((umask, None))
    }

    /// The keeper did not say whether it has started anything: end whatever carries this run's cookie.
    fn lost(&self, launch: &Launch, cold: Option<Child>, why: &str) -> LaunchError {
        if let Some(mut process) = cold {
            let _ = process.kill();
            zygote::reap(process);
        }
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).zygote = None;
        let nobody = ProcessRef::known(0, 0);
        outside::end_tree(&nobody, &launch.run_id, libc::SIGKILL, Duration::ZERO, Duration::from_secs(1));
        LaunchError::KeeperLost { path: self.keeper.clone(), why: why.to_owned() }
    }
}

/// Waits for the keeper's first word.
fn answer(control: &OwnedFd, inbox: &mut Inbox) -> Result<Report, String> {
    loop {
        if let Some(payload) = inbox.next_payload().map_err(|error| error.to_string())? {
            return protocol::decode(&payload).map_err(|error| error.to_string());
        }
        if !channel::readable(control, ANSWER_LIMIT).map_err(|errno| errno.to_string())? {
            return Err(format!("did not answer within {} s", ANSWER_LIMIT.as_secs()));
        }
        let mut buffer = [0; 512];
        match channel::receive(control, &mut buffer, &mut Vec::new()) {
            Ok(0) | Err(Errno::ECONNRESET) => return Err("died before it had answered".into()),
            Ok(count) => inbox.push(&buffer[..count]),
            Err(errno) => return Err(errno.to_string()),
        }
    }
}

impl Run {
    /// Sends a signal to the root. That it did not arrive is told later, by [`RunEvent::SignalFailed`].
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.ask(&Request::Signal { signal })
    }

    /// Ends the tree.
    pub fn cancel(&self, signal: i32, grace_ms: u64) -> Result<(), Errno> {
        self.ask(&Request::Cancel { signal, grace_ms })
    }

    /// Lets go of the run as if the bot had died: its keeper does what `onOwnerExit` says.
    pub fn abandon(&self) {
        let _ = shutdown(self.control.as_raw_fd(), Shutdown::Both);
    }

    /// Never waits: a keeper always reads, so a full socket means that somebody has stopped it.
    fn ask(&self, request: &Request) -> Result<(), Errno> {
        let frame = protocol::encode(request).map_err(|_| Errno::EINVAL)?;
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        send(self.control.as_raw_fd(), &frame, flags).map(drop)
    }
}

/// The command's descriptors, both ends.
struct Plumbing {
    /// The bot's working directory, which the command starts in or from.
    base: OwnedFd,
    slots: Vec<Slot>,
    sent: Vec<RawFd>,
    theirs: Vec<OwnedFd>,
    streams: Vec<Option<OwnedFd>>,
}

impl Plumbing {
    fn lay(stdio: &[Stdio]) -> Result<Self, LaunchError> {
        let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let base = open(".", directory, Mode::empty()).map_err(LaunchError::Refused)?;
        let mut sent = vec![base.as_raw_fd()];
        let mut theirs = Vec::new();
        let mut streams = Vec::with_capacity(stdio.len());
        let mut slots = Vec::with_capacity(stdio.len());
        for source in stdio {
            let (slot, stream) = match source {
                Stdio::Closed => (Slot::Closed, None),
                Stdio::Null => (Slot::Null, None),
                Stdio::Fd(fd) => {
                    sent.push(*fd);
                    (Slot::Sent, None)
                }
                Stdio::Pipe => {
                    let (our_end, their_end) =
                        socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
                            .map_err(LaunchError::Refused)?;
                    sent.push(their_end.as_raw_fd());
                    theirs.push(their_end);
                    (Slot::Sent, Some(our_end))
                }
            };
            slots.push(slot);
            streams.push(stream);
        }
        if sent.len() > MAX_FDS {
            return Err(LaunchError::TooManyDescriptors);
        }
        Ok(Self { base, slots, sent, theirs, streams })
    }
}

/// Listens to one run until its end.
struct Ears {
    control: Arc<OwnedFd>,
    inbox: Inbox,
    root: ProcessRef,
    run_id: String,
    cold: Option<Child>,
    on_event: OnEvent,
}

impl Ears {
    async fn listen(mut self) {
        let (ending, escaped, survivors) = match self.hear().await {
            Some(Report::Extinct { cause, escaped, survivors }) => (Ending::Kept(cause), escaped, survivors),
            _ => {
                // Usually it is dead. If it merely talks nonsense, this tells it that we are through with it.
                let _ = shutdown(self.control.as_raw_fd(), Shutdown::Both);
                (Ending::Lost, Vec::new(), self.end_from_outside().await)
            }
        };
        self.cold.take().map(zygote::reap);
        (self.on_event)(RunEvent::Extinct { ending, escaped, survivors });
    }

    /// Passes on what the keeper says; returns its last word, or `None` if it died without one.
    async fn hear(&mut self) -> Option<Report> {
        // SAFETY: the descriptor is owned by the `Arc` inside, which outlives the registration.
        let socket = unsafe { AsyncFd::register(self.control.clone()) }.ok()?;
        let mut buffer = vec![0; 4096];
        loop {
            while let Some(payload) = self.inbox.next_payload().ok()? {
                match protocol::decode(&payload).ok()? {
                    Report::Ending(cause) => (self.on_event)(RunEvent::Ending(cause)),
                    Report::RootExited(status) => (self.on_event)(RunEvent::RootExited(status)),
                    Report::SignalFailed { errno } => {
                        (self.on_event)(RunEvent::SignalFailed(Errno::from_raw(errno)));
                    }
                    last @ Report::Extinct { .. } => return Some(last),
                    Report::Started { .. } | Report::SpawnFailed { .. } => return None,
                }
            }
            let mut ready = socket.readable().await.ok()?;
            let read = ready.try_io(|socket| Ok(channel::receive_now(socket.get_ref(), &mut buffer)?));
            match read {
                Ok(Ok(0) | Err(_)) => return None,
                Ok(Ok(count)) => self.inbox.push(&buffer[..count]),
                // Not ready after all.
                Err(_) => {}
            }
        }
    }

    /// The keeper is gone, so the tree has lost its parent. Everything that can be proven to be ours goes too.
    async fn end_from_outside(&self) -> Vec<crate::contain::ProcessInfo> {
        let (root, run_id) = (self.root.clone(), self.run_id.clone());
        let grace = Duration::from_millis(ORPHAN_GRACE_MS);
        let limit = Duration::from_millis(KILL_LIMIT_MS);
        let end = move || outside::end_tree(&root, &run_id, libc::SIGTERM, grace, limit);
        tokio::task::spawn_blocking(end).await.unwrap_or_default()
    }
}

/// Ends a stream of a run whose tree is extinct: what was written is still read, then comes the end, whoever else
/// may hold the other side (a process that is none of ours can have got a copy).
///
/// `fd` must be a stream of the caller's that is still open.
pub fn end_stream(fd: RawFd) -> Result<(), Errno> {
    shutdown(fd, Shutdown::Read)
}
