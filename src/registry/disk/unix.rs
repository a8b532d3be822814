//! The registry's files on Unix: mode 0600, `O_NOFOLLOW`, `flock`.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::geteuid;

use super::{Refusal, Stamp};
use crate::errno::Errno;

/// A renamed or removed file can stay open without any effect on other processes.
pub const JOURNAL_STAYS_OPEN: bool = true;

/// Non-blocking, so that opening a FIFO in the file's place does not block.
const FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;

pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(FLAGS);
    options
}

pub fn folder_builder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o755);
    builder
}

pub fn refusal(path: &Path, error: io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::ELOOP) if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) => {
            Refusal::Symlink
        }
        // A FIFO without a reader, a folder, or a socket.
        Some(libc::ENXIO | libc::EISDIR) => Refusal::NotAFile,
        _ => Refusal::Failed(error),
    }
}

pub fn foreign_owner(_: &File, meta: &Metadata) -> Option<String> {
    (meta.uid() != geteuid().as_raw()).then(|| format!("uid {}", meta.uid()))
}

pub fn has_other_names(file: &File) -> io::Result<bool> {
    file.metadata().map(|meta| meta.nlink() > 1)
}

pub fn stamp_of(file: &File) -> io::Result<Stamp> {
    file.metadata().map(|meta| stamp_from(&meta))
}

pub fn stamp_at(path: &Path) -> io::Result<Stamp> {
    std::fs::symlink_metadata(path).map(|meta| stamp_from(&meta))
}

fn stamp_from(meta: &Metadata) -> Stamp {
    Stamp {
        device: meta.dev(),
        inode: meta.ino(),
        size: meta.size(),
        changed: (meta.ctime(), meta.ctime_nsec()),
    }
}

/// On Unix no other process can prevent this user from renaming, removing or opening its files.
pub fn is_temporary(_: &io::Error) -> bool {
    false
}

/// Appends are atomic, so no turns are needed.
pub fn take_turn(_: &File) {}

pub fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Reads `/proc/locks`, where the kernel lists all locks of the host, with PIDs of this PID
/// namespace.
///
/// Called only after a lock was held for long.
#[cfg(target_os = "linux")]
pub fn lock_holder(path: &Path) -> Option<i32> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    let (major, minor) = (libc::major(meta.dev()), libc::minor(meta.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    holder_in(&std::fs::read_to_string("/proc/locks").ok()?, &place)
}

/// macOS does not provide the holder.
#[cfg(target_os = "macos")]
pub fn lock_holder(_: &Path) -> Option<i32> {
    None
}

/// Finds the PID in lines like `3: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF`. A line with `->`
/// is a waiting process.
#[cfg(target_os = "linux")]
fn holder_in(locks: &str, place: &str) -> Option<i32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        if words.next()? != "FLOCK" {
            return None;
        }
        let (pid, held) = (words.nth(2)?, words.next()?);
        // A holder in another PID namespace is 0 or negative.
        pid.parse().ok().filter(|&pid: &i32| held == place && pid > 0)
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::holder_in;

    #[test]
    fn lock_holder_finds_the_pid_by_device_and_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 10 fd:01:5678 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 11 fd:01:56789 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 12 fd:01:5678 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 13 fd:01:5678 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 fd:02:9 0 EOF\nnonsense\n\n";
        assert_eq!(holder_in(locks, "fd:01:5678"), Some(12));
        assert_eq!(holder_in(locks, "fd:02:9"), None, "the holder is in another PID namespace");
        assert_eq!(holder_in(locks, "fd:01:1"), None);
    }
}

/// The lock belongs to the open file description and not to the process, so two open files of one
/// process exclude each other.
#[allow(clippy::cast_possible_truncation)] // Small constants, of another type in the structure.
pub fn lock_byte(file: &File, at: i64) -> io::Result<bool> {
    // SAFETY: all zeroes is a valid `flock`; its fields differ between C libraries.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::F_WRLCK as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    (range.l_start, range.l_len) = (at, 1);
    // SAFETY: `F_OFD_SETLK` reads one `flock`, which lives until the call returns.
    match Errno::result(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) }) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// While the file is open the kernel does not free its pages, which takes time for a large file.
pub fn keep_open(path: &Path) -> Option<File> {
    /// Opens the path without access to the content, whatever kind of file it is.
    #[cfg(target_os = "linux")]
    const NO_CONTENT: i32 = libc::O_PATH;
    #[cfg(target_os = "macos")]
    const NO_CONTENT: i32 = libc::O_EVTONLY;
    OpenOptions::new().read(true).custom_flags(FLAGS | NO_CONTENT).open(path).ok()
}

pub fn errno_of(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

pub fn plain(path: PathBuf) -> PathBuf {
    path
}
