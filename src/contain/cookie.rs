//! The cookie: an environment variable that every process of a run inherits.
//!
//! Its value is a colon-separated list, outermost run first. Each run adds its id, for people and
//! programs, and its key, for this library: `outer:~KEY:inner:~KEY`. Only the key proves
//! membership. People choose ids and reuse them, so a daemon of an earlier run or another bot's run
//! may carry the same id.

#[cfg(unix)]
mod random;

use std::borrow::Cow;
#[cfg(unix)]
use std::io;
#[cfg(target_os = "linux")]
use std::{fs, path::Path};

#[cfg(target_os = "linux")]
use nix::libc;

#[cfg(unix)]
use crate::identity::stat::Stat;
use crate::start_environment;

/// The name of the variable.
pub const VARIABLE: &str = "SPAWN_OWNED_RUN";

/// Prefix of an element that is a key. No run id starts with it.
const MARK: char = '~';

/// 128 bits in hexadecimal.
const KEY_LENGTH: usize = 32;

/// Returns a key for a new run, which no process can guess.
pub fn new_key() -> String {
    use std::fmt::Write;

    random_bits().iter().fold(String::with_capacity(KEY_LENGTH), |mut key, byte| {
        // Writing to a string does not fail.
        let _ = write!(key, "{byte:02x}");
        key
    })
}

fn random_bits() -> [u8; KEY_LENGTH / 2] {
    #[cfg(unix)]
    if let Some(bits) = random::bits() {
        return bits;
    }
    from_hashers()
}

/// Random bits from the seeds of the standard library's hash maps, which come from the system. On
/// Windows the key decides nothing, because the job proves membership. On Unix this is for
/// sandboxes that forbid the system call.
fn from_hashers() -> [u8; KEY_LENGTH / 2] {
    use std::hash::{BuildHasher, RandomState};

    let half = || RandomState::new().hash_one(std::process::id());
    (u128::from(half()) << 64 | u128::from(half())).to_le_bytes()
}

/// Returns whether the text has the form of a key.
pub fn is_key(text: &str) -> bool {
    text.len() == KEY_LENGTH && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns a run id as an element of the list: the colon of an id is written as `%3A`. No id
/// contains a percent sign.
fn element(run_id: &str) -> Cow<'_, str> {
    if run_id.contains(':') { Cow::Owned(run_id.replace(':', "%3A")) } else { Cow::Borrowed(run_id) }
}

/// Returns the cookie for a run. `outer` is the cookie of its owner, which may itself be in a run.
pub fn append(outer: &str, run_id: &str, key: &str) -> String {
    let separator = if outer.is_empty() { "" } else { ":" };
    format!("{outer}{separator}{}:{MARK}{key}", element(run_id))
}

/// Returns the keys in `environ` (NUL-separated, as in `/proc/PID/environ`). Only elements of
/// exactly this variable count.
pub fn keys(environ: &[u8]) -> Vec<String> {
    environ
        .split(|&byte| byte == 0)
        .filter_map(|pair| pair.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"="))
        .flat_map(|list| list.split(|&byte| byte == b':'))
        .filter_map(|element| key_in(str::from_utf8(element).ok()?))
        .map(str::to_owned)
        .collect()
}

/// Returns the key in an element of the list, if the element is a key.
fn key_in(element: &str) -> Option<&str> {
    element.strip_prefix(MARK).filter(|key| is_key(key))
}

/// The cookie in this process's own environment. Empty if it has none.
pub fn own() -> &'static str {
    start_environment::variable(VARIABLE).unwrap_or_default()
}

/// The keys of the runs in this process's own cookie.
pub fn around_us() -> impl Iterator<Item = &'static str> {
    own().split(':').filter_map(key_in)
}

/// Returns whether this process may itself be in the run. Entries of older versions have no key, so
/// the id decides. That is safe: nothing is ended because of it.
pub fn is_around_us(run_id: &str, key: Option<&str>) -> bool {
    match key {
        Some(key) => around_us().any(|ours| ours == key),
        None => own().split(':').any(|ours| ours == element(run_id)),
    }
}

/// What the environment of a process shows about its runs.
#[cfg(unix)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carried {
    /// The process has an environment with these keys.
    Keys(Vec<String>),
    /// No environment was read. The process has ended or is exiting, has cleared its environment,
    /// is in an exec, or was skipped.
    Nothing,
    /// The environment must not be read: the process is another user's, or a keeper or zygote,
    /// which are not dumpable.
    Hidden,
}

/// Returns the keys that this process carries now. A zombie or a process that is gone carries
/// nothing.
///
/// If the main thread has ended, it reads the other threads, which share the environment. Fails if
/// the read fails because of this process, for example without free descriptors.
#[cfg(target_os = "linux")]
pub fn carried_by(stat: &Stat) -> io::Result<Carried> {
    let pid = stat.pid;
    if stat.state != 'Z' || stat.is_dead() {
        return carried(Path::new(&format!("/proc/{pid}/environ")));
    }
    let tasks = gone_is_none(fs::read_dir(format!("/proc/{pid}/task")))?.into_iter().flatten();
    of_threads(tasks.map(|task| carried(&task?.path().join("environ"))))
}

/// Combines what the threads of a process show. The first readable environment is that of all
/// threads.
///
/// The kernel gives the files of an ended thread to root. So without privileges an ended main
/// thread hides its environment, while a living thread may still show it. The result is hidden only
/// if no thread shows it.
#[cfg(target_os = "linux")]
fn of_threads(threads: impl Iterator<Item = io::Result<Carried>>) -> io::Result<Carried> {
    let mut carried = Carried::Nothing;
    for thread in threads {
        match thread? {
            Carried::Keys(keys) => return Ok(Carried::Keys(keys)),
            Carried::Hidden => carried = Carried::Hidden,
            Carried::Nothing => {}
        }
    }
    Ok(carried)
}

/// Returns the keys that this process carries now. The kernel hides the environment of other users'
/// processes and of system programs.
#[cfg(target_os = "macos")]
#[allow(clippy::unnecessary_wraps)] // On Linux it opens a file, which can fail.
pub fn carried_by(stat: &Stat) -> io::Result<Carried> {
    use crate::identity::macos::arguments;

    let read = arguments(stat.pid, |arguments| keys(arguments.environment()));
    Ok(read.map_or(Carried::Hidden, Carried::Keys))
}

#[cfg(target_os = "linux")]
fn carried(file: &Path) -> io::Result<Carried> {
    match fs::read(file) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => Ok(Carried::Hidden),
        read => {
            let environ = gone_is_none(read)?.filter(|environ| !environ.is_empty());
            Ok(environ.map_or(Carried::Nothing, |environ| Carried::Keys(keys(&environ))))
        }
    }
}

#[cfg(target_os = "linux")]
fn gone_is_none<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH | libc::EACCES | libc::EPERM) => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";
    const INNER: &str = "fedcba9876543210fedcba9876543210";

    #[test]
    fn a_nested_run_appends_its_id_and_key() {
        assert_eq!(append("", "b", KEY), format!("b:~{KEY}"));
        assert_eq!(append("a", "b", KEY), format!("a:b:~{KEY}"), "an older version's cookie has no key");
        let nested = append(&append("", "a", KEY), "b", INNER);
        assert_eq!(nested, format!("a:~{KEY}:b:~{INNER}"));
        assert_eq!(keys(format!("{VARIABLE}={nested}").as_bytes()), [KEY, INNER]);
    }

    #[test]
    fn a_colon_in_a_run_id_does_not_split_the_element() {
        let cookie = append("a", "worker:7@host", KEY);
        assert_eq!(cookie, format!("a:worker%3A7@host:~{KEY}"));
        assert_eq!(keys(format!("{VARIABLE}={cookie}").as_bytes()), [KEY]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_living_thread_shows_the_environment_that_an_ended_one_hides() {
        use Carried::{Hidden, Nothing};

        let key = || Carried::Keys(vec![KEY.to_owned()]);
        let no_key = || Carried::Keys(Vec::new());
        for (threads, expected) in [
            (vec![], Nothing),
            (vec![Nothing, Nothing], Nothing),
            (vec![Nothing, key()], key()),
            (vec![Hidden, key()], key()),
            (vec![Hidden, Hidden, no_key()], no_key()),
            (vec![Hidden, Hidden], Hidden),
            (vec![Hidden, Nothing], Hidden),
        ] {
            let shown = format!("{threads:?}");
            assert_eq!(of_threads(threads.into_iter().map(Ok)).unwrap(), expected, "{shown}");
        }
        let failing = [Ok(Hidden), Err(io::Error::from_raw_os_error(libc::EMFILE))];
        assert!(of_threads(failing.into_iter()).is_err(), "a failed read is an error");
    }

    #[test]
    fn every_key_is_unique() {
        let keys: std::collections::HashSet<_> = (0..1000).map(|_| new_key()).collect();
        assert_eq!(keys.len(), 1000);
        assert!(keys.iter().all(|key| is_key(key)));
        assert_ne!(from_hashers(), from_hashers());
    }

    #[test]
    fn a_key_is_a_whole_element_of_exactly_that_variable() {
        for environ in [
            format!("SPAWN_OWNED_RUN=r1:~{KEY}"),
            format!("A=1\0SPAWN_OWNED_RUN=r0:~{KEY}:r2\0B=2\0"),
            format!("SPAWN_OWNED_RUN=~{KEY}"),
            format!("SPAWN_OWNED_RUN=:::~{KEY}:"),
        ] {
            assert_eq!(keys(environ.as_bytes()), [KEY], "{environ:?}");
        }
    }

    #[test]
    fn an_element_without_the_form_of_a_key_is_no_key() {
        for environ in [
            String::new(),
            "SPAWN_OWNED_RUN=r1".to_owned(),
            "SPAWN_OWNED_RUN=r1:~".to_owned(),
            "SPAWN_OWNED_RUN=~r1".to_owned(),
            format!("SPAWN_OWNED_RUN={KEY}"),
            format!("SPAWN_OWNED_RUN=~{KEY}0"),
            format!("SPAWN_OWNED_RUN=~{}", &KEY[1..]),
            format!("SPAWN_OWNED_RUN=~{}", KEY.to_uppercase()),
            format!("SPAWN_OWNED_RUN=x~{KEY}"),
            format!("SPAWN_OWNED_RUN=~~{KEY}"),
            format!("SPAWN_OWNED_RUNS=~{KEY}"),
            format!("MY_SPAWN_OWNED_RUN=~{KEY}"),
            format!("OTHER=SPAWN_OWNED_RUN=~{KEY}"),
            format!("OTHER=\nSPAWN_OWNED_RUN=~{KEY}"),
            format!("spawn_owned_run=~{KEY}"),
        ] {
            assert_eq!(keys(environ.as_bytes()), [""; 0], "{environ:?}");
        }
        assert_eq!(keys(b"SPAWN_OWNED_RUN=\xff:~0123456789abcdef0123456789abcdef:~\xff"), [KEY]);
    }
}
