//! The line between a run's owner and its keeper.
//!
//! What every system's half does: [`Line`] says things and never waits, [`Ear`] hears what is said, once it is opened, [`Exec`]
//! tells whether the command could be executed, and [`take_over`] makes one to the keeper of a run that has lost its owner.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::{Ear, Exec, Line, Origin, end_lost, note_keeper, take_over};
#[cfg(windows)]
pub use windows::{Ear, Exec, Line, Origin, end_lost, note_keeper, take_over};
