//! Asking a process group to end, as far as it can be asked at all.

use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent, GetConsoleProcessList,
};

use crate::contain::job::Job;
use crate::identity::Pin;

/// Sends Ctrl+Break to the group that `root` leads, if somebody of its run shares our console. Returns whether anybody was asked.
///
/// `root` is held, so its number, which is the group's, is nobody else's, also if it has ended. It was made the leader of a group of
/// its own: neither we nor anybody outside of the run is in that.
pub fn ask_to_end(root: &Pin, job: &Job) -> bool {
    // Who has a console of its own, or none, cannot be reached; and to a group that is not there, the system may well say yes.
    if !job.members().is_ok_and(|members| shares_console(members.iter().map(Pin::pid))) {
        return false;
    }
    // SAFETY: two integers.
    unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, root.pid().cast_unsigned()) != 0 }
}

/// Whether any of these has the console that we have.
fn shares_console(mut pids: impl Iterator<Item = i32>) -> bool {
    let mut room = 64;
    loop {
        let mut list = vec![0_u32; room];
        // SAFETY: the list is as long as it says.
        let count =
            unsafe { GetConsoleProcessList(list.as_mut_ptr(), u32::try_from(room).unwrap_or(0)) } as usize;
        // Nothing is written if there is not enough room; 0 if there is no console.
        if count <= room {
            list.truncate(count);
            return pids.any(|pid| list.contains(&pid.cast_unsigned()));
        }
        room = count + 64;
    }
}
