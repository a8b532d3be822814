//! What there is of cgroups around this process: read, and judged by [`super::place`].

use std::fs;
use std::io::Read;
use std::path::Path;

use nix::fcntl::{AtFlags, OFlag};
use nix::libc;
use nix::unistd::{AccessFlags, faccessat};

use super::place::{self, Base, Candidate, Facts, Kind, Level, WhyNot};
use super::{files, is_cgroup2};

/// Where systemd is at home, as its own `sd_booted` asks.
const SYSTEMD: &str = "/run/systemd/system";

/// Where runs of this process get their cgroups. Asked once per zygote: it takes a dozen small reads.
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
        switched_off: std::env::var_os(place::SWITCH).is_some_and(|value| value == "off"),
        managed_by_systemd: Path::new(SYSTEMD).is_dir(),
        // Something else may be mounted there meanwhile, or below it.
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
        // Whoever puts a process from one cgroup into another must be allowed to write to the one above both.
        may_create: may(".", AccessFlags::W_OK | AccessFlags::X_OK) && may("cgroup.procs", AccessFlags::W_OK),
        has_processes,
    })
}

/// Whether an extended attribute is there and says `1`.
fn is_marked(path: &Path, name: &std::ffi::CStr) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else { return false };
    let mut value = [0u8; 8];
    // SAFETY: both strings end with a NUL, and the kernel writes no more than the buffer holds.
    let length =
        unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    usize::try_from(length).is_ok_and(|length| value.get(..length) == Some(b"1"))
}
