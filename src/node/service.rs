//! What has to be known of a service: whether it is alive, and whether it is the one who answers.

use napi::Error;
use napi::bindgen_prelude::{Env, Object};
use napi_derive::napi;

use super::registry::in_background;
use crate::identity::{ProcessRef, State};
use crate::ports::{self, Whose};

/// What has become of the process that the token names. What is not a token names nobody who could be judged.
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

/// Who answers at a port: `{whose: 'tree' | 'stranger' | 'unknown', pid?, command?}`. The tree is that of the run with this keeper.
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
