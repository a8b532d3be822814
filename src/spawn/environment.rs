//! The command's environment.

use std::ffi::{CStr, c_char};

use crate::contain::cookie;

/// `KEY=value`, each ended by a NUL: as given, or the bot's own as it is now, with the cookie last.
pub fn block(given: Option<&str>, run_id: &str) -> String {
    let mut block = given.map_or_else(own, str::to_owned);
    let cookie = cookie::append(std::env::var(cookie::VARIABLE).ok().as_deref(), run_id);
    block.extend([cookie::VARIABLE, "=", &cookie, "\0"]);
    block
}

/// The value of a variable in such a block; the first one counts, as for `getenv`.
pub fn value<'a>(block: &'a str, key: &str) -> Option<&'a str> {
    block.split('\0').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
}

fn own() -> String {
    let mut block = String::with_capacity(8 << 10);
    for variable in std::iter::successors(Some(0), |index| Some(index + 1)).map_while(variable) {
        if !variable.to_bytes().starts_with(COOKIE) {
            block.extend([&*variable.to_string_lossy(), "\0"]);
        }
    }
    block
}

const COOKIE: &[u8] = b"SPAWN_OWNED_RUN=";

// SAFETY: the C library defines it, as an array that ends with a null pointer.
unsafe extern "C" {
    static environ: *const *const c_char;
}

/// One variable of the process, as `KEY=value`. `std::env::vars_os` would copy each twice.
fn variable(index: usize) -> Option<&'static CStr> {
    // SAFETY: `environ` is an array that ends with a null pointer, and so far there was none. Only the thread that is
    // calling us changes it: JS code, on Node's main thread.
    unsafe {
        let start = environ.as_ref().map(|first| std::ptr::from_ref(first).add(index))?;
        (*start).as_ref().map(|text| CStr::from_ptr(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_added_to_what_was_given() {
        assert_eq!(block(Some("A=1\0"), "r1"), "A=1\0SPAWN_OWNED_RUN=r1\0");
        assert_eq!(block(Some(""), "r1"), "SPAWN_OWNED_RUN=r1\0");
        assert!(block(None, "r1").ends_with("\0SPAWN_OWNED_RUN=r1\0"));
    }

    #[test]
    fn without_one_given_it_is_the_process_s_own() {
        let mut expected: Vec<_> = std::env::vars().map(|(key, value)| format!("{key}={value}")).collect();
        expected.push("SPAWN_OWNED_RUN=r1".into());
        assert_eq!(block(None, "r1").split_terminator('\0').collect::<Vec<_>>(), expected);
    }

    #[test]
    fn finds_a_variable_by_its_whole_name() {
        let block = "XPATH=no\0PATHX=no\0PATH=/bin:/usr/bin\0PATH=second\0EMPTY=\0";
        assert_eq!(value(block, "PATH"), Some("/bin:/usr/bin"));
        assert_eq!(value(block, "EMPTY"), Some(""));
        assert_eq!(value(block, "NONE"), None);
    }
}
