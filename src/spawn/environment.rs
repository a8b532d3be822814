//! The command's environment.

use super::TerminalSettings;
use crate::contain::cookie;
use crate::pty::USUAL_NAME;

/// What a bot's own environment says of the bot's own terminal.
const OF_ANOTHER_TERMINAL: [&str; 4] = ["TERM", "TERMCAP", "COLUMNS", "LINES"];

/// `KEY=value`, each ended by a NUL: as given, or the bot's own as it is now, with the cookie last.
///
/// Of `TERM` the name of the command's terminal has the first word, the given environment the second.
pub fn block(given: Option<&str>, run_id: &str, terminal: Option<&TerminalSettings>) -> String {
    let mut block = match (given, terminal) {
        (Some(given), _) => given.to_owned(),
        (None, None) => own(&[]),
        (None, Some(_)) => own(&OF_ANOTHER_TERMINAL),
    };
    if let Some(TerminalSettings { name, .. }) = terminal {
        if name.is_some() {
            block = block.split_inclusive('\0').filter(|pair| value_of("TERM", pair).is_none()).collect();
        }
        if value(&block, "TERM").is_none() {
            block.extend(["TERM=", name.as_deref().unwrap_or(USUAL_NAME), "\0"]);
        }
    }
    let cookie = cookie::append(std::env::var(cookie::VARIABLE).ok().as_deref(), run_id);
    block.extend([cookie::VARIABLE, "=", &cookie, "\0"]);
    block
}

/// The value of a variable in such a block; the first one counts, as for `getenv`.
pub fn value<'a>(block: &'a str, key: &str) -> Option<&'a str> {
    block.split('\0').find_map(|pair| value_of(key, pair))
}

fn value_of<'a>(key: &str, pair: &'a str) -> Option<&'a str> {
    pair.split_once('=').filter(|(name, _)| is_same(name, key)).map(|(_, value)| value)
}

/// On Windows the case of a name does not matter.
fn is_same(name: &str, key: &str) -> bool {
    if cfg!(windows) { name.eq_ignore_ascii_case(key) } else { name == key }
}

fn own(without: &[&str]) -> String {
    own::block(|name| !is_same(name, cookie::VARIABLE) && !without.iter().any(|other| is_same(name, other)))
}

#[cfg(windows)]
mod own {
    use crate::spawn::windows::environment;

    /// The process's variables of those names. What is no Unicode is replaced.
    pub fn block(is_passed_on: impl Fn(&str) -> bool) -> String {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        environment::block(std::env::vars_os().map(|(name, value)| (text(name), text(value))), is_passed_on)
    }
}

#[cfg(unix)]
mod own {
    use std::ffi::{CStr, c_char};

    /// The process's variables of those names. What is no Unicode is replaced.
    pub fn block(is_passed_on: impl Fn(&str) -> bool) -> String {
        let mut block = String::with_capacity(8 << 10);
        for variable in std::iter::successors(Some(0), |index| Some(index + 1)).map_while(variable) {
            let variable = variable.to_string_lossy();
            if is_passed_on(variable.split('=').next().unwrap_or_default()) {
                block.extend([&*variable, "\0"]);
            }
        }
        block
    }

    #[cfg(not(target_os = "macos"))]
    fn variables() -> *const *const c_char {
        // SAFETY: the C library defines it, as an array that ends with a null pointer.
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        // SAFETY: read as a whole.
        unsafe { environ }
    }

    /// A library has no other way to it there.
    #[cfg(target_os = "macos")]
    fn variables() -> *const *const c_char {
        // SAFETY: the C library's own, and never null.
        unsafe { (*nix::libc::_NSGetEnviron()).cast_const().cast() }
    }

    /// One variable of the process, as `KEY=value`. `std::env::vars_os` would copy each twice.
    fn variable(index: usize) -> Option<&'static CStr> {
        // SAFETY: it is an array that ends with a null pointer, and so far there was none. Only the thread that is
        // calling us changes it: JS code, on Node's main thread.
        unsafe {
            let start = variables().as_ref().map(|first| std::ptr::from_ref(first).add(index))?;
            (*start).as_ref().map(|text| CStr::from_ptr(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_added_to_what_was_given() {
        assert_eq!(block(Some("A=1\0"), "r1", None), "A=1\0SPAWN_OWNED_RUN=r1\0");
        assert_eq!(block(Some(""), "r1", None), "SPAWN_OWNED_RUN=r1\0");
        assert!(block(None, "r1", None).ends_with("\0SPAWN_OWNED_RUN=r1\0"));
    }

    #[test]
    fn without_one_given_it_is_the_process_s_own() {
        // On Windows the shell's directories on other drives are variables too.
        let own = std::env::vars().filter(|(key, _)| !key.starts_with('=') && key != "SPAWN_OWNED_RUN");
        let mut expected: Vec<_> = own.map(|(key, value)| format!("{key}={value}")).collect();
        expected.push("SPAWN_OWNED_RUN=r1".into());
        assert_eq!(block(None, "r1", None).split_terminator('\0').collect::<Vec<_>>(), expected);
    }

    #[test]
    fn term_is_of_the_terminal_that_it_has() {
        let size = crate::pty::Size { cols: 80, rows: 24 };
        let unnamed = TerminalSettings { size, name: None };
        let vt100 = TerminalSettings { size, name: Some("vt100".into()) };
        for (given, terminal, expected) in [
            ("A=1\0", None, "A=1\0"),
            ("TERM=dumb\0", None, "TERM=dumb\0"),
            ("A=1\0", Some(&unnamed), "A=1\0TERM=xterm-256color\0"),
            ("TERM=dumb\0A=1\0", Some(&unnamed), "TERM=dumb\0A=1\0"),
            ("A=1\0TERM=dumb\0LINES=3\0", Some(&vt100), "A=1\0LINES=3\0TERM=vt100\0"),
            ("XTERM=1\0TERMX=2\0", Some(&vt100), "XTERM=1\0TERMX=2\0TERM=vt100\0"),
        ] {
            assert_eq!(block(Some(given), "r1", terminal), format!("{expected}SPAWN_OWNED_RUN=r1\0"));
        }
        let own = block(None, "r1", Some(&unnamed));
        assert_eq!(value(&own, "TERM"), Some("xterm-256color"), "not what the bot's own terminal is");
        assert_eq!((value(&own, "COLUMNS"), value(&own, "LINES")), (None, None));
    }

    #[test]
    fn finds_a_variable_by_its_whole_name() {
        let block = "XPATH=no\0PATHX=no\0PATH=/bin:/usr/bin\0PATH=second\0EMPTY=\0";
        assert_eq!(value(block, "PATH"), Some("/bin:/usr/bin"));
        assert_eq!(value(block, "EMPTY"), Some(""));
        assert_eq!(value(block, "NONE"), None);
    }
}
