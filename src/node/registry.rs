//! The registry as JavaScript uses it. Structured values are JSON, with the shapes of the registry
//! file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use napi::bindgen_prelude::{Env, Function, Object};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Error, Status};
use napi_derive::napi;
use serde::{Deserialize, Serialize};

use super::background::{Failure, in_background, parse};
use super::convert::{End, coded, json, milliseconds};
use super::reap_plan::{Plan, PlanRequest, PlanResult};
use crate::counters::Snapshot;
use crate::reap::{self, Planned, Verdict};
use crate::registry::orphan_log::OrphanLog;
use crate::registry::{self, Contents, Filter, Instance, Record, ScopeLock, UnreadableContent};
use crate::run::Force;
use crate::run::reason::Reason;
use crate::spawn::register;

/// How long the exit of the process may wait for the checkpoint of the registry.
const FLUSH_LIMIT: Duration = Duration::from_millis(200);

/// Plans that are neither carried out nor discarded, by the ID that the caller chose.
type Plans = HashMap<u32, Arc<Vec<Planned>>>;

type WarningListener = ThreadsafeFunction<String, (), String, Status, false, true>;

/// A supervisor's part of a registry.
#[napi]
pub struct Registry {
    pub(super) instance: Instance,
    plans: Arc<Mutex<Plans>>,
    /// The lock of a scope, held during one spawn.
    scope: Option<ScopeLock>,
    is_closed: bool,
}

#[napi]
impl Registry {
    /// Opens no file.
    #[napi(constructor, catch_unwind)]
    #[allow(clippy::needless_pass_by_value)] // N-API passes values.
    pub fn new(
        path: String,
        instance_id: String,
        lease_ms: f64,
        event_log: Option<String>,
        on_warning: Function<String, ()>,
    ) -> Result<Self, Error<String>> {
        let registry =
            registry::Registry::at(PathBuf::from(path)).map_err(|error| coded(error.code(), &error))?;
        let listener: WarningListener = on_warning
            .build_threadsafe_function()
            .weak::<true>()
            .callee_handled::<false>()
            .build()
            .map_err(|error| coded("ERR_OWNED_NATIVE", &error))?;
        registry.on_warning(
            &instance_id,
            Box::new(move |warning| {
                if let Ok(json) = serde_json::to_string(warning) {
                    listener.call(json, ThreadsafeFunctionCallMode::NonBlocking);
                }
            }),
        );
        let lease = Duration::from_millis(milliseconds(lease_ms));
        let orphan_log = event_log.map(|path| Arc::new(OrphanLog::new(path.into())));
        let instance = Instance { registry, id: instance_id, lease, counters: Arc::default(), orphan_log };
        Ok(Self { instance, plans: Arc::default(), scope: None, is_closed: false })
    }

    /// The entries of all bots that match a filter, or all entries, as JSON. `present`: with their
    /// current state instead of the recorded one.
    #[napi(catch_unwind)]
    pub fn list(&self, filter: Option<String>, present: bool) -> Result<String, Error<String>> {
        let registry = &self.instance.registry;
        let contents = match filter {
            Some(filter) => {
                let filter: Filter =
                    serde_json::from_str(&filter).map_err(|error| coded("ERR_INVALID_ARG_VALUE", &error))?;
                registry.matching(&filter)
            }
            None => registry.contents(),
        };
        let Contents { table, flaw } = contents.map_err(|error| coded(error.code(), &error))?;
        if present {
            return json(&Found { found: reap::present(&self.instance, &table), flaw });
        }
        json(&Found { found: table.sorted(), flaw })
    }

    /// Like `list` with a filter, but without blocking the event loop.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn find<'env>(&self, env: &'env Env, filter: String) -> Result<Object<'env>, Error<String>> {
        let instance = self.instance.clone();
        in_background(env, move || {
            let filter: Filter = parse(&filter)?;
            let contents = instance.registry.matching(&filter);
            let Contents { table, flaw } = contents.map_err(|error| Failure::new(error.code(), &error))?;
            Ok(Found { found: table.sorted().into_iter().cloned().collect::<Vec<_>>(), flaw })
        })
    }

    /// Every entry with its living processes, as JSON.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn survey<'env>(&self, env: &'env Env) -> Result<Object<'env>, Error<String>> {
        let instance = self.instance.clone();
        in_background(env, move || {
            let surveyed = reap::survey::survey(&instance);
            let (found, flaw) = surveyed.map_err(|error| Failure::new(error.code(), &error))?;
            Ok(Found { found, flaw })
        })
    }

    /// Registers a running process. Takes JSON, and returns the record as JSON.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)]
    pub fn register(&self, entry: String) -> Result<String, Error<String>> {
        let registration =
            serde_json::from_str(&entry).map_err(|error| coded("ERR_INVALID_ARG_VALUE", &error))?;
        let record =
            register::register(&self.instance, registration).map_err(|error| coded(error.code(), &error))?;
        json(&record)
    }

    /// This process's own entries as JSON: the one with this run id, or this PID, or all.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)]
    pub fn own(&self, run_id: Option<String>, pid: Option<i32>) -> Result<String, Error<String>> {
        json(&self.instance.registry.own(run_id.as_deref(), pid))
    }

    /// Locks a scope, so that no other bot starts a run in it, until `release_scope`. False if the
    /// scope has a run, or another bot holds the lock.
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

    /// Counts the end of a run that never started, with this reason.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)]
    pub fn count_unstarted(&self, reason: String) {
        let reason = Reason::named(&reason).unwrap_or(Reason::SpawnError);
        self.instance.counters.ended(reason, Force::Nothing);
    }

    /// Drops the entries of registered processes of this bot. Returns their number.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)]
    pub fn unregister(&self, keys: Vec<String>) -> u32 {
        let mut count = 0;
        for (entry, record) in keys.iter().filter_map(|key| self.instance.registry.entry(key)) {
            if record.keeper.is_none() {
                entry.remove();
                count += 1;
            }
        }
        count
    }

    /// Replaces labels (a JSON object) and metadata (a JSON value, if any) of an entry of this
    /// process. False if there is no such entry.
    #[napi(catch_unwind)]
    #[allow(clippy::needless_pass_by_value)] // N-API passes values.
    pub fn update(
        &self,
        key: String,
        labels: String,
        metadata: Option<String>,
    ) -> Result<bool, Error<String>> {
        let invalid = |error: serde_json::Error| coded("ERR_INVALID_ARG_VALUE", &error);
        let labels = serde_json::from_str(&labels).map_err(invalid)?;
        let metadata = metadata.map(|json| serde_json::from_str(&json)).transpose().map_err(invalid)?;
        let Some((entry, _)) = self.instance.registry.entry(&key) else { return Ok(false) };
        entry.update(labels, metadata);
        Ok(true)
    }

    /// Returns what a reaper would do, as a plan with this ID. Changes nothing.
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
            let reap::Plan { planned, flaw } = plan.map_err(|error| Failure::new(error.code(), &error))?;
            let planned = Arc::new(planned);
            plans.lock().unwrap_or_else(PoisonError::into_inner).insert(id, planned.clone());
            Ok(Plan { planned, flaw })
        })
    }

    /// Discards a plan.
    #[napi(catch_unwind)]
    pub fn forget_plan(&self, id: u32) {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// Carries a plan out, once. Takes `{id, adopt, changes: [[index, verdict], …], graceMs?}`, and
    /// returns the result of each entry.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn carry_out<'env>(&self, env: &'env Env, plan: String) -> Result<Object<'env>, Error<String>> {
        let (instance, plans) = (self.instance.clone(), self.plans.clone());
        in_background(env, move || {
            let PlanRequest { id, adopt, changes, grace_ms } = parse(&plan)?;
            let Some(plan) = plans.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) else {
                return Err(Failure::new("ERR_OWNED_NATIVE", &"the reap plan does not exist any more"));
            };
            let mut planned = Arc::unwrap_or_clone(plan);
            for planned in planned.iter_mut().filter(|_| adopt) {
                planned.apply(Verdict::Adopt);
            }
            for (index, verdict) in changes {
                if let Some(planned) = planned.get_mut(index) {
                    planned.apply(verdict);
                }
            }
            let done = reap::carry_out(&instance, &mut planned, grace_ms);
            let done = done.map_err(|error| Failure::new(error.code(), &error))?;
            Ok(PlanResult { done, _planned: planned })
        })
    }

    /// Ends the trees of entries, of this or of another owner.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn end<'env>(&self, env: &'env Env, request: String) -> Result<Object<'env>, Error<String>> {
        let instance = self.instance.clone();
        in_background(env, move || {
            let EndRequest { keys, signal, grace_ms, reason } = parse(&request)?;
            let records = instance.entries(&keys).map_err(|error| Failure::new(error.code(), &error))?;
            Ok(reap::in_parallel(records, |record| end_one(&instance, record, signal, grace_ms, &reason)))
        })
    }

    /// The counters of this supervisor's runs, as JSON.
    #[napi(catch_unwind)]
    pub fn metrics(&self) -> Result<String, Error<String>> {
        json(&self.snapshot())
    }

    /// The counters in Prometheus' text format.
    #[napi(catch_unwind)]
    pub fn metrics_text(&self) -> String {
        self.snapshot().text()
    }

    fn snapshot(&self) -> Snapshot {
        self.instance.counters.snapshot(self.instance.registry.count(&self.instance.id))
    }

    /// Writes a checkpoint of the registry, before the process exits.
    #[napi(catch_unwind)]
    pub fn flush(&self) {
        self.instance.registry.flush(FLUSH_LIMIT);
    }

    /// Closes this supervisor. Resolves when the file is up to date. If no other supervisor uses
    /// the path, the registry's thread has ended, too.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn close<'env>(&mut self, env: &'env Env) -> Result<Object<'env>, Error<String>> {
        let registry = self.instance.registry.clone();
        self.release();
        in_background(env, move || {
            registry.wait_closed();
            Ok(serde_json::json!({}))
        })
    }

    fn release(&mut self) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.plans.lock().unwrap_or_else(PoisonError::into_inner).clear();
            self.scope = None;
            self.instance.registry.close(&self.instance.id);
        }
    }
}

impl Drop for Registry {
    /// The JS thread ends (a worker has exited) without a close of its supervisor.
    fn drop(&mut self) {
        // Node does not catch a panic of a finalizer.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.release()));
    }
}

/// Entries of the registry, and what could not be read.
#[derive(Serialize)]
struct Found<T> {
    found: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    flaw: Option<UnreadableContent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndRequest {
    keys: Vec<String>,
    signal: i32,
    grace_ms: Option<u64>,
    reason: String,
}

/// The result of an [`EndRequest`] for one entry.
#[derive(Serialize)]
struct EndedRun {
    key: String,
    record: Record,
    outcome: &'static str,
    #[serde(flatten)]
    end: End,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn end_one(
    instance: &Instance,
    record: Record,
    signal: i32,
    grace_ms: Option<u64>,
    reason: &str,
) -> EndedRun {
    let grace = Duration::from_millis(grace_ms.unwrap_or(record.grace_ms));
    let ended = reap::end_and_log(instance, &record, signal, grace, reason);
    let error = ended.failure();
    let outcome = match &error {
        Some(_) => "failed",
        None if ended.was_terminated() => "ended",
        None => "already-exited",
    };
    EndedRun { key: record.key(), record, outcome, end: ended.into(), error }
}

/// Renames a log file that is longer than `limit`, see [`registry::rotate_if_longer`].
#[napi(catch_unwind, ts_return_type = "Promise<string>")]
pub fn rotate_file(env: &Env, path: String, limit: u32) -> Result<Object<'_>, Error<String>> {
    in_background(env, move || {
        registry::rotate_if_longer(path.as_ref(), limit.into())
            .map_err(|refusal| Failure::new("ERR_OWNED_NATIVE", &refusal))
    })
}
