//! Starting a run through a keeper.

mod keeper_stock;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

use self::keeper_stock::Shared;
use super::bounded_wait::{self, NoAnswer};
use super::exec_cache::Program;
use super::inherited;
use super::stdio::{SpareStreams, StdioSetup};
use super::zygote::{Keeper, first_message};
use crate::contain::outside::{self, Target};
use crate::counters::Counters;
use crate::identity::ProcessRef;
use crate::keeper::channel;
use crate::keeper::protocol::{self, AssignRun, Command, Inbox, Refusal, Request};
use crate::pty::Relay;
use crate::registry::{self, Containment, Entry, Record};
use crate::run::Policy;
use crate::runtime::{self, Runtime};
use crate::spawn::deadlines::Deadlines;
use crate::spawn::keeper_connection::{Exec, KeeperConnection, ReportStream};
use crate::spawn::output_monitor::OutputMonitor;
use crate::spawn::run::Run;
use crate::spawn::run_monitor::RunMonitor;
use crate::spawn::{Launch, LaunchError, OnEvent, Streams, environment};
use crate::trace::trace;

/// How long to wait for `exec` before the bot sends SIGCONT to the exec stub, which may be stopped.
pub const EXEC_WAKE_AFTER: Duration = Duration::from_secs(1);
/// How long `exec` may take. A file on a slow disk is not an error.
const EXEC_LIMIT: Duration = Duration::from_secs(10);

/// How long the exec stub may take to make room in its socket. A long command needs more than one
/// write.
const SEND_LIMIT: Duration = Duration::from_secs(1);

/// How many waiting keepers to try. Another process may have killed a waiting keeper.
const ATTEMPTS: usize = 3;

/// Starts runs. One per process is enough. It is safe to share between threads.
#[derive(Debug)]
pub struct Launcher {
    keeper: PathBuf,
    /// How many forked keepers wait for a run.
    stock: usize,
    shared: Arc<Mutex<Shared>>,
    streams: Arc<SpareStreams>,
}

/// A command that was sent to an exec stub. [`Launcher::finish`] returns whether `exec` succeeded.
/// The caller can do other work before it. Dropping this value ends the processes that were
/// started.
pub struct Pending {
    /// Our ends of the new streams, one per [`crate::spawn::Stdio::Pipe`], at the same index.
    pub streams: Streams,
    pub pid: i32,
    /// `None` after [`Launcher::finish`].
    sent: Option<SentLaunch>,
}

/// A launch after its command was sent, before the run monitor starts.
struct SentLaunch {
    keeper: Keeper,
    entry: Entry,
    /// The program, if the exec cache can recognize it.
    program: Option<Program>,
    /// The exec cache contains the program.
    in_exec_cache: bool,
    output_monitor: Option<OutputMonitor>,
    /// Copies bytes between the terminal and the streams, if the run has a terminal.
    relay: Option<Relay>,
    /// Our copy of the command's working directory.
    directory: Option<OwnedFd>,
    launch: Launch,
    runtime: &'static Runtime,
}

impl Launcher {
    pub fn new(keeper: PathBuf, stock: usize) -> Self {
        Self { keeper, stock, shared: Arc::default(), streams: Arc::default() }
    }

    /// Sends a command to a waiting exec stub. Its keeper is ready: if the bot dies now, the keeper
    /// ends the tree.
    pub fn begin(&self, launch: Launch) -> Result<Pending, LaunchError> {
        let counters = launch.owner.counters.clone();
        self.hand_over(launch).inspect_err(|error| count(&counters, error))
    }

    fn hand_over(&self, launch: Launch) -> Result<Pending, LaunchError> {
        let mut stdio = StdioSetup::new(&launch, &self.streams)?;
        let streams = std::mem::take(&mut stdio.streams);
        match self.send(launch, stdio, &streams) {
            Ok(sent) => Ok(Pending { streams, pid: sent.keeper.root.pid, sent: Some(sent) }),
            // Like Node's spawn, return streams, which are at end of file. Without free file
            // descriptors Node returns none.
            Err(LaunchError::Refused { errno, .. }) if !matches!(errno, Errno::EMFILE | Errno::ENFILE) => {
                Err(LaunchError::Refused { errno, streams })
            }
            Err(error) => Err(error),
        }
    }

    fn send(
        &self,
        launch: Launch,
        mut stdio: StdioSetup,
        streams: &Streams,
    ) -> Result<SentLaunch, LaunchError> {
        // Start the threads first: a failure must come before anything is started.
        let runtime = runtime::get().map_err(|error| {
            // Without an errno the cause is a missing thread; the event loop may lack descriptors.
            LaunchError::refused(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EAGAIN)))
        })?;
        let options = &launch.options;
        let env =
            environment::block(&options.env, &options.run_id, &launch.cookie_key, options.terminal.as_ref());
        let program = Program::find(stdio.directory.as_ref(), options, &env);
        let mut shared = self.shared();
        let in_exec_cache = program.as_ref().is_some_and(|program| shared.exec_cache.contains(program));
        let umask = inherited::umask().map_err(LaunchError::refused)?;
        let command = encode(&Command {
            file: &options.file,
            argv: &options.argv,
            env: &env,
            uid: options.uid,
            gid: options.gid,
            #[allow(clippy::useless_conversion)] // The type of a umask differs between Linux and macOS.
            umask: umask.into(),
            directory: stdio.directory.is_some(),
            terminal: stdio.relay.is_some(),
            stdio: stdio.slots,
        })?;
        let mut attempt = 1;
        let (keeper, entry) = loop {
            let keeper = self.take_keeper(&mut shared, options)?;
            if keeper.address.is_empty() && options.on_owner_exit == Policy::Keep {
                return Err(LaunchError::Unreachable);
            }
            // Record the exec stub before it gets the command, so the registry knows the command
            // from its first instruction on. Until then the exec stub does nothing, and exits with
            // the bot.
            let entry = launch.owner.begin(record(&launch, &keeper), options.given_id)?;
            let room = || wait_for_room(&keeper);
            match channel::send_when_writable(&keeper.launch, &command, &stdio.sent, room) {
                Ok(()) => break (keeper, entry),
                // The keeper died while it waited, or the exec stub is stopped: it exits when its
                // sockets close. An incomplete command starts nothing.
                Err(errno) => {
                    entry.remove();
                    let dead = matches!(errno, Errno::EPIPE | Errno::ECONNRESET | Errno::ETIMEDOUT);
                    if !dead || attempt == ATTEMPTS {
                        return Err(LaunchError::refused(errno));
                    }
                    attempt += 1;
                }
            }
        };
        trace!(run: &launch.options.run_id, "sent the command to exec stub {}", keeper.root.pid);
        // The message contains the command's ends now. Close our copies before the caller can write
        // to a stream. Otherwise a write to a stdin that the command has closed succeeds, without
        // EPIPE.
        stdio.theirs.clear();
        let piped = streams.iter().skip(1).take(2).flatten().map(AsRawFd::as_raw_fd);
        let outputs = piped.chain(launch.outputs.iter().copied());
        let output_monitor = options.idle_timeout_ms.map(|limit_ms| OutputMonitor::new(limit_ms, outputs));
        let StdioSetup { relay, directory, .. } = stdio;
        Ok(SentLaunch {
            keeper,
            entry,
            program,
            in_exec_cache,
            output_monitor,
            relay,
            directory,
            launch,
            runtime,
        })
    }

    /// Waits until `exec` succeeds or fails, then starts the run monitor.
    ///
    /// Does not wait if the program is in the exec cache. If `exec` fails then, the run monitor
    /// emits [`crate::spawn::RunEvent::Refused`].
    pub fn finish(&self, mut pending: Pending, on_event: OnEvent) -> Result<Run, LaunchError> {
        let Some(mut sent) = pending.sent.take() else { return Err(LaunchError::refused(Errno::ESRCH)) };
        if !sent.in_exec_cache {
            let Keeper { launch: exec, root, .. } = &sent.keeper;
            // The wait may take seconds. Write the entry to disk meanwhile.
            sent.entry.wake_checkpoint_thread();
            let failed = match wait_for_exec(exec, root) {
                Ok(None) => None,
                Ok(Some(refusal)) => Some(LaunchError::refused(refused_with(&refusal))),
                Err(no_answer) => Some(lost(root, &sent.launch.cookie_key, no_answer)),
            };
            if let Some(error) = failed {
                sent.entry.remove();
                count(&sent.launch.owner.counters, &error);
                let restock = self.restock();
                sent.runtime.loop_handle.spawn(async { restock() });
                return Err(error);
            }
            self.shared().exec_cache.insert(sent.program.take());
        }
        Ok(sent.listen(on_event, self.restock()))
    }
}

impl SentLaunch {
    /// Sends the rules to the keeper and starts the run monitor.
    ///
    /// Waking a process or thread is the largest part of a spawn's cost. So the caller wakes only
    /// two: the exec stub and the native thread. The native thread wakes the others: the keeper,
    /// the checkpoint thread, and the zygote with `then`. A keeper without rules ends the tree when
    /// the bot dies. That is right for every run except one that has to outlive its bot. The bot
    /// may exit right after the spawn, so such a run's keeper gets its rules here. No request
    /// reaches a keeper before its rules, see [`KeeperConnection`].
    fn listen(self, on_event: OnEvent, then: impl FnOnce() + Send + 'static) -> Run {
        let Self { keeper, entry, output_monitor, relay, directory, launch, runtime, .. } = self;
        let options = &launch.options;
        let Keeper { control, inbox, launch: exec, root, process, origin, cgroup, .. } = keeper;
        let terminal = relay.map(|relay| Arc::new(relay.start(&runtime.loop_handle)));
        let rules = Request::AssignRun(AssignRun {
            run_id: &options.run_id,
            cookie_key: &launch.cookie_key,
            on_owner_exit: options.on_owner_exit,
            on_leader_exit: options.on_leader_exit,
            grace_ms: options.grace_ms,
            timeout: options.timeout(),
            registry: &launch.owner.registry.path().to_string_lossy(),
            key: entry.key(),
        });
        let connection = KeeperConnection::to_new_keeper(control, process, &rules);
        let deadlines = Deadlines::new(options.timeout_ms.map(Duration::from_millis), output_monitor);
        let run = Run::new(connection, runtime, entry, options.grace_ms, deadlines, terminal);
        // If this fails, the keeper is dead, and the run monitor notices that.
        if options.on_owner_exit == Policy::Keep {
            let _ = run.connection().send_rules();
        }
        let monitor = RunMonitor {
            run: run.clone(),
            exec: Some(Exec(exec)),
            reports: Some(ReportStream { received: Vec::new(), inbox }),
            root,
            held_by: cgroup,
            origin: Some(origin),
            cookie_key: Some(launch.cookie_key),
            counters: launch.owner.counters,
            on_event,
        };
        runtime.loop_handle.spawn(async {
            drop(directory);
            monitor.run.send_rules();
            monitor.run.entry().wake_checkpoint_thread();
            then();
            monitor.listen().await;
        });
        run
    }
}

impl Drop for Pending {
    /// Ends a launch that the caller does not finish. It is a run already, with a registry entry.
    /// So the keeper ends it like any other run, and the entry stays until its tree is extinct.
    fn drop(&mut self) {
        if let Some(sent) = self.sent.take() {
            let run = sent.listen(Arc::new(|_| {}), || {});
            // If this fails, the keeper is dead, and the run monitor notices that.
            let _ = run.cancel(libc::SIGKILL, 0, "spawn-error");
        }
    }
}

/// Counts a launch error as the end of a run if the command could not be started. Any other error
/// is an exception: there is no run.
fn count(counters: &Counters, error: &LaunchError) {
    if matches!(error, LaunchError::Refused { .. }) {
        counters.refused();
    }
}

/// The registry record, written before the exec stub gets the command.
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

/// Waits until the exec stub's socket has room for more of the command. An exec stub reads at once
/// unless it is stopped.
fn wait_for_room(keeper: &Keeper) -> Result<(), Errno> {
    let room = |slice| channel::wait_for_room(&keeper.launch, slice);
    bounded_wait::wait_for(SEND_LIMIT, || bounded_wait::wake(&keeper.root), room).map_err(|no_answer| {
        match no_answer {
            NoAnswer::Stopped => Errno::ETIMEDOUT,
            NoAnswer::Errno(errno) => errno,
        }
    })
}

/// Waits for the result of `exec`. `None`: it succeeded. Wakes an exec stub that is stopped.
fn wait_for_exec(exec: &OwnedFd, root: &ProcessRef) -> Result<Option<Vec<u8>>, NoAnswer> {
    let mut inbox = Inbox::default();
    let answer = |slice| first_message(exec.as_fd(), &mut inbox, slice);
    bounded_wait::wait_for(EXEC_LIMIT, || bounded_wait::wake(root), answer)
}

/// Ends a command whose state is unknown. Its keeper ends it too, because the control socket is
/// about to close; but the keeper may be dead.
fn lost(root: &ProcessRef, cookie_key: &str, no_answer: NoAnswer) -> LaunchError {
    let target = Target::spawned(root, Some(cookie_key));
    outside::end_tree(&target, libc::SIGKILL, Duration::ZERO, Duration::from_secs(1));
    match no_answer {
        NoAnswer::Stopped => LaunchError::KeeperStopped,
        NoAnswer::Errno(errno) => LaunchError::KeeperLost {
            why: format!("did not execute the command within {EXEC_LIMIT:?} ({errno})"),
        },
    }
}

/// The errno in the message of an exec stub whose `exec` failed.
pub fn refused_with(payload: &[u8]) -> Errno {
    protocol::decode::<Refusal>(payload).map_or(Errno::EPROTO, |refusal| Errno::from_raw(refusal.errno))
}

/// Encodes a message. A command too long for a frame is too long for `exec`, too.
fn encode(message: &impl serde::Serialize) -> Result<Vec<u8>, LaunchError> {
    protocol::encode(message).map_err(|_| LaunchError::refused(Errno::E2BIG))
}
