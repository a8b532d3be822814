//! Between handles and descriptors.
//!
//! Descriptors are the C runtime's invention, and every program has a C runtime of its own: a number means something to Node only if
//! Node's has given it out. So Node's own functions are asked. They are looked up when they are needed: other runtimes have none.

use std::os::windows::io::{IntoRawHandle, OwnedHandle, RawHandle};
use std::sync::OnceLock;

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};

use crate::errno::Errno;

// SAFETY of both, to be kept by whoever calls them: the number may be any; the handle must be open, and is the descriptor's afterwards.
type ToHandle = unsafe extern "C" fn(i32) -> HANDLE;
type ToDescriptor = unsafe extern "C" fn(HANDLE) -> i32;

#[derive(Clone, Copy)]
struct Functions {
    to_handle: ToHandle,
    to_descriptor: ToDescriptor,
}

/// A function that was found, of whatever type it is.
// SAFETY: nobody calls it as this; it is given its own type first, below.
type Found = unsafe extern "system" fn() -> isize;

fn functions() -> Result<Functions, Errno> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    // SAFETY: the names end with a NUL, the module is the running program, and these functions have had these types ever since.
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

/// Whether this runtime can be given streams at all.
pub fn is_there() -> bool {
    functions().is_ok()
}

/// What the caller has open under this number; it stays the caller's.
pub fn handle_of(fd: i32) -> Result<RawHandle, Errno> {
    let functions = functions()?;
    // SAFETY: any integer may be asked for.
    let handle = unsafe { (functions.to_handle)(fd) };
    // -2: a standard stream that the program was started without.
    if handle.is_null() || handle == INVALID_HANDLE_VALUE || handle.addr() == usize::MAX - 1 {
        return Err(Errno::EBADF);
    }
    Ok(handle)
}

/// A number for it that Node knows. Whoever closes that closes it.
pub fn descriptor_for(handle: OwnedHandle) -> Result<i32, Errno> {
    let functions = functions()?;
    let raw = handle.into_raw_handle();
    // SAFETY: the handle is open, and the descriptor's from here on.
    match unsafe { (functions.to_descriptor)(raw) } {
        fd if fd >= 0 => Ok(fd),
        _ => {
            // SAFETY: it was not taken.
            drop(unsafe { <OwnedHandle as std::os::windows::io::FromRawHandle>::from_raw_handle(raw) });
            Err(Errno::EMFILE)
        }
    }
}
