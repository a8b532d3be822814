//! A Job Object: the kernel's list of a run's processes, which no member can leave.
//!
//! The root is in the job from its first instruction, and so is every process that a member starts.
//! The job does not allow members to break away. A bot may itself be in a job, for example an
//! editor's or a CI runner's. Then the run's job is nested in that job.

use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};

use windows_sys::Win32::Foundation::{
    DUPLICATE_SAME_ACCESS, DuplicateHandle, ERROR_ALREADY_EXISTS, ERROR_MORE_DATA, GetLastError, HANDLE,
    SetLastError,
};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, IsProcessInJob, JOB_OBJECT_LIMIT_ACTIVE_PROCESS,
    JOB_OBJECT_LIMIT_JOB_MEMORY, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE, JOBOBJECT_ASSOCIATE_COMPLETION_PORT,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_BASIC_PROCESS_ID_LIST,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JOBOBJECTINFOCLASS, JobObjectAssociateCompletionPortInformation,
    JobObjectBasicAccountingInformation, JobObjectBasicProcessIdList, JobObjectExtendedLimitInformation,
    OpenJobObjectW, QueryInformationJobObject, SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

use super::{Limits, Usage};
use crate::errno::Errno;
use crate::identity::{ProcessHandle, ProcessRef, ticks_to_ms};
use crate::trace::trace;

/// Access rights for a job that another bot created.
const ACCESS: u32 = {
    use windows_sys::Win32::System::SystemServices::{
        JOB_OBJECT_ASSIGN_PROCESS, JOB_OBJECT_QUERY, JOB_OBJECT_SET_ATTRIBUTES, JOB_OBJECT_TERMINATE,
    };
    JOB_OBJECT_ASSIGN_PROCESS | JOB_OBJECT_QUERY | JOB_OBJECT_SET_ATTRIBUTES | JOB_OBJECT_TERMINATE
};

/// Additional entries for a list of PIDs that was too short. Windows reports the required length,
/// but processes start and exit meanwhile.
const MORE: usize = 64;

/// Number of running processes in a job, and of all processes that ever were in it.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    pub active: u32,
    pub total: u32,
}

#[derive(Debug)]
pub struct Job {
    handle: OwnedHandle,
    limits: Limits,
}

impl Job {
    /// Creates an empty job. Windows ends its members when the last handle to the job is closed,
    /// whatever the reason.
    ///
    /// Pass a name if another bot must find the job. A name that already exists is refused
    /// (`EEXIST`), because two runs in one job would end together.
    pub fn create(name: Option<&str>, limits: Limits) -> Result<Self, Errno> {
        let name = name.map(wide);
        let name = name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        // SAFETY: without attributes the handle is not inherited. The name ends with a NUL. The
        // error is that of this call.
        let (handle, error) = unsafe {
            SetLastError(0);
            let handle = CreateJobObjectW(std::ptr::null(), name);
            let error = GetLastError();
            (owned(handle)?, error)
        };
        if error == ERROR_ALREADY_EXISTS {
            return Err(Errno::EEXIST);
        }
        let job = Self { handle, limits };
        job.end_with_us(true)?;
        Ok(job)
    }

    /// Opens the job with that name. It may have another owner.
    pub fn open(name: &str) -> Result<Self, Errno> {
        // SAFETY: the name ends with a NUL.
        let handle = unsafe { owned(OpenJobObjectW(ACCESS, 0, wide(name).as_ptr())) }?;
        Ok(Self { handle, limits: Limits::default() })
    }

    /// Sets whether Windows ends the members when the last handle to the job is closed.
    pub fn end_with_us(&self, with_us: bool) -> Result<(), Errno> {
        self.set(JobObjectExtendedLimitInformation, &rules(self.limits, with_us))
    }

    /// Makes the job report starts and exits of members to this completion port, with this key.
    /// Messages may be lost, so use them only as a reason to read the job.
    pub fn report_to(&self, port: BorrowedHandle, key: usize) -> Result<(), Errno> {
        // A job reports to one port only, perhaps still another bot's. If that port cannot be
        // removed, this call fails, and so does the next.
        let _ = self.set(
            JobObjectAssociateCompletionPortInformation,
            &JOBOBJECT_ASSOCIATE_COMPLETION_PORT::default(),
        );
        let association = JOBOBJECT_ASSOCIATE_COMPLETION_PORT {
            CompletionKey: std::ptr::without_provenance_mut(key),
            CompletionPort: port.as_raw_handle(),
        };
        self.set(JobObjectAssociateCompletionPortInformation, &association)
    }

    /// Puts a running process into the job. Processes that it started before stay outside.
    pub fn assign(&self, process: BorrowedHandle) -> Result<(), Errno> {
        // SAFETY: both handles are open.
        done(unsafe { AssignProcessToJobObject(self.raw(), process.as_raw_handle()) })
    }

    /// Duplicates the job's handle into the process, so that the job and its name live as long as
    /// the process.
    pub fn give_to(&self, process: BorrowedHandle) -> Result<(), Errno> {
        let mut theirs: HANDLE = std::ptr::null_mut();
        // SAFETY: all handles are open. The new handle belongs to the other process and is not
        // inherited.
        done(unsafe {
            DuplicateHandle(
                GetCurrentProcess(),
                self.raw(),
                process.as_raw_handle(),
                &raw mut theirs,
                0,
                0,
                DUPLICATE_SAME_ACCESS,
            )
        })
    }

    pub fn has(&self, process: BorrowedHandle) -> Result<bool, Errno> {
        let mut answer = 0;
        // SAFETY: both handles are open, and the pointer is to a local.
        done(unsafe { IsProcessInJob(process.as_raw_handle(), self.raw(), &raw mut answer) })?;
        Ok(answer != 0)
    }

    /// Number of running processes in the job. A terminated process does not count, although it may
    /// still have open handles.
    pub fn active(&self) -> Result<u32, Errno> {
        Ok(self.counts()?.active)
    }

    pub fn counts(&self) -> Result<Counts, Errno> {
        let accounting = self.accounting()?;
        Ok(Counts { active: accounting.ActiveProcesses, total: accounting.TotalProcesses })
    }

    /// Terminates all members. A process that is created at this moment may be missed; the next
    /// call finds it.
    pub fn terminate(&self, code: u32) -> Result<(), Errno> {
        trace!("signal: terminate the job with exit code {code}");
        // SAFETY: the handle is open.
        done(unsafe { TerminateJobObject(self.raw(), code) })
    }

    /// Returns the members, each with an open handle. The list contains only PIDs, so each opened
    /// process must be in the job to count.
    ///
    /// A process that may not be opened (it runs elevated) is missing. The job still counts and
    /// ends it, so use [`Job::active`] to check that no member is left.
    pub fn members(&self) -> io::Result<Vec<ProcessHandle>> {
        let mut members = Vec::new();
        for pid in self.pids()? {
            let handle = match ProcessHandle::open(pid) {
                Err(Errno::ESRCH | Errno::EPERM) => continue,
                opened => opened?,
            };
            if !handle.has_ended() && self.has(handle.as_handle())? {
                members.push(handle);
            }
        }
        Ok(members)
    }

    /// Returns the members as process references, which stay valid without a handle.
    pub fn processes(&self) -> io::Result<Vec<ProcessRef>> {
        let named = |handle: &ProcessHandle| Some(ProcessRef::known(handle.pid(), handle.start().ok()?));
        Ok(self.members()?.iter().filter_map(named).collect())
    }

    pub fn usage(&self) -> Usage {
        let Ok(accounting) = self.accounting() else { return Usage::default() };
        let ticks = accounting.TotalUserTime.saturating_add(accounting.TotalKernelTime);
        Usage {
            processes: accounting.ActiveProcesses,
            cpu_ms: ticks_to_ms(ticks.cast_unsigned()),
            rss_bytes: self.members().unwrap_or_default().iter().map(ProcessHandle::resident_bytes).sum(),
        }
    }

    fn accounting(&self) -> Result<JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, Errno> {
        let mut accounting = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        // SAFETY: the length argument is the size of the structure.
        done(unsafe {
            QueryInformationJobObject(
                self.raw(),
                JobObjectBasicAccountingInformation,
                (&raw mut accounting).cast(),
                length(&accounting),
                std::ptr::null_mut(),
            )
        })?;
        Ok(accounting)
    }

    /// The PIDs of all members, including processes that may not be opened.
    pub fn pids(&self) -> Result<Vec<i32>, Errno> {
        let mut room = MORE;
        loop {
            // Two counters, then the PIDs, each with the size and alignment of a pointer.
            let mut list = vec![0_usize; 1 + room];
            let bytes = u32::try_from(size_of_val(list.as_slice())).map_err(|_| Errno::EOVERFLOW)?;
            // SAFETY: the length argument is the size of the list.
            let result = done(unsafe {
                QueryInformationJobObject(
                    self.raw(),
                    JobObjectBasicProcessIdList,
                    list.as_mut_ptr().cast(),
                    bytes,
                    std::ptr::null_mut(),
                )
            });
            // SAFETY: reads only the error code of the previous call.
            let is_too_short = result.is_err() && unsafe { GetLastError() } == ERROR_MORE_DATA;
            // SAFETY: the list is longer than the fixed part of the structure, and has its
            // alignment.
            let head = unsafe { &*list.as_ptr().cast::<JOBOBJECT_BASIC_PROCESS_ID_LIST>() };
            let (all, listed) =
                (head.NumberOfAssignedProcesses as usize, head.NumberOfProcessIdsInList as usize);
            if is_too_short || result.is_ok() && listed < all && room < all {
                room = all.max(room) + MORE;
                continue;
            }
            result?;
            let first =
                std::mem::offset_of!(JOBOBJECT_BASIC_PROCESS_ID_LIST, ProcessIdList) / size_of::<usize>();
            let pids = list.iter().skip(first).take(listed);
            return Ok(pids.filter_map(|&pid| i32::try_from(pid).ok()).collect());
        }
    }

    fn set<T>(&self, class: JOBOBJECTINFOCLASS, information: &T) -> Result<(), Errno> {
        let pointer = std::ptr::from_ref(information).cast();
        // SAFETY: the structure belongs to the class, and the length argument is its size.
        done(unsafe { SetInformationJobObject(self.raw(), class, pointer, length(information)) })
    }

    fn raw(&self) -> HANDLE {
        self.handle.as_raw_handle()
    }
}

impl AsHandle for Job {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.handle.as_handle()
    }
}

/// The limits that the kernel enforces. All are set together, because a limit that is not set is
/// removed.
fn rules(limits: Limits, ends_with_us: bool) -> JOBOBJECT_EXTENDED_LIMIT_INFORMATION {
    let mut rules = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    let basic = &mut rules.BasicLimitInformation;
    if ends_with_us {
        basic.LimitFlags |= JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    }
    if let Some(processes) = limits.processes {
        basic.LimitFlags |= JOB_OBJECT_LIMIT_ACTIVE_PROCESS;
        basic.ActiveProcessLimit = u32::try_from(processes).unwrap_or(u32::MAX);
    }
    if let Some(bytes) = limits.memory_bytes {
        basic.LimitFlags |= JOB_OBJECT_LIMIT_JOB_MEMORY;
        rules.JobMemoryLimit = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    rules
}

fn length<T>(value: &T) -> u32 {
    u32::try_from(size_of_val(value)).unwrap_or(0)
}

fn done(result: i32) -> Result<(), Errno> {
    if result == 0 { Err(Errno::last()) } else { Ok(()) }
}

/// # Safety
/// The handle, if it is not null, must have no other owner.
unsafe fn owned(handle: HANDLE) -> Result<OwnedHandle, Errno> {
    if handle.is_null() {
        return Err(Errno::last());
    }
    // SAFETY: the caller owns the handle.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            // Waits for input, which never comes.
            Self(Command::new("cmd").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn an_assigned_process_is_counted_listed_and_terminated() {
        let job = Job::create(None, Limits::default()).unwrap();
        assert_eq!(job.active(), Ok(0));
        let (mut member, bystander) = (Sleeper::start(), Sleeper::start());
        job.assign(member.0.as_handle()).unwrap();
        assert_eq!((job.active(), job.has(bystander.0.as_handle())), (Ok(1), Ok(false)));
        let pids: Vec<_> = job.members().unwrap().iter().map(ProcessHandle::pid).collect();
        assert_eq!(pids, [member.0.id().cast_signed()]);
        job.terminate(143).unwrap();
        assert_eq!(member.0.wait().unwrap().code(), Some(143));
        assert_eq!(job.active(), Ok(0));
    }

    #[test]
    fn closing_the_last_handle_ends_the_members_unless_end_with_us_is_off() {
        let mut ends = Sleeper::start();
        let job = Job::create(None, Limits::default()).unwrap();
        job.assign(ends.0.as_handle()).unwrap();
        drop(job);
        ends.0.wait().unwrap();

        let mut stays = Sleeper::start();
        let job = Job::create(None, Limits::default()).unwrap();
        job.assign(stays.0.as_handle()).unwrap();
        job.end_with_us(false).unwrap();
        drop(job);
        assert!(stays.0.try_wait().unwrap().is_none());
    }

    #[test]
    fn limits_reach_the_kernel_and_stay_when_end_with_us_is_off() {
        let (kill, count, memory) = (
            JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
            JOB_OBJECT_LIMIT_ACTIVE_PROCESS,
            JOB_OBJECT_LIMIT_JOB_MEMORY,
        );
        for (processes, memory_bytes, ends_with_us, expected) in [
            (None, None, false, (0, 0, 0)),
            (None, None, true, (kill, 0, 0)),
            (Some(7), None, true, (kill | count, 7, 0)),
            (None, Some(1 << 33), true, (kill | memory, 0, 1 << 33)),
            (Some(7), Some(1 << 20), false, (count | memory, 7, 1 << 20)),
            (Some(u64::MAX), None, false, (count, u32::MAX, 0)),
        ] {
            let rules = rules(Limits { processes, memory_bytes }, ends_with_us);
            let basic = rules.BasicLimitInformation;
            let actual = (basic.LimitFlags, basic.ActiveProcessLimit, rules.JobMemoryLimit);
            assert_eq!(actual, expected, "{processes:?} {memory_bytes:?} {ends_with_us}");
        }
    }

    #[test]
    fn a_job_keeps_its_name_while_a_process_that_was_given_a_handle_lives() {
        let name = format!("Local\\spawn-owned-test-{}", std::process::id());
        let member = Sleeper::start();
        let job = Job::create(Some(&name), Limits::default()).unwrap();
        job.assign(member.0.as_handle()).unwrap();
        job.give_to(member.0.as_handle()).unwrap();
        job.end_with_us(false).unwrap();
        drop(job);
        let again = Job::open(&name).unwrap();
        assert_eq!((again.has(member.0.as_handle()), again.active()), (Ok(true), Ok(1)));
    }
}
