//! The facts about processes on Windows, and holding on to one.
//!
//! A start token is the moment of creation, in units of 100 ns since 1601: a point in time, not a count since the boot. So it names
//! a process across boots, too, and there is nothing for [`boot_id`] to tell apart. PID namespaces there are none.

mod wait;

use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use windows_sys::Wdk::System::Threading::{
    NtQueryInformationProcess, ProcessBasicInformation, ProcessCommandLineInformation,
};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_INVALID_PARAMETER, FILETIME, GetLastError, HANDLE, STATUS_SUCCESS,
    UNICODE_STRING, WAIT_OBJECT_0, WAIT_TIMEOUT,
};
use windows_sys::Win32::System::ProcessStatus::{GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::Threading::{
    GetProcessId, GetProcessTimes, INFINITE, OpenProcess, PROCESS_BASIC_INFORMATION, PROCESS_NAME_WIN32,
    PROCESS_QUERY_INFORMATION, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE, PROCESS_TERMINATE,
    QueryFullProcessImageNameW, TerminateProcess, WaitForSingleObject,
};

use super::stat::Stat;
use crate::errno::Errno;
use crate::run::signal::{self, exit_code};

pub use wait::Wait;

/// Between 1601, where Windows begins to count, and 1970.
const EPOCH: u64 = 116_444_736_000_000_000;
const TICKS_PER_MS: u64 = 10_000;
/// The longest that Windows starts a program with, and the structure that leads to it.
const COMMAND_LINE_LIMIT: usize = 66 * 1024;
const A_DAY: u64 = 24 * 3_600 * 1_000 * TICKS_PER_MS;

/// The facts about a PID right now. `ESRCH` if nobody has it.
pub fn read_stat(pid: i32) -> Result<Stat, Errno> {
    Pin::open(pid)?.stat()
}

/// One for all boots, see above.
pub fn boot_id() -> &'static str {
    boot()
}

pub(super) fn boot() -> &'static Arc<str> {
    static BOOT: OnceLock<Arc<str>> = OnceLock::new();
    BOOT.get_or_init(|| "windows".into())
}

pub fn pid_namespace() -> u64 {
    0
}

/// When a process with this start token started: milliseconds since 1970.
#[allow(clippy::unnecessary_wraps)] // Elsewhere the clocks may not allow for it.
pub fn started_at_ms(start: u64) -> Option<u64> {
    start.checked_sub(EPOCH).map(|since| since / TICKS_PER_MS)
}

/// Times in [`Stat`] as milliseconds.
pub fn ticks_to_ms(ticks: u64) -> u64 {
    ticks / TICKS_PER_MS
}

/// The resident memory of whoever has this PID; 0 if nobody has.
pub fn resident_bytes(pid: i32) -> u64 {
    Pin::open(pid).map_or(0, |pin| pin.resident_bytes())
}

/// A handle: it refers to one process and never to the next one with the same number, and as long as it is open that number is
/// given to nobody else.
#[derive(Debug)]
pub struct Pin {
    pid: i32,
    process: OwnedHandle,
}

impl Pin {
    /// Whoever has this PID. What we must not end, we look at.
    pub fn open(pid: i32) -> Result<Self, Errno> {
        let look = PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE;
        // Whether it is in a job, Wine tells only who may ask for everything.
        let wishes = [look | PROCESS_TERMINATE | PROCESS_QUERY_INFORMATION, look | PROCESS_TERMINATE, look];
        let mut process = Err(ERROR_ACCESS_DENIED);
        for access in wishes {
            if !matches!(process, Err(ERROR_ACCESS_DENIED)) {
                break;
            }
            process = open(pid, access);
        }
        let process = process.map_err(|code| match code {
            ERROR_INVALID_PARAMETER => Errno::ESRCH,
            code => Errno::of_win32(code),
        })?;
        let pin = Self { pid, process };
        // The kernel ignores the lowest two bits of a number that is asked for.
        // SAFETY: the handle is open.
        let is_it = unsafe { GetProcessId(pin.raw()) }.cast_signed() == pid;
        if is_it { Ok(pin) } else { Err(Errno::ESRCH) }
    }

    /// A process that was just created, by the handle that came with it.
    pub fn created(pid: i32, process: OwnedHandle) -> Self {
        Self { pid, process }
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The facts about this process right now. One that has ended is still there as long as we hold it.
    pub fn stat(&self) -> Result<Stat, Errno> {
        let Times { start, cpu } = self.times()?;
        let has_ended = self.has_ended();
        Ok(Stat {
            pid: self.pid,
            comm: self.name(),
            state: if has_ended { 'X' } else { 'R' },
            ppid: self.parent().unwrap_or(0),
            cpu,
            threads: u32::from(!has_ended),
            start,
            ..Stat::default()
        })
    }

    /// The start token. `EAGAIN` if it has none yet.
    pub fn start(&self) -> Result<u64, Errno> {
        Ok(self.times()?.start)
    }

    /// What signals mean here is what they mean to Node: there are those that end a process, at once, and 0, which asks whether
    /// there is one.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        if self.has_ended() {
            return Err(Errno::ESRCH);
        }
        match signal {
            0 => Ok(()),
            signal if signal::ends_on_windows(signal) => self.terminate(exit_code(signal)),
            _ => Err(Errno::ENOSYS),
        }
    }

    /// Ends it, at once. `ESRCH` if it has ended.
    pub(crate) fn terminate(&self, code: u32) -> Result<(), Errno> {
        // SAFETY: the handle is open.
        if unsafe { TerminateProcess(self.raw(), code) } != 0 {
            return Ok(());
        }
        // It is refused to end what is ending already.
        let errno = Errno::last();
        if self.has_ended() { Err(Errno::ESRCH) } else { Err(errno) }
    }

    /// What it has ended with; `None` while it runs.
    pub fn exit_code(&self) -> Option<u32> {
        // In this order: one that ends in between would have the code of those who still run.
        if !self.has_ended() {
            return None;
        }
        let mut code = 0;
        // SAFETY: the handle is open, and the pointer is to a local.
        let known =
            unsafe { windows_sys::Win32::System::Threading::GetExitCodeProcess(self.raw(), &raw mut code) };
        (known != 0).then_some(code)
    }

    pub fn has_ended(&self) -> bool {
        // SAFETY: the handle is open.
        unsafe { WaitForSingleObject(self.raw(), 0) == WAIT_OBJECT_0 }
    }

    /// Waits until the process has ended, at most `timeout`. `false` if it still runs.
    pub fn wait_exited(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let limit = timeout.map_or(INFINITE, |limit| {
            u32::try_from(limit.as_millis()).unwrap_or(INFINITE - 1).min(INFINITE - 1)
        });
        // SAFETY: the handle is open.
        match unsafe { WaitForSingleObject(self.raw(), limit) } {
            WAIT_OBJECT_0 => Ok(true),
            WAIT_TIMEOUT => Ok(false),
            _ => Err(Errno::last()),
        }
    }

    pub fn resident_bytes(&self) -> u64 {
        let size = u32::try_from(size_of::<PROCESS_MEMORY_COUNTERS>()).unwrap_or(0);
        let mut counters = PROCESS_MEMORY_COUNTERS { cb: size, ..Default::default() };
        // SAFETY: the handle is open, and the structure is as long as it says.
        let known = unsafe { GetProcessMemoryInfo(self.raw(), &raw mut counters, size) };
        if known == 0 { 0 } else { counters.WorkingSetSize as u64 }
    }

    fn times(&self) -> Result<Times, Errno> {
        let mut times = [FILETIME::default(); 4];
        let [created, exited, kernel, user] = &mut times;
        // SAFETY: the handle is open, and the pointers are to locals.
        if unsafe { GetProcessTimes(self.raw(), created, exited, kernel, user) } == 0 {
            return Err(Errno::last());
        }
        let [created, _, kernel, user] = times.map(ticks);
        // Wine tells nonsense of a process that is just being made. Nobody was started tomorrow.
        if created > now().saturating_add(A_DAY) {
            return Err(Errno::EAGAIN);
        }
        Ok(Times { start: created, cpu: kernel.saturating_add(user) })
    }

    /// The name of its program, without the folder.
    fn name(&self) -> String {
        let mut buffer = [0; 1024];
        let mut length = 1024;
        // SAFETY: the handle is open, and the buffer is as long as it says.
        let known = unsafe {
            QueryFullProcessImageNameW(self.raw(), PROCESS_NAME_WIN32, buffer.as_mut_ptr(), &raw mut length)
        };
        let length = if known == 0 { 0 } else { length as usize };
        let path = String::from_utf16_lossy(buffer.get(..length).unwrap_or_default());
        path.rsplit('\\').next().unwrap_or_default().to_owned()
    }

    /// What it was started with. `None` if the system does not say, as before Windows 8.1.
    pub fn command_line(&self) -> Option<String> {
        // A structure that points to the text behind it. Aligned as that wants it to be.
        let mut buffer = vec![0_u64; COMMAND_LINE_LIMIT / 8];
        let size = u32::try_from(COMMAND_LINE_LIMIT).ok()?;
        // SAFETY: the handle is open, and the buffer is as long as it says.
        let status = unsafe {
            NtQueryInformationProcess(
                self.raw(),
                ProcessCommandLineInformation,
                buffer.as_mut_ptr().cast(),
                size,
                std::ptr::null_mut(),
            )
        };
        if status != STATUS_SUCCESS {
            return None;
        }
        // SAFETY: the kernel has written one of these to the beginning of the buffer, which is aligned for it. What it points to lies
        // in the same buffer, which lives until the text is copied.
        let text = unsafe {
            let line = &*buffer.as_ptr().cast::<UNICODE_STRING>();
            if line.Buffer.is_null() {
                return None;
            }
            std::slice::from_raw_parts(line.Buffer, usize::from(line.Length) / 2)
        };
        Some(String::from_utf16_lossy(text))
    }

    /// Who has created it. That number may have gone to somebody else since.
    fn parent(&self) -> Option<i32> {
        let mut basic = PROCESS_BASIC_INFORMATION::default();
        let size = u32::try_from(size_of::<PROCESS_BASIC_INFORMATION>()).ok()?;
        // SAFETY: the handle is open, and the structure is as long as it says.
        let status = unsafe {
            NtQueryInformationProcess(
                self.raw(),
                ProcessBasicInformation,
                (&raw mut basic).cast(),
                size,
                std::ptr::null_mut(),
            )
        };
        if status == STATUS_SUCCESS { i32::try_from(basic.InheritedFromUniqueProcessId).ok() } else { None }
    }

    fn raw(&self) -> HANDLE {
        self.process.as_raw_handle()
    }
}

impl AsHandle for Pin {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.process.as_handle()
    }
}

struct Times {
    start: u64,
    cpu: u64,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos() / 100).unwrap_or(u64::MAX).saturating_add(EPOCH)
}

fn ticks(time: FILETIME) -> u64 {
    u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)
}

fn open(pid: i32, access: u32) -> Result<OwnedHandle, u32> {
    // SAFETY: integers in, a handle out, which is ours alone.
    unsafe {
        let process = OpenProcess(access, 0, pid.cast_unsigned());
        if process.is_null() { Err(GetLastError()) } else { Ok(OwnedHandle::from_raw_handle(process)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> i32 {
        std::process::id().cast_signed()
    }

    #[test]
    fn we_have_started_a_moment_ago() {
        let stat = read_stat(me()).unwrap();
        assert!(!stat.is_dead());
        assert!(stat.comm.ends_with(".exe"), "{}", stat.comm);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let age = now - u128::from(started_at_ms(stat.start).unwrap());
        assert!(age < 120_000, "this test started {age} ms ago");
    }

    #[test]
    fn a_number_beside_ours_is_not_ours() {
        // The kernel would open us for each of these.
        for pid in [me() + 1, me() + 2, me() + 3] {
            assert_eq!(read_stat(pid), Err(Errno::ESRCH));
        }
    }

    #[test]
    fn a_token_is_a_time_on_the_wall() {
        assert_eq!(started_at_ms(EPOCH), Some(0));
        assert_eq!(started_at_ms(EPOCH + 12_345_678), Some(1_234));
        assert_eq!(started_at_ms(EPOCH - 1), None);
    }

    #[test]
    fn an_ended_process_is_dead_and_its_number_is_kept_for_it() {
        let mut child = std::process::Command::new("cmd").args(["/c", "exit 3"]).spawn().unwrap();
        let pin = Pin::open(child.id().cast_signed()).unwrap();
        let start = pin.start().unwrap();
        child.wait().unwrap();
        assert_eq!(pin.wait_exited(None), Ok(true));
        assert_eq!(pin.exit_code(), Some(3));
        assert_eq!((pin.start(), pin.signal(0)), (Ok(start), Err(Errno::ESRCH)));
    }
}
