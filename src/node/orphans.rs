//! Suspected orphans and exits of owners, as JavaScript sees them.

use std::path::PathBuf;
use std::sync::Arc;

use napi::bindgen_prelude::{Env, Function, Object};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Error, Status};
use napi_derive::napi;
use serde::{Deserialize, Serialize};

use super::background::{Failure, in_background, no_thread, parse};
use super::registry::Registry;
use crate::identity::{self, ProcessRef};
use crate::reap::suspects::{self, Look, LookError, Suspect, names::names};
use crate::reap::{self, Line, Owners};
use crate::registry::{Instance, now_ms};
use crate::runtime;

#[napi]
impl Registry {
    /// The processes that may be orphans although no entry names them, with their names, as JSON.
    /// `to_end`: the caller is going to end some of them, which needs a completely readable
    /// registry.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn suspects<'env>(
        &self,
        env: &'env Env,
        project: Option<String>,
        to_end: bool,
    ) -> Result<Object<'env>, Error<String>> {
        let instance = self.instance.clone();
        in_background(env, move || {
            let look = Look::take(&instance).and_then(|look| if to_end { look.whole() } else { Ok(look) });
            let (look, project) = (look.map_err(|error| failure(&error))?, project.map(PathBuf::from));
            let now = now_ms();
            Ok(look
                .suspects(project.as_deref())
                .iter()
                .map(|it| SuspectInfo::of(it, now))
                .collect::<Vec<_>>())
        })
    }

    /// Ends the suspects with the given start tokens. Takes `{startTokens, project?, graceMs}`, and
    /// returns the result of each.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn end_suspects<'env>(&self, env: &'env Env, request: String) -> Result<Object<'env>, Error<String>> {
        let instance = self.instance.clone();
        in_background(env, move || {
            let EndSuspects { start_tokens, project, grace_ms } = parse(&request)?;
            let grace = std::time::Duration::from_millis(grace_ms);
            suspects::end(&instance, start_tokens, project.as_deref(), grace).map_err(|error| failure(&error))
        })
    }

    /// Writes lines to the event log, for events that no reaper writes.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn log_events<'env>(&self, env: &'env Env, lines: String) -> Result<Object<'env>, Error<String>> {
        let instance = self.instance.clone();
        in_background(env, move || {
            let lines: Vec<Line> = parse(&lines)?;
            reap::log_events(&instance, &lines);
            Ok(())
        })
    }
}

fn failure(error: &LookError) -> Failure {
    Failure::new(error.code(), error)
}

/// The request to end suspects.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndSuspects {
    start_tokens: Vec<ProcessRef>,
    project: Option<PathBuf>,
    grace_ms: u64,
}

/// A suspect as JavaScript gets it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SuspectInfo {
    pid: i32,
    start_token: ProcessRef,
    ppid: i32,
    words: Vec<String>,
    names: Vec<String>,
    age_ms: u64,
    cwd: Option<String>,
    in_project: bool,
    owner: Option<i32>,
}

impl SuspectInfo {
    fn of(suspect: &Suspect, now: u64) -> Self {
        let Suspect { stat, details, in_project, owner } = *suspect;
        // Without a known start time the age is 0, so no age limit selects the process.
        let started = identity::started_at_ms(stat.start).unwrap_or(now);
        Self {
            pid: stat.pid,
            start_token: ProcessRef::known(stat.pid, stat.start),
            ppid: stat.ppid,
            words: details.words.clone(),
            names: names(&details.words),
            age_ms: now.saturating_sub(started),
            cwd: details.directory.as_ref().map(|directory| directory.to_string_lossy().into_owned()),
            in_project,
            owner,
        }
    }
}

/// Weak: it does not keep the event loop alive.
type Listener = ThreadsafeFunction<(), (), (), Status, false, true>;

/// Calls back when an owner in the registry exits.
#[napi]
pub struct OwnerWatch {
    instance: Instance,
    owners: Arc<Owners>,
}

#[napi]
impl OwnerWatch {
    #[napi(constructor, catch_unwind)]
    #[allow(clippy::needless_pass_by_value)] // N-API passes values.
    pub fn new(registry: &Registry, on_death: Function<(), ()>) -> napi::Result<Self> {
        let listener: Listener =
            on_death.build_threadsafe_function().weak::<true>().callee_handled::<false>().build()?;
        let notify = move || {
            listener.call((), ThreadsafeFunctionCallMode::NonBlocking);
        };
        Ok(Self { instance: registry.instance.clone(), owners: Owners::new(notify) })
    }

    /// Reads the owners from the registry again, in the background. Ignores an unreadable registry:
    /// the caller that reads it reports that.
    #[napi(catch_unwind)]
    pub fn refresh(&self) -> Result<(), Error<String>> {
        let (instance, owners) = (self.instance.clone(), self.owners.clone());
        runtime::in_background(move || drop(owners.refresh(&instance))).map_err(|error| no_thread(&error))
    }

    #[napi(catch_unwind)]
    pub fn stop(&self) {
        self.owners.stop();
    }
}

impl Drop for OwnerWatch {
    fn drop(&mut self) {
        self.owners.stop();
    }
}
