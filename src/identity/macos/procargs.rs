//! `KERN_PROCARGS2`: the arguments and the environment a process was executed with. Pure: bytes in, strings out.
//!
//! ```text
//!   argc (i32)   path of the program \0   \0 … \0   argv[0] \0 … argv[argc - 1] \0   KEY=value \0 … KEY=value \0   \0
//! ```
//!
//! The kernel reads them from the process's own stack, so a process may have written anything there; and it leaves the environment
//! out for programs of the system's own (while its integrity is protected), which then look as if they had none.

/// What a process was executed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arguments<'a> {
    argc: usize,
    /// From the first argument on.
    strings: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// `None` if the bytes are not what the kernel gives.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (argc, strings) = bytes.split_first_chunk::<4>()?;
        let argc = usize::try_from(i32::from_le_bytes(*argc)).ok()?;
        let path = strings.iter().position(|&byte| byte == 0)?;
        // The padding after the path is of no known length. Arguments that are empty and come first are taken for it; then as many
        // variables are taken for arguments, which hides them. The other way round an argument could be taken for a variable.
        let first =
            strings[path..].iter().position(|&byte| byte != 0).map_or(strings.len(), |more| path + more);
        Some(Self { argc, strings: &strings[first..] })
    }

    /// The name it was called by.
    pub fn name(&self) -> Option<&'a [u8]> {
        if self.argc == 0 { None } else { self.strings.split(|&byte| byte == 0).next() }
    }

    /// All of its arguments, that name first.
    pub fn words(&self) -> impl Iterator<Item = &'a [u8]> {
        self.strings.split(|&byte| byte == 0).take(self.argc)
    }

    /// Its environment: `KEY=value`, separated by NULs.
    pub fn environment(&self) -> &'a [u8] {
        let mut rest = self.strings;
        for _ in 0..self.argc {
            let Some(end) = rest.iter().position(|&byte| byte == 0) else { return &[] };
            rest = &rest[end + 1..];
        }
        // An empty string ends it. What follows is between the kernel and the loader.
        let end = rest.windows(2).position(|pair| pair == [0, 0]);
        if rest.first() == Some(&0) { &[] } else { &rest[..end.unwrap_or(rest.len())] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contain::cookie;

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

    fn runs(bytes: &[u8]) -> Vec<String> {
        Arguments::parse(bytes).map(|all| cookie::run_ids(all.environment())).unwrap_or_default()
    }

    #[test]
    fn finds_the_environment_behind_the_arguments() {
        for padding in 1..9 {
            let bytes =
                block(2, "/bin/sh", padding, &["sh", "-c", "A=1", "SPAWN_OWNED_RUN=r0:r1", "", "ptr_munge="]);
            let all = Arguments::parse(&bytes).unwrap();
            assert_eq!(all.name(), Some(&b"sh"[..]));
            assert_eq!(all.words().collect::<Vec<_>>(), [&b"sh"[..], b"-c"]);
            assert_eq!(all.environment(), b"A=1\0SPAWN_OWNED_RUN=r0:r1");
            assert_eq!(runs(&bytes), ["r0", "r1"]);
        }
    }

    #[test]
    fn an_argument_is_never_taken_for_a_variable() {
        let cookie = "SPAWN_OWNED_RUN=r1";
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
            assert_eq!(runs(&block(argc, "/bin/sh", 3, strings)), [""; 0], "{argc} {strings:?}");
        }
    }

    #[test]
    fn what_comes_after_the_environment_is_none_of_it() {
        assert_eq!(runs(&block(1, "/x", 1, &["x", "", "SPAWN_OWNED_RUN=r1"])), [""; 0]);
        assert_eq!(runs(&block(1, "/x", 1, &["x", "A=1", "", "SPAWN_OWNED_RUN=r1"])), [""; 0]);
    }

    #[test]
    fn a_hidden_environment_is_an_empty_one() {
        let bytes = block(1, "/bin/sleep", 2, &["sleep"]);
        assert_eq!(Arguments::parse(&bytes).unwrap().environment(), b"");
        assert_eq!(Arguments::parse(&block(0, "/bin/sleep", 2, &[])).unwrap().name(), None);
    }

    #[test]
    fn what_was_cut_off_anywhere_gives_less_and_never_something_else() {
        let whole =
            block(2, "/usr/local/bin/node", 5, &["node", "SPAWN_OWNED_RUN=no", "A=1", "SPAWN_OWNED_RUN=r1"]);
        for length in 0..whole.len() {
            let runs = runs(&whole[..length]);
            assert!(runs.iter().all(|id| "r1".starts_with(id.as_str())), "{length}: {runs:?}");
        }
        assert_eq!(runs(&whole), ["r1"]);
    }

    /// Whatever bytes come, nothing panics, and every string of the environment is one of those that were there, behind the arguments.
    #[test]
    fn no_bytes_at_all_lead_it_astray() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        let words = ["", "a", "SPAWN_OWNED_RUN=r1", "SPAWN_OWNED_RUN=", "=", "A=1", "\u{fffd}"];
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
                let behind: Vec<_> = strings.iter().skip(argc).map(|word| word.as_bytes()).collect();
                assert!(found.iter().all(|pair| behind.contains(pair)), "{argc} {strings:?} {found:?}");
            }
        }
    }
}
