//! The command's environment, as Windows keeps one: the case of a name does not matter, and some variables must be there.

use std::collections::HashSet;

/// Without these much of Windows does not work: no socket can be opened without SYSTEMROOT. Node adds them too.
const REQUIRED: [&str; 11] = [
    "HOMEDRIVE",
    "HOMEPATH",
    "LOGONSERVER",
    "PATH",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERDOMAIN",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// Each name once, in the order that Windows wants.
#[derive(Debug)]
pub struct Environment {
    /// `KEY=value`
    variables: Vec<String>,
}

impl Environment {
    /// Of several that differ in case only, the first counts in the order of their letters: `PATH` before `Path`. What is required
    /// and missing is taken from `own`, which knows the bot's variables.
    pub fn new(block: &str, own: impl Fn(&str) -> Option<String>) -> Self {
        let mut pairs: Vec<_> = block.split('\0').filter_map(|pair| Some((name(pair)?, pair))).collect();
        pairs.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        let mut seen = HashSet::new();
        pairs.retain(|(name, _)| seen.insert(name.to_uppercase()));
        let mut variables: Vec<_> = pairs.iter().map(|&(_, pair)| pair.to_owned()).collect();
        for key in REQUIRED {
            if !pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case(key)) {
                variables.extend(own(key).map(|value| format!("{key}={value}")));
            }
        }
        variables.sort_by_cached_key(|pair| name(pair).map(folded));
        Self { variables }
    }

    /// The name is one in ASCII.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.variables.iter().find_map(|pair| {
            let name = name(pair)?;
            name.eq_ignore_ascii_case(key).then(|| &pair[name.len() + 1..])
        })
    }

    /// For `CREATE_UNICODE_ENVIRONMENT`: each ended by a NUL, and all of them by another. None at all are two.
    pub fn wide(&self) -> Vec<u16> {
        let mut wide = Vec::with_capacity(8 << 10);
        for pair in &self.variables {
            wide.extend(pair.encode_utf16().chain([0]));
        }
        if wide.is_empty() {
            wide.push(0);
        }
        wide.push(0);
        wide
    }
}

/// The bot's own variables as a block, of those that are passed on. Where its shell is on other drives is not, as in Node.
pub fn block(
    variables: impl Iterator<Item = (String, String)>,
    is_passed_on: impl Fn(&str) -> bool,
) -> String {
    let mut block = String::with_capacity(8 << 10);
    for (name, value) in variables {
        if !name.starts_with('=') && is_passed_on(&name) {
            block.extend([&name, "=", &value, "\0"]);
        }
    }
    block
}

/// Up to the `=`. A name may begin with one: in `=C:=C:\work` the shell remembers where it is on another drive.
fn name(pair: &str) -> Option<&str> {
    let second = pair.chars().next()?.len_utf8();
    let equals = pair[second..].find('=')?;
    Some(&pair[..second + equals])
}

/// Windows compares names letter by letter, each as its capital. It has one for each letter; what has two (ß) stays as it is, and no
/// foreign letter becomes one of ASCII (ı).
fn folded(name: &str) -> Vec<u16> {
    let capital = |letter: char| {
        let mut capitals = letter.to_uppercase();
        match (capitals.next(), capitals.next()) {
            (Some(capital), None) if capital.is_ascii() == letter.is_ascii() && letter.len_utf16() == 1 => {
                capital
            }
            _ => letter,
        }
    };
    name.chars().map(capital).collect::<String>().encode_utf16().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn variables(block: &str) -> Vec<String> {
        Environment::new(block, nothing).variables
    }

    #[test]
    fn the_case_of_a_name_does_not_matter() {
        for (block, expected) in [
            ("Path=1\0PATH=2\0path=3\0", &["PATH=2"][..]),
            ("path=1\0Path=2\0", &["Path=2"]),
            ("a=1\0a=2\0", &["a=1"]),
            ("straße=1\0STRASSE=2\0", &["STRASSE=2"]),
            ("ä=1\0Ä=2\0", &["Ä=2"]),
            ("PATHX=1\0PATH=2\0XPATH=3\0", &["PATH=2", "PATHX=1", "XPATH=3"]),
        ] {
            assert_eq!(variables(block), expected, "{block:?}");
        }
    }

    #[test]
    fn the_bot_s_own_is_passed_on() {
        let own = [("=C:", r"C:\work"), ("Path", r"C:\bin"), ("Left", "out"), ("EMPTY", "")];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(block(own.into_iter(), |name| name != "Left"), "Path=C:\\bin\0EMPTY=\0");
    }

    #[test]
    fn what_is_no_variable_is_left_out() {
        assert_eq!(variables("INVALID\0A=1\0=\0=x\0\0"), ["A=1"]);
        assert_eq!(variables("EMPTY=\0E=a=b\0"), ["E=a=b", "EMPTY="]);
    }

    #[test]
    fn where_the_shell_is_on_another_drive_is_kept() {
        let environment = Environment::new("A=1\0=D:=D:\\x\0=C:=C:\\y\0", nothing);
        assert_eq!(environment.variables, ["=C:=C:\\y", "=D:=D:\\x", "A=1"]);
        assert_eq!(environment.get("=c:"), Some("C:\\y"));
    }

    #[test]
    fn is_in_the_order_of_capitals() {
        // `_` is after the capitals and before the small letters; a surrogate is before U+FF61.
        assert_eq!(
            variables("b_z=\0baz=\0B｡Z=\0B𐀂Z=\0B€Z=\0BAy=\0é=\0É0=\0"),
            ["BAy=", "baz=", "b_z=", "B€Z=", "B𐀂Z=", "B｡Z=", "é=", "É0="]
        );
    }

    #[test]
    fn adds_what_windows_needs_from_the_bot() {
        let own = |key: &str| match key {
            "SYSTEMROOT" => Some(r"C:\Windows".to_owned()),
            "TEMP" => Some(String::new()),
            "PATH" | "SECRET" => Some("of the bot".to_owned()),
            _ => None,
        };
        assert_eq!(
            Environment::new("Zed=1\0Path=given\0SYSTEM=x\0SYSTEMROOTED=y\0", own).variables,
            ["Path=given", "SYSTEM=x", r"SYSTEMROOT=C:\Windows", "SYSTEMROOTED=y", "TEMP=", "Zed=1"]
        );
        assert_eq!(Environment::new("", own).get("path"), Some("of the bot"));
        assert_eq!(Environment::new("pAth=\0", own).get("PATH"), Some(""), "an empty one is one");
        assert!(REQUIRED.is_sorted());
    }

    #[test]
    fn no_foreign_letter_is_taken_for_one_of_a_required_name() {
        let own = |key: &str| (key == "SYSTEMROOT").then(|| "x".to_owned());
        let environment = Environment::new("ſYSTEMROOT=y\0", own);
        assert_eq!(environment.get("SYSTEMROOT"), Some("x"));
    }

    #[test]
    fn ends_with_two_nuls_even_if_empty() {
        let wide = |block| String::from_utf16(&Environment::new(block, nothing).wide()).unwrap();
        assert_eq!(wide(""), "\0\0");
        assert_eq!(wide("b=é\0A=1\0"), "A=1\0b=é\0\0");
    }
}
