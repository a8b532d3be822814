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

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_LOCK_VIOLATION, ERROR_SHARING_VIOLATION, HANDLE, LocalFree,
};
use windows_sys::Win32::Security::Authorization::ConvertSidToStringSidW;
use windows_sys::Win32::Security::{
    CopySid, EqualSid, GetKernelObjectSecurity, GetSecurityDescriptorOwner, GetTokenInformation,
    IsWellKnownSid, OWNER_SECURITY_INFORMATION, PSID, SECURITY_MAX_SID_SIZE, TOKEN_INFORMATION_CLASS,
    TOKEN_OWNER, TOKEN_QUERY, TOKEN_USER, TokenOwner, TokenUser, WinBuiltinAdministratorsSid, WinWorldSid,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_BASIC_INFO, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT,
    FILE_READ_ATTRIBUTES, FileBasicInfo, GetFileInformationByHandle, GetFileInformationByHandleEx,
    LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx,
};
use windows_sys::Win32::System::IO::OVERLAPPED;
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

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

/// The owner of an open file, if it is another user.
///
/// A file is ours if it belongs to this user, to the owner of new files of this process, or to the
/// administrators. An elevated process creates files that belong to the administrators, who could
/// do any harm without such a file.
///
/// On a file system without owners (FAT, some network drives) Windows reports `WinWorldSid`, or
/// nothing. Such a file is accepted. On a disk with owners a process cannot cause that report: we
/// have opened the file, so we have the right to read its owner.
pub fn foreign_owner(file: &File, _: &Metadata) -> Option<String> {
    // A descriptor with only an owner takes less than half of this buffer.
    let mut descriptor = [0_u64; 32];
    let (mut needed, mut owner, mut is_default) = (0, ptr::null_mut(), 0);
    // SAFETY: the handle is open. The buffer has the given length, is aligned, and outlives
    // `owner`, which points into it.
    let is_known = unsafe {
        GetKernelObjectSecurity(
            file.as_raw_handle(),
            OWNER_SECURITY_INFORMATION,
            descriptor.as_mut_ptr().cast(),
            size_of_val(&descriptor) as u32,
            &raw mut needed,
        ) != 0
            && GetSecurityDescriptorOwner(descriptor.as_mut_ptr().cast(), &raw mut owner, &raw mut is_default)
                != 0
    };
    if !is_known || owner.is_null() {
        return None;
    }
    // SAFETY: `owner` is a SID within the descriptor.
    unsafe { is_foreign(owner, own_sids()).then(|| name_of(owner)) }
}

/// # Safety
///
/// `owner` must be a SID.
unsafe fn is_foreign(owner: PSID, own: &[Sid]) -> bool {
    // SAFETY: both are SIDs. The call only reads them, although its parameters are mutable.
    let is_mine = |sid: &Sid| unsafe { EqualSid(owner, sid.0.as_ptr().cast_mut().cast()) != 0 };
    // SAFETY: `owner` is a SID.
    let is_known = |kind| unsafe { IsWellKnownSid(owner, kind) != 0 };
    !is_known(WinBuiltinAdministratorsSid) && !is_known(WinWorldSid) && !own.iter().any(is_mine)
}

/// A copy of a SID, with space for the longest one.
struct Sid([u64; (SECURITY_MAX_SID_SIZE as usize).div_ceil(8)]);

/// The SIDs of this user, and of the owner of new files of this process. They never change.
fn own_sids() -> &'static [Sid] {
    static SIDS: OnceLock<Vec<Sid>> = OnceLock::new();
    SIDS.get_or_init(|| {
        let mut token: HANDLE = ptr::null_mut();
        // SAFETY: `GetCurrentProcess` returns a pseudo-handle for this process; the call writes the
        // token's handle to `token`.
        if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) } == 0 {
            return Vec::new();
        }
        // SAFETY: the handle is open, and only this value owns it.
        let token = unsafe { OwnedHandle::from_raw_handle(token) };
        // SAFETY: for each class, the buffer begins with the structure that is read here.
        let of_user = |it: *const u64| unsafe { (*it.cast::<TOKEN_USER>()).User.Sid };
        // SAFETY: the same.
        let of_owner = |it: *const u64| unsafe { (*it.cast::<TOKEN_OWNER>()).Owner };
        [token_sid(&token, TokenUser, of_user), token_sid(&token, TokenOwner, of_owner)]
            .into_iter()
            .flatten()
            .collect()
    })
}

fn token_sid(
    token: &OwnedHandle,
    class: TOKEN_INFORMATION_CLASS,
    sid_in: impl Fn(*const u64) -> PSID,
) -> Option<Sid> {
    let mut buffer = [0_u64; 32];
    let mut sid = Sid([0; _]);
    let mut needed = 0;
    // SAFETY: the token is open. The buffers have the given lengths, are aligned, and outlive the
    // calls. The copied SID points into the buffer that the first call filled.
    let is_copied = unsafe {
        GetTokenInformation(
            token.as_raw_handle(),
            class,
            buffer.as_mut_ptr().cast(),
            size_of_val(&buffer) as u32,
            &raw mut needed,
        ) != 0
            && CopySid(size_of_val(&sid.0) as u32, sid.0.as_mut_ptr().cast(), sid_in(buffer.as_ptr())) != 0
    };
    is_copied.then_some(sid)
}

/// The SID as text: `S-1-5-…`
///
/// # Safety
///
/// `sid` must be a SID.
unsafe fn name_of(sid: PSID) -> String {
    let mut text = ptr::null_mut();
    // SAFETY: `sid` is a SID. The text ends with a zero, and this function frees it.
    unsafe {
        if ConvertSidToStringSidW(sid, &raw mut text) == 0 {
            return "unknown".into();
        }
        let length = (0..).take_while(|&at| *text.add(at) != 0).count();
        let name = String::from_utf16_lossy(std::slice::from_raw_parts(text, length));
        LocalFree(text.cast());
        name
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

/// Locks the file through a byte beyond its end.
///
/// Not with [`File::try_lock`], which locks the whole file: other processes must still be able to
/// write to it and read it.
pub fn try_lock(file: &File) -> io::Result<bool> {
    lock_byte(file, BEYOND_END)
}

/// A position beyond the end of every file.
const BEYOND_END: i64 = 1 << 62;

/// The byte that a writer locks while it appends, and the byte for writers that did not get the
/// first one in time.
const TURN: i64 = BEYOND_END + 1;
const LATE_TURN: i64 = BEYOND_END + 2;

/// How long a writer waits for its turn: the normal value, and the value after a wait that failed,
/// until a wait succeeds again.
const PATIENCE: Duration = Duration::from_millis(250);
const SHORT_PATIENCE: Duration = Duration::from_millis(10);

/// Waits until no other process appends to the file. The turn lasts until this handle is closed.
///
/// NTFS appends atomically and does not need this. Other file systems, and Wine, find the end and
/// then write there, so two simultaneous writers overwrite each other's lines.
///
/// A writer must wait longer than another writer may be unscheduled. But a writer that is suspended
/// during its turn keeps the lock, and must not delay every later append. So the first wait is
/// long, and the following ones are short.
///
/// Writers whose wait failed also take turns, because they tend to fail at the same moment.
pub fn take_turn(file: &File) {
    static IS_STUCK: AtomicBool = AtomicBool::new(false);
    let lock = |byte| if lock_byte(file, byte)? { Ok(()) } else { Err(lock_violation()) };
    let patience = if IS_STUCK.load(Ordering::Relaxed) { SHORT_PATIENCE } else { PATIENCE };
    let is_granted = super::retry_while_busy(patience, || lock(TURN)).is_ok();
    IS_STUCK.store(!is_granted, Ordering::Relaxed);
    if !is_granted {
        let _ = super::retry_while_busy(super::EVENT_LOOP_PATIENCE, || lock(LATE_TURN));
    }
}

fn lock_violation() -> io::Error {
    io::Error::from_raw_os_error(ERROR_LOCK_VIOLATION.cast_signed())
}

/// The lock belongs to this handle: the system releases it when the handle is closed or the process
/// ends.
pub fn lock_byte(file: &File, at: i64) -> io::Result<bool> {
    let mut place = OVERLAPPED::default();
    let at = at.cast_unsigned();
    // The union variant with the offset.
    (place.Anonymous.Anonymous.Offset, place.Anonymous.Anonymous.OffsetHigh) = (at as u32, (at >> 32) as u32);
    let flags = LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY;
    // SAFETY: the handle is open and not for overlapped calls, so nothing uses `place` after the
    // call returns.
    if unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &raw mut place) } != 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(ERROR_LOCK_VIOLATION.cast_signed()) => Ok(false),
        error => Err(error),
    }
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use windows_sys::Win32::Security::{
        CreateWellKnownSid, WELL_KNOWN_SID_TYPE, WinBuiltinGuestsSid, WinLocalSystemSid,
    };

    use super::*;

    fn well_known(kind: WELL_KNOWN_SID_TYPE) -> Sid {
        let mut sid = Sid([0; _]);
        let mut length = size_of_val(&sid.0) as u32;
        // SAFETY: the buffer has the given length and is aligned.
        let is_made = unsafe {
            CreateWellKnownSid(kind, ptr::null_mut(), sid.0.as_mut_ptr().cast(), &raw mut length) != 0
        };
        assert!(is_made);
        sid
    }

    #[test]
    fn only_a_file_with_a_proven_foreign_owner_is_refused() {
        for (kind, own, expected) in [
            (WinBuiltinAdministratorsSid, None, false),
            (WinWorldSid, None, false),
            (WinBuiltinGuestsSid, None, true),
            (WinBuiltinGuestsSid, Some(WinLocalSystemSid), true),
            (WinBuiltinGuestsSid, Some(WinBuiltinGuestsSid), false),
            (WinLocalSystemSid, None, true),
        ] {
            let mut owner = well_known(kind);
            let own: Vec<Sid> = own.into_iter().map(well_known).collect();
            // SAFETY: `owner` is a SID.
            assert_eq!(unsafe { is_foreign(owner.0.as_mut_ptr().cast(), &own) }, expected, "{kind}");
        }
    }

    /// Opens a file like the journal.
    fn open_like_the_journal(path: &Path) -> File {
        super::super::open_to_extend(path).unwrap()
    }

    #[test]
    fn writers_lose_no_line_while_another_writer_is_stuck_in_its_turn() {
        const WRITERS: usize = 8;
        const LINES: usize = 25;
        let folder = super::super::tests::Folder::new("stuck-turn");
        let path = folder.0.join("it");
        let stuck = open_like_the_journal(&path);
        take_turn(&stuck);
        let began = std::time::Instant::now();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let path = &path;
                scope.spawn(move || {
                    let line = format!("{writer:<300}\n");
                    for _ in 0..LINES {
                        let mut file = open_like_the_journal(path);
                        take_turn(&file);
                        file.write_all(line.as_bytes()).unwrap();
                    }
                });
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().filter(|line| line.len() == 300).count(), WRITERS * LINES);
        assert_eq!(text.lines().count(), WRITERS * LINES);
        // One long wait for each writer, and short waits after that.
        assert!(began.elapsed() < PATIENCE * (LINES as u32), "{:?}", began.elapsed());
        drop(stuck);
        let granted = open_like_the_journal(&path);
        take_turn(&granted);
        assert!(!lock_byte(&open_like_the_journal(&path), TURN).unwrap(), "the turn is granted again");
    }

    #[test]
    fn own_sids_returns_the_user_and_the_owner_of_new_files() {
        assert_eq!(own_sids().len(), 2);
        let mut system = well_known(WinLocalSystemSid);
        // SAFETY: `system` is a SID.
        assert_eq!(unsafe { name_of(system.0.as_mut_ptr().cast()) }, "S-1-5-18");
    }
}
