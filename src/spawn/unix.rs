//! Starting a run through a keeper.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

use super::ears::Ears;
use super::inherited::{self, Credentials};
use super::line::{Ear, Exec, Line};
use super::plumbing::{Plumbing, StreamsAhead};
use super::programs::{Program, Programs};
use super::run::Run;
use super::silence::Listening;
use super::zygote::{Keeper, NoKeeper, Zygote, first_message};
use super::{Launch, LaunchError, OnEvent, Streams, environment};
use crate::contain::outside::{self, Target};
use crate::identity::ProcessRef;
use crate::keeper::channel;
use crate::keeper::protocol::{self, Command, Inbox, Own, Refusal, Request};
use crate::observe::counters::Counters;
use crate::pty::Relay;
use crate::registry::{self, Containment, Entry, Record};
use crate::run::Policy;
use crate::runtime::{self, Runtime};

/// How long `exec` usually takes at most, and how long it may. A file on a slow disk is not an error.
pub const EXEC_PATIENCE: Duration = Duration::from_secs(1);
const EXEC_LIMIT: Duration = Duration::from_secs(10);

/// A blank reads at once; a long command does not fit into the socket at once.
const SEND_LIMIT: Duration = Duration::from_secs(1);

/// A waiting keeper may have been killed; the next one serves as well.
const ATTEMPTS: usize = 3;

/// Starts runs. One per process is enough; it is safe to share.
#[derive(Debug)]
pub struct Launcher {
    keeper: PathBuf,
    /// How many keepers are to wait for a run.
    stock: usize,
    shared: Arc<Mutex<Shared>>,
    streams: Arc<StreamsAhead>,
}

#[derive(Debug, Default)]
struct Shared {
    zygote: Option<Zygote>,
    programs: Programs,
}

/// A command that is being executed right now. [`Launcher::finish`] tells whether it could be; until then there is time for
/// something else. Dropping it instead ends whatever was started.
pub struct Pending {
    /// Ends of the new streams, one per [`Stdio::Pipe`], at its place.
    pub streams: Streams,
    pub pid: i32,
    /// `None` when it was finished.
    begun: Option<Begun>,
}

/// What was begun and is listened to from some moment on.
struct Begun {
    keeper: Keeper,
    entry: Entry,
    /// The program, if it is one that can be recognized.
    program: Option<Program>,
    /// It was executed before.
    proven: bool,
    listening: Option<Listening>,
    /// Between its terminal and the streams, if it has one.
    relay: Option<Relay>,
    /// Our copies of what is the command's by now.
    theirs: Vec<OwnedFd>,
    launch: Launch,
    runtime: &'static Runtime,
}

impl Launcher {
    pub fn new(keeper: PathBuf, stock: usize) -> Self {
        Self { keeper, stock, shared: Arc::default(), streams: Arc::default() }
    }

    /// Hands a command to a waiting blank. Its keeper watches already: if the bot dies now, the tree is ended.
    pub fn begin(&self, launch: Launch) -> Result<Pending, LaunchError> {
        let counters = launch.owner.counters.clone();
        self.hand_over(launch).inspect_err(|error| count(&counters, error))
    }

    fn hand_over(&self, launch: Launch) -> Result<Pending, LaunchError> {
        // Whatever can fail for lack of a thread fails before anything is started.
        let runtime = runtime::get().map_err(|_| LaunchError::refused(Errno::EAGAIN))?;
        let mut plumbing = Plumbing::lay(&launch, &self.streams)?;
        let env = environment::block(launch.env.as_deref(), &launch.run_id, launch.terminal.as_ref());
        let program = Program::find(plumbing.directory.as_ref(), &launch, &env);
        let mut shared = self.shared();
        let proven = program.as_ref().is_some_and(|program| shared.programs.contains(program));
        let umask = inherited::umask().map_err(LaunchError::refused)?;
        let command = encode(&Command {
            file: &launch.file,
            argv: &launch.argv,
            env: &env,
            uid: launch.uid,
            gid: launch.gid,
            #[allow(clippy::useless_conversion)] // Its type differs between systems.
            umask: umask.into(),
            directory: plumbing.directory.is_some(),
            terminal: plumbing.relay.is_some(),
            stdio: plumbing.slots,
        })?;
        let mut attempt = 1;
        let (keeper, entry) = loop {
            let keeper = self.take_keeper(&mut shared, &launch)?;
            if keeper.address.is_empty() && launch.on_owner_exit == Policy::Keep {
                return Err(LaunchError::Unreachable);
            }
            // The blank is a process already, but none that does anything: until it is told what to become it ends with
            // us. It is named in the registry before it is told, so from its first instruction on the command is recorded.
            let entry = launch.owner.begin(record(&launch, &keeper), launch.given_id)?;
            match channel::send_within(&keeper.launch, &command, &plumbing.sent, SEND_LIMIT) {
                Ok(()) => break (keeper, entry),
                // Dead while it waited, or stopped: then it ends when its sockets close. A command that did not arrive whole
                // starts nothing.
                Err(errno) => {
                    entry.over();
                    let dead = matches!(errno, Errno::EPIPE | Errno::ECONNRESET | Errno::ETIMEDOUT);
                    if !dead || attempt == ATTEMPTS {
                        return Err(LaunchError::refused(errno));
                    }
                    attempt += 1;
                }
            }
        };
        let laid = plumbing.streams.iter().skip(1).take(2).flatten().map(AsRawFd::as_raw_fd);
        let outputs = laid.chain(launch.outputs.iter().copied());
        let listening = launch.silence_ms.map(|limit_ms| Listening::new(limit_ms, outputs));
        let relay = plumbing.relay;
        plumbing.theirs.extend(plumbing.directory);
        let theirs = plumbing.theirs;
        Ok(Pending {
            streams: plumbing.streams,
            pid: keeper.root.pid,
            begun: Some(Begun { keeper, entry, program, proven, listening, relay, theirs, launch, runtime }),
        })
    }

    /// Waits until the command runs or has failed to, then listens to its keeper.
    ///
    /// A program that has been executed before is not waited for: if it fails now, against all expectation, that is told by
    /// [`super::RunEvent::Refused`].
    pub fn finish(&self, mut pending: Pending, on_event: OnEvent) -> Result<Run, LaunchError> {
        let Some(mut begun) = pending.begun.take() else { return Err(LaunchError::refused(Errno::ESRCH)) };
        if !begun.proven {
            let Keeper { launch: exec, root, .. } = &begun.keeper;
            // It may take seconds, and the file is to say meanwhile what is about to run.
            begun.entry.follow();
            let failed = match wait_for_exec(exec, root) {
                Ok(None) => None,
                Ok(Some(refusal)) => Some(LaunchError::refused(refused_with(&refusal))),
                Err(errno) => Some(lost(root, &begun.launch.run_id, errno)),
            };
            if let Some(error) = failed {
                begun.entry.over();
                count(&begun.launch.owner.counters, &error);
                let restock = self.restock();
                begun.runtime.loop_handle.spawn(async { restock() });
                return Err(error);
            }
            self.shared().programs.extend(begun.program.take());
        }
        Ok(begun.listen(on_event, self.restock()))
    }

    /// Makes sure that there is a zygote, so that what is wrong with the keeper shows before anything else is tried.
    pub fn prepare(&self) -> Result<(), LaunchError> {
        let mut shared = self.shared();
        if shared.zygote.is_none() {
            let now = Credentials::now().map_err(LaunchError::refused)?;
            shared.zygote = Some(Zygote::start(&self.keeper, now)?);
        }
        Ok(())
    }

    /// Lets the zygote go; it stays for as long as a run needs it.
    pub fn retire(&self) {
        self.shared().zygote = None;
        self.streams.clear();
    }

    /// Has the next keepers forked, and makes the next streams. For the native thread: whoever has just started a run does not wait
    /// until somebody was woken.
    fn restock(&self) -> impl FnOnce() + Send + 'static {
        let (shared, stock, streams) = (self.shared.clone(), self.stock, self.streams.clone());
        move || {
            if stock > 0 {
                order_keepers(&shared, stock);
                streams.restock();
            }
        }
    }

    fn take_keeper(&self, shared: &mut Shared, launch: &Launch) -> Result<Keeper, LaunchError> {
        let now = Credentials::now().map_err(LaunchError::refused)?;
        let current = shared.zygote.as_mut().filter(|zygote| zygote.credentials == now);
        match current.map(|zygote| keeper_for(zygote, launch)) {
            Some(Ok(keeper)) => return Ok(keeper),
            Some(Err(NoKeeper::Cgroup(trouble))) => return Err(LaunchError::Cgroup(trouble)),
            Some(Err(NoKeeper::Errno(
                errno @ (Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE),
            ))) => {
                return Err(LaunchError::refused(errno));
            }
            // None yet, or one that no longer stands for this bot, or one that somebody has killed.
            _ => shared.zygote = None,
        }
        let zygote = shared.zygote.insert(Zygote::start(&self.keeper, now)?);
        keeper_for(zygote, launch).map_err(|no_keeper| match no_keeper {
            NoKeeper::Cgroup(trouble) => LaunchError::Cgroup(trouble),
            NoKeeper::Errno(errno) => {
                LaunchError::KeeperBroken { path: self.keeper.clone(), why: errno.to_string() }
            }
        })
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        locked(&self.shared)
    }
}

/// Whoever has it locked is starting a run, and orders the next keepers after that. It may take its time, which the native thread does not
/// have: everybody's keepers are heard there.
fn order_keepers(shared: &Mutex<Shared>, stock: usize) {
    let mut shared = match shared.try_lock() {
        Ok(shared) => shared,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    if let Some(zygote) = &mut shared.zygote {
        // One that cannot be told is dead, and the next run starts another.
        let _ = zygote.stock_up(stock);
    }
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Begun {
    /// Has the keeper told what it needs to know, and listens to it from here on.
    ///
    /// Waking somebody is most of what a spawn costs, so the caller wakes two, the blank and the native thread, and the native thread
    /// wakes the others: the keeper, the ledger's thread, and whoever `then` is about. Until the keeper has heard its rules it does as
    /// for a bot that dies, which is right for every run but one that is to outlive its bot. Whoever holds one of those may die
    /// at once and rely on it, so its keeper is told here. What else is said to a keeper never gets ahead of its rules, see [`Line`].
    fn listen(self, on_event: OnEvent, then: impl FnOnce() + Send + 'static) -> Run {
        let Self { keeper, entry, listening, relay, theirs, launch, runtime, .. } = self;
        let Keeper { control, inbox, launch: exec, root, process, origin, cgroup, .. } = keeper;
        let terminal = relay.map(|relay| Arc::new(relay.start(&runtime.loop_handle)));
        let own = Request::Own(Own {
            run_id: &launch.run_id,
            preview: &launch.preview,
            on_owner_exit: launch.on_owner_exit,
            on_leader_exit: launch.on_leader_exit,
            grace_ms: launch.grace_ms,
            timeout: launch.timeout,
            registry: &launch.owner.registry.path().to_string_lossy(),
            key: entry.key(),
        });
        let line = Line::to_new_keeper(control, process, &own);
        let run = Run::new(line, runtime, entry, launch.grace_ms, listening, terminal);
        // A keeper that cannot be told is dead, which its listener notices.
        if launch.on_owner_exit == Policy::Keep {
            let _ = run.line().introduce();
        }
        let ears = Ears {
            run: run.clone(),
            exec: Some(Exec(exec)),
            ear: Some(Ear { heard: Vec::new(), inbox }),
            root,
            held_by: cgroup,
            origin: Some(origin),
            run_id: launch.run_id,
            silence: None,
            timeout: launch.timeout.map(|timeout| Duration::from_millis(timeout.after_ms)),
            counters: launch.owner.counters,
            on_event,
        };
        runtime.loop_handle.spawn(async {
            // A stream ends when its last copy is closed: before anything is heard of the command, its own are the only ones.
            drop(theirs);
            let _ = ears.run.line().introduce();
            ears.run.entry().follow();
            then();
            ears.listen().await;
        });
        run
    }
}

impl Drop for Pending {
    /// Whoever has begun it does not go on. It is a run already, and in the registry: it is ended like any other, and its entry goes
    /// when nothing of it is left, not before.
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            let run = begun.listen(Arc::new(|_| {}), || {});
            // A keeper that cannot be told is dead, which its listener notices.
            let _ = run.cancel(libc::SIGKILL, 0, "spawn-error");
        }
    }
}

/// A keeper of the kind that the run is to have.
fn keeper_for(zygote: &mut Zygote, launch: &Launch) -> Result<Keeper, NoKeeper> {
    if launch.tier.wants_cgroup(&launch.limits) {
        zygote.fork_in_cgroup(launch.limits)
    } else {
        zygote.take()
    }
}

/// A command that cannot be started is the end of a run. Everything else is an exception, and there is no run.
fn count(counters: &Counters, error: &LaunchError) {
    if matches!(error, LaunchError::Refused { .. }) {
        counters.refused();
    }
}

/// What is written down before the command is handed over.
fn record(launch: &Launch, keeper: &Keeper) -> Record {
    Record {
        pgid: Some(keeper.root.pid),
        containment: if keeper.cgroup.is_some() { Containment::Cgroup } else { Containment::Keeper },
        cgroup: keeper.cgroup.clone(),
        keeper: Some(registry::Keeper {
            start_token: keeper.process.clone(),
            address: keeper.address.clone(),
        }),
        ..launch.record(&keeper.root)
    }
}

/// `None`: executed. Somebody may have stopped the blank (it is a process like any other); then it is woken.
fn wait_for_exec(exec: &OwnedFd, root: &ProcessRef) -> Result<Option<Vec<u8>>, Errno> {
    let mut inbox = Inbox::default();
    match first_message(exec.as_fd(), &mut inbox, EXEC_PATIENCE) {
        Err(Errno::ETIMEDOUT) => {
            let _ = root.signal(libc::SIGCONT);
            first_message(exec.as_fd(), &mut inbox, EXEC_LIMIT)
        }
        result => result,
    }
}

/// Nobody knows whether the command runs. Its keeper ends it, because its socket is about to close; in case that is dead
/// too, so does this.
fn lost(root: &ProcessRef, run_id: &str, errno: Errno) -> LaunchError {
    let target = Target::spawned(root, run_id);
    outside::end_tree(&target, libc::SIGKILL, Duration::ZERO, Duration::from_secs(1));
    LaunchError::KeeperLost { why: format!("did not execute the command within {EXEC_LIMIT:?} ({errno})") }
}

/// What a blank says when it could not become the command.
pub fn refused_with(payload: &[u8]) -> Errno {
    protocol::decode::<Refusal>(payload).map_or(Errno::EPROTO, |refusal| Errno::from_raw(refusal.errno))
}

/// What does not fit into a frame does not fit into a process either.
fn encode(message: &impl serde::Serialize) -> Result<Vec<u8>, LaunchError> {
    protocol::encode(message).map_err(|_| LaunchError::refused(Errno::E2BIG))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// It hears everybody's keepers, and whoever starts a run may have to wait for a keeper that was stopped.
    #[test]
    fn the_native_thread_does_not_wait_for_whoever_starts_a_run() {
        let launcher = Launcher::new(PathBuf::new(), 1);
        let starting = launcher.shared();
        let (restock, (tell, told)) = (launcher.restock(), mpsc::channel());
        std::thread::spawn(move || {
            restock();
            tell.send(())
        });
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(()));
        drop(starting);
    }
}
