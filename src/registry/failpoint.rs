//! Places at which a test can have this process die, compiled out of releases.
//!
//! With the feature `failpoints`, `SPAWN_OWNED_CRASH_AT=N` kills the process, as SIGKILL does, at the Nth place it comes to.
//! Every write is three of them: before it, half of it, after it.

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

    static COUNT: AtomicU64 = AtomicU64::new(0);
    static CRASH_AT: LazyLock<Option<u64>> =
        LazyLock::new(|| std::env::var("SPAWN_OWNED_CRASH_AT").ok().and_then(|text| text.parse().ok()));

    pub fn hit() {
        if is_the_one() {
            die();
        }
    }

    pub fn write<T>(bytes: &[u8], write: impl FnOnce(&[u8]) -> T) -> T {
        hit();
        if is_the_one() {
            write(&bytes[..bytes.len() / 2]);
            die();
        }
        let result = write(bytes);
        hit();
        result
    }

    fn is_the_one() -> bool {
        Some(COUNT.fetch_add(1, Ordering::SeqCst) + 1) == *CRASH_AT
    }

    /// Nothing of this process runs after that: no handler, no destructor.
    fn die() -> ! {
        #[cfg(unix)]
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
        #[cfg(windows)]
        // SAFETY: the handle is the one that always means this process.
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
