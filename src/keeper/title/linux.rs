//! The title on Linux: it overwrites the whole command line.

use std::fs;
use std::sync::OnceLock;

use super::ROOM;

static AREA: OnceLock<(usize, usize)> = OnceLock::new();

/// Finds the memory of the command line. Call it once, before any fork.
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

/// Sets the process's short name, and its command line if there is space for it.
pub fn set(name: &str, title: &str) {
    let _ = std::ffi::CString::new(name).map(|name| nix::sys::prctl::set_name(&name));
    let &(start, end) = AREA.get().unwrap_or(&(0, 0));
    if start == 0 {
        return;
    }
    let text = &title.as_bytes()[..title.len().min(end - start - 1)];
    // SAFETY: the kernel has placed the arguments between these two addresses. The memory is on the
    // stack and writable, and this program no longer refers to it.
    unsafe {
        let area = std::slice::from_raw_parts_mut(start as *mut u8, end - start);
        area.fill(0);
        area[..text.len()].copy_from_slice(text);
    }
}
