//! The trace: one line for each step of addon, zygote and keepers. Off unless [`VARIABLE`] is set.
//!
//! ```text
//! 2026-11-18T07:01:02.345678Z keeper[1234] run=abc123 lifecycle: running -> exiting (cancel)
//! ```
//!
//! The bot opens the target once, when it loads the addon. The zygote inherits the open target as
//! its stderr, and its keepers inherit it from the zygote. Commands do not: it is close-on-exec,
//! and the exec stub closes it before it installs the command's descriptors.
//!
//! A process writes each line with one `write`, so lines of several processes do not mix. It never
//! waits: a line that cannot be written at once is lost.
//!
//! Lines contain names, PIDs and times. They never contain environments, arguments or cookie keys.
//!
//! The system-specific functions are in `unix` and `windows`, with the same contract:
//!
//! | function | contract |
//! |---|---|
//! | `Target::file` | a regular file of this user, for appending; creates it, readable only for its owner |
//! | `Target::stderr` | this process's stderr |
//! | `Target::write` | writes a line with one call. Does not wait; errors have no effect |
//! | `has_more_rights_than_caller` | whether this program is setuid or setgid |

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Once, PoisonError, RwLock};
use std::time::SystemTime;

use system::Target;

/// The environment variable that says where to trace: `1` for stderr, or the path of a file.
pub const VARIABLE: &str = "SPAWN_OWNED_DEBUG";

/// The value of [`VARIABLE`] for stderr.
pub const TO_STDERR: &str = "1";

/// Maximum length of a line. Pipes accept so many bytes in one piece on every system.
const MAX_LINE: usize = 512;

static IS_ON: AtomicBool = AtomicBool::new(false);
static TARGET: RwLock<Option<Target>> = RwLock::new(None);
static ROLE: AtomicU8 = AtomicU8::new(0);
/// The run of a keeper process.
static RUN: RwLock<String> = RwLock::new(String::new());
/// Run ids by registry key, while the trace is on.
static RUN_IDS: RwLock<BTreeMap<String, String>> = RwLock::new(BTreeMap::new());

/// What this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Addon,
    Zygote,
    Keeper,
}

const ROLES: [&str; 3] = ["addon", "zygote", "keeper"];

/// Writes a line to the trace, if the trace is on. Formats nothing if it is off.
///
/// `trace!(run: id, "…")` names a run, and `trace!(key: key, "…")` the run with this key in the
/// registry. Otherwise the line names the run of this keeper.
macro_rules! trace {
    (run: $run:expr, $($text:tt)+) => {
        if $crate::trace::is_on() {
            $crate::trace::write_line($run, format_args!($($text)+));
        }
    };
    (key: $key:expr, $($text:tt)+) => {
        if $crate::trace::is_on() {
            $crate::trace::write_line(&$crate::trace::run_with_key($key), format_args!($($text)+));
        }
    };
    ($($text:tt)+) => {
        if $crate::trace::is_on() {
            $crate::trace::write_line("", format_args!($($text)+));
        }
    };
}
pub(crate) use trace;

/// Whether the trace is on: one load of a flag.
#[inline]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Starts the trace of a bot, as the value of [`VARIABLE`] says. Only the first call counts.
///
/// The error is a sentence for people. The trace is off then.
pub fn start(value: Option<&str>) -> Result<(), String> {
    static FIRST: Once = Once::new();
    let Some(value) = value.filter(|value| !matches!(*value, "" | "0")) else { return Ok(()) };
    let mut result = Ok(());
    FIRST.call_once(|| result = begin(value));
    result
}

fn begin(value: &str) -> Result<(), String> {
    if system::has_more_rights_than_caller() {
        return Err(format!("A setuid or setgid program ignores {VARIABLE}. There is no trace."));
    }
    let target = if value == TO_STDERR { Target::stderr() } else { Target::file(Path::new(value)) };
    match target {
        Ok(target) => {
            write_to(target, Role::Addon);
            trace!("the trace of spawn-owned {} begins", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Err(why) => Err(format!(
            "Cannot write the trace to {VARIABLE}={value:?}: {why}. There is no trace. Set {VARIABLE} to 1 for \
             stderr, or to the path of a plain file."
        )),
    }
}

/// Starts the trace of a zygote. The bot passed the target as stderr, and `1` in [`VARIABLE`].
#[cfg(unix)]
pub fn start_inherited(value: Option<&str>) {
    if value == Some(TO_STDERR)
        && let Ok(target) = Target::inherited()
    {
        write_to(target, Role::Zygote);
    }
}

fn write_to(target: Target, role: Role) {
    set_role(role);
    *TARGET.write().unwrap_or_else(PoisonError::into_inner) = Some(target);
    IS_ON.store(true, Ordering::Relaxed);
}

/// Stops the trace and closes its target. An exec stub calls this: the command's descriptors may
/// get the same numbers.
pub fn stop() {
    IS_ON.store(false, Ordering::Relaxed);
    TARGET.write().unwrap_or_else(PoisonError::into_inner).take();
}

/// The target, to be the stderr of a zygote. `None` if the trace is off.
#[cfg(unix)]
pub fn share() -> Option<std::process::Stdio> {
    if !is_on() {
        return None;
    }
    TARGET.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.share()
}

/// Sets what this process is, after a fork.
pub fn set_role(role: Role) {
    ROLE.store(role as u8, Ordering::Relaxed);
}

/// Sets the run of this keeper process.
pub fn set_run(run_id: &str) {
    if is_on() {
        run_id.clone_into(&mut RUN.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Stores the run id that belongs to a registry key.
pub fn add_key(key: &str, run_id: &str) {
    if is_on() {
        let mut run_ids = RUN_IDS.write().unwrap_or_else(PoisonError::into_inner);
        run_ids.insert(key.to_owned(), run_id.to_owned());
    }
}

/// Forgets a registry key.
pub fn remove_key(key: &str) {
    if is_on() {
        RUN_IDS.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// The run id that belongs to a registry key; the key itself if this process does not know the run.
/// Empty in a keeper, which has only one run.
pub fn run_with_key(key: &str) -> String {
    if !RUN.read().unwrap_or_else(PoisonError::into_inner).is_empty() {
        return String::new();
    }
    let run_ids = RUN_IDS.read().unwrap_or_else(PoisonError::into_inner);
    run_ids.get(key).map_or(key, String::as_str).to_owned()
}

/// Writes one line. An empty `run` means the run of this keeper. Use [`trace!`] instead, which
/// formats nothing if the trace is off.
#[cold]
#[inline(never)]
pub fn write_line(run: &str, text: fmt::Arguments) {
    let target = TARGET.read().unwrap_or_else(PoisonError::into_inner);
    let Some(target) = &*target else { return };
    let own_run = RUN.read().unwrap_or_else(PoisonError::into_inner);
    let role = ROLES[usize::from(ROLE.load(Ordering::Relaxed))];
    let run = if run.is_empty() { &own_run } else { run };
    let line = line(SystemTime::now(), role, std::process::id(), run, text);
    target.write(line.as_bytes());
}

fn line(now: SystemTime, role: &str, pid: u32, run: &str, text: fmt::Arguments) -> String {
    let mut line = Line(String::with_capacity(MAX_LINE));
    let time = humantime::format_rfc3339_micros(now);
    let run = if run.is_empty() { "-" } else { run };
    // An error means that the line is full.
    if write!(line, "{time} {role}[{pid}] run={run} {text}").is_err() {
        line.0.push('…');
    }
    line.0.push('\n');
    line.0
}

/// Text of one line: escapes control characters, and refuses what exceeds [`MAX_LINE`].
struct Line(String);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        /// The longest escaped character, the mark of a cut line, and the newline.
        const RESERVE: usize = "\\u{10ffff}".len() + '…'.len_utf8() + 1;
        for letter in text.chars() {
            if self.0.len() + RESERVE > MAX_LINE {
                return Err(fmt::Error);
            }
            if letter.is_control() {
                self.0.extend(letter.escape_default());
            } else {
                self.0.push(letter);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn line_of(run: &str, text: &str) -> String {
        let now = SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_000_000_000_123);
        line(now, "keeper", 12, run, format_args!("{text}"))
    }

    #[test]
    fn a_line_has_time_role_pid_run_and_text() {
        assert_eq!(line_of("a", "said it"), "2026-11-18T11:06:40.000123Z keeper[12] run=a said it\n");
        assert_eq!(line_of("", "said it"), "2026-11-18T11:06:40.000123Z keeper[12] run=- said it\n");
    }

    #[test]
    fn line_breaks_and_control_characters_in_text_are_escaped() {
        let line = line_of("a\nb", "c\r\nd\u{1b}[2J");
        assert!(line.ends_with("run=a\\nb c\\r\\nd\\u{1b}[2J\n"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn a_long_line_is_cut_at_a_character_and_ends_with_a_mark() {
        for letter in ["x", "é", "€", "😀", "\u{1}"] {
            let line = line_of("a", &letter.repeat(1_000));
            assert!(line.len() <= MAX_LINE && line.len() > MAX_LINE - 40, "{}", line.len());
            assert!(line.ends_with("…\n"), "{line}");
        }
    }

    #[test]
    fn the_trace_is_off_unless_the_variable_says_more_than_0() {
        for value in [None, Some(""), Some("0")] {
            assert_eq!(start(value), Ok(()));
            assert!(!is_on());
        }
    }

    #[test]
    fn nothing_is_formatted_while_the_trace_is_off() {
        struct Forbidden;
        impl fmt::Display for Forbidden {
            fn fmt(&self, _: &mut fmt::Formatter) -> fmt::Result {
                panic!("formatted")
            }
        }
        trace!("{Forbidden}");
        trace!(run: "a", "{Forbidden}");
        trace!(key: "b", "{Forbidden}");
    }
}
