//! Facts about processes on Linux, from `/proc` and the clocks.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::libc;

use super::stat::{self, Stat};
use super::{ProcError, clock};

/// The current facts about the process with this PID. `ESRCH` if there is none.
pub fn read_stat(pid: i32) -> Result<Stat, Errno> {
    parsed(fs::read(format!("/proc/{pid}/stat")))
}

/// Parses the content of a `stat` file. A missing file and a read error `ESRCH` both mean that the
/// process has ended; both become `ESRCH`.
pub(super) fn parsed(read: io::Result<Vec<u8>>) -> Result<Stat, Errno> {
    let bytes = read.map_err(|error| errno_of(&error))?;
    stat::parse(&String::from_utf8_lossy(&bytes)).ok_or(Errno::EIO)
}

/// The PIDs of all visible processes.
pub fn pids() -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(pids)
}

/// The signals that a process ignores, as a bit mask: signal 1 is the lowest bit.
pub fn ignored_signals(pid: i32) -> Option<u64> {
    stat::ignored(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// The PID of the process that traces this one, if any. The kernel reports the tracing *thread*.
pub fn tracer_of(pid: i32) -> Option<i32> {
    let status = |pid: i32| fs::read_to_string(format!("/proc/{pid}/status")).ok();
    let thread = stat::number(&status(pid)?, "TracerPid:").filter(|&thread| thread > 0)?;
    stat::number(&status(thread)?, "Tgid:")
}

/// The kernel's ID of this boot, with the clock offset (see [`clock`]). Empty if it cannot be read;
/// then no identity can be verified.
pub fn boot_id() -> &'static str {
    boot()
}

/// [`boot_id`] as a shared string.
pub(super) fn boot() -> &'static Arc<str> {
    static BOOT: OnceLock<Arc<str>> = OnceLock::new();
    static UNKNOWN: OnceLock<Arc<str>> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return boot;
    }
    // Do not cache a failure: it may be a lack of file descriptors, and a retry can succeed.
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    match id.and_then(|id| Ok(clock::qualified(id.trim(), &clock::of_this_process()?))) {
        Ok(boot) => BOOT.get_or_init(|| boot.into()),
        Err(_) => UNKNOWN.get_or_init(|| "".into()),
    }
}

/// The inode number of our PID namespace; 0 if it cannot be read.
pub fn pid_namespace() -> u64 {
    static NAMESPACE: OnceLock<u64> = OnceLock::new();
    if let Some(&namespace) = NAMESPACE.get() {
        return namespace;
    }
    fs::metadata("/proc/self/ns/pid").map_or(0, |meta| *NAMESPACE.get_or_init(|| meta.ino()))
}

/// Checks that `/proc` belongs to our own PID namespace. In another namespace's `/proc`, a PID
/// names another process.
pub fn check_proc() -> Result<(), ProcError> {
    let pid = std::process::id();
    let shown = fs::read_link("/proc/self")
        .map_err(|error| ProcError::Missing(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))))?;
    match shown.to_str() {
        Some(shown) if shown.parse() == Ok(pid) => Ok(()),
        shown => Err(ProcError::Foreign { pid, shown: shown.unwrap_or_default().to_owned() }),
    }
}

pub(super) fn errno_of(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::NotFound => Errno::ESRCH,
        _ => Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// When a process of this boot with this start token started: milliseconds since 1970, by the
/// current wall clock. `None` if the result would be in the future or before 1970, which means that
/// the token is from another boot.
///
/// The token counts from the boot and does not follow later changes of the wall clock. So the
/// result differs from the wall clock at that time by such changes, and by up to one tick (10 ms).
pub fn started_at_ms(start: u64) -> Option<u64> {
    // SAFETY: all zeroes is a valid timespec, which the kernel fills in.
    let since_boot = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        Errno::result(libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time)).ok()?;
        let whole = Duration::from_secs(u64::try_from(time.tv_sec).ok()?);
        whole + Duration::from_nanos(u64::try_from(time.tv_nsec).ok()?)
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    wall_clock_ms(start, ticks_per_second()?, since_boot, now)
}

/// Converts times from `/proc/PID/stat` to milliseconds.
pub fn ticks_to_ms(ticks: u64) -> u64 {
    ticks_per_second().map_or(0, |per_second| ticks.saturating_mul(1000) / per_second)
}

/// The resident memory of the process with this PID; 0 if there is none. Not read from `stat`,
/// where newer kernels only estimate it.
pub fn resident_bytes(pid: i32) -> u64 {
    let pages = fs::read_to_string(format!("/proc/{pid}/statm"))
        .ok()
        .and_then(|statm| statm.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    // SAFETY: sysconf takes an integer.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    pages.unwrap_or(0).saturating_mul(page)
}

fn ticks_per_second() -> Option<u64> {
    // SAFETY: sysconf takes an integer.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|&ticks| ticks > 0)
}

/// The arithmetic of [`started_at_ms`], without the clocks.
fn wall_clock_ms(start: u64, ticks_per_second: u64, since_boot: Duration, now: Duration) -> Option<u64> {
    let started = (u128::from(start) * 1000).checked_div(u128::from(ticks_per_second))?;
    let age = since_boot.as_millis().checked_sub(started)?;
    u64::try_from(now.as_millis().checked_sub(age)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_token_converts_to_wall_clock_time() {
        let at = |start, ticks, since_boot, now| {
            wall_clock_ms(start, ticks, Duration::from_millis(since_boot), Duration::from_millis(now))
        };
        for (start, ticks, since_boot, now, expected) in [
            (0, 100, 0, 0, Some(0)),
            (100, 100, 1_000, 50_000, Some(50_000)),
            (100, 100, 4_000, 50_000, Some(47_000)),
            (250, 1000, 4_000, 50_000, Some(46_250)),
            (1, 3, 1_000, 50_000, Some(49_333)),
            (500, 100, 4_999, 50_000, None), // The start would be in the future.
            (0, 100, 60_000, 50_000, None),  // The start would be before 1970.
            (100, 0, 1_000, 50_000, None),
            (u64::MAX, 100, 1_000, 50_000, None),
        ] {
            assert_eq!(at(start, ticks, since_boot, now), expected, "{start} {ticks} {since_boot} {now}");
        }
    }

    #[test]
    fn this_process_started_at_most_two_minutes_ago() {
        let started = started_at_ms(read_stat(std::process::id().cast_signed()).unwrap().start).unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        let age = now - u128::from(started);
        assert!(age < 120_000, "this test started {age} ms ago");
    }
}
