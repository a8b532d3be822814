//! The clock of a start token: the offset of the time namespace, stored as a part of the boot ID.
//!
//! The kernel reports a process's start time by the clock of the *reader's* time namespace. So one
//! process has different start tokens in namespaces with different clock offsets. A comparison of
//! tokens from two such namespaces takes a living process for a dead one. Therefore the offset is
//! appended to the boot ID, unless it is zero (the normal case):
//! `0b1c2d3e-…` or `0b1c2d3e-…+86400.000000000`.

/// Separates the boot ID from the clock offset.
const MARK: char = '+';

/// Replaces the offset if this process has no permission to read it. It equals only itself:
/// processes without the permission can compare identities with each other, but not with others.
#[cfg(any(target_os = "linux", test))]
const FORBIDDEN: &str = "?";

/// Joins a boot ID and a clock offset. Only Linux has time namespaces.
#[cfg(any(target_os = "linux", test))]
pub fn qualified(boot: &str, offset: &str) -> String {
    if offset.is_empty() { boot.to_owned() } else { format!("{boot}{MARK}{offset}") }
}

/// Whether both are from the same boot, whatever their clock offsets.
pub fn is_same_boot(one: &str, other: &str) -> bool {
    let id = |boot: &'_ str| boot.split(MARK).next().unwrap_or_default().to_owned();
    !one.is_empty() && id(one) == id(other)
}

/// The clock offset of this process. Empty if it is zero or the kernel has no time namespaces.
///
/// The kernel reports the offset of the namespace that our *children* get. Until the next `exec`,
/// this process may be in another one; then the inode number of that namespace replaces the offset.
/// If a sandbox forbids the read, [`FORBIDDEN`] replaces it: a retry would fail too, and without
/// any value no process could be identified.
#[cfg(target_os = "linux")]
pub fn of_this_process() -> std::io::Result<String> {
    or_mark(read_offset())
}

/// Replaces EACCES and EPERM, which are permanent. Other errors (e.g. no free file descriptor) are
/// returned, because a retry can succeed.
#[cfg(any(target_os = "linux", test))]
fn or_mark(read: std::io::Result<String>) -> std::io::Result<String> {
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(FORBIDDEN.to_owned()),
        read => read,
    }
}

#[cfg(target_os = "linux")]
fn read_offset() -> std::io::Result<String> {
    use std::fs;
    use std::io::{self, ErrorKind};
    use std::os::unix::fs::MetadataExt;

    let none_if_missing =
        |error: io::Error| if error.kind() == ErrorKind::NotFound { Ok(None) } else { Err(error) };
    let inode = |name| {
        fs::metadata(format!("/proc/self/ns/{name}")).map(|meta| Some(meta.ino())).or_else(none_if_missing)
    };
    let (ours, of_children) = (inode("time")?, inode("time_for_children")?);
    if ours != of_children {
        return Ok(format!("time:{}", ours.unwrap_or(0)));
    }
    let empty_if_missing =
        |error: io::Error| if error.kind() == ErrorKind::NotFound { Ok(String::new()) } else { Err(error) };
    Ok(offset(&fs::read_to_string("/proc/self/timens_offsets").or_else(empty_if_missing)?))
}

/// The offset of the boot-time clock, from the text of `/proc/PID/timens_offsets`.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn offset(offsets: &str) -> String {
    let mut lines = offsets.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let found = lines.find_map(|fields| match fields[..] {
        ["boottime" | "7", seconds, nanoseconds] => Some((seconds.to_owned(), nanoseconds.to_owned())),
        _ => None,
    });
    match found {
        Some((seconds, nanoseconds)) if seconds != "0" || nanoseconds != "0" => {
            format!("{seconds}.{nanoseconds:0>9}")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_that_of_the_boottime_clock() {
        for (offsets, expected) in [
            ("", ""),
            ("monotonic           0         0\nboottime            0         0\n", ""),
            ("monotonic          60         0\nboottime            0         0\n", ""),
            ("monotonic           0         0\nboottime        86400         0\n", "86400.000000000"),
            ("monotonic           0         0\nboottime           -1      5000\n", "-1.000005000"),
            ("1 0 0\n7 0 250000000\n", "0.250000000"),
        ] {
            assert_eq!(offset(offsets), expected, "{offsets:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_unreadable_offset_becomes_a_mark_that_equals_only_itself() {
        use nix::libc;

        for errno in [libc::EACCES, libc::EPERM] {
            assert_eq!(or_mark(Err(std::io::Error::from_raw_os_error(errno))).unwrap(), FORBIDDEN);
        }
        assert!(or_mark(Err(std::io::Error::from_raw_os_error(libc::EMFILE))).is_err());
        assert_eq!(or_mark(Ok(String::new())).unwrap(), "");
        let marked = qualified("0b1c2d3e-4f50", FORBIDDEN);
        assert_eq!(marked, "0b1c2d3e-4f50+?");
        assert!(is_same_boot(&marked, "0b1c2d3e-4f50") && is_same_boot(&marked, &marked));
        let token = format!("7:8:9:{marked}");
        assert_eq!(token.parse::<crate::identity::ProcessRef>().unwrap().to_string(), token);
    }

    #[test]
    fn the_boot_is_the_same_whatever_the_clock_offset() {
        let (plain, ahead) = ("0b1c2d3e-4f50", "0b1c2d3e-4f50+86400.000000000");
        assert_eq!((qualified(plain, ""), qualified(plain, "86400.000000000")), (plain.into(), ahead.into()));
        for (one, other) in [(plain, ahead), (ahead, plain), (plain, plain), (ahead, ahead)] {
            assert!(is_same_boot(one, other), "{one} {other}");
        }
        assert!(!is_same_boot(plain, "0b1c2d3e-4f51") && !is_same_boot("", ""));
    }
}
