//! A socket in the file system, in a folder that is its user's alone: there are no other names.

use std::ffi::{CStr, c_char};
use std::fs::{self, DirBuilder};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept, bind, getsockopt, listen, socket, sockopt,
};
use nix::unistd::{geteuid, getpeereid, getpid};

use super::super::channel::{close_on_exec, tame};
use crate::identity::{ProcessRef, State, read_stat};

/// Which keeper, by number and start token: so nobody else's is ever in the way, and what a killed one has left can be told.
#[derive(Debug)]
pub struct Door {
    socket: OwnedFd,
    path: String,
}

impl Door {
    pub fn open() -> Result<Self, Errno> {
        let me = getpid().as_raw();
        let folder = folder()?;
        let path = folder.join(file_name(me, read_stat(me)?.start));
        let path = path.to_str().ok_or(Errno::EILSEQ)?.to_owned();
        let socket = new_socket()?;
        bind(socket.as_raw_fd(), &UnixAddr::new(path.as_str())?)?;
        let door = Self { socket, path };
        listen(&door.socket, Backlog::new(64)?)?;
        Ok(door)
    }

    pub fn name(&self) -> &str {
        &self.path
    }

    pub fn accept(&self) -> Result<OwnedFd, Errno> {
        let fd = accept(self.socket.as_raw_fd())?;
        // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
        let visitor = unsafe { OwnedFd::from_raw_fd(fd) };
        close_on_exec(&visitor)?;
        tame(&visitor);
        Ok(visitor)
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// That nobody listens there any more is `ECONNREFUSED`, as elsewhere, also if the file is gone with its keeper.
pub fn connect(name: &str) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    // Here it never waits: a full backlog refuses.
    let connected = nix::sys::socket::connect(socket.as_raw_fd(), &UnixAddr::new(name)?);
    match connected {
        Err(Errno::ENOENT | Errno::ENOTSOCK) => Err(Errno::ECONNREFUSED),
        result => result.map(|()| socket),
    }
}

/// Who has connected, or listens.
pub fn peer_pid(socket: &impl AsFd) -> Result<i32, Errno> {
    getsockopt(&socket.as_fd(), sockopt::LocalPeerPid)
}

pub fn peer_uid(socket: &impl AsFd) -> Result<u32, Errno> {
    getpeereid(socket.as_fd()).map(|(uid, _)| uid.as_raw())
}

/// Removes what keepers that were killed have left. One that lives is not touched, and the name of a dead one is not used again.
pub fn sweep() {
    let Ok(folder) = folder() else { return };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let keeper = name.to_str().and_then(keeper_of);
        let is_dead =
            |(pid, start)| matches!(ProcessRef::known(pid, start).state(), State::Exited | State::Recycled);
        if keeper.is_some_and(is_dead) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None)?;
    close_on_exec(&socket)?;
    tame(&socket);
    Ok(socket)
}

fn file_name(pid: i32, start: u64) -> String {
    format!("{pid}-{start:x}")
}

fn keeper_of(name: &str) -> Option<(i32, u64)> {
    let (pid, start) = name.split_once('-')?;
    Some((pid.parse().ok()?, u64::from_str_radix(start, 16).ok()?))
}

/// Ours, and nobody else's: what the system gives each user for temporary files, or one below `/tmp` where it gives none. The name of a socket
/// is short (103 bytes), so it is not below the registry.
fn folder() -> Result<PathBuf, Errno> {
    let folder = match user_folder() {
        Some(folder) => folder.join("spawn-owned"),
        None => PathBuf::from(format!("/tmp/spawn-owned-{}", geteuid())),
    };
    let _ = DirBuilder::new().mode(0o700).create(&folder);
    if is_ours(&folder) { Ok(folder) } else { Err(Errno::EACCES) }
}

fn user_folder() -> Option<PathBuf> {
    let mut path = [0 as c_char; 1024];
    // SAFETY: the buffer is as long as we say, and the text written into it ends with a NUL.
    let text = unsafe {
        let length = libc::confstr(libc::_CS_DARWIN_USER_TEMP_DIR, path.as_mut_ptr(), path.len());
        if length == 0 || length > path.len() {
            return None;
        }
        CStr::from_ptr(path.as_ptr())
    };
    text.to_str().ok().map(PathBuf::from).filter(|folder| folder.is_dir())
}

/// Anybody may put something in the way below `/tmp`.
fn is_ours(folder: &Path) -> bool {
    fs::symlink_metadata(folder)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == geteuid().as_raw() && meta.mode() & 0o077 == 0)
}
