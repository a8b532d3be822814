//! The registry's files on Windows.
//!
//! - **Access**: files have no modes. A new file gets the access list of its folder. In a user's
//!   own folders that allows the user, the administrators and the system.
//! - **Sharing**: std opens files so that other processes may read, write, rename and remove them.
//!   Other programs do not: a virus scanner, an indexer or an editor may hold a file for a moment
//!   so that it can be neither opened nor renamed. And on a file system without POSIX deletion
//!   (NTFS has it since Windows 10 1809), the name of a removed file stays taken until the last
//!   process closes the file. Both end soon, so the operation is retried, see [`is_temporary`].
//! - **Locks** are mandatory: reading or writing a byte that another process has locked fails. So
//!   the locked bytes lie beyond the end of every file, see [`try_lock`].

#![allow(clippy::cast_possible_truncation)] // Sizes of small structures, and halves of 64-bit values.

mod lock;
mod owner;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};

use windows_sys::Win32::Foundation::{ERROR_ACCESS_DENIED, ERROR_LOCK_VIOLATION, ERROR_SHARING_VIOLATION};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_BASIC_INFO, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT,
    FILE_READ_ATTRIBUTES, FileBasicInfo, GetFileInformationByHandle, GetFileInformationByHandleEx,
};

pub use self::lock::{lock_byte, take_turn, try_lock};
pub use self::owner::foreign_owner;
use super::{Refusal, Stamp};
use crate::errno::Errno;

/// An idle bot must not keep `.old` open, because other processes remove it.
///
/// On a file system without POSIX deletion the name would stay taken, and no process could make a
/// checkpoint any more.
pub const JOURNAL_STAYS_OPEN: bool = false;

/// Opens a link itself and not its target, so that [`super::open`] can see that it is a link.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
    options
}

pub fn folder_builder() -> DirBuilder {
    DirBuilder::new()
}

/// Why the path could not be opened.
///
/// A folder, or a link to one, cannot be opened as a file: Windows reports only "access denied".
pub fn refusal(path: &Path, error: io::Error) -> Refusal {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => Refusal::Symlink,
        Ok(meta) if meta.is_dir() => Refusal::NotAFile,
        _ => Refusal::Failed(error),
    }
}

pub fn has_other_names(file: &File) -> io::Result<bool> {
    let mut info = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open, and the structure has its declared size.
    let is_seen = unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut info) != 0 };
    if is_seen { Ok(info.nNumberOfLinks > 1) } else { Err(io::Error::last_os_error()) }
}

/// The stamp of an open file: the volume and the file's number on it.
///
/// NTFS does not give that number to another file later. ReFS has longer numbers, of which this is
/// the lower half. The time of change is used because, unlike the time of the last write, copying a
/// file cannot set it back.
pub fn stamp_of(file: &File) -> io::Result<Stamp> {
    let mut info = BY_HANDLE_FILE_INFORMATION::default();
    let mut basic = FILE_BASIC_INFO::default();
    // SAFETY: the handle is open, and both structures have the given sizes.
    let is_seen = unsafe {
        GetFileInformationByHandle(file.as_raw_handle(), &raw mut info) != 0
            && GetFileInformationByHandleEx(
                file.as_raw_handle(),
                FileBasicInfo,
                (&raw mut basic).cast(),
                size_of_val(&basic) as u32,
            ) != 0
    };
    if !is_seen {
        return Err(io::Error::last_os_error());
    }
    Ok(Stamp {
        device: info.dwVolumeSerialNumber.into(),
        inode: join_u32(info.nFileIndexHigh, info.nFileIndexLow),
        size: join_u32(info.nFileSizeHigh, info.nFileSizeLow),
        changed: (basic.ChangeTime, basic.LastWriteTime),
    })
}

fn join_u32(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

/// The stamp of the file at `path`.
///
/// Opens the file only for its attributes. That succeeds whatever other processes do with the file,
/// unless it was removed.
pub fn stamp_at(path: &Path) -> io::Result<Stamp> {
    let flags = FILE_FLAG_OPEN_REPARSE_POINT | FILE_FLAG_BACKUP_SEMANTICS;
    stamp_of(&OpenOptions::new().access_mode(FILE_READ_ATTRIBUTES).custom_flags(flags).open(path)?)
}

/// Whether another process has the file open without sharing it, or has a removed file open.
///
/// Windows reports the second case as "access denied", like a permanent refusal. That is why
/// retries have a limit.
pub fn is_temporary(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(i32::cast_unsigned);
    matches!(code, Some(ERROR_SHARING_VIOLATION | ERROR_LOCK_VIOLATION | ERROR_ACCESS_DENIED))
}

/// Windows provides the holder only by a search through all processes.
pub fn lock_holder(_: &Path) -> Option<i32> {
    None
}

/// Returns nothing: an open file cannot always be replaced on Windows, and keeping it open gains
/// nothing.
pub fn keep_open(_: &Path) -> Option<File> {
    None
}

pub fn errno_of(error: &io::Error) -> Errno {
    Errno::of(error)
}

/// The path without the `\\?\` prefix that `canonicalize` adds, if the path means the same without
/// it. std adds the prefix to long paths by itself.
pub fn plain(path: PathBuf) -> PathBuf {
    let shorter = path.to_str().and_then(|text| {
        let rest = text.strip_prefix(r"\\?\")?;
        Some(rest.strip_prefix(r"UNC\").map_or_else(|| rest.into(), |share| format!(r"\\{share}")))
    });
    // Some names are possible only with the prefix ("nul", "ends with a dot."), and mean other
    // files without it.
    match shorter.map(PathBuf::from) {
        Some(shorter) if std::path::absolute(&shorter).is_ok_and(|same| same == shorter) => shorter,
        _ => path,
    }
}
