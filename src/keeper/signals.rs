//! The signals that a keeper process and a zygote process receive.
//!
//! Each system's file provides: [`reset`], which restores the default action of all signals;
//! [`listen`] and [`listen_for_children`], which deliver chosen signals through a pollable file
//! descriptor ([`Signals`]) and block all others.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub use linux::{Signals, listen, listen_for_children, reset};
#[cfg(target_os = "macos")]
pub use macos::{Signals, listen, listen_for_children, reset};
