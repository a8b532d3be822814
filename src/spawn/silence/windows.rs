//! What waits in a pipe.

use windows_sys::Win32::System::Pipes::PeekNamedPipe;

/// The system has no other name for a pipe than its handle. If that has gone to another pipe, we count a stranger's bytes, which harms
/// nobody: a deadline may be late.
#[allow(clippy::unnecessary_wraps)] // As elsewhere.
pub fn name_of(handle: i32) -> Option<u64> {
    u64::try_from(handle).ok()
}

/// How many bytes can be read there. `None` if it is closed, or no pipe.
pub fn waiting_at(handle: i32) -> Option<u64> {
    let (nowhere, mut bytes) = (std::ptr::null_mut(), 0);
    let pipe = std::ptr::without_provenance_mut(usize::try_from(handle).ok()?);
    // SAFETY: the call fails if the handle means nothing; nothing is copied, and the pointer is to a local.
    let known = unsafe {
        PeekNamedPipe(pipe, nowhere, 0, std::ptr::null_mut(), &raw mut bytes, std::ptr::null_mut())
    };
    (known != 0).then_some(u64::from(bytes))
}
