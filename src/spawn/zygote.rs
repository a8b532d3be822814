//! The bot's zygote, and the keepers it has forked ahead.

use std::cell::OnceCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::inherited::Credentials;
use super::{LaunchError, tier};
use crate::contain::Limits;
use crate::contain::cgroup::{self, Base, Trouble, WhyNot};
use crate::contain::cookie;
use crate::identity::{FORCE_FALLBACK, Pin, ProcessRef};
use crate::keeper::protocol::{self, Inbox, Report};
use crate::keeper::{FORK, FORK_IN_CGROUP, HELLO, ORPHANS, TITLE_ROOM, ZYGOTE, channel};
use crate::runtime;

/// A loaded machine may take its time to run a small program, but not for ever.
const LIMIT: Duration = Duration::from_secs(5);

/// How often a zygote that has been let go is looked at, where its end is not told, or not to the moment.
const REAP_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub struct Zygote {
    socket: Arc<OwnedFd>,
    process: Arc<Process>,
    /// Keepers that were asked for and not yet taken.
    ordered: usize,
    /// Where runs get cgroups, once one has wanted one: in the cgroup of the bot as it was then.
    base: OnceCell<Result<Base, WhyNot>>,
    /// As it was when the zygote was started.
    pub credentials: Credentials,
}

/// A keeper that waits for a run, and the blank that waits to become its root.
#[derive(Debug)]
pub struct Keeper {
    pub control: OwnedFd,
    pub inbox: Inbox,
    pub launch: OwnedFd,
    pub root: ProcessRef,
    /// The keeper itself, and where others find it; empty if they cannot.
    pub process: ProcessRef,
    pub address: String,
    /// The directory of its cgroup.
    pub cgroup: Option<String>,
    pub origin: Origin,
}

/// Where a keeper comes from, and where what it leaves behind goes to if it is killed.
#[derive(Debug)]
pub struct Origin {
    zygote: Arc<OwnedFd>,
    keeper: i32,
}

/// Why there is no keeper.
#[derive(Debug)]
pub enum NoKeeper {
    Errno(Errno),
    /// There could be one, but not with the cgroup that was asked for.
    Cgroup(Trouble),
}

impl From<Errno> for NoKeeper {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl Origin {
    /// A descriptor that ends when nothing of what the keeper has kept exists, or when there is no zygote to see to that.
    pub fn orphans_gone(&self) -> Result<OwnedFd, Errno> {
        let (ours, theirs) = channel::pair()?;
        let mut request = [ORPHANS, 0, 0, 0, 0];
        request[1..].copy_from_slice(&self.keeper.to_le_bytes());
        // Not sent is as good as ended: our own copy of the other end goes either way.
        let _ = channel::send_message(&*self.zygote, &request, &[theirs.as_raw_fd()]);
        Ok(ours)
    }
}

impl Zygote {
    pub fn start(executable: &Path, credentials: Credentials) -> Result<Self, LaunchError> {
        let (ours, theirs) = channel::message_pair().map_err(LaunchError::refused)?;
        let zygote = Self {
            socket: Arc::new(ours),
            process: Arc::new(Process(Mutex::new(execute(executable, theirs)?))),
            ordered: 0,
            base: OnceCell::new(),
            credentials,
        };
        zygote.hello().map_err(|why| LaunchError::KeeperBroken { path: executable.to_owned(), why })?;
        // Somebody may kill it, and the next spawn, which would find out, may be far away.
        if let (Some(end), Ok(runtime)) = (zygote.process.end(), runtime::get()) {
            runtime.loop_handle.spawn(reap(zygote.process.clone(), Some(end)));
        }
        Ok(zygote)
    }

    fn hello(&self) -> Result<(), String> {
        let mut hello = [0; HELLO.len()];
        match self.receive(&mut hello, &mut Vec::new()) {
            Ok(0) | Err(Errno::ECONNRESET) => Err("it ended at once".into()),
            Ok(_) if hello == HELLO => Ok(()),
            Ok(_) => Err("it speaks another version of the protocol".into()),
            Err(Errno::ETIMEDOUT) => Err(format!("it said nothing for {} s", LIMIT.as_secs())),
            Err(errno) => Err(errno.to_string()),
        }
    }

    /// Orders keepers until so many are on their way or waiting.
    pub fn stock_up(&mut self, count: usize) -> Result<(), Errno> {
        while self.ordered < count {
            channel::send_message(&*self.socket, &[FORK], &[])?;
            self.ordered += 1;
        }
        Ok(())
    }

    /// The next keeper, ordered long ago if all is well.
    pub fn take(&mut self) -> Result<Keeper, NoKeeper> {
        self.stock_up(1)?;
        self.must_live()?;
        let (mut answer, mut fds) = ([0; 4], Vec::with_capacity(2));
        let received = self.receive(&mut answer, &mut fds);
        if received.is_ok_and(|count| count > 0) || received == Err(Errno::EMFILE) {
            self.ordered -= 1;
        }
        self.forked(received, answer, fds)
    }

    /// A keeper whose run has a cgroup. None of those waits: few runs have one.
    pub fn fork_in_cgroup(&self, limits: Limits) -> Result<Keeper, NoKeeper> {
        self.must_live()?;
        let base = self.base.get_or_init(cgroup::find);
        let order = tier::order(limits, base).map_err(NoKeeper::Cgroup)?;
        let mut request = vec![FORK_IN_CGROUP];
        request.extend(protocol::payload(&order).map_err(|_| Errno::EINVAL)?);
        // Answered over a socket of its own, as those that were ordered ahead come over the other.
        let (answers, theirs) = channel::message_pair()?;
        channel::send_message(&*self.socket, &request, &[theirs.as_raw_fd()])?;
        drop(theirs);
        let (mut errno, mut fds) = ([0; 4], Vec::with_capacity(2));
        let received = channel::receive_message_within(&answers, &mut errno, &mut fds, LIMIT);
        self.forked(received, errno, fds)
    }

    /// Keepers of a dead zygote would serve, but without their second line.
    fn must_live(&self) -> Result<(), Errno> {
        if channel::has_hung_up(&*self.socket)? { Err(Errno::ECONNRESET) } else { Ok(()) }
    }

    /// What the zygote has answered.
    fn forked(
        &self,
        received: Result<usize, Errno>,
        errno: [u8; 4],
        fds: Vec<OwnedFd>,
    ) -> Result<Keeper, NoKeeper> {
        if received? == 0 {
            return Err(Errno::ECONNRESET.into());
        }
        let mut fds = fds.into_iter();
        match (i32::from_le_bytes(errno), fds.next(), fds.next()) {
            (0, Some(control), Some(launch)) => Keeper::ready(control, launch, &self.socket),
            // Out of descriptors on our side: the kernel has dropped them.
            (0, ..) => Err(Errno::EMFILE.into()),
            (errno, ..) => Err(Errno::from_raw(errno).into()),
        }
    }

    fn receive(&self, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize, Errno> {
        channel::receive_message_within(&*self.socket, buffer, fds, LIMIT)
    }
}

impl Keeper {
    fn ready(control: OwnedFd, launch: OwnedFd, zygote: &Arc<OwnedFd>) -> Result<Self, NoKeeper> {
        let mut inbox = Inbox::default();
        match first_message(control.as_fd(), &mut inbox, LIMIT)? {
            Some(payload) => match protocol::decode(&payload) {
                Ok(Report::Ready { keeper, root, address, cgroup }) => Ok(Self {
                    control,
                    inbox,
                    launch,
                    root: ProcessRef::known(root.pid, root.start),
                    process: ProcessRef::known(keeper.pid, keeper.start),
                    address,
                    cgroup,
                    origin: Origin { zygote: zygote.clone(), keeper: keeper.pid },
                }),
                Ok(Report::NoCgroup(trouble)) => Err(NoKeeper::Cgroup(trouble)),
                _ => Err(Errno::EPROTO.into()),
            },
            None => Err(Errno::ECONNRESET.into()),
        }
    }
}

/// Waits for one message. `None` at the end of the socket.
pub fn first_message(
    socket: BorrowedFd,
    inbox: &mut Inbox,
    limit: Duration,
) -> Result<Option<Vec<u8>>, Errno> {
    let mut buffer = [0; 512];
    loop {
        if let Some(payload) = inbox.next_payload().map_err(|_| Errno::EPROTO)? {
            return Ok(Some(payload));
        }
        match channel::receive_within(&socket, &mut buffer, &mut Vec::new(), limit) {
            Ok(0) | Err(Errno::ECONNRESET) => return Ok(None),
            Ok(count) => inbox.push(&buffer[..count]),
            Err(errno) => return Err(errno),
        }
    }
}

impl Drop for Zygote {
    /// Its socket closes once the last run that came from it is over, and it goes when its last keeper is gone. Waiting for
    /// that is for somebody who has time.
    fn drop(&mut self) {
        self.process.wake();
        if let Ok(runtime) = runtime::get() {
            runtime.loop_handle.spawn(reap(self.process.clone(), self.process.end()));
        }
    }
}

/// Our child, for everybody who has to do with it. Whoever waits for it does so here: as long as nobody has, its number is its own.
#[derive(Debug)]
struct Process(Mutex<Child>);

impl Process {
    /// Somebody may have stopped it, and a stopped process does not see an end.
    fn wake(&self) {
        self.alive(|pid| {
            // SAFETY: kill takes two integers, and the number is that of our own child, which nobody waits for meanwhile.
            unsafe { libc::kill(pid, libc::SIGCONT) };
        });
    }

    /// What tells of its end. `None` if nothing does, or there is nothing to be told any more.
    fn end(&self) -> Option<OwnedFd> {
        self.alive(|pid| Pin::open(pid).ok()?.into_pollable())?
    }

    /// True as soon as it was waited for.
    fn is_over(&self) -> bool {
        self.alive(|_| ()).is_none()
    }

    fn alive<T>(&self, then: impl FnOnce(i32) -> T) -> Option<T> {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(child.try_wait(), Ok(None)).then(|| then(child.id().cast_signed()))
    }
}

async fn reap(process: Arc<Process>, end: Option<OwnedFd>) {
    if let Some(end) = end
        // SAFETY: the descriptor is owned by what is registered.
        && let Ok(ended) = unsafe { AsyncFd::register_with_interest(end, Interest::READABLE) }
    {
        let _ = ended.readable().await;
    }
    // Where nothing tells, or tells a moment too early, nobody is in a hurry.
    while !process.is_over() {
        tokio::time::sleep(REAP_EVERY).await;
    }
}

/// Runs the keeper's executable with `socket` as its standard input. Posix_spawn underneath: the bot does not fork.
///
/// It gets none of the bot's environment but the cookie, so that a bot that is itself an owned run takes its keepers
/// along when it is ended from outside, and what the tests set.
fn execute(executable: &Path, socket: OwnedFd) -> Result<Child, LaunchError> {
    let mut command = Command::new(executable);
    command.arg(ZYGOTE).arg(" ".repeat(TITLE_ROOM)).env_clear();
    for name in [cookie::VARIABLE, FORCE_FALLBACK] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.stdin(Stdio::from(socket)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        match errno {
            Errno::EAGAIN | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => LaunchError::refused(errno),
            errno => LaunchError::KeeperUnavailable { path: executable.to_owned(), errno },
        }
    })
}
