//! Sends Ctrl+Break to the members of a run that share the bot's console.

use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent, GetConsoleProcessList,
};

use crate::contain::job::Job;
use crate::identity::ProcessHandle;
use crate::run::ctrl_break::{CtrlBreak, Next};

/// A PID and a start token.
type Identity = (i32, u64);

/// Sends Ctrl+Break to the process group that `root` leads. `None` if it reached no process.
///
/// It sends only if a member of the run shares the bot's console.
///
/// The open handle of `root` reserves its PID, also after its exit. So the group id, which is the
/// same number, cannot belong to another group. The root was created as the leader of a new group,
/// so the group contains neither the bot nor any process outside the run.
pub fn send_ctrl_break(root: &ProcessHandle, job: &Job) -> Option<CtrlBreak<Identity>> {
    // Ctrl+Break does not reach a process that has its own console, or none. For a group that does
    // not exist, Windows can still report success.
    if !members(job)?.iter().any(|(_, is_at_console)| *is_at_console) {
        return None;
    }
    send(root, job)
}

/// Checks the run again during its grace period, and sends Ctrl+Break to new members.
///
/// False if Ctrl+Break cannot reach the remaining members. See [`CtrlBreak`].
pub fn signal_new_members(
    ctrl_break: &mut CtrlBreak<Identity>,
    root: &ProcessHandle,
    job: &Job,
    now: u64,
) -> bool {
    let Some(members) = members(job) else { return true };
    match ctrl_break.next(&members, now) {
        Next::Wait | Next::WaitForConsole => true,
        Next::Kill => false,
        Next::Send => match send(root, job) {
            Some(sent) => {
                *ctrl_break = sent;
                true
            }
            None => false,
        },
    }
}

fn send(root: &ProcessHandle, job: &Job) -> Option<CtrlBreak<Identity>> {
    // SAFETY: the call takes two integers.
    if unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, root.pid().cast_unsigned()) } == 0 {
        return None;
    }
    // List the members after the call, so the list contains a member that connected to the console
    // just before it.
    let members = members(job).unwrap_or_default();
    Some(CtrlBreak::sent(
        members.into_iter().filter_map(|(identity, at_console)| at_console.then_some(identity)).collect(),
    ))
}

/// The living members, and for each whether it is at the bot's console.
fn members(job: &Job) -> Option<Vec<(Identity, bool)>> {
    // List the members before the console's processes. So a member that connects between the two
    // calls is seen at the console.
    let members = job.members().ok()?;
    let at_console = at_console();
    let identified = |member: &ProcessHandle| {
        Some(((member.pid(), member.start().ok()?), at_console.contains(&member.pid().cast_unsigned())))
    };
    Some(members.iter().filter_map(identified).collect())
}

/// The PIDs of all processes at the bot's console; empty if the bot has no console.
fn at_console() -> Vec<u32> {
    let mut capacity = 64;
    loop {
        let mut list = vec![0_u32; capacity];
        // SAFETY: the length passed is the list's length.
        let count = unsafe { GetConsoleProcessList(list.as_mut_ptr(), u32::try_from(capacity).unwrap_or(0)) }
            as usize;
        // If the list is too short, Windows writes nothing and returns the necessary length.
        if count <= capacity {
            list.truncate(count);
            return list;
        }
        capacity = count + 64;
    }
}
