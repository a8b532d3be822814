//! A job for a process that somebody else has started.

use std::os::windows::io::{AsHandle, FromRawHandle, OwnedHandle};

use windows_sys::Win32::System::Threading::{
    OpenProcess, PROCESS_DUP_HANDLE, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SET_QUOTA, PROCESS_TERMINATE,
};

use super::launch::job_name;
use crate::contain::{Limits, job::Job};
use crate::errno::Errno;
use crate::identity::Pin;

/// Puts it into a job, and gives it a handle of that: the job's name, by which it is found again, lives as long as the process. `None` if
/// it must not be put anywhere: another user's, perhaps.
pub fn job_for_registered(pin: &Pin) -> Option<String> {
    let name = job_name();
    put_in(pin, &name).ok().map(|()| name)
}

fn put_in(pin: &Pin, name: &str) -> Result<(), Errno> {
    let access =
        PROCESS_SET_QUOTA | PROCESS_TERMINATE | PROCESS_DUP_HANDLE | PROCESS_QUERY_LIMITED_INFORMATION;
    // SAFETY: integers in, a handle out, which is ours alone. The number is this process's for as long as it is held.
    let process = unsafe {
        let handle = OpenProcess(access, 0, pin.pid().cast_unsigned());
        if handle.is_null() {
            return Err(Errno::last());
        }
        OwnedHandle::from_raw_handle(handle)
    };
    let job = Job::create(Some(name), Limits::default())?;
    // It is nobody's to end when we go, neither now nor later.
    job.end_with_us(false)?;
    job.assign(process.as_handle())?;
    job.give_to(process.as_handle())
}
