//! Random bits from the operating system.

use nix::libc;

/// Returns 128 bits from the system. `None` if the system refuses, as a sandbox may. Never blocks:
/// the random source of a running system is seeded.
pub fn bits() -> Option<[u8; 16]> {
    let mut bits = [0; 16];
    is_filled(&mut bits).then_some(bits)
}

#[cfg(target_os = "linux")]
fn is_filled(bits: &mut [u8; 16]) -> bool {
    // SAFETY: the kernel writes at most as many bytes as the array has. It writes so few bytes
    // completely or not at all.
    unsafe { libc::getrandom(bits.as_mut_ptr().cast(), bits.len(), libc::GRND_NONBLOCK) == 16 }
}

#[cfg(target_os = "macos")]
fn is_filled(bits: &mut [u8; 16]) -> bool {
    // SAFETY: the kernel writes exactly as many bytes as the array has, or fails.
    unsafe { libc::getentropy(bits.as_mut_ptr().cast(), bits.len()) == 0 }
}
