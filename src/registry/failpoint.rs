//! Points at which a test can kill this process. Compiled out of releases.
//!
//! With the feature `failpoints`, `SPAWN_OWNED_CRASH_AT=N` kills the process at the Nth point that
//! it reaches, like SIGKILL. Every write has three points: before it, after half of it, and after
//! it.

#[cfg(not(feature = "failpoints"))]
mod switched_off {
    #[inline]
    pub fn hit() {}

    #[inline]
    pub fn write<T>(bytes: &[u8], write: impl FnOnce(&[u8]) -> T) -> T {
        write(bytes)
    }
}

#[cfg(feature = "failpoints")]
mod switched_on {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::start_environment::variable;

    static COUNT: AtomicU64 = AtomicU64::new(0);
    static CRASH_AT: LazyLock<Option<u64>> =
        LazyLock::new(|| variable("SPAWN_OWNED_CRASH_AT").and_then(|text| text.parse().ok()));

    pub fn hit() {
        if is_crash_point() {
            die();
        }
    }

    pub fn write<T>(bytes: &[u8], write: impl FnOnce(&[u8]) -> T) -> T {
        hit();
        if is_crash_point() {
            write(&bytes[..bytes.len() / 2]);
            die();
        }
        let result = write(bytes);
        hit();
        result
    }

    fn is_crash_point() -> bool {
        Some(COUNT.fetch_add(1, Ordering::SeqCst) + 1) == *CRASH_AT
    }

    /// Ends this process without any handler or destructor.
    fn die() -> ! {
        #[cfg(unix)]
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
        #[cfg(windows)]
        // SAFETY: `GetCurrentProcess` returns a pseudo-handle for this process, which is always
        // valid.
        unsafe {
            use windows_sys::Win32::System::Threading::{GetCurrentProcess, TerminateProcess};
            TerminateProcess(GetCurrentProcess(), crate::run::signal::exit_code(crate::run::signal::SIGKILL));
        }
        std::process::abort()
    }
}

#[cfg(not(feature = "failpoints"))]
pub use switched_off::{hit, write};
#[cfg(feature = "failpoints")]
pub use switched_on::{hit, write};
