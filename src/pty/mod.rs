//! Pseudo-terminals.
//!
//! **Windows**: a pseudo-console ([`Terminal`]), which holds the other ends of both streams itself.
//!
//! **Unix**: a [`Pair`] is one terminal. The bot has its *master*. The command gets its *slave* as
//! file descriptors 0, 1 and 2, and as its controlling terminal ([`make_controlling_terminal`]). A
//! [`Relay`] copies bytes between the master and two plain streams. So the code that uses these
//! streams works the same with and without a terminal.
//!
//! Each system's file guarantees:
//! - Both descriptors are close-on-exec. If another child inherited the master, the terminal could
//!   never hang up.
//! - The master never blocks.
//! - Opening the terminal makes it the controlling terminal of no process, in particular not of the
//!   bot.
//! - Input is UTF-8 (`IUTF8`): the kernel's line editor erases characters, not bytes.

#[cfg(unix)]
mod relay;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use relay::{Relay, Terminal};
#[cfg(unix)]
pub use unix::{Pair, make_controlling_terminal};
#[cfg(windows)]
pub use windows::Terminal;

/// The size of a terminal in characters. Both are at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub cols: u16,
    pub rows: u16,
}

/// The default value of `TERM`: the value that most terminal emulators set.
pub const DEFAULT_TERM: &str = "xterm-256color";
