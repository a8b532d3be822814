//! The command's environment.

use super::TerminalSettings;
use crate::contain::cookie;
use crate::pty::DEFAULT_TERM;

/// The command's environment block: the variables that JavaScript passed in, then the cookie. Each
/// is `KEY=value` and a NUL.
///
/// A terminal with a name sets `TERM`. A terminal without a name sets it only if `given` has none.
pub fn block(given: &str, run_id: &str, cookie_key: &str, terminal: Option<&TerminalSettings>) -> String {
    let mut block = given.to_owned();
    if let Some(TerminalSettings { name, .. }) = terminal {
        if name.is_some() {
            block = block.split_inclusive('\0').filter(|pair| value_of("TERM", pair).is_none()).collect();
        }
        if value(&block, "TERM").is_none() {
            block.extend(["TERM=", name.as_deref().unwrap_or(DEFAULT_TERM), "\0"]);
        }
    }
    let cookie = cookie::append(cookie::own(), run_id, cookie_key);
    block.extend([cookie::VARIABLE, "=", &cookie, "\0"]);
    block
}

/// The value of a variable in a block. The first one counts, as for `getenv`.
pub fn value<'a>(block: &'a str, key: &str) -> Option<&'a str> {
    block.split('\0').find_map(|pair| value_of(key, pair))
}

fn value_of<'a>(key: &str, pair: &'a str) -> Option<&'a str> {
    pair.split_once('=').filter(|(name, _)| is_same(name, key)).map(|(_, value)| value)
}

/// On Windows the case of a variable's name does not matter.
fn is_same(name: &str, key: &str) -> bool {
    if cfg!(windows) { name.eq_ignore_ascii_case(key) } else { name == key }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_adds_the_cookie_to_the_given_variables() {
        assert_eq!(block("A=1\0", "r1", "k", None), "A=1\0SPAWN_OWNED_RUN=r1:~k\0");
        assert_eq!(block("", "r1", "k", None), "SPAWN_OWNED_RUN=r1:~k\0");
    }

    #[test]
    fn block_sets_term_to_the_name_of_the_terminal() {
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
            assert_eq!(block(given, "r1", "k", terminal), format!("{expected}SPAWN_OWNED_RUN=r1:~k\0"));
        }
    }

    #[test]
    fn value_finds_a_variable_by_its_whole_name() {
        let block = "XPATH=no\0PATHX=no\0PATH=/bin:/usr/bin\0PATH=second\0EMPTY=\0";
        assert_eq!(value(block, "PATH"), Some("/bin:/usr/bin"));
        assert_eq!(value(block, "EMPTY"), Some(""));
        assert_eq!(value(block, "NONE"), None);
    }
}
