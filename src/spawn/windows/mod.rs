//! What Windows wants to be told before it starts a process, worked out as Node does it.
//!
//! Nothing in these modules asks the system for anything, so their tests run everywhere.

pub mod environment;
pub mod handles;
pub mod quote;
pub mod search;
