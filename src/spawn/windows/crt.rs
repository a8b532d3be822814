//! Converts between handles and file descriptors.
//!
//! File descriptors belong to a C runtime, and every program can have its own. A descriptor is
//! valid in Node only if Node's C runtime created it. So this calls Node's own functions. It looks
//! them up at run time, because other JavaScript runtimes do not have them.

use std::os::windows::io::{IntoRawHandle, OwnedHandle, RawHandle};
use std::sync::OnceLock;

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};

use crate::errno::Errno;

// SAFETY of both, for the caller: the descriptor may be any integer. The handle must be open, and
// belongs to the descriptor afterwards.
type ToHandle = unsafe extern "C" fn(i32) -> HANDLE;
type ToDescriptor = unsafe extern "C" fn(HANDLE) -> i32;

#[derive(Clone, Copy)]
struct Functions {
    to_handle: ToHandle,
    to_descriptor: ToDescriptor,
}

/// A function of unknown type, as `GetProcAddress` returns it.
// SAFETY: never called with this type; `functions` converts it to its real type first.
type Found = unsafe extern "system" fn() -> isize;

fn functions() -> Result<Functions, Errno> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    // SAFETY: the names end with a NUL, the module is the running program, and these functions have
    // the same types in every version of libuv.
    let look_up = || unsafe {
        let program = GetModuleHandleW(std::ptr::null());
        let to_handle = GetProcAddress(program, c"uv_get_osfhandle".as_ptr().cast())?;
        let to_descriptor = GetProcAddress(program, c"uv_open_osfhandle".as_ptr().cast())?;
        Some(Functions {
            to_handle: std::mem::transmute::<Found, ToHandle>(to_handle),
            to_descriptor: std::mem::transmute::<Found, ToDescriptor>(to_descriptor),
        })
    };
    (*FUNCTIONS.get_or_init(look_up)).ok_or(Errno::ENOTSUP)
}

/// Whether this runtime can open streams.
pub fn is_available() -> bool {
    functions().is_ok()
}

/// The handle of the caller's descriptor. The caller still owns it.
pub fn handle_of(fd: i32) -> Result<RawHandle, Errno> {
    let functions = functions()?;
    // SAFETY: the function accepts any integer.
    let handle = unsafe { (functions.to_handle)(fd) };
    // -2: a standard stream that the program was started without.
    if handle.is_null() || handle == INVALID_HANDLE_VALUE || handle.addr() == usize::MAX - 1 {
        return Err(Errno::EBADF);
    }
    Ok(handle)
}

/// A descriptor of Node for this handle. Closing the descriptor closes the handle.
pub fn descriptor_for(handle: OwnedHandle) -> Result<i32, Errno> {
    let functions = functions()?;
    let raw = handle.into_raw_handle();
    // SAFETY: the handle is open, and belongs to the descriptor from now on.
    match unsafe { (functions.to_descriptor)(raw) } {
        fd if fd >= 0 => Ok(fd),
        _ => {
            // SAFETY: the call failed, so the handle is still ours.
            drop(unsafe { <OwnedHandle as std::os::windows::io::FromRawHandle>::from_raw_handle(raw) });
            Err(Errno::EMFILE)
        }
    }
}
