//! Streams: named pipes with our end and the command's end.
//!
//! JavaScript does not connect by name: that takes a turn of the event loop, and until then the
//! command's first writes would fail (`ERROR_PIPE_LISTENING`). [`pair`] returns both ends open. No
//! other process can connect, because the pipe accepts one client.

use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};
use std::sync::atomic::{AtomicU32, Ordering};

use windows_sys::Win32::Foundation::{
    DUPLICATE_SAME_ACCESS, DuplicateHandle, ERROR_ACCESS_DENIED, ERROR_PIPE_BUSY, GENERIC_READ,
    GENERIC_WRITE, GetLastError, HANDLE, HANDLE_FLAG_INHERIT, INVALID_HANDLE_VALUE, SetHandleInformation,
};
use windows_sys::Win32::Storage::FileSystem::{
    CreateFileW, FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, FILE_READ_ATTRIBUTES, FILE_SHARE_READ,
    FILE_SHARE_WRITE, FILE_WRITE_ATTRIBUTES, OPEN_EXISTING, PIPE_ACCESS_DUPLEX, PIPE_ACCESS_INBOUND,
    PIPE_ACCESS_OUTBOUND,
};
use windows_sys::Win32::System::Pipes::{
    CreateNamedPipeW, PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE, PIPE_WAIT,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

use crate::errno::Errno;

/// Buffer size of a pipe, the same as in Node.
const BUFFER: u32 = 64 << 10;

/// How many names to try. Another process may have taken a name, or the client's place.
const ATTEMPTS: usize = 8;

/// The direction of a stream. A pipe cannot be closed for one direction only: a bidirectional one
/// ends when it is closed completely. A side that ends its own direction waits until the other side
/// has read everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToCommand,
    FromCommand,
    Both,
}

impl Direction {
    /// The direction of the command's descriptor `index`.
    pub fn of(index: usize) -> Self {
        match index {
            0 => Self::ToCommand,
            1 | 2 => Self::FromCommand,
            _ => Self::Both,
        }
    }
}

/// Our end, which is overlapped, and the command's end, which is not. Neither is inheritable.
pub fn pair(direction: Direction) -> Result<(OwnedHandle, OwnedHandle), Errno> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (ours, theirs) = match direction {
        Direction::ToCommand => (PIPE_ACCESS_OUTBOUND, GENERIC_READ | FILE_WRITE_ATTRIBUTES),
        Direction::FromCommand => (PIPE_ACCESS_INBOUND, GENERIC_WRITE | FILE_READ_ATTRIBUTES),
        Direction::Both => (PIPE_ACCESS_DUPLEX, GENERIC_READ | GENERIC_WRITE),
    };
    let mut attempt = 1;
    loop {
        let index = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = wide(&format!(r"\\.\pipe\spawn-owned-stream-{}-{index}", std::process::id()));
        match connect(&name, ours, theirs) {
            Err(ERROR_ACCESS_DENIED | ERROR_PIPE_BUSY) if attempt < ATTEMPTS => attempt += 1,
            result => return result.map_err(Errno::of_win32),
        }
    }
}

fn connect(name: &[u16], ours: u32, theirs: u32) -> Result<(OwnedHandle, OwnedHandle), u32> {
    // SAFETY: the name ends with a NUL; without attributes the handle is not inheritable.
    let server = unsafe {
        opened(CreateNamedPipeW(
            name.as_ptr(),
            ours | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE,
            PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS,
            1,
            BUFFER,
            BUFFER,
            0,
            std::ptr::null(),
        ))
    }?;
    // SAFETY: as above.
    let client = unsafe {
        opened(CreateFileW(
            name.as_ptr(),
            theirs,
            0,
            std::ptr::null(),
            OPEN_EXISTING,
            0,
            std::ptr::null_mut(),
        ))
    }?;
    Ok((server, client))
}

/// Opens `NUL`.
pub fn null() -> Result<OwnedHandle, Errno> {
    let name = wide("NUL");
    // SAFETY: the name ends with a NUL; without attributes the handle is not inheritable.
    let handle = unsafe {
        opened(CreateFileW(
            name.as_ptr(),
            GENERIC_READ | GENERIC_WRITE,
            FILE_SHARE_READ | FILE_SHARE_WRITE,
            std::ptr::null(),
            OPEN_EXISTING,
            0,
            std::ptr::null_mut(),
        ))
    };
    handle.map_err(Errno::of_win32)
}

/// A duplicate of the handle, not inheritable.
pub fn duplicate(handle: RawHandle) -> Result<OwnedHandle, Errno> {
    let mut copy: HANDLE = std::ptr::null_mut();
    // SAFETY: the call fails if the handle is invalid. Only this function has the duplicate.
    unsafe {
        let me = GetCurrentProcess();
        if DuplicateHandle(me, handle, me, &raw mut copy, 0, 0, DUPLICATE_SAME_ACCESS) == 0 {
            return Err(Errno::last());
        }
        Ok(OwnedHandle::from_raw_handle(copy))
    }
}

/// Makes a handle inheritable or not. The bot allows it only during the one call that needs it. A
/// process that another thread starts at that moment without a handle list inherits the handle,
/// too.
pub fn inherit(handle: &OwnedHandle, may: bool) -> Result<(), Errno> {
    let flags = if may { HANDLE_FLAG_INHERIT } else { 0 };
    // SAFETY: the handle is open.
    let done = unsafe { SetHandleInformation(handle.as_raw_handle(), HANDLE_FLAG_INHERIT, flags) };
    if done == 0 { Err(Errno::last()) } else { Ok(()) }
}

/// Converts a returned handle, or returns the last error.
///
/// # Safety
/// The handle, if valid, must belong to the caller alone.
unsafe fn opened(handle: HANDLE) -> Result<OwnedHandle, u32> {
    if handle == INVALID_HANDLE_VALUE {
        // SAFETY: reads the error of this thread's last call.
        return Err(unsafe { GetLastError() });
    }
    // SAFETY: the caller has just got the handle.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// The text in UTF-16, with a NUL.
pub fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn our_end_gets_what_the_command_writes_before_anything_reads() {
        let (ours, theirs) = pair(Direction::FromCommand).unwrap();
        let mut theirs = File::from(theirs);
        theirs.write_all(b"first words").unwrap();
        drop(theirs);
        let mut text = String::new();
        // An overlapped handle can be read this way while there are bytes to read.
        let mut buffer = [0; 32];
        let count = File::from(ours).read(&mut buffer).unwrap();
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        assert_eq!(text, "first words");
    }
}
