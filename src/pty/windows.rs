//! Terminals on Windows: a pseudo-console, which a system program (conhost) implements.
//!
//! The pseudo-console holds its own ends of both streams, so there is nothing to relay. Its program
//! exits only when the console is closed. (`node-pty` leaves one behind for every command that
//! exits by itself.) So the bot closes the console when the tree is extinct.

use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::sync::{Mutex, PoisonError};

use windows_sys::Win32::System::Console::{
    COORD, ClosePseudoConsole, CreatePseudoConsole, HPCON, ResizePseudoConsole,
};

use super::Size;
use crate::errno::Errno;
use crate::runtime;

/// An open terminal. A drop closes it.
#[derive(Debug)]
pub struct Terminal {
    /// `None` after it is closed.
    console: Mutex<Option<HPCON>>,
}

impl Terminal {
    /// Opens a terminal that reads from `input` and writes to `output`.
    #[allow(clippy::needless_pass_by_value)] // Closes both handles: the console has its own copies.
    pub fn open(size: Size, input: OwnedHandle, output: OwnedHandle) -> Result<Self, Errno> {
        let mut console = 0;
        // SAFETY: both handles are open, and the pointer points to a local variable.
        let result = unsafe {
            CreatePseudoConsole(
                coordinates(size),
                input.as_raw_handle(),
                output.as_raw_handle(),
                0,
                &raw mut console,
            )
        };
        if result < 0 { Err(errno_of(result)) } else { Ok(Self { console: Mutex::new(Some(console)) }) }
    }

    /// The handle of the console, for the creation of the command.
    pub fn console(&self) -> Option<HPCON> {
        *self.console.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the size. `EIO` if the terminal is closed.
    pub fn resize(&self, size: Size) -> Result<(), Errno> {
        let console = self.console.lock().unwrap_or_else(PoisonError::into_inner);
        let console = console.ok_or(Errno::EIO)?;
        // SAFETY: the console is open. `close` first takes it out of the mutex, which is locked
        // here.
        let result = unsafe { ResizePseudoConsole(console, coordinates(size)) };
        if result < 0 { Err(errno_of(result)) } else { Ok(()) }
    }

    /// Always `None`: Windows does not report it.
    #[allow(clippy::unused_self)] // The same signature as on Unix.
    pub fn foreground(&self) -> Option<String> {
        None
    }

    /// No-op: the console itself writes its output to the stream.
    #[allow(clippy::unused_self)] // The same signature as on Unix.
    pub fn catch_up(&self) {}

    /// Requests the end of all processes at the terminal: closes it, like a closed window.
    #[must_use]
    pub fn request_exit(&self) -> bool {
        self.close();
        // True even if the terminal was already closed: that close sent the request.
        true
    }

    /// Closes the terminal, because no member of the run is left to write to it.
    pub fn finish(&self) {
        self.close();
    }

    /// Closes the terminal without waiting until its output is read.
    pub fn hang_up(&self) {
        self.close();
    }

    /// Closes the console on a background thread. Older versions of Windows block here until the
    /// bot has read all output, which can take any time.
    fn close(&self) {
        let console = self.console.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(console) = console else { return };
        // SAFETY: the console is open, and only this call has its handle.
        let close = move || unsafe { ClosePseudoConsole(console) };
        // Fails only if no thread can be started. Then there is no runtime, and no run.
        let _ = runtime::in_background(close);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.close();
    }
}

fn coordinates(Size { cols, rows }: Size) -> COORD {
    let limited = |count: u16| i16::try_from(count).unwrap_or(i16::MAX);
    COORD { X: limited(cols), Y: limited(rows) }
}

/// The errno for an `HRESULT`. If it wraps a Win32 error, its lower 16 bits contain that error.
fn errno_of(result: i32) -> Errno {
    const NOT_IMPLEMENTED: u32 = 0x8000_4001;
    match result.cast_unsigned() {
        NOT_IMPLEMENTED => Errno::ENOSYS,
        result if result >> 16 == 0x8007 => Errno::of_win32(result & 0xffff),
        _ => Errno::EIO,
    }
}
