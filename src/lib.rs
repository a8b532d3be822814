//! `spawn-owned`: whoever starts a process owns everything it causes.
//!
//! The rooms, and which may use which, are described in `docs/design.md`. The core builds and tests without
//! Node; everything that touches N-API lives in [`node`] behind the feature of the same name.

pub mod contain;
pub mod errno;
pub mod identity;
pub mod keeper;
pub mod observe;
pub mod ports;
pub mod pty;
pub mod reap;
pub mod registry;
pub mod run;
pub mod runtime;
pub mod spawn;

#[cfg(feature = "node")]
pub mod node;
