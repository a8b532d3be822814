//! Unread bytes in a pipe.

use crate::spawn::StreamId;
use windows_sys::Win32::System::Pipes::PeekNamedPipe;

/// The identity of a pipe: its handle, because Windows has no other. If the handle was reused for
/// another pipe, the monitor counts the other pipe's bytes. At worst a deadline is late.
#[allow(clippy::unnecessary_wraps)] // The signature is the same as on Unix.
pub fn id_of(handle: i32) -> Option<StreamId> {
    u64::try_from(handle).ok().map(|inode| StreamId { device: 0, inode })
}

/// The number of bytes that can be read. `None` if the handle is closed, or not a pipe.
pub fn unread_bytes(handle: i32) -> Option<u64> {
    let (no_buffer, mut bytes) = (std::ptr::null_mut(), 0);
    let pipe = std::ptr::without_provenance_mut(usize::try_from(handle).ok()?);
    // SAFETY: the call fails if the handle is invalid. It copies no data, and `bytes` outlives it.
    let result = unsafe {
        PeekNamedPipe(pipe, no_buffer, 0, std::ptr::null_mut(), &raw mut bytes, std::ptr::null_mut())
    };
    (result != 0).then_some(u64::from(bytes))
}
