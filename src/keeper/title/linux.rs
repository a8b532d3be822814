//! The whole command line is written over.

use std::fs;
use std::sync::OnceLock;

use super::ROOM;

static AREA: OnceLock<(usize, usize)> = OnceLock::new();

/// Finds the stretch. To be called once, before any fork.
pub fn locate() {
    AREA.get_or_init(|| {
        let stat = fs::read("/proc/self/stat").unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat);
        // Fields 48 and 49, counted from the state (3) after the command name.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().skip(45);
        let mut address = || fields.next().and_then(|field| field.parse::<usize>().ok()).unwrap_or(0);
        let (start, end) = (address(), address());
        if end.saturating_sub(start) < ROOM { (0, 0) } else { (start, end) }
    });
}

/// Shows `name` as the process's short name and `title` as its command line. Without room only the former.
pub fn set(name: &str, title: &str) {
    let _ = std::ffi::CString::new(name).map(|name| nix::sys::prctl::set_name(&name));
    let &(start, end) = AREA.get().unwrap_or(&(0, 0));
    if start == 0 {
        return;
    }
    let text = &title.as_bytes()[..title.len().min(end - start - 1)];
    // SAFETY: the kernel put our arguments between these two addresses, on the stack, writable; nothing of this
    // program refers to them any more.
    unsafe {
        let area = std::slice::from_raw_parts_mut(start as *mut u8, end - start);
        area.fill(0);
        area[..text.len()].copy_from_slice(text);
    }
}
