//! Facts about processes on Windows, and a handle to one process.
//!
//! A start token is the creation time in units of 100 ns since 1601. It is a point in time and not
//! a count since the boot, so it identifies a process across boots too. Therefore [`boot_id`] is a
//! constant. Windows has no PID namespaces.

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
use crate::trace::trace;

pub use wait::Wait;

/// Time between 1601, where Windows starts to count, and 1970.
const EPOCH: u64 = 116_444_736_000_000_000;
const TICKS_PER_MS: u64 = 10_000;
/// The longest command line that Windows accepts, plus the structure that points to it.
const COMMAND_LINE_LIMIT: usize = 66 * 1024;
const A_DAY: u64 = 24 * 3_600 * 1_000 * TICKS_PER_MS;

/// The current facts about the process with this PID. `ESRCH` if there is none.
pub fn read_stat(pid: i32) -> Result<Stat, Errno> {
    ProcessHandle::open(pid)?.stat()
}

/// A constant: start tokens are valid across boots.
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
#[allow(clippy::unnecessary_wraps)] // On Linux the clocks can make this fail.
pub fn started_at_ms(start: u64) -> Option<u64> {
    start.checked_sub(EPOCH).map(|since| since / TICKS_PER_MS)
}

/// Converts times in [`Stat`] to milliseconds.
pub fn ticks_to_ms(ticks: u64) -> u64 {
    ticks / TICKS_PER_MS
}

/// The resident memory of the process with this PID; 0 if there is none.
pub fn resident_bytes(pid: i32) -> u64 {
    ProcessHandle::open(pid).map_or(0, |handle| handle.resident_bytes())
}

/// A handle that refers to one process, and never to a later one with the same PID. While the
/// handle is open, Windows gives the PID to no other process.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: i32,
    process: OwnedHandle,
}

impl ProcessHandle {
    /// Opens the process that has this PID. If we have no permission to terminate it, the handle
    /// can only query it.
    pub fn open(pid: i32) -> Result<Self, Errno> {
        let query = PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE;
        // Wine tells only a handle with PROCESS_QUERY_INFORMATION whether the process is in a job.
        let access_levels =
            [query | PROCESS_TERMINATE | PROCESS_QUERY_INFORMATION, query | PROCESS_TERMINATE, query];
        let mut process = Err(ERROR_ACCESS_DENIED);
        for access in access_levels {
            if !matches!(process, Err(ERROR_ACCESS_DENIED)) {
                break;
            }
            process = open(pid, access);
        }
        let process = process.map_err(|code| match code {
            ERROR_INVALID_PARAMETER => Errno::ESRCH,
            code => Errno::of_win32(code),
        })?;
        let handle = Self { pid, process };
        // OpenProcess ignores the lowest two bits of the PID, so compare.
        // SAFETY: the handle is open.
        let is_same_pid = unsafe { GetProcessId(handle.raw()) }.cast_signed() == pid;
        if is_same_pid { Ok(handle) } else { Err(Errno::ESRCH) }
    }

    /// Wraps the handle of a process that was just created.
    pub fn created(pid: i32, process: OwnedHandle) -> Self {
        Self { pid, process }
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The current facts about this process. They stay readable after its end, while the handle is
    /// open.
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

    /// The start token. `EAGAIN` if the process has none yet.
    pub fn start(&self) -> Result<u64, Errno> {
        Ok(self.times()?.start)
    }

    /// Sends a signal with Node's meaning on Windows: some signals end the process immediately, and
    /// 0 checks that it exists. All others are `ENOSYS`.
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

    /// Ends the process immediately. `ESRCH` if it has ended.
    pub(crate) fn terminate(&self, code: u32) -> Result<(), Errno> {
        trace!("signal: terminate {} with exit code {code}", self.pid);
        // SAFETY: the handle is open.
        if unsafe { TerminateProcess(self.raw(), code) } != 0 {
            return Ok(());
        }
        // Windows refuses to terminate a process that is already ending.
        let errno = Errno::last();
        if self.has_ended() { Err(Errno::ESRCH) } else { Err(errno) }
    }

    /// The exit code; `None` while the process runs.
    pub fn exit_code(&self) -> Option<u32> {
        // Check first, read second: if the process ended between a read and a check, the code read
        // would be STILL_ACTIVE.
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

    /// Waits until the process has ended, at most `timeout`. Returns `false` on timeout.
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
        // SAFETY: the handle is open, and `size` is the size of the structure.
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
        // Wine reports a wrong time for a process that is being created. A time in the future shows
        // that.
        if created > now().saturating_add(A_DAY) {
            return Err(Errno::EAGAIN);
        }
        Ok(Times { start: created, cpu: kernel.saturating_add(user) })
    }

    /// The file name of the program, without the folder.
    fn name(&self) -> String {
        let mut buffer = [0; 1024];
        let mut length = 1024;
        // SAFETY: the handle is open, and `length` is the length of the buffer.
        let known = unsafe {
            QueryFullProcessImageNameW(self.raw(), PROCESS_NAME_WIN32, buffer.as_mut_ptr(), &raw mut length)
        };
        let length = if known == 0 { 0 } else { length as usize };
        let path = String::from_utf16_lossy(buffer.get(..length).unwrap_or_default());
        path.rsplit('\\').next().unwrap_or_default().to_owned()
    }

    /// The command line. `None` if Windows does not report it, as before Windows 8.1.
    pub fn command_line(&self) -> Option<String> {
        // The kernel writes a structure that points to the text after it. u64 gives its alignment.
        let mut buffer = vec![0_u64; COMMAND_LINE_LIMIT / 8];
        let size = u32::try_from(COMMAND_LINE_LIMIT).ok()?;
        // SAFETY: the handle is open, and `size` is the size of the buffer.
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
        // SAFETY: the kernel has written a UNICODE_STRING to the start of the buffer, which is
        // aligned for it. The string lies in the same buffer, which lives until the text is copied.
        let text = unsafe {
            let line = &*buffer.as_ptr().cast::<UNICODE_STRING>();
            if line.Buffer.is_null() {
                return None;
            }
            std::slice::from_raw_parts(line.Buffer, usize::from(line.Length) / 2)
        };
        Some(String::from_utf16_lossy(text))
    }

    /// The PID of the process that created this one. Another process may have that PID by now.
    fn parent(&self) -> Option<i32> {
        let mut basic = PROCESS_BASIC_INFORMATION::default();
        let size = u32::try_from(size_of::<PROCESS_BASIC_INFORMATION>()).ok()?;
        // SAFETY: the handle is open, and `size` is the size of the structure.
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

impl AsHandle for ProcessHandle {
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
    // SAFETY: OpenProcess takes integers. This function alone owns the handle it returns.
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
    fn this_process_started_at_most_two_minutes_ago() {
        let stat = read_stat(me()).unwrap();
        assert!(!stat.is_dead());
        assert!(stat.comm.ends_with(".exe"), "{}", stat.comm);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let age = now - u128::from(started_at_ms(stat.start).unwrap());
        assert!(age < 120_000, "this test started {age} ms ago");
    }

    #[test]
    fn a_pid_that_differs_in_the_lowest_bits_is_not_ours() {
        // OpenProcess would open this process for each of these PIDs.
        for pid in [me() + 1, me() + 2, me() + 3] {
            assert_eq!(read_stat(pid), Err(Errno::ESRCH));
        }
    }

    #[test]
    fn a_start_token_converts_to_wall_clock_time() {
        assert_eq!(started_at_ms(EPOCH), Some(0));
        assert_eq!(started_at_ms(EPOCH + 12_345_678), Some(1_234));
        assert_eq!(started_at_ms(EPOCH - 1), None);
    }

    #[test]
    fn an_ended_process_keeps_its_pid_while_a_handle_is_open() {
        let mut child = std::process::Command::new("cmd").args(["/c", "exit 3"]).spawn().unwrap();
        let handle = ProcessHandle::open(child.id().cast_signed()).unwrap();
        let start = handle.start().unwrap();
        child.wait().unwrap();
        assert_eq!(handle.wait_exited(None), Ok(true));
        assert_eq!(handle.exit_code(), Some(3));
        assert_eq!((handle.start(), handle.signal(0)), (Ok(start), Err(Errno::ESRCH)));
    }
}
