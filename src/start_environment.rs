//! The environment variables that the native code reads, as they were at the start of the process.
//!
//! `getenv` is not thread-safe: JavaScript changes `process.env` on its own thread, which moves the
//! array that `getenv` reads on another thread. So the addon never reads the environment.
//! JavaScript passes the variables in when it loads the addon ([`capture`]), from `process.env`,
//! which has a lock. The keeper's executable has one thread and reads its own environment.

use std::sync::OnceLock;

/// The names of all variables that the native code reads. The caller of [`capture`] passes their
/// values.
pub const NAMES: [&str; 5] = [
    "SPAWN_OWNED_RUN",
    "SPAWN_OWNED_FORCE_FALLBACK",
    "SPAWN_OWNED_CGROUP",
    "SPAWN_OWNED_CRASH_AT",
    "SPAWN_OWNED_DEBUG",
];

type Values = [Option<String>; NAMES.len()];

static VALUES: OnceLock<Values> = OnceLock::new();

/// Sets the values of [`NAMES`], in that order. Only the first call counts: a worker has its own
/// `process.env`, but the process has only one start.
pub fn capture(mut values: Values) {
    // A worker can have a `process.env` without the cookie, and JavaScript can delete it. The
    // process is still a member of the outer run. So its own runs must carry the outer key, and a
    // reap in it must spare the outer run.
    if values[0].is_none() {
        values[0] = initial_cookie();
    }
    let _ = VALUES.set(values);
}

/// The cookie in the environment that the kernel gave to this process. Reading this file does not
/// race with `setenv`, which does not change the initial block.
#[cfg(target_os = "linux")]
fn initial_cookie() -> Option<String> {
    let environ = std::fs::read("/proc/self/environ").ok()?;
    let mut values = environ.split(|&byte| byte == 0).filter_map(|pair| pair.strip_prefix(COOKIE));
    values.next().and_then(|value| String::from_utf8(value.to_vec()).ok())
}

#[cfg(target_os = "linux")]
const COOKIE: &[u8] = b"SPAWN_OWNED_RUN=";

#[cfg(not(target_os = "linux"))]
fn initial_cookie() -> Option<String> {
    None
}

/// Reports panics without reading `RUST_BACKTRACE`, for which the standard library calls `getenv`.
/// Ignores a failed write to stderr: a panic in the hook would abort the bot.
#[cfg(feature = "node")]
pub fn report_panics() {
    use std::io::Write;

    std::panic::set_hook(Box::new(|panic| drop(writeln!(std::io::stderr(), "spawn-owned: {panic}"))));
}

/// The value of a variable. `None` for a name that is not in [`NAMES`].
pub fn variable(name: &str) -> Option<&'static str> {
    let index = NAMES.iter().position(|known| *known == name)?;
    VALUES.get_or_init(uncaptured)[index].as_deref()
}

/// Reads the environment: the keeper's executable and the tests have no JavaScript to pass values
/// in.
#[cfg(not(feature = "node"))]
#[allow(clippy::disallowed_methods)] // There is one thread, or no JavaScript that changes it.
fn uncaptured() -> Values {
    NAMES.map(|name| std::env::var(name).ok())
}

/// No values: JavaScript has not called [`capture`] yet, and reading the environment is not safe.
#[cfg(feature = "node")]
fn uncaptured() -> Values {
    Values::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contain::cookie;

    #[test]
    fn names_contains_every_variable_that_the_native_code_reads() {
        assert!(NAMES.contains(&cookie::VARIABLE));
        assert!(NAMES.contains(&crate::trace::VARIABLE));
        #[cfg(unix)]
        assert!(NAMES.contains(&crate::identity::FORCE_FALLBACK));
        #[cfg(target_os = "linux")]
        assert!(NAMES.contains(&crate::contain::cgroup::place::SWITCH));
    }

    #[test]
    fn an_unknown_name_has_no_value() {
        assert_eq!(variable("PATH"), None);
    }
}
