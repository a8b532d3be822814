//! The command line and the working directory of a process, from `sysctl` and `libproc`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::libc;

use super::Details;
use crate::identity::macos::arguments;
use crate::identity::read_stat;
use crate::identity::stat::Stat;

/// `None` for a process of another user, and an ended process.
///
/// If the process still has its PID after the reads, all values are from this process.
pub fn details(stat: &Stat) -> Option<Details> {
    if user(stat.pid)? != nix::unistd::geteuid().as_raw() {
        return None;
    }
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let words = arguments(stat.pid, |all| all.words().map(text).collect::<Vec<_>>())?;
    let directory = directory(stat.pid);
    let is_same_process =
        read_stat(stat.pid).is_ok_and(|again| again.start == stat.start && !again.is_dead());
    is_same_process.then_some(Details { words, directory })
}

fn user(pid: i32) -> Option<u32> {
    info::<libc::proc_bsdinfo>(pid, libc::PROC_PIDTBSDINFO).map(|info| info.pbi_uid)
}

fn directory(pid: i32) -> Option<PathBuf> {
    let info = info::<libc::proc_vnodepathinfo>(pid, libc::PROC_PIDVNODEPATHINFO)?;
    let path: Vec<u8> =
        info.pvi_cdir.vip_path.as_flattened().iter().map(|&byte| byte.cast_unsigned()).collect();
    let path = path.split(|&byte| byte == 0).next().filter(|path| !path.is_empty())?;
    Some(OsStr::from_bytes(path).into())
}

/// Calls `proc_pidinfo`. `T` must be the structure of the flavor: plain data, for which all zeroes
/// is a valid value.
fn info<T>(pid: i32, flavor: i32) -> Option<T> {
    // SAFETY: the caller guarantees `T`. The kernel fills at most `size` bytes.
    unsafe {
        let mut info: T = std::mem::zeroed();
        let size = i32::try_from(size_of::<T>()).ok()?;
        (libc::proc_pidinfo(pid, flavor, 0, (&raw mut info).cast(), size) == size).then_some(info)
    }
}
