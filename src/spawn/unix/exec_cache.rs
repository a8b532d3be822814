//! A cache of programs whose `exec` has succeeded.
//!
//! Only `exec` itself, in another process, shows whether a command can be executed. Waiting for it
//! is a large part of the cost of a spawn, and more on a busy machine. But `exec` fails because of
//! properties of the file: it is missing, not executable, for another machine, a script without its
//! interpreter … So the bot does not wait for a file that was executed before and has not changed.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;
use nix::sys::stat::{SFlag, fstatat};
use nix::unistd::{AccessFlags, faccessat};

use crate::spawn::{LaunchOptions, environment};

/// Maximum number of programs: enough for every tool of a busy bot.
const CAPACITY: usize = 256;

/// Every kernel accepts arguments and environment of this length. Beyond it, `exec` can fail
/// (E2BIG).
const SAFE_LENGTH: usize = 96 << 10;

/// One state of one file. A write changes the times, and a replacement changes the inode.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Program {
    device: libc::dev_t,
    inode: libc::ino_t,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The programs whose `exec` has succeeded.
#[derive(Debug, Default)]
pub struct ExecCache(HashSet<Program>);

impl ExecCache {
    pub fn contains(&self, program: &Program) -> bool {
        self.0.contains(program)
    }

    pub fn insert(&mut self, program: Option<Program>) {
        if self.0.len() >= CAPACITY {
            self.0.clear();
        }
        self.0.extend(program);
    }
}

impl Program {
    /// The file that a launch with these options will execute. `None` if `exec` depends on more than
    /// the file.
    pub fn find(directory: Option<&OwnedFd>, options: &LaunchOptions, env: &str) -> Option<Self> {
        // Another user may not be allowed to execute the file: only the kernel can decide.
        if options.uid.is_some() || options.gid.is_some() || env.len() + options.argv.len() > SAFE_LENGTH {
            return None;
        }
        let directory = directory.map_or(AT_FDCWD, AsFd::as_fd);
        if options.file.contains('/') {
            return Self::at(directory, &options.file);
        }
        let path = environment::value(env, "PATH")?;
        path.split(':').find_map(|folder| {
            let folder = if folder.is_empty() { "." } else { folder };
            Self::at(directory, &format!("{folder}/{}", options.file))
        })
    }

    fn at(directory: BorrowedFd, path: &str) -> Option<Self> {
        let stat = fstatat(directory, path, AtFlags::empty()).ok()?;
        let is_file = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
        if !is_file || faccessat(directory, path, AccessFlags::X_OK, AtFlags::AT_EACCESS).is_err() {
            return None;
        }
        Some(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn options(file: &str) -> LaunchOptions {
        LaunchOptions { file: file.into(), argv: format!("{file}\0"), ..LaunchOptions::default() }
    }

    fn here() -> OwnedFd {
        fs::File::open(".").unwrap().into()
    }

    #[test]
    fn find_returns_the_first_executable_in_the_path_like_exec() {
        let sh = Program::find(Some(&here()), &options("/bin/sh"), "").unwrap();
        assert_eq!(
            Program::find(Some(&here()), &options("sh"), "PATH=/nonexistent:/bin\0").as_ref(),
            Some(&sh)
        );
        assert_eq!(Program::find(Some(&here()), &options("sh"), "PATH=/nonexistent\0"), None);
        assert_eq!(
            Program::find(Some(&here()), &options("sh"), ""),
            None,
            "without PATH the default of exec is unknown"
        );
        assert_eq!(Program::find(Some(&here()), &options("/bin"), ""), None, "a directory is not a program");
    }

    #[test]
    fn a_launch_with_another_user_or_a_long_command_line_is_never_cached() {
        let other = LaunchOptions { uid: Some(65534), ..options("/bin/sh") };
        assert_eq!(Program::find(Some(&here()), &other, ""), None);
        let long = LaunchOptions { argv: "x".repeat(SAFE_LENGTH + 1), ..options("/bin/sh") };
        assert_eq!(Program::find(Some(&here()), &long, ""), None);
    }

    #[test]
    fn the_cache_does_not_contain_a_changed_or_replaced_or_forbidden_file() {
        let path = std::env::temp_dir().join(format!("spawn-owned-program-{}", std::process::id()));
        let find = || Program::find(Some(&here()), &options(path.to_str().unwrap()), "");
        let allow = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        fs::write(&path, "#!/bin/sh\n").unwrap();
        allow(0o755);
        let mut cache = ExecCache::default();
        cache.insert(find());
        assert!(find().is_some_and(|program| cache.contains(&program)));
        // Same inode and length, other content, modification time restored: the change time
        // differs.
        let times = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "#!/no/sh\n ").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(times).unwrap();
        assert!(find().is_some_and(|program| !cache.contains(&program)));
        allow(0o644);
        assert_eq!(find(), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(find(), None);
    }
}
