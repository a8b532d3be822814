//! The registry's files on Windows.
//!
//! - **Who may read them**: there are no modes. A new file has the access list that its folder hands down; in a user's own
//!   folders that is the user, the administrators and the system.
//! - **Sharing**: std opens files such that others may read, write, rename and remove them meanwhile. Others are not that kind: a
//!   virus scanner, an indexer or an editor may hold a file for a moment so that it can be neither opened nor renamed. And
//!   where the file system cannot do it as Unix does (NTFS can, since Windows 10 1809), a name stays taken until the last
//!   one who has the removed file open has closed it. Both are over soon, so it is tried again, see [`is_momentary`].
//! - **Locks** are mandatory: who reads or writes a byte that another has locked fails. So those that are locked lie where no
//!   file of ours has any, see [`try_lock`].

#![allow(clippy::cast_possible_truncation)] // Sizes of small structures, and halves of numbers.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

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

/// A bot that sits idle must not have `.old` open, which others want to remove: where that is not done as on Unix, the name would
/// stay taken, and nobody could make a checkpoint any more.
pub const JOURNAL_STAYS_OPEN: bool = false;

/// A link is opened itself, and not what it points to; then it can be seen that it is one.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
    options
}

pub fn folder_builder() -> DirBuilder {
    DirBuilder::new()
}

/// A folder, or a link to one, cannot be opened as a file: "access denied" is all that is said.
pub fn refusal(path: &Path, error: io::Error) -> Refusal {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => Refusal::Symlink,
        Ok(meta) if meta.is_dir() => Refusal::NotAFile,
        _ => Refusal::Failed(error),
    }
}

/// Ours are those that belong to this user, to whomever new files of this process belong to, or to the administrators: what an
/// elevated process makes is theirs, and they could do to us whatever a file of theirs could have us do.
///
/// Where the file system knows no owners (FAT, some network drives) the system says "everyone", or nothing. That proves nobody
/// else's, and is let pass: whoever plants a file cannot bring that about on a disk that has owners, because we could not have
/// opened it without the right to ask.
pub fn stranger(file: &File, _: &Metadata) -> Option<String> {
    // A descriptor that has an owner and nothing else takes up less than half of it.
    let mut descriptor = [0_u64; 32];
    let (mut needed, mut owner, mut is_default) = (0, ptr::null_mut(), 0);
    // SAFETY: the handle is open; the buffer is as long as we say, aligned, and outlives `owner`, which points into it.
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
    unsafe { is_strange(owner, own_sids()).then(|| name_of(owner)) }
}

/// # Safety
///
/// `owner` must be a SID.
unsafe fn is_strange(owner: PSID, own: &[Sid]) -> bool {
    // SAFETY: both are SIDs, and are only read, although they are asked for as if they could be written.
    let is_mine = |sid: &Sid| unsafe { EqualSid(owner, sid.0.as_ptr().cast_mut().cast()) != 0 };
    // SAFETY: it is a SID.
    let is_known = |kind| unsafe { IsWellKnownSid(owner, kind) != 0 };
    !is_known(WinBuiltinAdministratorsSid) && !is_known(WinWorldSid) && !own.iter().any(is_mine)
}

/// A copy of a SID, as long as the longest.
struct Sid([u64; (SECURITY_MAX_SID_SIZE as usize).div_ceil(8)]);

/// This user, and whom new files of this process belong to. They do not change.
fn own_sids() -> &'static [Sid] {
    static SIDS: OnceLock<Vec<Sid>> = OnceLock::new();
    SIDS.get_or_init(|| {
        let mut token: HANDLE = ptr::null_mut();
        // SAFETY: the handle is the one that always means this process; the token's goes where we say.
        if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) } == 0 {
            return Vec::new();
        }
        // SAFETY: it is open, and nobody else's.
        let token = unsafe { OwnedHandle::from_raw_handle(token) };
        // SAFETY: what each class fills the buffer with begins with the structure that it is read as.
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
    // SAFETY: the token is open; the buffers are as long as we say, aligned, and outlive the calls. The SID that is copied
    // points into the buffer that was filled just before.
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

/// `S-1-5-…`
///
/// # Safety
///
/// It must be a SID.
unsafe fn name_of(sid: PSID) -> String {
    let mut text = ptr::null_mut();
    // SAFETY: it is a SID; the text ends with a zero and is ours to free.
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
    // SAFETY: the handle is open, and the structure is as long as it is declared.
    let is_seen = unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut info) != 0 };
    if is_seen { Ok(info.nNumberOfLinks > 1) } else { Err(io::Error::last_os_error()) }
}

/// The volume and the number of the file on it, by which NTFS does not name another one later. (ReFS has longer numbers; of those
/// it is the lower half.) The time of change, unlike that of the last write, cannot be set back by copying a file.
pub fn look(file: &File) -> io::Result<Stamp> {
    let mut info = BY_HANDLE_FILE_INFORMATION::default();
    let mut basic = FILE_BASIC_INFO::default();
    // SAFETY: the handle is open, and both structures are as long as we say.
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
        inode: wide(info.nFileIndexHigh, info.nFileIndexLow),
        size: wide(info.nFileSizeHigh, info.nFileSizeLow),
        changed: (basic.ChangeTime, basic.LastWriteTime),
    })
}

fn wide(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

/// Asking for nothing but what it is: that is granted whatever others do with the file, unless it has been removed.
pub fn look_at(path: &Path) -> io::Result<Stamp> {
    let flags = FILE_FLAG_OPEN_REPARSE_POINT | FILE_FLAG_BACKUP_SEMANTICS;
    look(&OpenOptions::new().access_mode(FILE_READ_ATTRIBUTES).custom_flags(flags).open(path)?)
}

/// Somebody has the file open and does not share it, or it has been removed and somebody has it open. "Access denied" is what the
/// latter is called, and so is what will never be allowed: hence the end of patience.
pub fn is_momentary(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(i32::cast_unsigned);
    matches!(code, Some(ERROR_SHARING_VIOLATION | ERROR_LOCK_VIOLATION | ERROR_ACCESS_DENIED))
}

/// Not with [`File::try_lock`], which locks all of it: others go on writing to a file that is about to be moved, and people read it.
pub fn try_lock(file: &File) -> io::Result<bool> {
    lock_byte(file, BEYOND)
}

/// Where no file of ours has anything.
const BEYOND: i64 = 1 << 62;

/// Somebody else may be writing to the end of it: waits until that one is through, until this handle is closed.
///
/// On NTFS an append is one step. On other file systems, and in Wine, it is two: look where the end is, and write there; and a line
/// of two writers at once is nobody's. Who does not come to an end in that time was stopped, and is not waited for.
pub fn take_turn(file: &File) {
    let is_ours = || if lock_byte(file, BEYOND + 1)? { Ok(()) } else { Err(momentary()) };
    let _ = super::patiently(super::MOMENT, is_ours);
}

fn momentary() -> io::Error {
    io::Error::from_raw_os_error(ERROR_LOCK_VIOLATION.cast_signed())
}

/// Of this handle: released when it is closed, also by the end of the process.
pub fn lock_byte(file: &File, at: i64) -> io::Result<bool> {
    let mut place = OVERLAPPED::default();
    let at = at.cast_unsigned();
    // The variant that has the offset.
    (place.Anonymous.Anonymous.Offset, place.Anonymous.Anonymous.OffsetHigh) = (at as u32, (at >> 32) as u32);
    let flags = LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY;
    // SAFETY: the handle is open, and not for overlapped calls: when this returns nobody uses `place` any more.
    if unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &raw mut place) } != 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(ERROR_LOCK_VIOLATION.cast_signed()) => Ok(false),
        error => Err(error),
    }
}

/// A file that somebody has open cannot always be replaced, and nothing is gained.
pub fn hold(_: &Path) -> Option<File> {
    None
}

pub fn errno_of(error: &io::Error) -> Errno {
    Errno::of(error)
}

/// Without the `\\?\` that `canonicalize` puts in front, if it means the same without. std adds it by itself to what is too long.
pub fn plain(path: PathBuf) -> PathBuf {
    let shorter = path.to_str().and_then(|text| {
        let rest = text.strip_prefix(r"\\?\")?;
        Some(rest.strip_prefix(r"UNC\").map_or_else(|| rest.into(), |share| format!(r"\\{share}")))
    });
    // Names that only the prefix makes possible ("nul", "ends with a dot.") become others without it.
    match shorter.map(PathBuf::from) {
        Some(shorter) if std::path::absolute(&shorter).is_ok_and(|same| same == shorter) => shorter,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use windows_sys::Win32::Security::{
        CreateWellKnownSid, WELL_KNOWN_SID_TYPE, WinBuiltinGuestsSid, WinLocalSystemSid,
    };

    use super::*;

    fn well_known(kind: WELL_KNOWN_SID_TYPE) -> Sid {
        let mut sid = Sid([0; _]);
        let mut length = size_of_val(&sid.0) as u32;
        // SAFETY: the buffer is as long as we say, and aligned.
        let is_made = unsafe {
            CreateWellKnownSid(kind, ptr::null_mut(), sid.0.as_mut_ptr().cast(), &raw mut length) != 0
        };
        assert!(is_made);
        sid
    }

    #[test]
    fn only_what_is_proven_to_be_anothers_is_refused() {
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
            // SAFETY: it is a SID.
            assert_eq!(unsafe { is_strange(owner.0.as_mut_ptr().cast(), &own) }, expected, "{kind}");
        }
    }

    #[test]
    fn we_know_who_we_are() {
        assert_eq!(own_sids().len(), 2);
        let mut system = well_known(WinLocalSystemSid);
        // SAFETY: it is a SID.
        assert_eq!(unsafe { name_of(system.0.as_mut_ptr().cast()) }, "S-1-5-18");
    }
}
