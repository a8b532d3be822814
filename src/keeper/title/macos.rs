//! Only the last argument is written over. Whoever reads our environment counts the arguments before it, so there must be as many as there
//! were.

use std::ffi::CStr;
use std::sync::OnceLock;

use nix::libc;

use super::ROOM;

static AREA: OnceLock<(usize, usize)> = OnceLock::new();

/// Finds the stretch. To be called once, before any fork.
pub fn locate() {
    AREA.get_or_init(|| last_argument().unwrap_or((0, 0)));
}

fn last_argument() -> Option<(usize, usize)> {
    // SAFETY: both are there from the start of the process to its end, and nobody changes them.
    let last = unsafe {
        let (count, arguments) = (*libc::_NSGetArgc(), *libc::_NSGetArgv());
        let last = *arguments.add(usize::try_from(count).ok()?.checked_sub(1)?);
        CStr::from_ptr(last)
    };
    let length = last.to_bytes().len();
    (length >= ROOM).then(|| (last.as_ptr() as usize, length))
}

/// Shows `title`. The short name is that of the file that was executed, and stays so.
pub fn set(_name: &str, title: &str) {
    let &(start, length) = AREA.get().unwrap_or(&(0, 0));
    if start == 0 {
        return;
    }
    let text = &title.as_bytes()[..title.len().min(length)];
    // SAFETY: the kernel put our last argument there, on the stack, writable, and so long without the NUL that ends it; nothing of this
    // program refers to it any more.
    unsafe {
        let area = std::slice::from_raw_parts_mut(start as *mut u8, length);
        area.fill(b' ');
        area[..text.len()].copy_from_slice(text);
        // It would end the argument early.
        area.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    }
}
