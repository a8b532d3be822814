//! The connection between a run's owner and its keeper.
//!
//! Each system implements the same items. [`KeeperConnection`] sends requests and never blocks.
//! [`ReportStream`] reads the keeper's reports once it is opened. [`Exec`] returns whether `exec`
//! succeeded. [`take_over`] connects to the keeper of a run that has lost its owner.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::{Exec, KeeperConnection, Origin, ReportStream, end_lost, record_keeper, take_over};
#[cfg(windows)]
pub use windows::{Exec, KeeperConnection, Origin, ReportStream, end_lost, record_keeper, take_over};
