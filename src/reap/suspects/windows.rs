//! The command line of a process. Windows does not report the working directory of another process,
//! so only descent makes a process a suspect.

use super::{Details, names};
use crate::identity::ProcessHandle;
use crate::identity::stat::Stat;

/// `None` for an ended process, and for one that we have no permission to open.
pub fn details(stat: &Stat) -> Option<Details> {
    let handle = ProcessHandle::open(stat.pid).ok()?;
    if handle.start() != Ok(stat.start) || handle.has_ended() {
        return None;
    }
    let words = handle.command_line().map(|line| names::split(&line)).filter(|words| !words.is_empty());
    // If the command line is unreadable, use the name of the program.
    let words = words.unwrap_or_else(|| vec![stat.comm.clone()]);
    Some(Details { words, directory: None })
}
