//! The title on macOS: it overwrites only the last argument.
//!
//! A reader of this process's environment skips as many arguments as the process started with. So
//! their count must not change.

use std::ffi::CStr;
use std::sync::OnceLock;

use nix::libc;

use super::ROOM;

static AREA: OnceLock<(usize, usize)> = OnceLock::new();

/// Finds the memory of the last argument. Call it once, before any fork.
pub fn locate() {
    AREA.get_or_init(|| last_argument().unwrap_or((0, 0)));
}

fn last_argument() -> Option<(usize, usize)> {
    // SAFETY: both exist for the whole life of the process, and no code changes them.
    let last = unsafe {
        let (count, arguments) = (*libc::_NSGetArgc(), *libc::_NSGetArgv());
        let last = *arguments.add(usize::try_from(count).ok()?.checked_sub(1)?);
        CStr::from_ptr(last)
    };
    let length = last.to_bytes().len();
    (length >= ROOM).then(|| (last.as_ptr() as usize, length))
}

/// Sets the title. On macOS the short name is the name of the executable and cannot be changed.
pub fn set(_name: &str, title: &str) {
    let &(start, length) = AREA.get().unwrap_or(&(0, 0));
    if start == 0 {
        return;
    }
    let text = &title.as_bytes()[..title.len().min(length)];
    // SAFETY: the kernel has placed the last argument there. The memory is on the stack and
    // writable, and `length` excludes the final NUL. This program no longer refers to it.
    unsafe {
        let area = std::slice::from_raw_parts_mut(start as *mut u8, length);
        area.fill(b' ');
        area[..text.len()].copy_from_slice(text);
        // A NUL would end the argument early.
        area.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    }
}
