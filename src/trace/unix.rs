//! The target of the trace on Unix.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{getegid, geteuid, getgid, getuid};

/// An open file, pipe, terminal or socket.
#[derive(Debug)]
pub struct Target(File);

impl Target {
    /// Opens a regular file of this user, like the files of the registry: no link is followed, and
    /// no file with a second name or of another user is used.
    pub fn file(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // Non-blocking, so that opening a FIFO in the file's place does not block.
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(path).map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => io::Error::other("it is a symbolic link, which is not followed"),
            Some(libc::ENXIO | libc::EISDIR) => io::Error::other("it is not a plain file"),
            _ => error,
        })?;
        let meta = file.metadata()?;
        let why = match &meta {
            meta if !meta.is_file() => "it is not a plain file",
            meta if meta.uid() != geteuid().as_raw() => "it belongs to another user",
            meta if meta.nlink() > 1 => "it has a second name (a hard link)",
            _ => return Ok(Self(file)),
        };
        Err(io::Error::other(why))
    }

    /// A copy of stderr. A write to it does not wait.
    ///
    /// `O_NONBLOCK` belongs to the open file, which the bot shares with other processes. So on
    /// Linux this opens a pipe or a terminal again. Not a regular file: that would have an offset
    /// of its own, and the bot and the trace would overwrite each other's text.
    pub fn stderr() -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if is_pipe_or_terminal()
            && let Ok(reopened) = OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
                .open("/proc/self/fd/2")
        {
            return Ok(Self(reopened));
        }
        Self::inherited()
    }

    /// A duplicate of this process's stderr, close-on-exec and above the standard descriptors.
    pub fn inherited() -> io::Result<Self> {
        Ok(Self(io::stderr().as_fd().try_clone_to_owned()?.into()))
    }

    /// A duplicate, for the stderr of a child process.
    pub fn share(&self) -> Option<Stdio> {
        self.0.try_clone().ok().map(Stdio::from)
    }

    /// Writes a line, if that does not wait.
    ///
    /// A pipe or socket that is not writable is full, or has lost its reader. In the latter case a
    /// write would also raise SIGPIPE. Node ignores SIGPIPE, and zygote and keepers block it.
    pub fn write(&self, line: &[u8]) {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)];
        let lost = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
        let is_writable = |events: PollFlags| events.contains(PollFlags::POLLOUT) && !events.intersects(lost);
        if poll(&mut fds, PollTimeout::ZERO).is_ok() && fds[0].revents().is_some_and(is_writable) {
            let _ = (&self.0).write(line);
        }
    }
}

#[cfg(target_os = "linux")]
fn is_pipe_or_terminal() -> bool {
    use nix::sys::stat::{SFlag, fstat};
    let kind = fstat(io::stderr()).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
    matches!(kind, Ok(SFlag::S_IFIFO | SFlag::S_IFCHR))
}

/// Whether this program is setuid or setgid: its caller must not choose a file that it writes.
pub fn has_more_rights_than_caller() -> bool {
    getuid() != geteuid() || getgid() != getegid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("spawn-owned-trace-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_new_file_is_private_and_a_second_target_appends_to_it() {
        let folder = folder("file");
        let path = folder.join("trace.log");
        Target::file(&path).unwrap().write(b"one\n");
        Target::file(&path).unwrap().write(b"two\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_link_a_second_name_a_folder_and_a_fifo_are_refused() {
        let folder = folder("refused");
        let at = |name: &str| folder.join(name);
        fs::write(at("victim"), "").unwrap();
        symlink(at("victim"), at("symlink")).unwrap();
        fs::write(at("linked"), "").unwrap();
        fs::hard_link(at("linked"), at("second")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for (name, why) in [
            ("symlink", "symbolic link"),
            ("linked", "hard link"),
            ("fifo", "plain file"),
            ("folder", "plain file"),
            ("missing/file", "No such file"),
        ] {
            let error = Target::file(&at(name)).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_line_for_a_full_pipe_is_lost_and_does_not_wait() {
        let (reader, writer) = io::pipe().unwrap();
        let target = Target(File::from(std::os::fd::OwnedFd::from(writer)));
        // More than any pipe holds. A write that waited would never return.
        for _ in 0..1 << 15 {
            target.write(&[b'x'; 64]);
        }
        drop(reader);
        target.write(b"lost");
    }
}
