//! A Job Object: the kernel's own list of a run's processes, which none of them can leave.
//!
//! The root is in it from its first instruction, whatever a member starts is in it, and no member may break away: the job does not
//! allow it. A bot may itself be in a job (an editor's, a CI runner's): jobs nest, and a run's is inside the bot's.

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
use crate::identity::{Pin, ProcessRef, ticks_to_ms};

/// What we need of a job that another bot has made.
const ACCESS: u32 = {
    use windows_sys::Win32::System::SystemServices::{
        JOB_OBJECT_ASSIGN_PROCESS, JOB_OBJECT_QUERY, JOB_OBJECT_SET_ATTRIBUTES, JOB_OBJECT_TERMINATE,
    };
    JOB_OBJECT_ASSIGN_PROCESS | JOB_OBJECT_QUERY | JOB_OBJECT_SET_ATTRIBUTES | JOB_OBJECT_TERMINATE
};

/// A list that is too short says so, and how long it should be; processes come and go meanwhile.
const MORE: usize = 64;

#[derive(Debug)]
pub struct Job {
    handle: OwnedHandle,
    limits: Limits,
}

impl Job {
    /// A new one, with nobody in it. It ends everybody in it when its last handle is closed, however that comes about.
    ///
    /// A name is for those that are to be found again by another bot. One that somebody has already is refused (`EEXIST`): two runs in
    /// one job would end together.
    pub fn create(name: Option<&str>, limits: Limits) -> Result<Self, Errno> {
        let name = name.map(wide);
        let name = name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        // SAFETY: no attributes: the handle is not inherited. The name ends with a NUL. The error is that of this very call.
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

    /// One of that name, whosever it is.
    pub fn open(name: &str) -> Result<Self, Errno> {
        // SAFETY: the name ends with a NUL.
        let handle = unsafe { owned(OpenJobObjectW(ACCESS, 0, wide(name).as_ptr())) }?;
        Ok(Self { handle, limits: Limits::default() })
    }

    /// Whether its members are ended when nobody has it open any more.
    pub fn end_with_us(&self, with_us: bool) -> Result<(), Errno> {
        self.set(JobObjectExtendedLimitInformation, &rules(self.limits, with_us))
    }

    /// Has its port told who comes and who goes, under this key. Messages may get lost: they are a reason to look, and no more.
    pub fn tell(&self, port: BorrowedHandle, key: usize) -> Result<(), Errno> {
        // It tells one port only, and may have told another bot's; where that cannot be undone, this fails, and so does the next.
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

    /// Puts a process into it that runs already. What it has started before stays where it is.
    pub fn assign(&self, process: BorrowedHandle) -> Result<(), Errno> {
        // SAFETY: both handles are open.
        done(unsafe { AssignProcessToJobObject(self.raw(), process.as_raw_handle()) })
    }

    /// Gives the process a handle of its own: the job, and its name, live as long as it does.
    pub fn give_to(&self, process: BorrowedHandle) -> Result<(), Errno> {
        let mut theirs: HANDLE = std::ptr::null_mut();
        // SAFETY: all handles are open. The new one is the other process's, and not inherited.
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

    /// How many processes in it have not ended. None is what extinction means here.
    pub fn active(&self) -> Result<u32, Errno> {
        Ok(self.accounting()?.ActiveProcesses)
    }

    /// Ends everybody in it. One that is being created at this moment may slip through, and is found by the next look.
    pub fn terminate(&self, code: u32) -> Result<(), Errno> {
        // SAFETY: the handle is open.
        done(unsafe { TerminateJobObject(self.raw(), code) })
    }

    /// Who is in it, each held: the list names numbers, and whoever has one by now must be in the job to be meant.
    ///
    /// One that we must not look at (it runs elevated) is not among them. The job counts it, and ends it, all the same: that nobody is left
    /// is for [`Job::active`] to tell.
    pub fn members(&self) -> io::Result<Vec<Pin>> {
        let mut members = Vec::new();
        for pid in self.pids()? {
            let pin = match Pin::open(pid) {
                Err(Errno::ESRCH | Errno::EPERM) => continue,
                opened => opened?,
            };
            if !pin.has_ended() && self.has(pin.as_handle())? {
                members.push(pin);
            }
        }
        Ok(members)
    }

    /// The same, named for ever.
    pub fn processes(&self) -> io::Result<Vec<ProcessRef>> {
        let named = |pin: &Pin| Some(ProcessRef::known(pin.pid(), pin.start().ok()?));
        Ok(self.members()?.iter().filter_map(named).collect())
    }

    pub fn usage(&self) -> Usage {
        let Ok(accounting) = self.accounting() else { return Usage::default() };
        let ticks = accounting.TotalUserTime.saturating_add(accounting.TotalKernelTime);
        Usage {
            processes: accounting.ActiveProcesses,
            cpu_ms: ticks_to_ms(ticks.cast_unsigned()),
            rss_bytes: self.members().unwrap_or_default().iter().map(Pin::resident_bytes).sum(),
        }
    }

    fn accounting(&self) -> Result<JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, Errno> {
        let mut accounting = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        // SAFETY: the structure is as long as it says.
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

    /// The numbers of all who are in it now, also of those who must not be looked at.
    pub fn pids(&self) -> Result<Vec<i32>, Errno> {
        let mut room = MORE;
        loop {
            // Two counters, and then as many numbers of the size of a pointer; aligned like them.
            let mut list = vec![0_usize; 1 + room];
            let bytes = u32::try_from(size_of_val(list.as_slice())).map_err(|_| Errno::EOVERFLOW)?;
            // SAFETY: the list is as long as it says.
            let result = done(unsafe {
                QueryInformationJobObject(
                    self.raw(),
                    JobObjectBasicProcessIdList,
                    list.as_mut_ptr().cast(),
                    bytes,
                    std::ptr::null_mut(),
                )
            });
            // SAFETY: read only to learn why the call before has failed.
            let more = result.is_err() && unsafe { GetLastError() } == ERROR_MORE_DATA;
            // SAFETY: the list is longer than the structure's head, and aligned like it.
            let head = unsafe { &*list.as_ptr().cast::<JOBOBJECT_BASIC_PROCESS_ID_LIST>() };
            let (all, listed) =
                (head.NumberOfAssignedProcesses as usize, head.NumberOfProcessIdsInList as usize);
            if more || result.is_ok() && listed < all && room < all {
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
        // SAFETY: the structure is the one that belongs to the class, and as long as it says.
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

/// What the kernel does about its members by itself. They are set together, each time: what is not named is not limited any more.
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
/// The handle, if there is one, must be ours alone.
unsafe fn owned(handle: HANDLE) -> Result<OwnedHandle, Errno> {
    if handle.is_null() {
        return Err(Errno::last());
    }
    // SAFETY: the caller has just got it.
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
            // It waits for input that never comes.
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
    fn whoever_is_put_in_is_counted_listed_and_ended() {
        let job = Job::create(None, Limits::default()).unwrap();
        assert_eq!(job.active(), Ok(0));
        let (mut member, bystander) = (Sleeper::start(), Sleeper::start());
        job.assign(member.0.as_handle()).unwrap();
        assert_eq!((job.active(), job.has(bystander.0.as_handle())), (Ok(1), Ok(false)));
        let pids: Vec<_> = job.members().unwrap().iter().map(Pin::pid).collect();
        assert_eq!(pids, [member.0.id().cast_signed()]);
        job.terminate(143).unwrap();
        assert_eq!(member.0.wait().unwrap().code(), Some(143));
        assert_eq!(job.active(), Ok(0));
    }

    #[test]
    fn a_job_that_nobody_holds_takes_its_members_with_it_unless_told_otherwise() {
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
    fn limits_are_told_to_the_kernel_and_stay_when_the_run_is_to_outlive_us() {
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
            let told = (basic.LimitFlags, basic.ActiveProcessLimit, rules.JobMemoryLimit);
            assert_eq!(told, expected, "{processes:?} {memory_bytes:?} {ends_with_us}");
        }
    }

    #[test]
    fn a_name_lives_as_long_as_whoever_was_given_a_handle() {
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
