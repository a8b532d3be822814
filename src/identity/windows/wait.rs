//! A callback at the end of a process.

use std::ffi::c_void;
use std::os::windows::io::AsRawHandle;

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Threading::{
    INFINITE, RegisterWaitForSingleObject, UnregisterWaitEx, WT_EXECUTEINWAITTHREAD, WT_EXECUTEONLYONCE,
};

use super::ProcessHandle;
use crate::errno::Errno;

type Callback = Box<dyn Fn() + Send + Sync>;

/// A registered wait on a thread of the system. Dropping it ends the wait. After the drop, the
/// callback does not run and never will.
#[derive(Debug)]
pub struct Wait {
    registration: HANDLE,
    callback: *mut Callback,
}

// SAFETY: the pointer is to a `Send` and `Sync` value, which `drop` frees once, when no thread uses
// it.
unsafe impl Send for Wait {}
// SAFETY: as above; a shared `Wait` has no methods.
unsafe impl Sync for Wait {}

impl ProcessHandle {
    /// Calls `callback` once when the process has ended, or now if it has ended already. The
    /// callback must neither block nor panic.
    pub fn on_exit(&self, callback: impl Fn() + Send + Sync + 'static) -> Result<Wait, Errno> {
        let callback: *mut Callback = Box::into_raw(Box::new(Box::new(callback)));
        let mut registration = std::ptr::null_mut();
        // SAFETY: the handle is open, and stays open during the wait, because the owner of the
        // `Wait` also owns this handle. The callback lives until the registration is gone.
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
            // SAFETY: created above, and no other code has the pointer.
            drop(unsafe { Box::from_raw(callback) });
            return Err(errno);
        }
        Ok(Wait { registration, callback })
    }
}

/// The function that the system calls.
///
/// # Safety
/// The pointer must be the registered one.
// SAFETY: the callback is not freed while the wait is registered.
unsafe extern "system" fn call(callback: *mut c_void, _timed_out: bool) {
    // SAFETY: this is the registered pointer, and it is freed only after the registration is gone.
    let callback = unsafe { &*callback.cast::<Callback>() };
    callback();
}

impl Drop for Wait {
    fn drop(&mut self) {
        // SAFETY: the registration is ours. With INVALID_HANDLE_VALUE the call returns only when
        // the callback does not run any more. If the call fails, the callback may still run and
        // must not be freed.
        unsafe {
            if UnregisterWaitEx(self.registration, INVALID_HANDLE_VALUE) != 0 {
                drop(Box::from_raw(self.callback));
            }
        }
    }
}
