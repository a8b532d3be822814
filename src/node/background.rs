//! Promises for jobs that may block.

use std::sync::mpsc;

use napi::bindgen_prelude::{Env, Object};
use napi::{Error, JsDeferred};
use serde::{Deserialize, Serialize};

use super::convert::coded;
use crate::runtime;

/// An error as a JSON value, because a rejection cannot carry our error code.
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

/// Converts the value sent to the event loop into the value for JavaScript.
type Resolver = Box<dyn FnOnce(Env) -> napi::Result<String> + Send>;

/// A promise for the result of `job`, which may block: JSON, or `{"error": …}`. Runs on its own
/// thread: it may take as long as a grace, and must not delay other jobs.
pub(super) fn in_background<T: Serialize>(
    env: &Env,
    job: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<Object<'_>, Error<String>> {
    // Start the thread first: a promise that no thread settles would keep the event loop alive
    // forever.
    let (sender, receiver) = mpsc::sync_channel::<JsDeferred<String, Resolver>>(1);
    let work = move || {
        let Ok(deferred) = receiver.recv() else { return };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        let result =
            result.unwrap_or_else(|_| Err(Failure::new("ERR_OWNED_NATIVE", &"the native code panicked")));
        let text = match &result {
            Ok(value) => serde_json::to_string(value),
            Err(error) => serde_json::to_string(&serde_json::json!({ "error": error })),
        };
        deferred.resolve(Box::new(move |_| text.map_err(|error| Error::from_reason(error.to_string()))));
    };
    runtime::in_background(work).map_err(|error| no_thread(&error))?;
    let (deferred, promise) =
        env.create_deferred::<String, Resolver>().map_err(|error| coded("ERR_OWNED_NATIVE", &error))?;
    // Does not block: the channel has room for one, and the thread waits for it.
    let _ = sender.send(deferred);
    Ok(promise)
}

pub(super) fn no_thread(error: &std::io::Error) -> Error<String> {
    let message = format!(
        "no thread can be started for this call ({error}). Nothing was done. Raise the process limit (ulimit -u, pids.max)."
    );
    coded("ERR_OWNED_NO_THREADS", &message)
}
