//! The command line and the working directory of a process, from `/proc`.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use super::Details;
use crate::identity::read_stat;
use crate::identity::stat::Stat;

/// Bytes read of a command line. The names are at its start.
const LINE_LIMIT: u64 = 4096;

/// `None` for a process of another user, a kernel thread, and an ended process.
///
/// If the process still has its PID after the reads, all values are from this process.
pub fn details(stat: &Stat) -> Option<Details> {
    let folder = format!("/proc/{}", stat.pid);
    if fs::metadata(&folder).ok()?.uid() != nix::unistd::geteuid().as_raw() {
        return None;
    }
    let words = words(&folder)?;
    let directory = fs::read_link(format!("{folder}/cwd")).ok();
    let is_same_process =
        read_stat(stat.pid).is_ok_and(|again| again.start == stat.start && !again.is_dead());
    is_same_process.then_some(Details { words, directory })
}

fn words(folder: &str) -> Option<Vec<String>> {
    let mut line = Vec::new();
    File::open(format!("{folder}/cmdline")).ok()?.take(LINE_LIMIT).read_to_end(&mut line).ok()?;
    // A process title is shorter than the command line that it replaced; the rest is NULs.
    let end = line.iter().rposition(|&byte| byte != 0)?;
    Some(
        line[..=end]
            .split(|&byte| byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
    )
}
