//! The command's environment on Windows: names ignore case, and some variables are required.

use std::collections::HashSet;

/// Much of Windows does not work without these: without SYSTEMROOT no socket opens. Node adds them,
/// too.
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

/// Environment variables, each name once, in the order that Windows requires.
#[derive(Debug)]
pub struct Environment {
    /// `KEY=value`
    variables: Vec<String>,
}

impl Environment {
    /// Of several names that differ in case only, the first in code unit order counts: `PATH`
    /// before `Path`. Required variables that are missing come from `bot_value`, which reads the
    /// bot's variables.
    pub fn new(block: &str, bot_value: impl Fn(&str) -> Option<String>) -> Self {
        let mut pairs: Vec<_> = block.split('\0').filter_map(|pair| Some((name(pair)?, pair))).collect();
        pairs.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        let mut seen = HashSet::new();
        pairs.retain(|(name, _)| seen.insert(name.to_uppercase()));
        let mut variables: Vec<_> = pairs.iter().map(|&(_, pair)| pair.to_owned()).collect();
        for key in REQUIRED {
            if !pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case(key)) {
                variables.extend(bot_value(key).map(|value| format!("{key}={value}")));
            }
        }
        variables.sort_by_cached_key(|pair| name(pair).map(upper_case));
        Self { variables }
    }

    /// The value of a variable. The key must be ASCII.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.variables.iter().find_map(|pair| {
            let name = name(pair)?;
            name.eq_ignore_ascii_case(key).then(|| &pair[name.len() + 1..])
        })
    }

    /// The block for `CREATE_UNICODE_ENVIRONMENT`: a NUL after each variable, and one at the end.
    /// An empty block is two NULs.
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

/// The name: everything before the `=`. A name may start with `=`: with `=C:=C:\work` the shell
/// stores its directory on another drive.
fn name(pair: &str) -> Option<&str> {
    let second = pair.chars().next()?.len_utf8();
    let equals = pair[second..].find('=')?;
    Some(&pair[..second + equals])
}

/// The name as Windows compares it: each letter as its capital. A letter without a single capital
/// (ß) stays as it is. No letter outside ASCII becomes an ASCII letter (ı).
fn upper_case(name: &str) -> Vec<u16> {
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

    fn no_bot_value(_: &str) -> Option<String> {
        None
    }

    fn variables(block: &str) -> Vec<String> {
        Environment::new(block, no_bot_value).variables
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
    fn new_drops_invalid_variables() {
        assert_eq!(variables("INVALID\0A=1\0=\0=x\0\0"), ["A=1"]);
        assert_eq!(variables("EMPTY=\0E=a=b\0"), ["E=a=b", "EMPTY="]);
    }

    #[test]
    fn new_keeps_the_directories_of_other_drives() {
        let environment = Environment::new("A=1\0=D:=D:\\x\0=C:=C:\\y\0", no_bot_value);
        assert_eq!(environment.variables, ["=C:=C:\\y", "=D:=D:\\x", "A=1"]);
        assert_eq!(environment.get("=c:"), Some("C:\\y"));
    }

    #[test]
    fn variables_are_sorted_by_their_capital_letters() {
        // `_` comes after the capitals and before the small letters; a surrogate comes before
        // U+FF61.
        assert_eq!(
            variables("b_z=\0baz=\0B｡Z=\0B𐀂Z=\0B€Z=\0BAy=\0é=\0É0=\0"),
            ["BAy=", "baz=", "b_z=", "B€Z=", "B𐀂Z=", "B｡Z=", "é=", "É0="]
        );
    }

    #[test]
    fn new_adds_missing_required_variables_of_the_bot() {
        let bot_value = |key: &str| match key {
            "SYSTEMROOT" => Some(r"C:\Windows".to_owned()),
            "TEMP" => Some(String::new()),
            "PATH" | "SECRET" => Some("of the bot".to_owned()),
            _ => None,
        };
        assert_eq!(
            Environment::new("Zed=1\0Path=given\0SYSTEM=x\0SYSTEMROOTED=y\0", bot_value).variables,
            ["Path=given", "SYSTEM=x", r"SYSTEMROOT=C:\Windows", "SYSTEMROOTED=y", "TEMP=", "Zed=1"]
        );
        assert_eq!(Environment::new("", bot_value).get("path"), Some("of the bot"));
        assert_eq!(Environment::new("pAth=\0", bot_value).get("PATH"), Some(""), "an empty value counts");
        assert!(REQUIRED.is_sorted());
    }

    #[test]
    fn a_letter_outside_ascii_does_not_match_a_required_name() {
        let bot_value = |key: &str| (key == "SYSTEMROOT").then(|| "x".to_owned());
        let environment = Environment::new("ſYSTEMROOT=y\0", bot_value);
        assert_eq!(environment.get("SYSTEMROOT"), Some("x"));
    }

    #[test]
    fn wide_ends_with_two_nuls_even_if_empty() {
        let wide = |block| String::from_utf16(&Environment::new(block, no_bot_value).wide()).unwrap();
        assert_eq!(wide(""), "\0\0");
        assert_eq!(wide("b=é\0A=1\0"), "A=1\0b=é\0\0");
    }
}
