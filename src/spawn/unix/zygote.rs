//! The bot's zygote, and the keepers that it forks in advance.

mod process;

use std::cell::OnceCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use self::process::{Process, reap, wake_until_exit};
use super::bounded_wait::{self, NoAnswer};
use super::inherited::Credentials;
use crate::contain::Limits;
use crate::contain::cgroup::{self, Base, CgroupError, WhyNot};
use crate::identity::ProcessRef;
use crate::keeper::protocol::{self, Inbox, Report};
use crate::keeper::{FORK, FORK_IN_CGROUP, FORKED, HELLO, ORPHANS, channel, our_version, version_in};
use crate::runtime;
use crate::spawn::{LaunchError, requested_containment};
use crate::trace::trace;

/// How long a process that is not stopped may take to answer. A loaded machine starts a program
/// slowly.
const LIMIT: Duration = Duration::from_secs(5);

/// The zygote process and the orders sent to it.
#[derive(Debug)]
pub struct Zygote {
    socket: Arc<OwnedFd>,
    process: Arc<Process>,
    /// Keepers that were ordered and not yet taken.
    ordered: usize,
    /// Where runs get cgroups: below the bot's cgroup at the time of the first such run.
    base: OnceCell<Result<Base, WhyNot>>,
    /// The bot's credentials when the zygote was started.
    pub credentials: Credentials,
}

/// A keeper that waits for a run, and the exec stub that will become its root process.
#[derive(Debug)]
pub struct Keeper {
    pub control: OwnedFd,
    pub inbox: Inbox,
    pub launch: OwnedFd,
    pub root: ProcessRef,
    /// The keeper process, and the address of its control socket. An empty address: it has none.
    pub process: ProcessRef,
    pub address: String,
    /// The directory of the run's cgroup.
    pub cgroup: Option<String>,
    pub origin: Origin,
}

/// The zygote that forked a keeper. It adopts the keeper's tree if the keeper is killed.
#[derive(Debug)]
pub struct Origin {
    zygote: Arc<OwnedFd>,
    keeper: i32,
}

/// Why there is no keeper.
#[derive(Debug)]
pub enum NoKeeper {
    Errno(Errno),
    /// The zygote or the keeper is stopped, and stopped again after SIGCONT.
    Stopped,
    /// The requested cgroup cannot be created.
    Cgroup(CgroupError),
}

impl From<Errno> for NoKeeper {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<NoAnswer> for NoKeeper {
    fn from(no_answer: NoAnswer) -> Self {
        match no_answer {
            NoAnswer::Stopped => Self::Stopped,
            NoAnswer::Errno(errno) => Self::Errno(errno),
        }
    }
}

impl Origin {
    /// A descriptor that reaches end of file when no orphan of the keeper exists, or when the
    /// zygote is dead.
    pub fn orphans_gone(&self) -> Result<OwnedFd, Errno> {
        let (ours, theirs) = channel::pair()?;
        let mut request = [ORPHANS, 0, 0, 0, 0];
        request[1..].copy_from_slice(&self.keeper.to_le_bytes());
        // If the send fails, `theirs` closes here, and `ours` is at end of file. Do not block: a
        // stopped zygote reads nothing, and this is the native thread.
        let _ = channel::send_message_now(&*self.zygote, &request, &[theirs.as_raw_fd()]);
        Ok(ours)
    }
}

/// How much longer the first message of another version may be.
const HELLO_ROOM: usize = 32;

impl Zygote {
    pub fn start(executable: &Path, credentials: Credentials) -> Result<Self, LaunchError> {
        let (ours, theirs) = channel::message_pair().map_err(LaunchError::refused)?;
        let zygote = Self {
            socket: Arc::new(ours),
            process: Arc::new(Process::start(executable, theirs)?),
            ordered: 0,
            base: OnceCell::new(),
            credentials,
        };
        zygote.check_hello(executable)?;
        trace!("started zygote {}", zygote.process.pid().unwrap_or_default());
        // Reap it when another process kills it: the next spawn, which would notice, may come late.
        if let (Some(exit), Ok(runtime)) = (zygote.process.exit_fd(), runtime::get()) {
            runtime.loop_handle.spawn(reap(zygote.process.clone(), Some(exit)));
        }
        Ok(zygote)
    }

    /// Checks the zygote's first message. The buffer has room for a longer version number.
    fn check_hello(&self, executable: &Path) -> Result<(), LaunchError> {
        let mut hello = [0; HELLO.len() + HELLO_ROOM];
        let path = executable.to_owned();
        let why = match self.receive(&self.socket, &mut hello, &mut Vec::new()) {
            Err(NoAnswer::Stopped) => return Err(LaunchError::KeeperStopped),
            Ok(0) | Err(NoAnswer::Errno(Errno::ECONNRESET)) => "it ended at once".into(),
            Ok(count) if hello[..count] == HELLO => return Ok(()),
            Ok(count) => match version_in(&hello[..count]) {
                Some(version) => {
                    return Err(LaunchError::KeeperVersion { path, version, expected: our_version() });
                }
                None => "it is no keeper".into(),
            },
            Err(NoAnswer::Errno(Errno::ETIMEDOUT)) => {
                format!("it did not answer within {} s", LIMIT.as_secs())
            }
            Err(NoAnswer::Errno(errno)) => errno.to_string(),
        };
        Err(LaunchError::KeeperBroken { path, why })
    }

    /// Orders keepers until `count` are on their way or waiting.
    pub fn stock_up(&mut self, count: usize) -> Result<(), Errno> {
        while self.ordered < count {
            channel::send_message_now(&*self.socket, &[FORK], &[])?;
            trace!("ordered a keeper from the zygote");
            self.ordered += 1;
        }
        Ok(())
    }

    /// Takes the next keeper, usually one ordered in advance. An order that failed for lack of
    /// processes or memory says nothing about now. So the last attempt is a new order.
    pub fn take(&mut self) -> Result<Keeper, NoKeeper> {
        for _ in 0..self.ordered {
            match self.take_one() {
                Err(NoKeeper::Errno(Errno::EAGAIN | Errno::ENOMEM)) => {}
                result => return result,
            }
        }
        self.take_one()
    }

    fn take_one(&mut self) -> Result<Keeper, NoKeeper> {
        self.stock_up(1)?;
        self.check_alive()?;
        let (mut answer, mut fds) = ([0; FORKED], Vec::with_capacity(2));
        let received = self.receive(&self.socket, &mut answer, &mut fds);
        if received.is_ok_and(|count| count > 0) || received == Err(Errno::EMFILE.into()) {
            self.ordered -= 1;
        }
        self.forked(received, answer, fds)
    }

    /// Forks a keeper for a run with a cgroup. None waits in advance, because few runs have a
    /// cgroup.
    pub fn fork_in_cgroup(&self, limits: Limits) -> Result<Keeper, NoKeeper> {
        self.check_alive()?;
        let base = self.base.get_or_init(cgroup::find);
        let cgroup = requested_containment::cgroup_request(limits, base).map_err(NoKeeper::Cgroup)?;
        let mut request = vec![FORK_IN_CGROUP];
        request.extend(protocol::payload(&cgroup).map_err(|_| Errno::EINVAL)?);
        // A socket of its own for the answer: keepers ordered in advance arrive over the other one.
        let (answers, theirs) = channel::message_pair()?;
        channel::send_message_now(&*self.socket, &request, &[theirs.as_raw_fd()])?;
        drop(theirs);
        let (mut answer, mut fds) = ([0; FORKED], Vec::with_capacity(2));
        let received = self.receive(&answers, &mut answer, &mut fds);
        self.forked(received, answer, fds)
    }

    /// Fails if the zygote is dead. Its keepers would work, but no zygote would adopt their trees.
    fn check_alive(&self) -> Result<(), Errno> {
        if channel::has_hung_up(&*self.socket)? { Err(Errno::ECONNRESET) } else { Ok(()) }
    }

    /// Evaluates the zygote's answer to an order.
    fn forked(
        &self,
        received: Result<usize, NoAnswer>,
        answer: [u8; FORKED],
        fds: Vec<OwnedFd>,
    ) -> Result<Keeper, NoKeeper> {
        if received? == 0 {
            return Err(Errno::ECONNRESET.into());
        }
        let mut fds = fds.into_iter();
        let [e0, e1, e2, e3, pid @ ..] = answer;
        match (i32::from_le_bytes([e0, e1, e2, e3]), fds.next(), fds.next()) {
            (0, Some(control), Some(launch)) => self.ready(i32::from_le_bytes(pid), control, launch),
            // This process is out of file descriptors: the kernel dropped the received ones.
            (0, ..) => Err(Errno::EMFILE.into()),
            (errno, ..) => Err(Errno::from_raw(errno).into()),
        }
    }

    /// Receives a message of the zygote over this socket.
    fn receive(
        &self,
        socket: &OwnedFd,
        buffer: &mut [u8],
        fds: &mut Vec<OwnedFd>,
    ) -> Result<usize, NoAnswer> {
        bounded_wait::wait_for(
            LIMIT,
            || self.process.wake_if_stopped(),
            |slice| channel::receive_message_within(socket, buffer, fds, slice),
        )
    }

    /// Waits until a forked keeper is ready. The zygote reported `pid`; it is used only to wake the
    /// keeper.
    fn ready(&self, pid: i32, control: OwnedFd, launch: OwnedFd) -> Result<Keeper, NoKeeper> {
        let mut inbox = Inbox::default();
        let zygote = self.process.pid();
        let first = bounded_wait::wait_for(
            LIMIT,
            || zygote.is_some_and(|zygote| bounded_wait::wake_child(pid, zygote)),
            |slice| first_message(control.as_fd(), &mut inbox, slice),
        );
        match first? {
            Some(payload) => match protocol::decode(&payload) {
                Ok(Report::Ready { keeper, root, address, cgroup }) => Ok(Keeper {
                    control,
                    inbox,
                    launch,
                    root: ProcessRef::known(root.pid, root.start),
                    process: ProcessRef::known(keeper.pid, keeper.start),
                    address,
                    cgroup,
                    origin: Origin { zygote: self.socket.clone(), keeper: keeper.pid },
                }),
                Ok(Report::NoCgroup(error)) => Err(NoKeeper::Cgroup(error)),
                Ok(Report::NoRoot { errno }) => Err(Errno::from_raw(errno).into()),
                _ => Err(Errno::EPROTO.into()),
            },
            None => Err(Errno::ECONNRESET.into()),
        }
    }
}

/// Waits for one message. `None` at end of file.
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
    /// Hands the zygote's process over to the native thread, which reaps it. The socket closes
    /// after the last run of this zygote, and the zygote exits after its last keeper. It is not
    /// killed: until then it adopts the trees of keepers that die.
    fn drop(&mut self) {
        self.process.wake();
        if let Ok(runtime) = runtime::get() {
            runtime.loop_handle.spawn(wake_until_exit(self.process.clone()));
            runtime.loop_handle.spawn(reap(self.process.clone(), self.process.exit_fd()));
        }
    }
}
