//! What operators see: how often things happened ([`counters`]), and what was decided about orphans ([`orphan_log`]).
//!
//! Events, the third part, are made of what a run tells (`spawn::RunEvent`) where somebody listens, in TypeScript.

pub mod counters;
pub mod orphan_log;
