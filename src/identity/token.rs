//! A [`ProcessRef`] as text: the start token in the registry and in JavaScript.
//!
//! The format is `PID:START:NAMESPACE:BOOT`, e.g. `4242:8812345:4026531836:0b1c2d3e-…`. It is one
//! string, so no part of the identity can get lost.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ProcessRef, boot as this_boot};

impl fmt::Display for ProcessRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.pid, self.start, self.ns, self.boot)
    }
}

/// The text is not a start token. Its process is unknown, so it must not be signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAToken;

impl fmt::Display for NotAToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a start token (PID:START:NAMESPACE:BOOT)")
    }
}

impl FromStr for ProcessRef {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let mut parts = text.splitn(4, ':');
        let mut part = || parts.next().ok_or(NotAToken);
        let pid = number(part()?)?;
        let start = number(part()?)?;
        let ns = number(part()?)?;
        let boot = part()?;
        if pid <= 0 || boot.is_empty() || boot.len() > 64 || !boot.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(NotAToken);
        }
        // Share the string: nearly all tokens in a registry are from this boot.
        let boot = if *boot == **this_boot() { this_boot().clone() } else { boot.into() };
        Ok(Self { pid, start, boot, ns })
    }
}

/// Parses a number in its only valid spelling: no sign, no leading zeros.
fn number<T: FromStr>(text: &str) -> Result<T, NotAToken> {
    let is_plain = text == "0" || !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    if is_plain { text.parse().map_err(|_| NotAToken) } else { Err(NotAToken) }
}

impl Serialize for ProcessRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ProcessRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = ProcessRef;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a start token")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ProcessRef, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_formatting_and_parsing() {
        let process = ProcessRef { pid: 7, start: u64::MAX, boot: "0b1c2d3e-4f50".into(), ns: 4_026_531_836 };
        assert_eq!(process.to_string().parse(), Ok(process));
    }

    #[test]
    fn malformed_tokens_are_rejected() {
        for text in [
            "",
            ":::",
            "7",
            "7:8",
            "7:8:9",
            "7:8:9:",
            "0:8:9:b",
            "-7:8:9:b",
            "7:-8:9:b",
            "x:8:9:b",
            "7:8:9:b c",
            "+7:8:9:b",
            "07:8:9:b",
            "7:08:9:b",
            "7:+8:9:b",
            "7:8:00:b",
            "7:8: 9:b",
            "7::9:b",
        ] {
            assert_eq!(text.parse::<ProcessRef>(), Err(NotAToken), "{text:?}");
        }
    }
}
