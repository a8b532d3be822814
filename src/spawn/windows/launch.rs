//! Starting a run in a job of its own.
//!
//! The order is what makes it safe. The process is created in its job, and suspended: it has not executed anything when it is
//! written down, and when it executes its first instruction it is both contained and recorded. Should the bot die in between, the
//! kernel closes the only handle of the job, and with it goes what was created. That holds for a run that is to outlive its bot too,
//! until it runs: only then its root is given a handle of the job, by which that outlives us. Were it given before, a bot that dies
//! in between would leave a process that nobody ever has begin.

use std::os::windows::io::{AsHandle, AsRawHandle, OwnedHandle, RawHandle};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_CHAR, FILE_TYPE_DISK, FILE_TYPE_PIPE, GetFileType};
use windows_sys::Win32::System::Environment::NeedCurrentDirectoryForExePathW;

use super::environment::Environment;
use super::handles::{Kind, Slot};
use super::pipes::{self, Way, wide};
use super::process::{self, Spec, Suspended};
use super::{crt, quote, search};
use crate::contain::job::Job;
use crate::errno::Errno;
use crate::identity::{self, ProcessRef};
use crate::keeper::windows::{self as keeper, Held, Holding, Polite};
use crate::pty::Terminal;
use crate::registry::{self, Containment, Entry, KeptRules, Record};
use crate::run::Policy;
use crate::run::lifecycle::Rules;
use crate::run::signal::{SIGKILL, exit_code};
use crate::runtime::{self, Runtime};
use crate::spawn::ears::Ears;
use crate::spawn::line::{Exec, Line};
use crate::spawn::run::Run;
use crate::spawn::silence::Listening;
use crate::spawn::{Launch, LaunchError, OnEvent, Stdio, Streams, Tier, environment};

/// Starts runs. One per process is enough; it is safe to share.
#[derive(Debug)]
pub struct Launcher;

/// A command that is created, and waits for [`Launcher::finish`] to begin. Dropping it instead ends it.
pub struct Pending {
    pub streams: Streams,
    pub pid: i32,
    /// `None` when it was finished.
    begun: Option<Begun>,
}

struct Begun {
    suspended: Suspended,
    job: Arc<Job>,
    /// Of a run that is to outlive us.
    job_name: Option<String>,
    root: Arc<Held>,
    entry: Entry,
    listening: Option<Listening>,
    terminal: Option<Arc<Terminal>>,
    launch: Launch,
    runtime: &'static Runtime,
}

/// The command's ends, and ours.
struct Plumbing {
    slots: Vec<Slot>,
    streams: Streams,
    theirs: Vec<OwnedHandle>,
    terminal: Option<Arc<Terminal>>,
    /// It has some of the bot's own, a console perhaps.
    inherits: bool,
}

impl Launcher {
    /// There is no keeper to be started.
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

    /// Lets the command begin, and listens to it from here on.
    pub fn finish(&self, mut pending: Pending, on_event: OnEvent) -> Result<Run, LaunchError> {
        let Some(begun) = pending.begun.take() else { return Err(LaunchError::refused(Errno::ESRCH)) };
        begun.listen(on_event)
    }

    /// Makes sure that streams can be had at all.
    pub fn prepare(&self) -> Result<(), LaunchError> {
        if crt::is_there() { Ok(()) } else { Err(LaunchError::NoDescriptors) }
    }

    pub fn retire(&self) {}
}

fn create(launch: Launch) -> Result<Pending, LaunchError> {
    // Whatever can fail for lack of a thread fails before anything is started.
    let runtime = runtime::get().map_err(|_| LaunchError::refused(Errno::EAGAIN))?;
    keeper::open_port().map_err(LaunchError::refused)?;
    if launch.tier == Tier::Cgroup {
        return Err(LaunchError::NoCgroups);
    }
    let plumbing = Plumbing::lay(&launch)?;
    match start(&launch, &plumbing) {
        Ok(Created { suspended, job, job_name, root, entry }) => {
            let laid = plumbing.streams.iter().skip(1).take(2).flatten().map(number);
            let outputs = laid.chain(launch.outputs.iter().copied());
            let listening = launch.silence_ms.map(|limit_ms| Listening::new(limit_ms, outputs));
            let terminal = plumbing.terminal;
            let pid = suspended.pid;
            // With `plumbing` go our copies of the command's ends: its own are the only ones from here on.
            let begun = Begun { suspended, job, job_name, root, entry, listening, terminal, launch, runtime };
            Ok(Pending { streams: plumbing.streams, pid, begun: Some(begun) })
        }
        Err(LaunchError::Refused { errno, .. }) => {
            Err(LaunchError::Refused { errno, streams: plumbing.streams })
        }
        Err(error) => Err(error),
    }
}

/// A process that has not begun, and is written down.
struct Created {
    suspended: Suspended,
    job: Arc<Job>,
    job_name: Option<String>,
    root: Arc<Held>,
    entry: Entry,
}

/// Creates it, suspended, and writes it down.
fn start(launch: &Launch, plumbing: &Plumbing) -> Result<Created, LaunchError> {
    let refused = LaunchError::refused;
    if let Some(errno) = search::refusal(&launch.file, launch.uid, launch.gid) {
        return Err(refused(errno));
    }
    let block = environment::block(launch.env.as_deref(), &launch.run_id, launch.terminal.as_ref());
    let own = |key: &str| std::env::var_os(key).map(|value| value.to_string_lossy().into_owned());
    let environment = Environment::new(&block, own);
    let file = find(launch, &environment).ok_or_else(|| refused(Errno::ENOENT))?;
    let mut command_line = quote::command_line(launch.argv.split_terminator('\0'), launch.verbatim);
    let directory = launch.cwd.as_deref().map(wide);
    let name = (launch.on_owner_exit == Policy::Keep).then(job_name);
    let job = Job::create(name.as_deref(), launch.limits).map_err(refused)?;
    for handle in &plumbing.theirs {
        pipes::inherit(handle, true).map_err(refused)?;
    }
    let created = process::create(Spec {
        file: &wide(&file),
        command_line: &mut command_line,
        environment: &environment.wide(),
        directory: directory.as_deref(),
        job: &job,
        slots: &plumbing.slots,
        console: plumbing.terminal.as_ref().and_then(|terminal| terminal.console()),
        hide: launch.windows_hide && !plumbing.inherits,
    });
    for handle in &plumbing.theirs {
        pipes::inherit(handle, false).map_err(refused)?;
    }
    let suspended = created.map_err(refused)?;
    let pin = suspended.pin().map_err(refused)?;
    let process = ProcessRef::known(suspended.pid, pin.start().map_err(refused)?);
    // Nobody of whom there is no record: if it cannot be written down, the job goes with this function, and the process with it.
    let entry = launch.owner.begin(record(launch, &process, name.clone()), launch.given_id)?;
    entry.follow();
    let root = Arc::new(Held::new(pin, process));
    Ok(Created { suspended, job: Arc::new(job), job_name: name, root, entry })
}

impl Begun {
    fn listen(self, on_event: OnEvent) -> Result<Run, LaunchError> {
        let Self { suspended, job, job_name, root, entry, listening, terminal, launch, runtime } = self;
        let polite = terminal.clone().map(|terminal| -> Polite { Box::new(move || terminal.ask_to_end()) });
        let rules = Rules {
            on_owner_exit: launch.on_owner_exit,
            on_leader_exit: launch.on_leader_exit,
            grace_ms: launch.grace_ms,
            timeout: launch.timeout,
            ..Rules::default()
        };
        let process = root.process.clone();
        let holding =
            Holding { job: job.clone(), root: root.clone(), rules, entry: entry.clone(), polite, age: None };
        // Held first, begun second: nothing that it does is missed.
        let (line, ear) = match Line::hold(holding) {
            Ok(held) => held,
            Err(errno) => {
                end_unbegun(&job, &root, &entry);
                return Err(LaunchError::refused(errno));
            }
        };
        let run = Run::new(line, runtime, entry, launch.grace_ms, listening, terminal);
        let begins = suspended.resume().and_then(|()| match launch.on_owner_exit {
            Policy::Keep => outlive_us(&job, &suspended, &root, launch.on_leader_exit),
            Policy::Kill => Ok(()),
        });
        let ears = Ears {
            run: run.clone(),
            exec: Some(Exec),
            ear: Some(ear),
            root: process,
            held_by: job_name,
            origin: None,
            run_id: launch.run_id,
            silence: None,
            timeout: launch.timeout.map(|timeout| Duration::from_millis(timeout.after_ms)),
            counters: launch.owner.counters,
            on_event,
        };
        runtime.loop_handle.spawn(ears.listen());
        if begins.is_err() {
            let _ = run.cancel(SIGKILL, 0, "spawn-error");
        }
        Ok(run)
    }
}

impl Drop for Pending {
    /// Whoever has begun it does not go on. It has not executed anything, and is not going to.
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            end_unbegun(&begun.job, &begun.root, &begun.entry);
        }
    }
}

/// It has not executed anything, and is gone when this returns.
fn end_unbegun(job: &Job, root: &Held, entry: &Entry) {
    let _ = job.terminate(exit_code(SIGKILL));
    let _ = root.pin.wait_exited(Some(Duration::from_secs(1)));
    entry.over();
}

/// Gives the root a handle of the job, which lives as long as it does. When the root ends after we have, that is the last one, and the
/// kernel ends the rest, unless that is to stay.
fn outlive_us(job: &Job, suspended: &Suspended, root: &Held, on_leader_exit: Policy) -> Result<(), Errno> {
    let given = job.give_to(suspended.process.as_handle());
    let given =
        given.and_then(|()| if on_leader_exit == Policy::Keep { job.end_with_us(false) } else { Ok(()) });
    // It may have ended by now.
    if root.pin.has_ended() { Ok(()) } else { given }
}

impl Plumbing {
    fn lay(launch: &Launch) -> Result<Self, LaunchError> {
        let refused = LaunchError::refused;
        if let Some(settings) = &launch.terminal {
            return Self::with_terminal(settings.size, &launch.stdio);
        }
        let (mut slots, mut streams, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        let mut inherits = false;
        for (index, source) in launch.stdio.iter().enumerate() {
            let (stream, handle) = match *source {
                // A program that finds none of its three standard streams may open files in their place.
                Stdio::Closed if index > 2 => (None, None),
                Stdio::Closed | Stdio::Null => (None, Some(pipes::null().map_err(refused)?)),
                Stdio::Fd(fd) => {
                    inherits = true;
                    match crt::handle_of(fd) {
                        // A service has no standard streams that could be passed on.
                        Err(Errno::EBADF) if fd <= 2 => (None, Some(pipes::null().map_err(refused)?)),
                        handle => (None, Some(pipes::duplicate(handle.map_err(refused)?).map_err(refused)?)),
                    }
                }
                Stdio::Handle(handle) => (None, Some(pipes::duplicate(raw(handle)).map_err(refused)?)),
                Stdio::Pipe => {
                    let (ours, theirs) = pipes::pair(Way::of(index)).map_err(refused)?;
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

    /// The console has the command's ends; ours are what is typed and what is said.
    fn with_terminal(size: crate::pty::Size, stdio: &[Stdio]) -> Result<Self, LaunchError> {
        let refused = LaunchError::refused;
        let (mut streams, mut ends) = (Streams::new(), Vec::new());
        for (index, source) in stdio.iter().take(2).enumerate() {
            let (ours, theirs) = if let Stdio::Handle(handle) = *source {
                // Made when the run was postponed, and closed by whoever has made it.
                (None, pipes::duplicate(raw(handle)).map_err(refused)?)
            } else {
                let (ours, theirs) = pipes::pair(Way::of(index)).map_err(refused)?;
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

/// The file that the command names, as Node finds it.
fn find(launch: &Launch, environment: &Environment) -> Option<String> {
    let own = std::env::current_dir().ok().map(|path| path.to_string_lossy().into_owned());
    let cwd = launch.cwd.as_deref().or(own.as_deref())?;
    let name = wide(&launch.file);
    // SAFETY: the name ends with a NUL.
    let cwd_first = unsafe { NeedCurrentDirectoryForExePathW(name.as_ptr()) } != 0;
    let places = search::Places { cwd, path: environment.get("PATH"), cwd_first };
    search::find(&launch.file, places, |path| Path::new(path).metadata().is_ok_and(|meta| !meta.is_dir()))
}

/// By which the next bot finds it. For people it says whose it is; what makes it unique is what nobody can guess.
pub fn job_name() -> String {
    format!("Local\\spawn-owned-{}-{}", std::process::id(), keeper::random())
}

fn record(launch: &Launch, root: &ProcessRef, job: Option<String>) -> Record {
    let keeper = |me| registry::Keeper { start_token: me, address: keeper::address().to_owned() };
    Record {
        containment: Containment::Job,
        job,
        rules: (launch.on_owner_exit == Policy::Keep)
            .then_some(KeptRules { on_leader_exit: launch.on_leader_exit, timeout: launch.timeout }),
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

/// The value of a handle. The system uses the lower 32 bits only.
pub fn number(handle: &OwnedHandle) -> i32 {
    i32::try_from(handle.as_raw_handle().addr()).unwrap_or(0)
}

fn raw(number: i32) -> RawHandle {
    std::ptr::without_provenance_mut(usize::try_from(number).unwrap_or(0))
}
