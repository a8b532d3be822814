//! Reads the facts about this process's cgroups, for the decision in [`super::place`].

use std::fs;
use std::io::Read;
use std::path::Path;

use nix::fcntl::{AtFlags, OFlag};
use nix::libc;
use nix::unistd::{AccessFlags, faccessat};

use super::place::{self, Base, Candidate, Facts, Kind, Level, WhyNot};
use super::{files, is_cgroup2};
use crate::start_environment::variable;

/// Exists if systemd is the init system. `sd_booted` checks the same directory.
const SYSTEMD: &str = "/run/systemd/system";

/// Returns where runs of this process get their cgroups. Called once per zygote, because it takes a
/// dozen small reads.
pub fn find() -> Result<Base, WhyNot> {
    let read = |path: &str| fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned());
    let mountinfo = read("/proc/self/mountinfo").unwrap_or_default();
    let own = read("/proc/self/cgroup").unwrap_or_default();
    let mut first = None;
    for candidate in place::candidates(&mountinfo, &own)? {
        match place::judge(&facts(&candidate)) {
            Ok(base) => return Ok(base),
            Err(why) => first = first.or(Some(why)),
        }
    }
    Err(first.unwrap_or(WhyNot::NotMounted))
}

fn facts(candidate: &Candidate) -> Facts {
    let up_to_mount = candidate.dir.ancestors().take_while(|dir| dir.starts_with(&candidate.mount));
    Facts {
        switched_off: variable(place::SWITCH).is_some_and(|value| value == "off"),
        managed_by_systemd: Path::new(SYSTEMD).is_dir(),
        // Another file system may be mounted there, or below it, by now.
        levels: up_to_mount.map_while(level).collect(),
    }
}

pub(super) fn level(path: &Path) -> Option<Level> {
    let dir = files::directory(path).ok().filter(is_cgroup2)?;
    let may = |name: &str, what| faccessat(&dir, name, what, AtFlags::AT_EACCESS).is_ok();
    let has_processes = files::open_in(&dir, "cgroup.procs", OFlag::O_RDONLY)
        .is_ok_and(|mut file| file.read(&mut [0; 1]).is_ok_and(|count| count > 0));
    Some(Level {
        path: path.to_owned(),
        kind: match files::read(&dir, "cgroup.type") {
            Err(nix::errno::Errno::ENOENT) => Kind::Root,
            Ok(text) if text.trim() == "domain" => Kind::Domain,
            _ => Kind::Other,
        },
        delegated: [c"user.delegate", c"trusted.delegate"].iter().any(|name| is_marked(path, name)),
        // To move a process between two cgroups requires write permission in their common ancestor.
        may_create: may(".", AccessFlags::W_OK | AccessFlags::X_OK) && may("cgroup.procs", AccessFlags::W_OK),
        has_processes,
    })
}

/// Returns whether the extended attribute exists and has the value `1`.
fn is_marked(path: &Path, name: &std::ffi::CStr) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else { return false };
    let mut value = [0u8; 8];
    // SAFETY: both strings end with a NUL, and the kernel writes at most the length of the buffer.
    let length =
        unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    usize::try_from(length).is_ok_and(|length| value.get(..length) == Some(b"1"))
}
