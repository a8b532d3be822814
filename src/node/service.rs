//! State of a service: whether its process is alive, and whether it is the one that listens on its
//! port.

use napi::Error;
use napi::bindgen_prelude::{Env, Object};
use napi_derive::napi;

use super::background::in_background;
use crate::identity::{ProcessRef, State};
use crate::ports::{self, Whose};

/// The state of the process with this start token. `unknown` for an invalid token.
#[napi(catch_unwind, ts_return_type = "'alive' | 'exited' | 'recycled' | 'unknown'")]
#[allow(clippy::needless_pass_by_value)] // N-API passes values.
pub fn process_state(token: String) -> &'static str {
    match token.parse::<ProcessRef>().map(|process| process.state()) {
        Ok(State::Alive) => "alive",
        Ok(State::Exited) => "exited",
        Ok(State::Recycled) => "recycled",
        Ok(State::Unknown) | Err(_) => "unknown",
    }
}

/// Which process listens on a port: `{whose: 'tree' | 'stranger' | 'unknown', pid?, command?}`.
/// `tree` means the tree of this keeper.
#[napi(catch_unwind, ts_return_type = "Promise<string>")]
pub fn port_holder(
    env: &Env,
    address: String,
    port: u16,
    keeper: Option<String>,
) -> Result<Object<'_>, Error<String>> {
    in_background(env, move || {
        let keeper: Option<ProcessRef> = keeper.and_then(|token| token.parse().ok());
        Ok(address.parse().map_or(Whose::Unknown, |address| ports::whose(address, port, keeper.as_ref())))
    })
}
