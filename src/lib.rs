//! `spawn-owned`: the process that starts a run owns every process of the run.
//!
//! `docs/design.md` describes the modules, and which module may use which. The core builds and
//! tests without Node. Only [`node`], behind the feature of the same name, uses N-API.

#![cfg_attr(test, allow(clippy::disallowed_methods))] // No JavaScript changes the environment of a test.

pub mod contain;
pub mod counters;
pub mod errno;
pub mod identity;
pub mod keeper;
pub mod ports;
pub mod pty;
pub mod reap;
pub mod registry;
pub mod run;
pub mod runtime;
pub mod spawn;
pub mod start_environment;
pub mod trace;

#[cfg(feature = "node")]
pub mod node;
