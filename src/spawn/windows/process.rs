//! Calls `CreateProcessW` so that the process is in its job, and has only the handles it has to
//! inherit, from its first instruction on.

use std::ffi::c_void;
use std::os::windows::io::{AsHandle, AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};

use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::System::Console::HPCON;
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW, CREATE_SUSPENDED, CREATE_UNICODE_ENVIRONMENT, CreateProcessW,
    DeleteProcThreadAttributeList, EXTENDED_STARTUPINFO_PRESENT, InitializeProcThreadAttributeList,
    LPPROC_THREAD_ATTRIBUTE_LIST, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, PROC_THREAD_ATTRIBUTE_JOB_LIST,
    PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, PROCESS_INFORMATION, ResumeThread, STARTF_USESHOWWINDOW,
    STARTF_USESTDHANDLES, STARTUPINFOEXW, UpdateProcThreadAttribute,
};
use windows_sys::Win32::UI::WindowsAndMessaging::{SW_HIDE, SW_SHOWDEFAULT};

use super::handles::{self, Slot};
use crate::contain::job::Job;
use crate::errno::Errno;
use crate::identity::ProcessHandle;

/// What to create. Texts are UTF-16 and end with a NUL.
pub struct Spec<'a> {
    pub file: &'a [u16],
    pub command_line: &'a mut [u16],
    pub environment: &'a [u16],
    pub directory: Option<&'a [u16]>,
    pub job: &'a Job,
    /// The handles are inheritable, and the first three are open. Ignored if there is a console.
    pub slots: &'a [Slot],
    pub console: Option<HPCON>,
    /// Start the process without a window.
    pub hide: bool,
}

/// A suspended process. Dropping it does not end it; its job does.
pub struct Suspended {
    pub process: OwnedHandle,
    pub pid: i32,
    thread: OwnedHandle,
}

impl Suspended {
    pub fn process_handle(&self) -> Result<ProcessHandle, Errno> {
        let process = self.process.try_clone().map_err(|error| Errno::of(&error))?;
        Ok(ProcessHandle::created(self.pid, process))
    }

    /// Starts the execution.
    pub fn resume(&self) -> Result<(), Errno> {
        // SAFETY: the handle is open.
        if unsafe { ResumeThread(self.thread.as_raw_handle()) } == u32::MAX {
            Err(Errno::last())
        } else {
            Ok(())
        }
    }
}

/// Creates a suspended process.
pub fn create(spec: Spec) -> Result<Suspended, Errno> {
    let jobs = [spec.job.as_handle().as_raw_handle()];
    let mut inherited: Vec<RawHandle> = Vec::new();
    for slot in spec.slots.iter().filter(|slot| **slot != Slot::Closed) {
        let handle = std::ptr::without_provenance_mut(slot.handle());
        // The call fails if the list contains a handle twice.
        if !inherited.contains(&handle) {
            inherited.push(handle);
        }
    }
    let mut attributes = Attributes::new(3)?;
    attributes.set(PROC_THREAD_ATTRIBUTE_JOB_LIST, jobs.as_ptr().cast(), size_of_val(&jobs))?;
    if let Some(console) = spec.console {
        // The console is passed by value, not by pointer.
        attributes.set(
            PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE,
            std::ptr::without_provenance(console.cast_unsigned()),
            size_of::<HPCON>(),
        )?;
    } else {
        let size = size_of_val(inherited.as_slice());
        attributes.set(PROC_THREAD_ATTRIBUTE_HANDLE_LIST, inherited.as_ptr().cast(), size)?;
    }
    let mut block = handles::block(spec.slots).ok_or(Errno::ENOTSUP)?;
    let mut startup = STARTUPINFOEXW::default();
    let info = &mut startup.StartupInfo;
    info.cb = u32::try_from(size_of::<STARTUPINFOEXW>()).unwrap_or(0);
    // With a console the standard handles are null; without this flag the command would get the
    // bot's.
    info.dwFlags = STARTF_USESTDHANDLES | STARTF_USESHOWWINDOW;
    info.wShowWindow = u16::try_from(if spec.hide { SW_HIDE } else { SW_SHOWDEFAULT }).unwrap_or(0);
    if spec.console.is_none() {
        let standard = |index: usize| -> HANDLE {
            spec.slots
                .get(index)
                .map_or(std::ptr::null_mut(), |slot| std::ptr::without_provenance_mut(slot.handle()))
        };
        (info.hStdInput, info.hStdOutput, info.hStdError) = (standard(0), standard(1), standard(2));
        info.cbReserved2 = u16::try_from(block.len()).map_err(|_| Errno::ENOTSUP)?;
        info.lpReserved2 = block.as_mut_ptr();
    }
    startup.lpAttributeList = attributes.pointer();
    let mut flags = CREATE_UNICODE_ENVIRONMENT
        | EXTENDED_STARTUPINFO_PRESENT
        | CREATE_SUSPENDED
        | CREATE_NEW_PROCESS_GROUP;
    if spec.hide && spec.console.is_none() {
        flags |= CREATE_NO_WINDOW;
    }
    let mut created = PROCESS_INFORMATION::default();
    // SAFETY: all texts end with a NUL, the command line is writable, and everything pointed to
    // lives until the call returns.
    let done = unsafe {
        CreateProcessW(
            spec.file.as_ptr(),
            spec.command_line.as_mut_ptr(),
            std::ptr::null(),
            std::ptr::null(),
            i32::from(spec.console.is_none()),
            flags,
            spec.environment.as_ptr().cast(),
            spec.directory.map_or(std::ptr::null(), <[u16]>::as_ptr),
            (&raw const startup).cast(),
            &raw mut created,
        )
    };
    if done == 0 {
        return Err(Errno::last());
    }
    // SAFETY: both handles were just created, and only this function has them.
    let (process, thread) = unsafe {
        (OwnedHandle::from_raw_handle(created.hProcess), OwnedHandle::from_raw_handle(created.hThread))
    };
    Ok(Suspended { process, pid: created.dwProcessId.cast_signed(), thread })
}

/// A list of attributes. The values they point to must live as long as the list.
struct Attributes {
    /// Opaque memory of the system.
    list: Vec<usize>,
}

impl Attributes {
    fn new(count: u32) -> Result<Self, Errno> {
        let mut bytes = 0;
        // SAFETY: without a list the call only returns the size.
        unsafe { InitializeProcThreadAttributeList(std::ptr::null_mut(), count, 0, &raw mut bytes) };
        let mut list = vec![0_usize; bytes.div_ceil(size_of::<usize>())];
        // SAFETY: the list has the size that the call returned.
        let done =
            unsafe { InitializeProcThreadAttributeList(list.as_mut_ptr().cast(), count, 0, &raw mut bytes) };
        if done == 0 {
            return Err(Errno::last());
        }
        Ok(Self { list })
    }

    fn set(&mut self, attribute: u32, value: *const c_void, size: usize) -> Result<(), Errno> {
        // SAFETY: the list was initialized with room for it; the caller keeps the value alive.
        let done = unsafe {
            UpdateProcThreadAttribute(
                self.pointer(),
                0,
                attribute as usize,
                value,
                size,
                std::ptr::null_mut(),
                std::ptr::null(),
            )
        };
        if done == 0 { Err(Errno::last()) } else { Ok(()) }
    }

    fn pointer(&mut self) -> LPPROC_THREAD_ATTRIBUTE_LIST {
        self.list.as_mut_ptr().cast()
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: `new` initialized the list.
        unsafe { DeleteProcThreadAttributeList(self.pointer()) };
    }
}
