//! The calls: `sysctl` for what a process is, `libproc` for what it uses.

use std::ptr;
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use nix::libc;

use super::kinfo;
use super::procargs::Arguments;
use crate::identity::stat::Stat;

/// A list may grow between the question how long it is and the question what is in it.
const LIST_TRIES: usize = 8;

/// `ARG_MAX`.
const MOST_ARGUMENTS: usize = 1 << 20;

/// The facts about a PID right now. `ESRCH` if nobody has it.
pub fn read_stat(pid: i32) -> Result<Stat, Errno> {
    let stat = kinfo::parse(&read_kinfo(pid)?).filter(|stat| stat.pid == pid).ok_or(Errno::ESRCH)?;
    Ok(with_session(stat))
}

/// Everybody there is, zombies included.
pub fn everybody() -> Result<Vec<Stat>, Errno> {
    let bytes = sysctl_list(&[libc::CTL_KERN, libc::KERN_PROC, libc::KERN_PROC_ALL, 0])?;
    Ok(kinfo::parse_all(&bytes).map(with_session).collect())
}

/// The numbers of everybody there is.
pub fn pids() -> std::io::Result<Vec<i32>> {
    let bytes = sysctl_list(&[libc::CTL_KERN, libc::KERN_PROC, libc::KERN_PROC_ALL, 0])?;
    Ok(kinfo::parse_all(&bytes).map(|stat| stat.pid).collect())
}

/// The signals that a process ignores, the first in the lowest bit.
pub fn ignored_signals(pid: i32) -> Option<u64> {
    kinfo::ignored(&read_kinfo(pid).ok()?)
}

/// What a process was executed with, passed on as long as it is held here. `None` if it is gone, is a zombie, is another user's, or is
/// just being executed: the kernel tells these apart no more than we do.
pub fn arguments<T>(pid: i32, read: impl FnOnce(Arguments) -> T) -> Option<T> {
    let mib = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid];
    let mut length = 0;
    sysctl(&mib, ptr::null_mut(), &mut length).ok()?;
    // The kernel says more than there can be, and then refuses to fill that much.
    length = length.min(MOST_ARGUMENTS);
    let mut bytes = vec![0; length];
    sysctl(&mib, bytes.as_mut_ptr(), &mut length).ok()?;
    bytes.truncate(length);
    Arguments::parse(&bytes).map(read)
}

/// This boot, as the kernel names it. Empty if it does not say: then nothing can be verified.
pub fn boot_id() -> &'static str {
    boot()
}

/// The same, to be shared.
pub fn boot() -> &'static Arc<str> {
    static BOOT: OnceLock<Arc<str>> = OnceLock::new();
    BOOT.get_or_init(|| {
        let mut text = [0_u8; 64];
        let mut length = text.len();
        // SAFETY: the name ends with a NUL, and the kernel writes no more than the buffer holds.
        let result = unsafe {
            let name = c"kern.bootsessionuuid".as_ptr();
            libc::sysctlbyname(name, text.as_mut_ptr().cast(), &raw mut length, ptr::null_mut(), 0)
        };
        let length = if result == 0 { length.min(text.len()) } else { 0 };
        let text = text[..length].split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into()
    })
}

/// There is one for all.
pub fn pid_namespace() -> u64 {
    0
}

/// When a process with this start token started: milliseconds since 1970. The token is just that, by the clock as it was then.
#[allow(clippy::unnecessary_wraps)] // Elsewhere it has to be worked out.
pub fn started_at_ms(start: u64) -> Option<u64> {
    Some(start / 1_000)
}

/// Times are counted in milliseconds here (see [`task`]).
pub fn ticks_to_ms(ticks: u64) -> u64 {
    ticks
}

/// The resident memory of whoever has this PID; 0 if nobody has, or if it is another user's.
pub fn resident_bytes(pid: i32) -> u64 {
    task(pid).map_or(0, |task| task.resident_bytes)
}

/// What a process uses.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// User and system time.
    pub cpu_ms: u64,
    pub resident_bytes: u64,
}

/// `None` if it is gone, a zombie, or another user's.
pub fn task(pid: i32) -> Option<Task> {
    // SAFETY: all zeroes is a valid proc_taskinfo, which the kernel fills in up to the length given.
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

/// The kernel counts in the ticks of its own clock, which are nanoseconds on one kind of processor and not on the other.
#[allow(deprecated)] // In favour of a crate for Mach, of which this is all we need.
fn clock_to_ms(ticks: u64) -> u64 {
    static PER_TICK: OnceLock<(u32, u32)> = OnceLock::new();
    let &(numer, denom) = PER_TICK.get_or_init(|| {
        let mut base = libc::mach_timebase_info { numer: 0, denom: 0 };
        // SAFETY: the structure lives here, and is filled in.
        let result = unsafe { libc::mach_timebase_info(&raw mut base) };
        if result == 0 { (base.numer, base.denom) } else { (1, 1) }
    });
    let nanoseconds = u128::from(ticks) * u128::from(numer) / u128::from(denom.max(1));
    u64::try_from(nanoseconds / 1_000_000).unwrap_or(u64::MAX)
}

/// The kernel tells the session of a process by another call, which knows no zombies. Should the number have gone to somebody else in
/// between, the start token read before is not that one's, and whoever compares finds out.
fn with_session(mut stat: Stat) -> Stat {
    // SAFETY: getsid takes an integer.
    stat.session = unsafe { libc::getsid(stat.pid) }.max(0);
    stat
}

fn read_kinfo(pid: i32) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; kinfo::SIZE];
    let mut length = bytes.len();
    sysctl(&[libc::CTL_KERN, libc::KERN_PROC, libc::KERN_PROC_PID, pid], bytes.as_mut_ptr(), &mut length)?;
    // That nobody has the number is no error to the kernel: it has nothing to say.
    if length < kinfo::SIZE { Err(Errno::ESRCH) } else { Ok(bytes) }
}

/// A list of unknown length.
fn sysctl_list(mib: &[i32]) -> Result<Vec<u8>, Errno> {
    for _ in 0..LIST_TRIES {
        let mut length = 0;
        sysctl(mib, ptr::null_mut(), &mut length)?;
        // The kernel allows for a few more already.
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

/// `buffer` must have room for `length` bytes, or be null to ask how much is needed.
fn sysctl(mib: &[i32], buffer: *mut u8, length: &mut usize) -> Result<(), Errno> {
    let mut mib = mib.to_vec();
    // SAFETY: the name is as long as we say; the caller's promise for the rest. Nothing is set.
    let result = unsafe {
        let count = libc::c_uint::try_from(mib.len()).unwrap_or(0);
        libc::sysctl(mib.as_mut_ptr(), count, buffer.cast(), &raw mut *length, ptr::null_mut(), 0)
    };
    Errno::result(result).map(drop)
}
