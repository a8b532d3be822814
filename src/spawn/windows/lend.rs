//! The helper process of an IPC channel, or of a socket to pass on (see `ts/run/ipc.ts`): the other end
//! of [`super::borrow`].
//!
//! A pipe cannot carry a handle, only its value. The bot duplicates the handle out of this process,
//! so this process must stay until that is done.

use std::ptr::null_mut;

use windows_sys::Win32::Storage::FileSystem::{ReadFile, WriteFile};
use windows_sys::Win32::System::Console::{GetStdHandle, STD_INPUT_HANDLE};
use windows_sys::Win32::System::Threading::{GetStartupInfoW, STARTUPINFOW};

use super::handles;

/// The descriptor at which Node passes the channel.
const CHANNEL: usize = 3;

/// Sends the value of the channel's handle to the bot over standard input. Then waits until the bot
/// closes its end or exits. `None` if there is no channel, or no standard input.
pub fn lend() -> Option<()> {
    let mut startup = STARTUPINFOW::default();
    // SAFETY: the pointer is to a local; the memory it refers to lives as long as the process.
    let block = unsafe {
        GetStartupInfoW(&raw mut startup);
        if startup.lpReserved2.is_null() {
            return None;
        }
        std::slice::from_raw_parts(startup.lpReserved2, usize::from(startup.cbReserved2))
    };
    let value = handles::handle_of(block, CHANNEL)?.to_ne_bytes();
    let length = u32::try_from(value.len()).ok()?;
    let (mut count, mut buffer) = (0, [0]);
    // SAFETY: the calls fail without a standard input. The pointers are to locals of the given
    // lengths.
    unsafe {
        let bot = GetStdHandle(STD_INPUT_HANDLE);
        if WriteFile(bot, value.as_ptr(), length, &raw mut count, null_mut()) == 0 {
            return None;
        }
        // The bot never writes, so this returns when the bot's end closes.
        ReadFile(bot, buffer.as_mut_ptr(), 1, &raw mut count, null_mut());
    }
    Some(())
}
