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

/// What was renamed or removed is no trouble to anybody who has it open.
pub const JOURNAL_STAYS_OPEN: bool = true;

/// Non-blocking, so that a FIFO in the file's place does not hold us up before we can see what it is.
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
        // A FIFO that nobody reads, a folder, a socket.
        Some(libc::ENXIO | libc::EISDIR) => Refusal::NotAFile,
        _ => Refusal::Failed(error),
    }
}

pub fn stranger(_: &File, meta: &Metadata) -> Option<String> {
    (meta.uid() != geteuid().as_raw()).then(|| format!("uid {}", meta.uid()))
}

pub fn has_other_names(file: &File) -> io::Result<bool> {
    file.metadata().map(|meta| meta.nlink() > 1)
}

pub fn look(file: &File) -> io::Result<Stamp> {
    file.metadata().map(|meta| stamp_of(&meta))
}

pub fn look_at(path: &Path) -> io::Result<Stamp> {
    std::fs::symlink_metadata(path).map(|meta| stamp_of(&meta))
}

fn stamp_of(meta: &Metadata) -> Stamp {
    Stamp {
        device: meta.dev(),
        inode: meta.ino(),
        size: meta.size(),
        changed: (meta.ctime(), meta.ctime_nsec()),
    }
}

/// Nobody can keep us from renaming, removing or opening what is ours.
pub fn is_momentary(_: &io::Error) -> bool {
    false
}

/// The kernel has writers take turns.
pub fn take_turn(_: &File) {}

pub fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Of an open file description, not of a process: two files of one process exclude each other.
#[allow(clippy::cast_possible_truncation)] // Small constants, of another type in the structure.
pub fn lock_byte(file: &File, at: i64) -> io::Result<bool> {
    // SAFETY: all zeroes is a valid flock; its type differs between C libraries.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::F_WRLCK as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    (range.l_start, range.l_len) = (at, 1);
    // SAFETY: F_OFD_SETLK reads one flock, which lives here.
    match Errno::result(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) }) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// As long as it is open the kernel does not free its pages, which takes a while if they are many.
pub fn hold(path: &Path) -> Option<File> {
    /// Whatever it is, it is not looked into.
    #[cfg(target_os = "linux")]
    const UNSEEN: i32 = libc::O_PATH;
    #[cfg(target_os = "macos")]
    const UNSEEN: i32 = libc::O_EVTONLY;
    OpenOptions::new().read(true).custom_flags(FLAGS | UNSEEN).open(path).ok()
}

pub fn errno_of(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

pub fn plain(path: PathBuf) -> PathBuf {
    path
}
