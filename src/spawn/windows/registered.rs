//! A job for a registered process, which another program has started.

use std::os::windows::io::{AsHandle, FromRawHandle, OwnedHandle};

use windows_sys::Win32::System::Threading::{
    OpenProcess, PROCESS_DUP_HANDLE, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SET_QUOTA, PROCESS_TERMINATE,
};

use super::launch::job_name;
use crate::contain::{Limits, job::Job};
use crate::errno::Errno;
use crate::identity::ProcessHandle;

/// Puts the process into a new job, and gives it a handle of the job. So the job's name, by which
/// it is found again, exists as long as the process. `None` if the process cannot be put into a
/// job, for example if it belongs to another user.
pub fn job_for_registered(handle: &ProcessHandle) -> Option<String> {
    let name = job_name();
    put_in_job(handle, &name).ok().map(|()| name)
}

fn put_in_job(handle: &ProcessHandle, name: &str) -> Result<(), Errno> {
    let access =
        PROCESS_SET_QUOTA | PROCESS_TERMINATE | PROCESS_DUP_HANDLE | PROCESS_QUERY_LIMITED_INFORMATION;
    // SAFETY: takes integers, and returns a handle that only this function has. The PID cannot be
    // reused while `handle` is open.
    let process = unsafe {
        let opened = OpenProcess(access, 0, handle.pid().cast_unsigned());
        if opened.is_null() {
            return Err(Errno::last());
        }
        OwnedHandle::from_raw_handle(opened)
    };
    let job = Job::create(Some(name), Limits::default())?;
    // The kernel must not end the process when this handle of the job closes.
    job.end_with_us(false)?;
    job.assign(process.as_handle())?;
    job.give_to(process.as_handle())
}
