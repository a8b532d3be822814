//! Being told that a process has ended.

use std::ffi::c_void;
use std::os::windows::io::AsRawHandle;

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Threading::{
    INFINITE, RegisterWaitForSingleObject, UnregisterWaitEx, WT_EXECUTEINWAITTHREAD, WT_EXECUTEONLYONCE,
};

use super::Pin;
use crate::errno::Errno;

type Callback = Box<dyn Fn() + Send + Sync>;

/// Somebody waits, on a thread of the system's. Dropping it ends that; when it is dropped, the callback is not running and never
/// will be.
#[derive(Debug)]
pub struct Wait {
    registration: HANDLE,
    callback: *mut Callback,
}

// SAFETY: the pointer is to something that is `Send` and `Sync`, and is freed once, when nobody uses it any more.
unsafe impl Send for Wait {}
// SAFETY: as above; nothing can be done with a shared one.
unsafe impl Sync for Wait {}

impl Pin {
    /// Calls back once when the process has ended, also if it has already. The callback must neither block nor panic.
    pub fn on_exit(&self, callback: impl Fn() + Send + Sync + 'static) -> Result<Wait, Errno> {
        let callback: *mut Callback = Box::into_raw(Box::new(Box::new(callback)));
        let mut registration = std::ptr::null_mut();
        // SAFETY: the handle is open, and stays so for as long as somebody may wait for it: whoever holds the `Wait` holds us.
        // The callback lives until the registration is gone.
        let registered = unsafe {
            RegisterWaitForSingleObject(
                &raw mut registration,
                self.process.as_raw_handle(),
                Some(call),
                callback.cast_const().cast(),
                INFINITE,
                WT_EXECUTEINWAITTHREAD | WT_EXECUTEONLYONCE,
            )
        };
        if registered == 0 {
            let errno = Errno::last();
            // SAFETY: it was made above, and nobody else has it.
            drop(unsafe { Box::from_raw(callback) });
            return Err(errno);
        }
        Ok(Wait { registration, callback })
    }
}

/// What the system calls.
///
/// # Safety
/// The pointer must be the one that was registered.
// SAFETY: as long as somebody is registered, its callback is not freed.
unsafe extern "system" fn call(callback: *mut c_void, _timed_out: bool) {
    // SAFETY: it is what was registered, and is not freed before the registration is gone.
    let callback = unsafe { &*callback.cast::<Callback>() };
    callback();
}

impl Drop for Wait {
    fn drop(&mut self) {
        // SAFETY: the registration is ours. With this handle the call returns when the callback is not running any more. If it fails, that
        // is not so, and the callback must not be freed.
        unsafe {
            if UnregisterWaitEx(self.registration, INVALID_HANDLE_VALUE) != 0 {
                drop(Box::from_raw(self.callback));
            }
        }
    }
}
