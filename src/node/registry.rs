//! The registry as JavaScript sees it. Structured values travel as JSON: their shapes are those of the file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use napi::bindgen_prelude::{Env, Function, Object};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Error, JsDeferred, Status};
use napi_derive::napi;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize};

use super::convert::{Process, milliseconds};
use crate::contain;
use crate::identity::{self, ProcessRef};
use crate::observe::counters::Snapshot;
use crate::observe::orphan_log::OrphanLog;
use crate::reap::{self, Decided, Done, Planned, Verb};
use crate::registry::{self, Instance, Kept, Record, ScopeLock};
use crate::run::reason::Reason;
use crate::run::{ExitStatus, Force};
use crate::runtime;
use crate::spawn::register;

/// How long the end of the process may wait for the file to be brought up to date.
const FLUSH_LIMIT: Duration = Duration::from_millis(200);

/// Plans that are neither carried out nor forgotten, by the number that whoever wanted them has given them.
type Plans = HashMap<u32, Arc<Vec<Planned>>>;

type TroubleListener = ThreadsafeFunction<String, (), String, Status, false, true>;

/// A supervisor's share of a registry.
#[napi]
pub struct Registry {
    pub(super) instance: Instance,
    plans: Arc<Mutex<Plans>>,
    /// Held for the time of one spawn.
    scope: Option<ScopeLock>,
}

#[napi]
impl Registry {
    /// Touches no disk.
    #[napi(constructor, catch_unwind)]
    #[allow(clippy::needless_pass_by_value)] // N-API passes values.
    pub fn new(
        path: String,
        instance_id: String,
        lease_ms: f64,
        event_log: Option<String>,
        on_trouble: Function<String, ()>,
    ) -> Result<Self, Error<String>> {
        let registry =
            registry::Registry::at(PathBuf::from(path)).map_err(|error| coded(error.code(), &error))?;
        let listener: TroubleListener = on_trouble
            .build_threadsafe_function()
            .weak::<true>()
            .callee_handled::<false>()
            .build()
            .map_err(|error| coded("ERR_OWNED_NATIVE", &error))?;
        registry.on_trouble(Box::new(move |trouble| {
            if let Ok(json) = serde_json::to_string(trouble) {
                listener.call(json, ThreadsafeFunctionCallMode::NonBlocking);
            }
        }));
        let lease = Duration::from_millis(milliseconds(lease_ms));
        let orphan_log = event_log.map(|path| Arc::new(OrphanLog::new(path.into())));
        let instance = Instance { registry, id: instance_id, lease, counters: Arc::default(), orphan_log };
        Ok(Self { instance, plans: Arc::default(), scope: None })
    }

    /// The entries that match a filter, or all, everybody's, as JSON.
    #[napi(catch_unwind)]
    pub fn list(&self, filter: Option<String>) -> Result<String, Error<String>> {
        let registry = self.instance.registry;
        let table = match filter {
            Some(filter) => {
                let filter: Filter =
                    serde_json::from_str(&filter).map_err(|error| coded("ERR_INVALID_ARG_VALUE", &error))?;
                registry.load_wanted(|record| filter.matches(record))
            }
            None => registry.load(),
        };
        json(&table.map_err(|error| coded(error.code(), &error))?.sorted())
    }

    /// The entries that match a filter, likewise, but without holding up the event loop.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn find<'env>(&self, env: &'env Env, filter: String) -> Result<Object<'env>, Error<String>> {
        let instance = self.instance.clone();
        in_background(env, move || {
            let filter: Filter = parse(&filter)?;
            let table = instance.registry.load_wanted(|record| filter.matches(record));
            let table = table.map_err(|error| Failure::new(error.code(), &error))?;
            Ok(table.sorted().into_iter().cloned().collect::<Vec<_>>())
        })
    }

    /// Every entry with its living processes, as JSON.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn survey<'env>(&self, env: &'env Env) -> Result<Object<'env>, Error<String>> {
        let instance = self.instance.clone();
        in_background(env, move || {
            reap::survey::survey(&instance).map_err(|error| Failure::new(error.code(), &error))
        })
    }

    /// Records a running process. JSON in, the record as JSON out.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)]
    pub fn register(&self, entry: String) -> Result<String, Error<String>> {
        let wish = serde_json::from_str(&entry).map_err(|error| coded("ERR_INVALID_ARG_VALUE", &error))?;
        let record = register::register(&self.instance, wish).map_err(|error| coded(error.code(), &error))?;
        json(&record)
    }

    /// This process's own entries as JSON: the one with that run id, or that PID, or all.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)]
    pub fn own(&self, run_id: Option<String>, pid: Option<i32>) -> Result<String, Error<String>> {
        json(&self.instance.registry.own(run_id.as_deref(), pid))
    }

    /// Takes the right to start the only run of a scope, until it is released. False if something lives in it, or is about to.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)]
    pub fn lock_scope(&mut self, scope: String) -> Result<bool, Error<String>> {
        self.scope =
            self.instance.registry.lock_scope(&scope).map_err(|error| coded(error.code(), &error))?;
        Ok(self.scope.is_some())
    }

    #[napi(catch_unwind)]
    pub fn release_scope(&mut self) {
        self.scope = None;
    }

    /// A run that was never started is over, for that reason.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)]
    pub fn count_unstarted(&self, reason: String) {
        let reason = Reason::named(&reason).unwrap_or(Reason::SpawnError);
        self.instance.counters.ended(reason, Force::Nothing);
    }

    /// Forgets registered processes of this bot. Returns how many.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)]
    pub fn unregister(&self, keys: Vec<String>) -> u32 {
        let mut count = 0;
        for (entry, record) in keys.iter().filter_map(|key| self.instance.registry.entry(key)) {
            if record.keeper.is_none() {
                entry.over();
                count += 1;
            }
        }
        count
    }

    /// What a reaper would do, as a plan of that number. Changes nothing.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn plan<'env>(
        &self,
        env: &'env Env,
        id: u32,
        bot_pid: i32,
        steal_from_live: bool,
    ) -> Result<Object<'env>, Error<String>> {
        let (instance, plans) = (self.instance.clone(), self.plans.clone());
        in_background(env, move || {
            let plan = reap::plan(&instance, bot_pid, steal_from_live);
            let plan = Arc::new(plan.map_err(|error| Failure::new(error.code(), &error))?);
            plans.lock().unwrap_or_else(PoisonError::into_inner).insert(id, plan.clone());
            Ok(Plan(plan))
        })
    }

    /// A plan that is not going to be carried out.
    #[napi(catch_unwind)]
    pub fn forget_plan(&self, id: u32) {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// Does it, once: `{id, adopt, changes: [[index, action], …], graceMs?}` in, what has become of each entry out.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn carry_out<'env>(&self, env: &'env Env, plan: String) -> Result<Object<'env>, Error<String>> {
        let (instance, plans) = (self.instance.clone(), self.plans.clone());
        in_background(env, move || {
            let Order { id, adopt, changes, grace_ms } = parse(&plan)?;
            let Some(plan) = plans.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) else {
                return Err(Failure::new("ERR_OWNED_NATIVE", &"there is no such plan any more"));
            };
            let mut planned = Arc::unwrap_or_clone(plan);
            for planned in planned.iter_mut().filter(|planned| adopt && planned.decided.action == Verb::End) {
                planned.decided.action = Verb::Adopt;
            }
            for (index, action) in changes {
                if let Some(planned) = planned.get_mut(index) {
                    planned.decided.action = action;
                }
            }
            let done = reap::carry_out(&instance, &mut planned, grace_ms);
            let done = done.map_err(|error| Failure::new(error.code(), &error))?;
            Ok(Carried { done, _planned: planned })
        })
    }

    /// Ends the trees of entries, whoever's they are.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn end<'env>(&self, env: &'env Env, request: String) -> Result<Object<'env>, Error<String>> {
        let instance = self.instance.clone();
        in_background(env, move || {
            let EndRequest { keys, signal, grace_ms, reason } = parse(&request)?;
            let records = instance.entries(&keys).map_err(|error| Failure::new(error.code(), &error))?;
            Ok(reap::at_once(records, |record| end_one(&instance, record, signal, grace_ms, &reason)))
        })
    }

    /// What has happened to this supervisor's runs so far, as JSON.
    #[napi(catch_unwind)]
    pub fn metrics(&self) -> Result<String, Error<String>> {
        json(&self.snapshot())
    }

    /// The same in Prometheus' text format.
    #[napi(catch_unwind)]
    pub fn metrics_text(&self) -> String {
        self.snapshot().text()
    }

    fn snapshot(&self) -> Snapshot {
        self.instance.counters.snapshot(self.instance.registry.count(&self.instance.id))
    }

    /// Brings the file up to date, for the end of the process.
    #[napi(catch_unwind)]
    pub fn flush(&self) {
        self.instance.registry.flush(FLUSH_LIMIT);
    }
}

/// A plan as it is told: every record, the decisions that there are, and which of them is about which record.
struct Plan(Arc<Vec<Planned>>);

impl Serialize for Plan {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut decisions: Vec<Decided> = Vec::new();
        let mut index = |decided: &Decided| {
            decisions.iter().position(|known| known == decided).unwrap_or_else(|| {
                decisions.push(*decided);
                decisions.len() - 1
            })
        };
        let of: Vec<usize> = self.0.iter().map(|planned| index(&planned.decided)).collect();
        let records: Vec<&Kept> = self.0.iter().map(|planned| &*planned.record).collect();
        let mut plan = serializer.serialize_struct("Plan", 3)?;
        plan.serialize_field("decisions", &decisions)?;
        plan.serialize_field("of", &of)?;
        plan.serialize_field("records", &records)?;
        plan.end()
    }
}

/// What has become of a plan.
#[derive(Serialize)]
#[serde(transparent)]
struct Carried {
    done: Vec<Done>,
    /// To take thousands of records apart takes time: that is done when everything is told.
    #[serde(skip)]
    _planned: Vec<Planned>,
}

/// To carry a plan out, but for what a policy wants otherwise.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Order {
    id: u32,
    /// Whatever would be ended is to be taken over.
    adopt: bool,
    changes: Vec<(usize, Verb)>,
    grace_ms: Option<u64>,
}

/// What is given must match. What else is wanted is for the caller to sort out.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Filter {
    run_id: Option<String>,
    session_id: Option<String>,
    scope_key: Option<String>,
}

impl Filter {
    fn matches(&self, record: &Record) -> bool {
        let same = |wanted: &Option<String>, has: Option<&String>| wanted.is_none() || wanted.as_ref() == has;
        same(&self.run_id, Some(&record.run_id))
            && same(&self.session_id, record.session_id.as_ref())
            && same(&self.scope_key, record.scope_key.as_ref())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndRequest {
    keys: Vec<String>,
    signal: i32,
    grace_ms: Option<u64>,
    reason: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndedRun {
    key: String,
    record: Record,
    outcome: &'static str,
    ending: &'static str,
    reason: Reason,
    exit_code: Option<i64>,
    signal: Option<i32>,
    limit_ms: u64,
    escaped: Vec<Listed>,
    survivors: Vec<Listed>,
    error: Option<String>,
}

/// A process in a report.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    pid: i32,
    start_token: String,
    command: String,
    why: String,
}

impl From<Process> for Listed {
    fn from(Process { pid, start_token, command, why }: Process) -> Self {
        Self { pid, start_token, command, why }
    }
}

fn end_one(
    instance: &Instance,
    record: Record,
    signal: i32,
    grace_ms: Option<u64>,
    reason: &str,
) -> EndedRun {
    let grace = Duration::from_millis(grace_ms.unwrap_or(record.grace_ms));
    let ended = reap::end_and_note(instance, &record, signal, grace, reason);
    let (error, reason) = (ended.failure(), ended.reason());
    let outcome = match &error {
        Some(_) => "failed",
        None if ended.was_ended() => "ended",
        None => "already-exited",
    };
    let listed = |list: Vec<_>| list.into_iter().map(|info| Process::from(info).into()).collect();
    EndedRun {
        key: record.key(),
        record,
        outcome,
        ending: ended.ending.name(),
        reason,
        exit_code: ended.status.and_then(ExitStatus::code),
        signal: ended.status.and_then(ExitStatus::signal),
        limit_ms: ended.limit_ms,
        escaped: listed(ended.escaped),
        survivors: listed(ended.survivors),
        error,
    }
}

/// What JavaScript gets instead of a rejection: those carry no code of ours.
#[derive(Serialize)]
pub(super) struct Failure {
    code: &'static str,
    message: String,
}

impl Failure {
    pub(super) fn new(code: &'static str, error: &dyn std::fmt::Display) -> Self {
        Self { code, message: error.to_string() }
    }
}

pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::new("ERR_INVALID_ARG_VALUE", &error))
}

/// Turns what was sent to the event loop into what JavaScript gets.
type Resolver = Box<dyn FnOnce(Env) -> napi::Result<String> + Send>;

/// A promise for what `job`, which may block, returns: as JSON, `{"error": …}` if it fails. A thread of its own, because it may
/// take as long as a grace, and others must not wait for it.
pub(super) fn in_background<T: Serialize>(
    env: &Env,
    job: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<Object<'_>, Error<String>> {
    // The thread first: a promise that nobody is left to settle would keep the event loop alive for ever.
    let (hand_over, handed_over) = mpsc::sync_channel::<JsDeferred<String, Resolver>>(1);
    let work = move || {
        let Ok(deferred) = handed_over.recv() else { return };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        let result =
            result.unwrap_or_else(|_| Err(Failure::new("ERR_OWNED_NATIVE", &"the native side panicked")));
        let text = match &result {
            Ok(value) => serde_json::to_string(value),
            Err(error) => serde_json::to_string(&serde_json::json!({ "error": error })),
        };
        deferred.resolve(Box::new(move |_| text.map_err(|error| Error::from_reason(error.to_string()))));
    };
    runtime::in_background(work).map_err(|error| no_thread(&error))?;
    let (deferred, promise) =
        env.create_deferred::<String, Resolver>().map_err(|error| coded("ERR_OWNED_NATIVE", &error))?;
    // There is room for one, and whoever takes it waits for it.
    let _ = hand_over.send(deferred);
    Ok(promise)
}

/// Names a process for ever, or nothing if there is none, or if it cannot be identified.
#[napi(catch_unwind)]
pub fn capture_start_token(pid: i32) -> Option<String> {
    if pid <= 0 {
        return None;
    }
    ProcessRef::capture(pid).ok().map(|process| process.to_string())
}

/// What this system has to hold trees together with, as JSON.
#[napi(catch_unwind)]
pub fn offers() -> Result<String, Error<String>> {
    json(&contain::offers::offers())
}

/// Whether the very process that the token names is alive. What is not a token, or cannot be judged, is not.
#[napi(catch_unwind)]
#[allow(clippy::needless_pass_by_value)]
pub fn is_same_process(token: String) -> bool {
    token.parse::<ProcessRef>().is_ok_and(|process| process.state() == identity::State::Alive)
}

fn json(value: &impl Serialize) -> Result<String, Error<String>> {
    serde_json::to_string(value).map_err(|error| coded("ERR_OWNED_NATIVE", &error))
}

pub(super) fn no_thread(error: &std::io::Error) -> Error<String> {
    let message = format!(
        "no thread can be started for that ({error}). Nothing was done. Raise the limit of processes (ulimit -u, pids.max)."
    );
    coded("ERR_OWNED_NO_THREADS", &message)
}

fn coded(code: &str, error: &dyn std::fmt::Display) -> Error<String> {
    Error::new(code.to_owned(), error.to_string())
}
