//! Streams: named pipes of which we have one end and the command the other.
//!
//! Not connected to by name from JavaScript: that takes a turn of the event loop, and until then the command's first words would fail
//! (`ERROR_PIPE_LISTENING`). Both ends are open when the pair is handed out; nobody else can get at it, as it takes one client.

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

/// As much as Node has.
const BUFFER: u32 = 64 << 10;

/// Somebody may have taken a name, or a client's place; nobody does so all the time.
const ATTEMPTS: usize = 8;

/// Which way it goes. A pipe cannot be closed by halves: one that goes both ways ends only when it is closed altogether, and who ends its
/// half of it waits until the other has read everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToCommand,
    FromCommand,
    Both,
}

impl Way {
    /// Of the command's descriptor with this number.
    pub fn of(index: usize) -> Self {
        match index {
            0 => Self::ToCommand,
            1 | 2 => Self::FromCommand,
            _ => Self::Both,
        }
    }
}

/// Our end, to be waited for without waiting, and the command's, as programs expect theirs. Neither is inherited by anybody.
pub fn pair(way: Way) -> Result<(OwnedHandle, OwnedHandle), Errno> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (ours, theirs) = match way {
        Way::ToCommand => (PIPE_ACCESS_OUTBOUND, GENERIC_READ | FILE_WRITE_ATTRIBUTES),
        Way::FromCommand => (PIPE_ACCESS_INBOUND, GENERIC_WRITE | FILE_READ_ATTRIBUTES),
        Way::Both => (PIPE_ACCESS_DUPLEX, GENERIC_READ | GENERIC_WRITE),
    };
    let mut attempt = 1;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = wide(&format!(r"\\.\pipe\spawn-owned-stream-{}-{number}", std::process::id()));
        match connect(&name, ours, theirs) {
            Err(ERROR_ACCESS_DENIED | ERROR_PIPE_BUSY) if attempt < ATTEMPTS => attempt += 1,
            result => return result.map_err(Errno::of_win32),
        }
    }
}

fn connect(name: &[u16], ours: u32, theirs: u32) -> Result<(OwnedHandle, OwnedHandle), u32> {
    // SAFETY: the name ends with a NUL; no attributes: it is not inherited.
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

/// Where nothing comes from, and everything goes.
pub fn null() -> Result<OwnedHandle, Errno> {
    let name = wide("NUL");
    // SAFETY: the name ends with a NUL; no attributes: it is not inherited.
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

/// Another handle of the same, not inherited.
pub fn duplicate(handle: RawHandle) -> Result<OwnedHandle, Errno> {
    let mut copy: HANDLE = std::ptr::null_mut();
    // SAFETY: the call fails if the handle means nothing; the copy is ours alone.
    unsafe {
        let me = GetCurrentProcess();
        if DuplicateHandle(me, handle, me, &raw mut copy, 0, 0, DUPLICATE_SAME_ACCESS) == 0 {
            return Err(Errno::last());
        }
        Ok(OwnedHandle::from_raw_handle(copy))
    }
}

/// Whether whoever is started by us inherits it, unless it is told what to inherit. That is allowed for the one call that needs it: a
/// process that another thread starts in between, and that is not told, gets it too.
pub fn inherit(handle: &OwnedHandle, may: bool) -> Result<(), Errno> {
    let flags = if may { HANDLE_FLAG_INHERIT } else { 0 };
    // SAFETY: the handle is open.
    let done = unsafe { SetHandleInformation(handle.as_raw_handle(), HANDLE_FLAG_INHERIT, flags) };
    if done == 0 { Err(Errno::last()) } else { Ok(()) }
}

/// # Safety
/// The handle, if there is one, must be ours alone.
unsafe fn opened(handle: HANDLE) -> Result<OwnedHandle, u32> {
    if handle == INVALID_HANDLE_VALUE {
        // SAFETY: asks what the last call of this thread has failed with.
        return Err(unsafe { GetLastError() });
    }
    // SAFETY: the caller has just got it.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

pub fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn what_the_command_says_before_anybody_listens_is_heard_and_its_end_too() {
        let (ours, theirs) = pair(Way::FromCommand).unwrap();
        let mut theirs = File::from(theirs);
        theirs.write_all(b"first words").unwrap();
        drop(theirs);
        let mut text = String::new();
        // An overlapped handle can be read this way as long as there is something to read.
        let mut buffer = [0; 32];
        let count = File::from(ours).read(&mut buffer).unwrap();
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        assert_eq!(text, "first words");
    }
}
