//! The helper through which an IPC channel is made, or a socket passed on (see `ts/ipc.ts`), the other end of [`super::borrow`].
//!
//! Nothing can be sent over a pipe here but the number under which we have inherited the channel's end. The bot takes it by that, out of
//! this process, so this process stays until that is done.

use std::ptr::null_mut;

use windows_sys::Win32::Storage::FileSystem::{ReadFile, WriteFile};
use windows_sys::Win32::System::Console::{GetStdHandle, STD_INPUT_HANDLE};
use windows_sys::Win32::System::Threading::{GetStartupInfoW, STARTUPINFOW};

use super::handles;

/// Where Node was told to put the channel.
const CHANNEL: usize = 3;

/// Tells the bot which handle the channel is, over standard input, and waits until the bot closes that or is gone. `None` if there is no
/// channel, or nobody to tell.
pub fn lend() -> Option<()> {
    let mut startup = STARTUPINFOW::default();
    // SAFETY: the pointer is to a local; what it is filled with lives as long as the process.
    let block = unsafe {
        GetStartupInfoW(&raw mut startup);
        if startup.lpReserved2.is_null() {
            return None;
        }
        std::slice::from_raw_parts(startup.lpReserved2, usize::from(startup.cbReserved2))
    };
    let number = handles::handle_of(block, CHANNEL)?.to_ne_bytes();
    let length = u32::try_from(number.len()).ok()?;
    let (mut count, mut nothing) = (0, [0]);
    // SAFETY: the calls fail if there is no standard input; the pointers are to locals, which are as long as it says.
    unsafe {
        let bot = GetStdHandle(STD_INPUT_HANDLE);
        if WriteFile(bot, number.as_ptr(), length, &raw mut count, null_mut()) == 0 {
            return None;
        }
        // Nothing is ever said to us: this returns when the other end is closed.
        ReadFile(bot, nothing.as_mut_ptr(), 1, &raw mut count, null_mut());
    }
    Some(())
}
