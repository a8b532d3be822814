//! Pseudo-terminals.
//!
//! **Windows**: a pseudo-console ([`Terminal`]), which has the other ends of both streams itself.
//!
//! **Unix**: a [`Pair`] is one terminal: its *master*, which is ours, and its *slave*, which the command gets as 0, 1 and 2 and as its
//! controlling terminal ([`control`]). A [`Relay`] carries bytes between the master and two plain streams, so that whoever
//! holds their other ends, and whatever is told of them, need not know that there is a terminal.
//!
//! What every system's half must keep:
//! - both descriptors are close-on-exec from the start: a master that another child had inherited would keep the terminal
//!   from ever being hung up;
//! - the master never blocks;
//! - opening it makes it nobody's controlling terminal, least of all the bot's;
//! - input is taken for UTF-8 (`IUTF8`), so that erasing in the line editor of the kernel erases characters, not bytes.

#[cfg(unix)]
mod relay;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use relay::{Relay, Terminal};
#[cfg(unix)]
pub use unix::{Pair, control};
#[cfg(windows)]
pub use windows::Terminal;

/// In characters; both at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub cols: u16,
    pub rows: u16,
}

/// What `TERM` says unless somebody knows better: what most emulators that a bot may stand in for say of themselves.
pub const USUAL_NAME: &str = "xterm-256color";
