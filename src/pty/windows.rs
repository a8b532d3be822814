//! A pseudo-console: the system's own program draws what the command says, and reads what is typed.
//!
//! It has its own ends of both streams, so there is nothing to relay: what comes out of it is what the stream says. The program ends
//! when the console is closed, and only then (`node-pty` leaves one behind for every command that ends by itself); so it is closed
//! when nothing of the tree is left.

use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::sync::{Mutex, PoisonError};

use windows_sys::Win32::System::Console::{
    COORD, ClosePseudoConsole, CreatePseudoConsole, HPCON, ResizePseudoConsole,
};

use super::Size;
use crate::errno::Errno;
use crate::runtime;

/// A terminal in use. Dropping it closes it.
#[derive(Debug)]
pub struct Terminal {
    /// `None` once it is closed.
    console: Mutex<Option<HPCON>>,
}

impl Terminal {
    /// It takes over the ends that are given, the one it reads from and the one it writes to.
    #[allow(clippy::needless_pass_by_value)] // They are closed here: the console has copies.
    pub fn open(size: Size, input: OwnedHandle, output: OwnedHandle) -> Result<Self, Errno> {
        let mut console = 0;
        // SAFETY: both handles are open, and the pointer is to a local.
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

    /// For whoever creates the command.
    pub fn console(&self) -> Option<HPCON> {
        *self.console.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `EIO` if it is gone.
    pub fn resize(&self, size: Size) -> Result<(), Errno> {
        let console = self.console.lock().unwrap_or_else(PoisonError::into_inner);
        let console = console.ok_or(Errno::EIO)?;
        // SAFETY: it is open: whoever closes it takes it away first, and we hold it.
        let result = unsafe { ResizePseudoConsole(console, coordinates(size)) };
        if result < 0 { Err(errno_of(result)) } else { Ok(()) }
    }

    /// The system does not say.
    #[allow(clippy::unused_self)] // As elsewhere.
    pub fn foreground(&self) -> Option<String> {
        None
    }

    /// What was written is on its way.
    #[allow(clippy::unused_self)] // As elsewhere.
    pub fn catch_up(&self) {}

    /// Closes it, as when a window is closed: whoever uses it is told to end.
    #[must_use]
    pub fn ask_to_end(&self) -> bool {
        self.close();
        // Whoever was faster has asked.
        true
    }

    /// Nobody of ours writes to it any more.
    pub fn over(&self) {
        self.close();
    }

    /// Closes it at once, with whatever it has to say.
    pub fn hang_up(&self) {
        self.close();
    }

    /// Older systems wait here until everything that was written has been read. That may take as long as the bot likes, so it is waited
    /// for elsewhere.
    fn close(&self) {
        let console = self.console.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(console) = console else { return };
        // SAFETY: it was open, and nobody else has it any more.
        let close = move || unsafe { ClosePseudoConsole(console) };
        // Without a thread there is no runtime either, and no bot that could go on.
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

/// An `HRESULT` that holds an error of the system's has it in its lower half.
fn errno_of(result: i32) -> Errno {
    const NOT_IMPLEMENTED: u32 = 0x8000_4001;
    match result.cast_unsigned() {
        NOT_IMPLEMENTED => Errno::ENOSYS,
        result if result >> 16 == 0x8007 => Errno::of_win32(result & 0xffff),
        _ => Errno::EIO,
    }
}
