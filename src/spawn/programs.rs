//! Programs that are known to run.
//!
//! Whether a command can be executed is known for certain only after `exec`, in another process; waiting for that costs
//! the event loop a good part of what a spawn costs, and much more on a busy machine. But what failed to start once was
//! missing, not executable, for another machine, a script without its interpreter …: properties of the file. So a file that
//! was executed before and has not changed since is not waited for.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;
use nix::sys::stat::{SFlag, fstatat};
use nix::unistd::{AccessFlags, faccessat};

use super::{Launch, environment};

/// Enough for every tool of a busy bot.
const MOST: usize = 256;

/// Arguments and environment up to here are accepted by every kernel; beyond, `exec` has its say (E2BIG).
const SAFE_LENGTH: usize = 96 << 10;

/// One state of one file. Writing to it changes the times, replacing it the inode.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Program {
    device: libc::dev_t,
    inode: libc::ino_t,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Those that were executed.
#[derive(Debug, Default)]
pub struct Programs(HashSet<Program>);

impl Programs {
    pub fn contains(&self, program: &Program) -> bool {
        self.0.contains(program)
    }

    pub fn extend(&mut self, program: Option<Program>) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.extend(program);
    }
}

impl Program {
    /// The file that this launch will execute, if nothing but the file decides whether it can be.
    pub fn find(directory: Option<&OwnedFd>, launch: &Launch, env: &str) -> Option<Self> {
        // Another user may not be allowed to execute it; that is for the kernel to say.
        if launch.uid.is_some() || launch.gid.is_some() || env.len() + launch.argv.len() > SAFE_LENGTH {
            return None;
        }
        let directory = directory.map_or(AT_FDCWD, AsFd::as_fd);
        if launch.file.contains('/') {
            return Self::at(directory, &launch.file);
        }
        let path = environment::value(env, "PATH")?;
        path.split(':').find_map(|folder| {
            let folder = if folder.is_empty() { "." } else { folder };
            Self::at(directory, &format!("{folder}/{}", launch.file))
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
    use crate::registry::{Instance, Registry};
    use crate::run::Policy;
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;
    use std::time::Duration;

    fn launch(file: &str) -> Launch {
        let registry = Registry::at("/nowhere/process-registry.json".into()).unwrap();
        Launch {
            owner: Instance {
                registry,
                id: "i".into(),
                lease: Duration::from_secs(30),
                counters: Arc::default(),
                orphan_log: None,
            },
            run_id: "r".into(),
            given_id: false,
            session_id: None,
            backend_id: None,
            scope_key: None,
            service: None,
            labels: BTreeMap::new(),
            preview: String::new(),
            file: file.into(),
            argv: format!("{file}\0"),
            env: None,
            cwd: None,
            uid: None,
            gid: None,
            windows_hide: false,
            verbatim: false,
            terminal: None,
            stdio: Vec::new(),
            on_owner_exit: Policy::Kill,
            on_leader_exit: Policy::Kill,
            grace_ms: 0,
            timeout: None,
            silence_ms: None,
            outputs: Vec::new(),
            tier: crate::spawn::Tier::Auto,
            limits: crate::contain::Limits::default(),
        }
    }

    fn here() -> OwnedFd {
        fs::File::open(".").unwrap().into()
    }

    #[test]
    fn finds_the_first_executable_in_the_path_like_exec_does() {
        let sh = Program::find(Some(&here()), &launch("/bin/sh"), "").unwrap();
        assert_eq!(Program::find(Some(&here()), &launch("sh"), "PATH=/nowhere:/bin\0").as_ref(), Some(&sh));
        assert_eq!(Program::find(Some(&here()), &launch("sh"), "PATH=/nowhere\0"), None);
        assert_eq!(
            Program::find(Some(&here()), &launch("sh"), ""),
            None,
            "the kernel's default is not ours to guess"
        );
        assert_eq!(Program::find(Some(&here()), &launch("/bin"), ""), None, "a directory is no program");
    }

    #[test]
    fn another_user_or_a_long_command_line_is_always_waited_for() {
        let other = Launch { uid: Some(65534), ..launch("/bin/sh") };
        assert_eq!(Program::find(Some(&here()), &other, ""), None);
        let long = Launch { argv: "x".repeat(SAFE_LENGTH + 1), ..launch("/bin/sh") };
        assert_eq!(Program::find(Some(&here()), &long, ""), None);
    }

    #[test]
    fn a_changed_or_replaced_or_forbidden_file_is_not_the_one_that_ran() {
        let path = std::env::temp_dir().join(format!("spawn-owned-program-{}", std::process::id()));
        let find = || Program::find(Some(&here()), &launch(path.to_str().unwrap()), "");
        let allow = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        fs::write(&path, "#!/bin/sh\n").unwrap();
        allow(0o755);
        let mut programs = Programs::default();
        programs.extend(find());
        assert!(find().is_some_and(|program| programs.contains(&program)));
        // Same inode, same length, other content, and the modification time put back: the change time tells.
        let times = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "#!/no/sh\n ").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(times).unwrap();
        assert!(find().is_some_and(|program| !programs.contains(&program)));
        allow(0o644);
        assert_eq!(find(), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(find(), None);
    }
}
