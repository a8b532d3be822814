//! What a process runs, and where: `sysctl` and `libproc`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::libc;

use super::Details;
use crate::identity::macos::arguments;
use crate::identity::read_stat;
use crate::identity::stat::Stat;

/// `None` for other users' processes, and for what has ended.
///
/// All of it was read of one process, if that still has its number afterwards.
pub fn details(stat: &Stat) -> Option<Details> {
    if user(stat.pid)? != nix::unistd::geteuid().as_raw() {
        return None;
    }
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let words = arguments(stat.pid, |all| all.words().map(text).collect::<Vec<_>>())?;
    let directory = directory(stat.pid);
    let is_still_it = read_stat(stat.pid).is_ok_and(|again| again.start == stat.start && !again.is_dead());
    is_still_it.then_some(Details { words, directory })
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

/// `T` must be the structure that goes with the flavor: plain numbers and texts, for which all zeroes is a value.
fn info<T>(pid: i32, flavor: i32) -> Option<T> {
    // SAFETY: as the caller has promised; the kernel fills it in up to the length given.
    unsafe {
        let mut info: T = std::mem::zeroed();
        let size = i32::try_from(size_of::<T>()).ok()?;
        (libc::proc_pidinfo(pid, flavor, 0, (&raw mut info).cast(), size) == size).then_some(info)
    }
}
