//! Reads and writes the files of a cgroup through its directory's descriptor. Symbolic links are
//! never followed.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;

const DIRECTORY: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

pub fn directory(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, DIRECTORY, Mode::empty())
}

pub fn directory_in(dir: &impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    openat(dir, name, DIRECTORY, Mode::empty())
}

pub fn open_in(dir: &impl AsFd, name: &str, flags: OFlag) -> Result<File, Errno> {
    openat(dir, name, flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty()).map(File::from)
}

pub fn read(dir: &impl AsFd, name: &str) -> Result<String, Errno> {
    let mut text = String::new();
    open_in(dir, name, OFlag::O_RDONLY)?.read_to_string(&mut text).map_err(|error| errno(&error))?;
    Ok(text)
}

/// Writes the text in one write, as the kernel requires. Never creates a file.
pub fn write(dir: &impl AsFd, name: &str, text: &str) -> Result<(), Errno> {
    open_in(dir, name, OFlag::O_WRONLY)?.write_all(text.as_bytes()).map_err(|error| errno(&error))
}

/// The names of the cgroups directly below this one.
pub fn children(dir: &impl AsFd) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::openat(dir, ".", DIRECTORY, Mode::empty())?.iter() {
        let entry = entry?;
        if entry.file_type() == Some(Type::Directory)
            && let Ok(name) = entry.file_name().to_str()
            && name != "."
            && name != ".."
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

pub fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO))
}
