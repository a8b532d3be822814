//! Which user a file of the registry belongs to.

use std::fs::{File, Metadata};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::sync::OnceLock;

use windows_sys::Win32::Foundation::{HANDLE, LocalFree};
use windows_sys::Win32::Security::Authorization::ConvertSidToStringSidW;
use windows_sys::Win32::Security::{
    CopySid, EqualSid, GetKernelObjectSecurity, GetSecurityDescriptorOwner, GetTokenInformation,
    IsWellKnownSid, OWNER_SECURITY_INFORMATION, PSID, SECURITY_MAX_SID_SIZE, TOKEN_INFORMATION_CLASS,
    TOKEN_OWNER, TOKEN_QUERY, TOKEN_USER, TokenOwner, TokenUser, WinBuiltinAdministratorsSid, WinWorldSid,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

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

#[cfg(test)]
mod tests {
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

    #[test]
    fn own_sids_returns_the_user_and_the_owner_of_new_files() {
        assert_eq!(own_sids().len(), 2);
        let mut system = well_known(WinLocalSystemSid);
        // SAFETY: `system` is a SID.
        assert_eq!(unsafe { name_of(system.0.as_mut_ptr().cast()) }, "S-1-5-18");
    }
}
