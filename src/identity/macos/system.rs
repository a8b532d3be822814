//! The system calls: `sysctl` for the facts about a process, `libproc` for its resource use.

use std::ptr;
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use nix::libc;

use super::kinfo;
use super::procargs::Arguments;
use crate::identity::stat::Stat;

/// Attempts to read a list, which may grow between the call for its length and the call for its
/// content.
const LIST_TRIES: usize = 8;

/// `ARG_MAX`.
const MOST_ARGUMENTS: usize = 1 << 20;

/// The current facts about the process with this PID. `ESRCH` if there is none.
pub fn read_stat(pid: i32) -> Result<Stat, Errno> {
    let stat = kinfo::parse(&read_kinfo(pid)?).filter(|stat| stat.pid == pid).ok_or(Errno::ESRCH)?;
    Ok(with_session(stat))
}

/// All processes, including zombies.
pub fn all_processes() -> Result<Vec<Stat>, Errno> {
    let bytes = sysctl_list(&[libc::CTL_KERN, libc::KERN_PROC, libc::KERN_PROC_ALL, 0])?;
    Ok(kinfo::parse_all(&bytes).map(with_session).collect())
}

/// The PIDs of all processes.
pub fn pids() -> std::io::Result<Vec<i32>> {
    let bytes = sysctl_list(&[libc::CTL_KERN, libc::KERN_PROC, libc::KERN_PROC_ALL, 0])?;
    Ok(kinfo::parse_all(&bytes).map(|stat| stat.pid).collect())
}

/// The signals that a process ignores, as a bit mask: signal 1 is the lowest bit.
pub fn ignored_signals(pid: i32) -> Option<u64> {
    kinfo::ignored(&read_kinfo(pid).ok()?)
}

/// Calls `read` with the arguments and the environment of a process. `None` if the process has
/// ended, is a zombie, belongs to another user, or is in the middle of `exec`: the kernel does not
/// tell these cases apart.
pub fn arguments<T>(pid: i32, read: impl FnOnce(Arguments) -> T) -> Option<T> {
    let mib = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid];
    let mut length = 0;
    sysctl(&mib, ptr::null_mut(), &mut length).ok()?;
    // The kernel reports a length above its maximum, and then refuses to fill a buffer of that
    // length.
    length = length.min(MOST_ARGUMENTS);
    let mut bytes = vec![0; length];
    sysctl(&mib, bytes.as_mut_ptr(), &mut length).ok()?;
    bytes.truncate(length);
    Arguments::parse(&bytes).map(read)
}

/// The kernel's ID of this boot. Empty if it cannot be read; then no identity can be verified.
pub fn boot_id() -> &'static str {
    boot()
}

/// [`boot_id`] as a shared string.
pub fn boot() -> &'static Arc<str> {
    static BOOT: OnceLock<Arc<str>> = OnceLock::new();
    BOOT.get_or_init(|| {
        let mut text = [0_u8; 64];
        let mut length = text.len();
        // SAFETY: the name ends with a NUL, and the kernel writes at most `length` bytes.
        let result = unsafe {
            let name = c"kern.bootsessionuuid".as_ptr();
            libc::sysctlbyname(name, text.as_mut_ptr().cast(), &raw mut length, ptr::null_mut(), 0)
        };
        let length = if result == 0 { length.min(text.len()) } else { 0 };
        let text = text[..length].split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into()
    })
}

/// Always 0: macOS has no PID namespaces.
pub fn pid_namespace() -> u64 {
    0
}

/// When a process with this start token started: milliseconds since 1970, by the clock at that
/// time.
#[allow(clippy::unnecessary_wraps)] // On Linux this can fail.
pub fn started_at_ms(start: u64) -> Option<u64> {
    Some(start / 1_000)
}

/// Returns the value unchanged: times on macOS are already in milliseconds (see [`task`]).
pub fn ticks_to_ms(ticks: u64) -> u64 {
    ticks
}

/// The resident memory of the process with this PID; 0 if there is none or it belongs to another
/// user.
pub fn resident_bytes(pid: i32) -> u64 {
    task(pid).map_or(0, |task| task.resident_bytes)
}

/// The resource use of a process.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// User and system time.
    pub cpu_ms: u64,
    pub resident_bytes: u64,
}

/// `None` if the process has ended, is a zombie, or belongs to another user.
pub fn task(pid: i32) -> Option<Task> {
    // SAFETY: all zeroes is a valid proc_taskinfo. The kernel fills at most the given length.
    let info = unsafe {
        let mut info: libc::proc_taskinfo = std::mem::zeroed();
        let size = i32::try_from(size_of_val(&info)).ok()?;
        if libc::proc_pidinfo(pid, libc::PROC_PIDTASKINFO, 0, (&raw mut info).cast(), size) != size {
            return None;
        }
        info
    };
    let cpu_ms = clock_to_ms(info.pti_total_user.saturating_add(info.pti_total_system));
    Some(Task { cpu_ms, resident_bytes: info.pti_resident_size })
}

/// Converts Mach clock ticks to milliseconds. A tick is a nanosecond on Intel, but not on ARM.
#[allow(deprecated)] // The replacement is a Mach crate, and this is the only call we need.
fn clock_to_ms(ticks: u64) -> u64 {
    static PER_TICK: OnceLock<(u32, u32)> = OnceLock::new();
    let &(numer, denom) = PER_TICK.get_or_init(|| {
        let mut base = libc::mach_timebase_info { numer: 0, denom: 0 };
        // SAFETY: the kernel fills the structure, which lives in this function.
        let result = unsafe { libc::mach_timebase_info(&raw mut base) };
        if result == 0 { (base.numer, base.denom) } else { (1, 1) }
    });
    let nanoseconds = u128::from(ticks) * u128::from(numer) / u128::from(denom.max(1));
    u64::try_from(nanoseconds / 1_000_000).unwrap_or(u64::MAX)
}

/// Adds the session, which the kernel reports by another call (and not for zombies). Another
/// process may get the PID between the two calls. Then the start token, read before, does not match
/// it, and a comparison detects that.
fn with_session(mut stat: Stat) -> Stat {
    // SAFETY: getsid takes an integer.
    stat.session = unsafe { libc::getsid(stat.pid) }.max(0);
    stat
}

fn read_kinfo(pid: i32) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; kinfo::SIZE];
    let mut length = bytes.len();
    sysctl(&[libc::CTL_KERN, libc::KERN_PROC, libc::KERN_PROC_PID, pid], bytes.as_mut_ptr(), &mut length)?;
    // For an unused PID the kernel reports success with no data.
    if length < kinfo::SIZE { Err(Errno::ESRCH) } else { Ok(bytes) }
}

/// Reads a list of unknown length.
fn sysctl_list(mib: &[i32]) -> Result<Vec<u8>, Errno> {
    for _ in 0..LIST_TRIES {
        let mut length = 0;
        sysctl(mib, ptr::null_mut(), &mut length)?;
        // The kernel adds a small reserve already; this adds more.
        length += length / 8;
        let mut bytes = vec![0; length];
        match sysctl(mib, bytes.as_mut_ptr(), &mut length) {
            Err(Errno::ENOMEM) => {}
            result => {
                result?;
                bytes.truncate(length);
                return Ok(bytes);
            }
        }
    }
    Err(Errno::EAGAIN)
}

/// Calls `sysctl`. `buffer` must have room for `length` bytes, or be null to query the needed
/// length.
fn sysctl(mib: &[i32], buffer: *mut u8, length: &mut usize) -> Result<(), Errno> {
    let mut mib = mib.to_vec();
    // SAFETY: `count` is the length of the name. The caller guarantees the buffer. Nothing is set.
    let result = unsafe {
        let count = libc::c_uint::try_from(mib.len()).unwrap_or(0);
        libc::sysctl(mib.as_mut_ptr(), count, buffer.cast(), &raw mut *length, ptr::null_mut(), 0)
    };
    Errno::result(result).map(drop)
}
