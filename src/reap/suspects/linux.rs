//! What a process runs, and where: `/proc`.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use super::Details;
use crate::identity::read_stat;
use crate::identity::stat::Stat;

/// A command line is read up to here. What gives a process its name is at the beginning.
const LINE_LIMIT: u64 = 4096;

/// `None` for other users' processes, for those of the kernel, and for what has ended.
///
/// All of it was read of one process, if that still has its number afterwards.
pub fn details(stat: &Stat) -> Option<Details> {
    let folder = format!("/proc/{}", stat.pid);
    if fs::metadata(&folder).ok()?.uid() != nix::unistd::geteuid().as_raw() {
        return None;
    }
    let words = words(&folder)?;
    let directory = fs::read_link(format!("{folder}/cwd")).ok();
    let is_still_it = read_stat(stat.pid).is_ok_and(|again| again.start == stat.start && !again.is_dead());
    is_still_it.then_some(Details { words, directory })
}

fn words(folder: &str) -> Option<Vec<String>> {
    let mut line = Vec::new();
    File::open(format!("{folder}/cmdline")).ok()?.take(LINE_LIMIT).read_to_end(&mut line).ok()?;
    // A title is shorter than what it was written over: the rest is NULs.
    let end = line.iter().rposition(|&byte| byte != 0)?;
    Some(
        line[..=end]
            .split(|&byte| byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
    )
}
