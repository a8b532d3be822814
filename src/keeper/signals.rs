//! Signals of the keeper's own process, and of its zygote's.
//!
//! What every system's half does: [`reset`] makes every signal what it is in a fresh process; [`listen`] and [`listen_for_children`] have them
//! told by something that can be polled ([`Signals`]), and put all others aside.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub use linux::{Signals, listen, listen_for_children, reset};
#[cfg(target_os = "macos")]
pub use macos::{Signals, listen, listen_for_children, reset};
