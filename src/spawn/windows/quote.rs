//! The command line. Windows passes one text, and each program splits it, most by the rules of the
//! C runtime.

/// The arguments as one NUL-terminated text, which the C runtime splits into the same arguments.
/// `verbatim`: the caller has quoted them, or the program has its own rules, like `cmd.exe`.
pub fn command_line<'a>(argv: impl IntoIterator<Item = &'a str>, verbatim: bool) -> Vec<u16> {
    let mut line = String::new();
    for (index, argument) in argv.into_iter().enumerate() {
        if index > 0 {
            line.push(' ');
        }
        if verbatim {
            line.push_str(argument);
        } else {
            push_quoted(&mut line, argument);
        }
    }
    line.encode_utf16().chain([0]).collect()
}

/// Adds quotes only where they are needed: some programs read the command line themselves.
fn push_quoted(line: &mut String, argument: &str) {
    if !argument.is_empty() && !argument.contains([' ', '\t', '"']) {
        line.push_str(argument);
        return;
    }
    line.push('"');
    let mut backslashes = 0;
    for character in argument.chars() {
        // A backslash is plain text, except before a quote: there two backslashes are one, and an
        // odd one escapes the quote.
        if character == '"' {
            line.extend(std::iter::repeat_n('\\', backslashes + 1));
        }
        backslashes = if character == '\\' { backslashes + 1 } else { 0 };
        line.push(character);
    }
    line.extend(std::iter::repeat_n('\\', backslashes));
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(argv: &[&str], verbatim: bool) -> String {
        let line = command_line(argv.iter().copied(), verbatim);
        let (end, text) = line.split_last().unwrap();
        assert_eq!((*end, text.contains(&0)), (0, false), "one NUL, at the end");
        String::from_utf16(text).unwrap()
    }

    #[test]
    fn command_line_quotes_what_the_c_runtime_would_change() {
        for (argument, expected) in [
            ("", r#""""#),
            ("plain", "plain"),
            ("two words", r#""two words""#),
            ("a\ttab", "\"a\ttab\""),
            ("a\nline", "a\nline"),
            (r"C:\a\b\", r"C:\a\b\"),
            (r"C:\a b\c", r#""C:\a b\c""#),
            (r"C:\a b\", r#""C:\a b\\""#),
            (r"C:\a b\\", r#""C:\a b\\\\""#),
            (r#"""#, r#""\"""#),
            (r#"say "hi""#, r#""say \"hi\"""#),
            (r#"a""b"#, r#""a\"\"b""#),
            (r#"a\"b"#, r#""a\\\"b""#),
            (r#"a\\"b"#, r#""a\\\\\"b""#),
            (r#"a\b"c"#, r#""a\b\"c""#),
            (r#"ends\""#, r#""ends\\\"""#),
            (r"\", r"\"),
            (r" \", r#"" \\""#),
            ("%PATH% & ^ | < > ! $", r#""%PATH% & ^ | < > ! $""#),
            ("%PATH%&calc", "%PATH%&calc"),
            ("é 𝄞", r#""é 𝄞""#),
        ] {
            assert_eq!(line(&[argument], false), expected, "{argument:?}");
        }
    }

    #[test]
    fn command_line_joins_arguments_with_single_spaces() {
        assert_eq!(line(&["node.exe", "-e", "1 + 1", "", "x"], false), r#"node.exe -e "1 + 1" "" x"#);
        assert_eq!(line(&[], false), "");
    }

    #[test]
    fn verbatim_arguments_stay_unchanged() {
        assert_eq!(
            line(&["cmd.exe", "/d", "/s", "/c", r#""echo "a  b" & dir C:\""#], true),
            r#"cmd.exe /d /s /c "echo "a  b" & dir C:\""#
        );
        assert_eq!(line(&["a", "", "b"], true), "a  b");
    }

    #[test]
    fn the_c_runtime_reads_back_the_same_arguments() {
        let pieces = ["", "a", " ", "\t", r"\", r"\\", r#"""#, r#"\""#, "é"];
        let mut argv: Vec<String> = Vec::new();
        for first in pieces {
            for second in pieces {
                argv.extend(pieces.iter().map(|third| [first, second, third].concat()));
            }
        }
        let read = read_back(&line(&argv.iter().map(String::as_str).collect::<Vec<_>>(), false));
        assert_eq!(read, argv);
    }

    /// Splits a command line by the documented rules of the C runtime, for all arguments but the
    /// first.
    fn read_back(line: &str) -> Vec<String> {
        let (mut argv, mut argument, mut quoted, mut backslashes) = (Vec::new(), None::<String>, false, 0);
        for character in line.chars().chain([' ']) {
            if character == '\\' {
                backslashes += 1;
                continue;
            }
            let (text, is_text) = match character {
                '"' => (backslashes / 2, backslashes % 2 == 1),
                _ => (backslashes, true),
            };
            if backslashes > 0 || character == '"' {
                argument.get_or_insert_default().extend(std::iter::repeat_n('\\', text));
            }
            backslashes = 0;
            match character {
                '"' if !is_text => quoted = !quoted,
                ' ' | '\t' if !quoted => argv.extend(argument.take()),
                other => argument.get_or_insert_default().push(other),
            }
        }
        assert!(!quoted, "every quote is closed");
        argv
    }
}
