//! The control socket on macOS: a file in a private folder. macOS has no abstract names.

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

/// A listening socket whose file name contains the keeper's PID and start token.
///
/// So no two keepers use the same name, and [`sweep`] recognises the files of killed keepers.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: String,
}

impl Listener {
    pub fn open() -> Result<Self, Errno> {
        let me = getpid().as_raw();
        let folder = folder()?;
        let path = folder.join(file_name(me, read_stat(me)?.start));
        let path = path.to_str().ok_or(Errno::EILSEQ)?.to_owned();
        let socket = new_socket()?;
        bind(socket.as_raw_fd(), &UnixAddr::new(path.as_str())?)?;
        let listener = Self { socket, path };
        listen(&listener.socket, Backlog::new(64)?)?;
        Ok(listener)
    }

    pub fn name(&self) -> &str {
        &self.path
    }

    pub fn accept(&self) -> Result<OwnedFd, Errno> {
        let fd = accept(self.socket.as_raw_fd())?;
        // SAFETY: the kernel has just returned this file descriptor. No other code knows it.
        let client = unsafe { OwnedFd::from_raw_fd(fd) };
        close_on_exec(&client)?;
        tame(&client);
        Ok(client)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Connects to a keeper. `ECONNREFUSED` if no process listens there, as on Linux, also if the
/// keeper has removed the file.
pub fn connect(name: &str) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    // On macOS `connect` never blocks: a full backlog refuses the connection.
    let connected = nix::sys::socket::connect(socket.as_raw_fd(), &UnixAddr::new(name)?);
    match connected {
        Err(Errno::ENOENT | Errno::ENOTSOCK) => Err(Errno::ECONNREFUSED),
        result => result.map(|()| socket),
    }
}

/// The PID of the process that connected, or that listens.
pub fn peer_pid(socket: &impl AsFd) -> Result<i32, Errno> {
    getsockopt(&socket.as_fd(), sockopt::LocalPeerPid)
}

pub fn peer_uid(socket: &impl AsFd) -> Result<u32, Errno> {
    getpeereid(socket.as_fd()).map(|(uid, _)| uid.as_raw())
}

/// Removes the sockets of killed keepers.
///
/// It does not touch the socket of a living keeper. No race: a new keeper never reuses the name of
/// a dead one.
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

/// A private folder of the user, in the user's temporary folder, or in `/tmp` if there is none.
///
/// The folder is not beside the registry, because a socket's path has at most 103 bytes.
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
    // SAFETY: the length passed is the buffer's length, and `confstr` ends the text with a NUL.
    let text = unsafe {
        let length = libc::confstr(libc::_CS_DARWIN_USER_TEMP_DIR, path.as_mut_ptr(), path.len());
        if length == 0 || length > path.len() {
            return None;
        }
        CStr::from_ptr(path.as_ptr())
    };
    text.to_str().ok().map(PathBuf::from).filter(|folder| folder.is_dir())
}

/// True if the folder belongs to this user, and no other user has access. Any user can create a
/// folder or a symbolic link of that name in `/tmp`.
fn is_ours(folder: &Path) -> bool {
    fs::symlink_metadata(folder)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == geteuid().as_raw() && meta.mode() & 0o077 == 0)
}

/// Always false: macOS has no user namespaces, so every user has its own id.
pub fn is_ambiguous(_uid: u32) -> bool {
    false
}
