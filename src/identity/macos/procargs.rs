//! Parser for `KERN_PROCARGS2`: the arguments and the environment of a process at its `exec`. Pure:
//! bytes in, strings out.
//!
//! ```text
//!   argc (i32)   path of the program \0   \0 … \0
//!   argv[0] \0 … argv[argc - 1] \0   KEY=value \0 … KEY=value \0   \0
//! ```
//!
//! The kernel reads them from the stack of the process, which can write anything there. For system
//! programs the kernel leaves the environment out (while System Integrity Protection is on), so it
//! looks empty.

/// The arguments and the environment of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arguments<'a> {
    argc: usize,
    /// The bytes from the first argument to the end.
    strings: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// `None` if the bytes are not in the kernel's format.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (argc, strings) = bytes.split_first_chunk::<4>()?;
        let argc = usize::try_from(i32::from_le_bytes(*argc)).ok()?;
        let path = strings.iter().position(|&byte| byte == 0)?;
        // The length of the padding after the path is unknown. So empty first arguments count as
        // padding, and as many variables count as arguments, which hides them. That is the safe
        // direction: an argument is never taken for a variable.
        let first =
            strings[path..].iter().position(|&byte| byte != 0).map_or(strings.len(), |more| path + more);
        Some(Self { argc, strings: &strings[first..] })
    }

    /// `argv[0]`.
    pub fn name(&self) -> Option<&'a [u8]> {
        if self.argc == 0 { None } else { self.strings.split(|&byte| byte == 0).next() }
    }

    /// All arguments, `argv[0]` first.
    pub fn words(&self) -> impl Iterator<Item = &'a [u8]> {
        self.strings.split(|&byte| byte == 0).take(self.argc)
    }

    /// The environment: `KEY=value`, separated by NULs.
    pub fn environment(&self) -> &'a [u8] {
        let mut rest = self.strings;
        for _ in 0..self.argc {
            let Some(end) = rest.iter().position(|&byte| byte == 0) else { return &[] };
            rest = &rest[end + 1..];
        }
        // An empty string ends the environment. The rest is for the loader.
        let end = rest.windows(2).position(|pair| pair == [0, 0]);
        if rest.first() == Some(&0) { &[] } else { &rest[..end.unwrap_or(rest.len())] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contain::cookie;

    const KEY: &str = "0123456789abcdef0123456789abcdef";
    const COOKIE: &str = "SPAWN_OWNED_RUN=r0:r1:~0123456789abcdef0123456789abcdef";

    fn block(argc: i32, path: &str, padding: usize, strings: &[&str]) -> Vec<u8> {
        let mut bytes = argc.to_le_bytes().to_vec();
        bytes.extend(path.as_bytes());
        bytes.extend(vec![0; padding]);
        for string in strings {
            bytes.extend(string.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    fn keys(bytes: &[u8]) -> Vec<String> {
        Arguments::parse(bytes).map(|all| cookie::keys(all.environment())).unwrap_or_default()
    }

    #[test]
    fn environment_starts_after_the_arguments() {
        for padding in 1..9 {
            let bytes = block(2, "/bin/sh", padding, &["sh", "-c", "A=1", COOKIE, "", "ptr_munge="]);
            let all = Arguments::parse(&bytes).unwrap();
            assert_eq!(all.name(), Some(&b"sh"[..]));
            assert_eq!(all.words().collect::<Vec<_>>(), [&b"sh"[..], b"-c"]);
            assert_eq!(all.environment(), format!("A=1\0{COOKIE}").as_bytes());
            assert_eq!(keys(&bytes), [KEY]);
        }
    }

    #[test]
    fn an_argument_is_never_taken_for_a_variable() {
        let cookie = COOKIE;
        for (argc, strings) in [
            (2, &["sh", cookie][..]),
            (2, &["", cookie, "A=1"]),
            (3, &["", "", cookie]),
            (3, &["sh", "", cookie]),
            (3, &["sh", cookie, ""]),
            (1, &[cookie]),
            (9, &["sh", "A=1", cookie]),
            (i32::MAX, &["sh", cookie]),
            (-1, &["sh", cookie]),
        ] {
            assert_eq!(keys(&block(argc, "/bin/sh", 3, strings)), [""; 0], "{argc} {strings:?}");
        }
    }

    #[test]
    fn strings_after_the_environment_are_ignored() {
        assert_eq!(keys(&block(1, "/x", 1, &["x", "", COOKIE])), [""; 0]);
        assert_eq!(keys(&block(1, "/x", 1, &["x", "A=1", "", COOKIE])), [""; 0]);
    }

    #[test]
    fn a_hidden_environment_reads_as_empty() {
        let bytes = block(1, "/bin/sleep", 2, &["sleep"]);
        assert_eq!(Arguments::parse(&bytes).unwrap().environment(), b"");
        assert_eq!(Arguments::parse(&block(0, "/bin/sleep", 2, &[])).unwrap().name(), None);
    }

    #[test]
    fn truncated_bytes_yield_fewer_keys_and_never_other_keys() {
        let whole = block(2, "/usr/local/bin/node", 5, &["node", "SPAWN_OWNED_RUN=~no", "A=1", COOKIE]);
        for length in 0..whole.len() {
            let keys = keys(&whole[..length]);
            assert!(keys.iter().all(|key| key == KEY), "{length}: {keys:?}");
        }
        assert_eq!(keys(&whole), [KEY]);
    }

    /// With any bytes, nothing panics. Every variable found is one of the strings after the
    /// arguments.
    #[test]
    fn random_bytes_never_yield_a_wrong_variable() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        let words = ["", "a", COOKIE, "SPAWN_OWNED_RUN=", "=", "A=1", "\u{fffd}"];
        for _ in 0..50_000 {
            let argc = random(6);
            let strings: Vec<_> = (0..random(9)).map(|_| words[random(words.len())]).collect();
            let mut bytes = block(i32::try_from(argc).unwrap(), "/p", 1 + random(8), &strings);
            let is_whole = random(4) > 0;
            if !is_whole {
                bytes.truncate(random(bytes.len() + 1));
                for _ in 0..random(4) {
                    if let Some(length @ 1..) = Some(bytes.len()) {
                        bytes[random(length)] = u8::try_from(random(256)).unwrap();
                    }
                }
            }
            let Some(all) = Arguments::parse(&bytes) else { continue };
            let found: Vec<_> =
                all.environment().split(|&byte| byte == 0).filter(|pair| !pair.is_empty()).collect();
            assert!(found.len() <= strings.len().max(bytes.len()));
            if is_whole {
                let after_arguments: Vec<_> = strings.iter().skip(argc).map(|word| word.as_bytes()).collect();
                assert!(
                    found.iter().all(|pair| after_arguments.contains(pair)),
                    "{argc} {strings:?} {found:?}"
                );
            }
        }
    }
}
