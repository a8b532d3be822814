//! What JavaScript asks about processes and the system, without a registry.

use napi::Error;
use napi_derive::napi;

use super::convert::json;
use crate::contain;
use crate::identity::{self, ProcessRef};

/// The start token, which identifies a process. `None` if there is no such process, or if it cannot
/// be identified.
#[napi(catch_unwind)]
pub fn capture_start_token(pid: i32) -> Option<String> {
    if pid <= 0 {
        return None;
    }
    ProcessRef::capture(pid).ok().map(|process| process.to_string())
}

/// The containment mechanisms of this system, as JSON.
#[napi(catch_unwind)]
pub fn capabilities() -> Result<String, Error<String>> {
    json(&contain::capabilities::detect())
}

/// Whether this process has a keeper among its ancestors: it is in a live run. Always false on
/// Windows, where the bot itself is the keeper of its runs.
#[napi(catch_unwind)]
pub fn is_below_keeper() -> bool {
    #[cfg(unix)]
    {
        let me = std::process::id().cast_signed();
        let is_keeper = |pid: &i32| {
            identity::read_stat(*pid).is_ok_and(|stat| stat.comm == identity::helpers::KEEPER_NAME)
        };
        identity::ancestors(me).iter().any(is_keeper)
    }
    #[cfg(windows)]
    false
}

/// Whether the process with this token is alive. False for an invalid token, or if it cannot be
/// determined.
#[napi(catch_unwind)]
#[allow(clippy::needless_pass_by_value)]
pub fn is_same_process(token: String) -> bool {
    token.parse::<ProcessRef>().is_ok_and(|process| process.state() == identity::State::Alive)
}
