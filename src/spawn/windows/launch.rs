//! Starts a run in its own job.
//!
//! The order makes it safe. `CreateProcessW` creates the process inside its job, and suspended.
//! Then the bot records it. So the process is contained and recorded at its first instruction. If
//! the bot dies in between, the kernel closes the job's only handle, which ends the process. This
//! also holds for a run that has to outlive its bot: its root gets a handle of the job only after
//! it was resumed. With an earlier handle, a bot that dies in between would leave a suspended
//! process forever.

use std::os::windows::io::{AsHandle, AsRawHandle, OwnedHandle, RawHandle};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_CHAR, FILE_TYPE_DISK, FILE_TYPE_PIPE, GetFileType};
use windows_sys::Win32::System::Environment::NeedCurrentDirectoryForExePathW;

use super::environment::Environment;
use super::handles::{Kind, Slot};
use super::pipes::{self, Direction, wide};
use super::process::{self, Spec, Suspended};
use super::{crt, quote, search};
use crate::contain::job::Job;
use crate::errno::Errno;
use crate::identity::{self, ProcessRef};
use crate::keeper::windows::{self as keeper, Holding, Polite, RootProcess};
use crate::pty::Terminal;
use crate::registry::{self, Containment, Entry, Record, TakeoverRules};
use crate::run::Policy;
use crate::run::lifecycle::Rules;
use crate::run::signal::{SIGKILL, exit_code};
use crate::runtime::{self, Runtime};
use crate::spawn::deadlines::Deadlines;
use crate::spawn::keeper_connection::{Exec, KeeperConnection};
use crate::spawn::output_monitor::OutputMonitor;
use crate::spawn::run::Run;
use crate::spawn::run_monitor::RunMonitor;
use crate::spawn::{
    Launch, LaunchError, LaunchOptions, OnEvent, RequestedContainment, Stdio, Streams, environment,
};

/// Starts runs. One per process is enough. It is safe to share between threads.
#[derive(Debug)]
pub struct Launcher;

/// A suspended command that waits for [`Launcher::finish`]. Dropping this value ends it.
pub struct Pending {
    pub streams: Streams,
    pub pid: i32,
    /// `None` after [`Launcher::finish`].
    suspended: Option<SuspendedLaunch>,
}

/// A launch whose process is created and recorded, but suspended.
struct SuspendedLaunch {
    suspended: Suspended,
    job: Arc<Job>,
    /// The name of the job, if the run has to outlive its bot.
    job_name: Option<String>,
    root: Arc<RootProcess>,
    entry: Entry,
    output_monitor: Option<OutputMonitor>,
    terminal: Option<Arc<Terminal>>,
    launch: Launch,
    runtime: &'static Runtime,
}

/// The command's handles, and ours.
struct StdioSetup {
    slots: Vec<Slot>,
    streams: Streams,
    theirs: Vec<OwnedHandle>,
    terminal: Option<Arc<Terminal>>,
    /// The command inherits handles of the bot, perhaps a console.
    inherits: bool,
}

impl Launcher {
    /// Ignores its arguments: Windows needs no keeper process.
    pub fn new(_keeper: PathBuf, _stock: usize) -> Self {
        Self
    }

    pub fn begin(&self, launch: Launch) -> Result<Pending, LaunchError> {
        let counters = launch.owner.counters.clone();
        create(launch).inspect_err(|error| {
            if matches!(error, LaunchError::Refused { .. }) {
                counters.refused();
            }
        })
    }

    /// Resumes the command, and starts the run monitor.
    pub fn finish(&self, mut pending: Pending, on_event: OnEvent) -> Result<Run, LaunchError> {
        let Some(launch) = pending.suspended.take() else { return Err(LaunchError::refused(Errno::ESRCH)) };
        launch.listen(on_event)
    }

    /// Checks that this runtime can open streams.
    pub fn prepare(&self) -> Result<(), LaunchError> {
        if crt::is_available() { Ok(()) } else { Err(LaunchError::NoDescriptors) }
    }

    pub fn retire(&self) {}
}

fn create(launch: Launch) -> Result<Pending, LaunchError> {
    // Start the threads first: a failure must come before anything is started.
    let runtime = runtime::get().map_err(|_| LaunchError::refused(Errno::EAGAIN))?;
    keeper::open_port().map_err(LaunchError::refused)?;
    if launch.options.containment == RequestedContainment::Cgroup {
        return Err(LaunchError::NoCgroups);
    }
    let stdio = StdioSetup::new(&launch)?;
    match start(&launch, &stdio) {
        Ok(Created { suspended, job, job_name, root, entry }) => {
            let piped = stdio.streams.iter().skip(1).take(2).flatten().map(raw_stream);
            let outputs = piped.chain(launch.outputs.iter().copied());
            let output_monitor =
                launch.options.idle_timeout_ms.map(|limit_ms| OutputMonitor::new(limit_ms, outputs));
            let terminal = stdio.terminal;
            let pid = suspended.pid;
            // Dropping `stdio` closes our copies of the command's ends.
            let suspended = SuspendedLaunch {
                suspended,
                job,
                job_name,
                root,
                entry,
                output_monitor,
                terminal,
                launch,
                runtime,
            };
            Ok(Pending { streams: stdio.streams, pid, suspended: Some(suspended) })
        }
        Err(LaunchError::Refused { errno, .. }) => {
            Err(LaunchError::Refused { errno, streams: stdio.streams })
        }
        Err(error) => Err(error),
    }
}

/// A suspended process that is recorded.
struct Created {
    suspended: Suspended,
    job: Arc<Job>,
    job_name: Option<String>,
    root: Arc<RootProcess>,
    entry: Entry,
}

/// Creates the process, suspended, and records it.
fn start(launch: &Launch, stdio: &StdioSetup) -> Result<Created, LaunchError> {
    let refused = LaunchError::refused;
    let options = &launch.options;
    if let Some(errno) = search::refusal(&options.file, options.uid, options.gid) {
        return Err(refused(errno));
    }
    let block =
        environment::block(&options.env, &options.run_id, &launch.cookie_key, options.terminal.as_ref());
    #[allow(clippy::disallowed_methods)] // On Windows the environment has a lock.
    let bot_value = |key: &str| std::env::var_os(key).map(|value| value.to_string_lossy().into_owned());
    let environment = Environment::new(&block, bot_value);
    let file = find(options, &environment).ok_or_else(|| refused(Errno::ENOENT))?;
    let mut command_line =
        quote::command_line(options.argv.split_terminator('\0'), options.windows_verbatim_arguments);
    let directory = options.cwd.as_deref().map(wide);
    let name = (options.on_owner_exit == Policy::Keep).then(job_name);
    let job = Job::create(name.as_deref(), options.limits()).map_err(refused)?;
    for handle in &stdio.theirs {
        pipes::inherit(handle, true).map_err(refused)?;
    }
    let created = process::create(Spec {
        file: &wide(&file),
        command_line: &mut command_line,
        environment: &environment.wide(),
        directory: directory.as_deref(),
        job: &job,
        slots: &stdio.slots,
        console: stdio.terminal.as_ref().and_then(|terminal| terminal.console()),
        hide: options.windows_hide && !stdio.inherits,
    });
    for handle in &stdio.theirs {
        pipes::inherit(handle, false).map_err(refused)?;
    }
    let suspended = created.map_err(refused)?;
    let handle = suspended.process_handle().map_err(refused)?;
    let process = ProcessRef::known(suspended.pid, handle.start().map_err(refused)?);
    // If the process cannot be recorded, this function drops the job, which ends the process.
    let entry = launch.owner.begin(record(launch, &process, name.clone()), options.given_id)?;
    entry.wake_checkpoint_thread();
    let root = Arc::new(RootProcess::new(handle, process));
    Ok(Created { suspended, job: Arc::new(job), job_name: name, root, entry })
}

impl SuspendedLaunch {
    fn listen(self, on_event: OnEvent) -> Result<Run, LaunchError> {
        let Self { suspended, job, job_name, root, entry, output_monitor, terminal, launch, runtime } = self;
        let options = &launch.options;
        let polite = terminal.clone().map(|terminal| -> Polite { Box::new(move || terminal.request_exit()) });
        let rules = Rules {
            on_owner_exit: options.on_owner_exit,
            on_leader_exit: options.on_leader_exit,
            grace_ms: options.grace_ms,
            timeout: options.timeout(),
            ..Rules::default()
        };
        let process = root.process.clone();
        let holding =
            Holding { job: job.clone(), root: root.clone(), rules, entry: entry.clone(), polite, age: None };
        // Start the keeper before the process: then it misses no event.
        let (connection, reports) = match KeeperConnection::start_keeper(holding) {
            Ok(started) => started,
            Err(errno) => {
                end_suspended(&job, &root, &entry);
                return Err(LaunchError::refused(errno));
            }
        };
        let deadlines = Deadlines::new(options.timeout_ms.map(Duration::from_millis), output_monitor);
        let run = Run::new(connection, runtime, entry, options.grace_ms, deadlines, terminal);
        let resumed = suspended.resume().and_then(|()| match options.on_owner_exit {
            Policy::Keep => let_run_outlive_bot(&job, &suspended, &root, options.on_leader_exit),
            Policy::Kill => Ok(()),
        });
        let monitor = RunMonitor {
            run: run.clone(),
            exec: Some(Exec),
            reports: Some(reports),
            root: process,
            held_by: job_name,
            origin: None,
            cookie_key: Some(launch.cookie_key),
            counters: launch.owner.counters,
            on_event,
        };
        runtime.loop_handle.spawn(monitor.listen());
        if resumed.is_err() {
            let _ = run.cancel(SIGKILL, 0, "spawn-error");
        }
        Ok(run)
    }
}

impl Drop for Pending {
    /// Ends a launch that the caller does not finish. Its process has not executed anything.
    fn drop(&mut self) {
        if let Some(launch) = self.suspended.take() {
            end_suspended(&launch.job, &launch.root, &launch.entry);
        }
    }
}

/// Ends a suspended process, which has not executed anything. It is gone when this returns.
fn end_suspended(job: &Job, root: &RootProcess, entry: &Entry) {
    let _ = job.terminate(exit_code(SIGKILL));
    let _ = root.pin.wait_exited(Some(Duration::from_secs(1)));
    entry.remove();
}

/// Gives the root a handle of the job, so that the job outlives the bot. If the bot has exited, the
/// root's exit closes the last handle, and the kernel ends the rest. With `onLeaderExit: 'keep'`
/// the rest stays.
fn let_run_outlive_bot(
    job: &Job,
    suspended: &Suspended,
    root: &RootProcess,
    on_leader_exit: Policy,
) -> Result<(), Errno> {
    let given = job.give_to(suspended.process.as_handle());
    let given =
        given.and_then(|()| if on_leader_exit == Policy::Keep { job.end_with_us(false) } else { Ok(()) });
    // The root may have exited already.
    if root.pin.has_ended() { Ok(()) } else { given }
}

impl StdioSetup {
    fn new(launch: &Launch) -> Result<Self, LaunchError> {
        let refused = LaunchError::refused;
        if let Some(settings) = &launch.options.terminal {
            return Self::with_terminal(settings.size, &launch.stdio);
        }
        let (mut slots, mut streams, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        let mut inherits = false;
        for (index, source) in launch.stdio.iter().enumerate() {
            let (stream, handle) = match *source {
                // A program without its three standard streams may open files in their place.
                Stdio::Closed if index > 2 => (None, None),
                Stdio::Closed | Stdio::Null => (None, Some(pipes::null().map_err(refused)?)),
                Stdio::Fd(fd) => {
                    inherits = true;
                    match crt::handle_of(fd) {
                        // A service has no standard streams to inherit.
                        Err(Errno::EBADF) if fd <= 2 => (None, Some(pipes::null().map_err(refused)?)),
                        handle => (None, Some(pipes::duplicate(handle.map_err(refused)?).map_err(refused)?)),
                    }
                }
                Stdio::Handle(handle) => (None, Some(pipes::duplicate(raw(handle)).map_err(refused)?)),
                Stdio::Pipe => {
                    let (ours, theirs) = pipes::pair(Direction::of(index)).map_err(refused)?;
                    (Some(ours), Some(theirs))
                }
            };
            slots.push(
                handle
                    .as_ref()
                    .map_or(Slot::Closed, |handle| Slot::Open(kind(handle), handle.as_raw_handle().addr())),
            );
            streams.push(stream);
            theirs.extend(handle);
        }
        while slots.len() < 3 {
            let handle = pipes::null().map_err(refused)?;
            slots.push(Slot::Open(kind(&handle), handle.as_raw_handle().addr()));
            theirs.push(handle);
        }
        Ok(Self { slots, streams, theirs, terminal: None, inherits })
    }

    /// The pseudo-console has the command's ends. Ours are the terminal's input and output.
    fn with_terminal(size: crate::pty::Size, stdio: &[Stdio]) -> Result<Self, LaunchError> {
        let refused = LaunchError::refused;
        let (mut streams, mut ends) = (Streams::new(), Vec::new());
        for (index, source) in stdio.iter().take(2).enumerate() {
            let (ours, theirs) = if let Stdio::Handle(handle) = *source {
                // A postponed run: its supervisor created this end, and closes it.
                (None, pipes::duplicate(raw(handle)).map_err(refused)?)
            } else {
                let (ours, theirs) = pipes::pair(Direction::of(index)).map_err(refused)?;
                (Some(ours), theirs)
            };
            streams.push(ours);
            ends.push(theirs);
        }
        streams.push(None);
        let (Some(output), Some(input)) = (ends.pop(), ends.pop()) else {
            return Err(refused(Errno::EINVAL));
        };
        let terminal = Terminal::open(size, input, output).map_err(LaunchError::NoTerminal)?;
        Ok(Self {
            slots: Vec::new(),
            streams,
            theirs: Vec::new(),
            terminal: Some(Arc::new(terminal)),
            inherits: false,
        })
    }
}

/// The file that the command names, by Node's rules.
fn find(options: &LaunchOptions, environment: &Environment) -> Option<String> {
    let bot_cwd = std::env::current_dir().ok().map(|path| path.to_string_lossy().into_owned());
    let cwd = options.cwd.as_deref().or(bot_cwd.as_deref())?;
    let name = wide(&options.file);
    // SAFETY: the name ends with a NUL.
    let cwd_first = unsafe { NeedCurrentDirectoryForExePathW(name.as_ptr()) } != 0;
    let places = search::Places { cwd, path: environment.get("PATH"), cwd_first };
    search::find(&options.file, places, |path| Path::new(path).metadata().is_ok_and(|meta| !meta.is_dir()))
}

/// A new name for a job. The next bot finds the job by it. It contains our PID for people, and a
/// random part, which makes it unique and impossible to guess.
pub fn job_name() -> String {
    format!("Local\\spawn-owned-{}-{}", std::process::id(), keeper::random())
}

fn record(launch: &Launch, root: &ProcessRef, job: Option<String>) -> Record {
    let options = &launch.options;
    let keeper = |me| registry::Keeper { start_token: me, address: keeper::address().to_owned() };
    Record {
        containment: Containment::Job,
        job,
        rules: (options.on_owner_exit == Policy::Keep)
            .then_some(TakeoverRules { on_leader_exit: options.on_leader_exit, timeout: options.timeout() }),
        keeper: identity::me().ok().map(keeper),
        ..launch.record(root)
    }
}

fn kind(handle: &OwnedHandle) -> Kind {
    // SAFETY: the handle is open.
    match unsafe { GetFileType(handle.as_raw_handle()) } {
        FILE_TYPE_DISK => Kind::Disk,
        FILE_TYPE_PIPE => Kind::Pipe,
        FILE_TYPE_CHAR => Kind::Device,
        _ => Kind::Device,
    }
}

/// The value of a handle. Windows uses only the lower 32 bits.
pub fn raw_stream(handle: &OwnedHandle) -> i32 {
    i32::try_from(handle.as_raw_handle().addr()).unwrap_or(0)
}

fn raw(value: i32) -> RawHandle {
    std::ptr::without_provenance_mut(usize::try_from(value).unwrap_or(0))
}
