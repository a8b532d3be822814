//! Finds the file of a command by Node's rules. The rules of `CreateProcessW` differ.

use crate::errno::Errno;

/// Extensions to try if the name has none. `CreateProcessW` starts no other files, so PATHEXT does
/// not matter.
const EXTENSIONS: [&str; 2] = ["com", "exe"];

/// Where to search.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The command's directory, not the bot's, as the caller gave it: it may be relative.
    pub cwd: &'a str,
    /// PATH of the command's environment.
    pub path: Option<&'a str>,
    /// Whether a name without a directory is searched in `cwd` first, see
    /// `NeedCurrentDirectoryForExePathW`.
    pub cwd_first: bool,
}

/// The error with which Node refuses a command before it searches the file. The order matters.
pub fn refusal(file: &str, uid: Option<u32>, gid: Option<u32>) -> Option<Errno> {
    if is_batch(file) {
        Some(Errno::EINVAL)
    } else if uid.or(gid).is_some() {
        Some(Errno::ENOTSUP)
    } else {
        None
    }
}

/// Node starts no batch file without a shell: no quoting makes `cmd.exe` read every argument as an
/// argument. Windows ignores dots and spaces at the end of a name.
fn is_batch(file: &str) -> bool {
    let name = file.trim_end_matches(|c: char| c == '.' || c == '\u{b}' || c.is_ascii_whitespace());
    name.rsplit_once('.').is_some_and(|(_, extension)| {
        extension.eq_ignore_ascii_case("bat") || extension.eq_ignore_ascii_case("cmd")
    })
}

/// The file to execute. `exists` returns whether a path exists and is not a directory.
pub fn find(file: &str, places: Places, exists: impl Fn(&str) -> bool) -> Option<String> {
    if file.is_empty() || file == "." {
        return None;
    }
    let name_at = file.rfind(['\\', '/', ':']).map_or(0, |at| at + 1);
    let (dir, name) = file.split_at(name_at);
    let look_in = |dir: &str| {
        let stem = in_directory(dir, name, places.cwd);
        let unchanged = has_extension(name).then(|| stem.clone());
        let completed = EXTENSIONS.map(|extension| with_extension(&stem, name, extension));
        unchanged.into_iter().chain(completed).find(|path| exists(path))
    };
    if !dir.is_empty() {
        return look_in(dir);
    }
    places
        .cwd_first
        .then(|| look_in(""))
        .flatten()
        .or_else(|| directories(places.path.unwrap_or_default()).find_map(look_in))
}

/// Whether the name has an extension, from its first dot on. Then it is tried unchanged first, like
/// `node.js`.
fn has_extension(name: &str) -> bool {
    name.split_once('.').is_some_and(|(_, extension)| !extension.is_empty())
}

fn with_extension(stem: &str, name: &str, extension: &str) -> String {
    let dot = if name.is_empty() || name.ends_with('.') { "" } else { "." };
    [stem, dot, extension].concat()
}

/// The path of `name` in `dir`. A relative directory is relative to `cwd`. So is a drive without a
/// root (`D:tools`) if `cwd` is on that drive. Otherwise it means the bot's directory on that
/// drive.
fn in_directory(dir: &str, name: &str, cwd: &str) -> String {
    let is_separator = |c: Option<char>| matches!(c, Some('\\' | '/'));
    let mut first = dir.chars();
    let (one, two, three) = (first.next(), first.next(), first.next());
    let (base, dir) = if is_separator(one) {
        // `\\server\share` is complete, `\tools` has no drive.
        let complete = is_separator(two) && three.is_some();
        (if complete { "" } else { drive(cwd).unwrap_or_default() }, dir)
    } else if two != Some(':') {
        (cwd, dir)
    } else if is_separator(three) {
        ("", dir)
    } else {
        match (drive(dir), drive(cwd)) {
            (Some(its), Some(of_cwd)) if its.eq_ignore_ascii_case(of_cwd) => (cwd, &dir[its.len()..]),
            _ => ("", dir),
        }
    };
    let mut path = String::with_capacity(base.len() + dir.len() + name.len() + 6);
    for part in [base, dir] {
        path.push_str(part);
        if !part.is_empty() && !part.ends_with(['\\', '/', ':']) {
            path.push('\\');
        }
    }
    path + name
}

/// `C:`
fn drive(path: &str) -> Option<&str> {
    let colon = path.find(':')?;
    (path[..colon].chars().count() == 1).then(|| &path[..=colon])
}

/// The directories of a PATH. A semicolon inside quotes at the start of an entry does not end it.
/// Spaces count. Empty entries do not.
fn directories(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let path = rest?;
        let quoted = match path.chars().next() {
            Some(quote @ ('"' | '\'')) => path[1..].find(quote).map_or(path.len(), |at| at + 1),
            _ => 0,
        };
        let end = path[quoted..].find(';').map_or(path.len(), |at| quoted + at);
        rest = path.get(end + 1..);
        Some(&path[..end])
    })
    .map(|entry| {
        let entry = entry.strip_prefix(['"', '\'']).unwrap_or(entry);
        entry.strip_suffix(['"', '\'']).unwrap_or(entry)
    })
    .filter(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const CWD: &str = r"C:\work";
    const HERE: Places = Places { cwd: CWD, path: Some(r"C:\bin;D:\tools\"), cwd_first: true };

    /// Every path that is tried, in order.
    fn tried(file: &str, places: Places) -> Vec<String> {
        let tried = RefCell::new(Vec::new());
        let found = find(file, places, |path| {
            tried.borrow_mut().push(path.to_owned());
            false
        });
        assert_eq!(found, None);
        tried.into_inner()
    }

    #[test]
    fn find_tries_the_directory_first_and_then_the_path() {
        assert_eq!(
            tried("git", HERE),
            [
                r"C:\work\git.com",
                r"C:\work\git.exe",
                r"C:\bin\git.com",
                r"C:\bin\git.exe",
                r"D:\tools\git.com",
                r"D:\tools\git.exe"
            ]
        );
        let not_here = Places { cwd_first: false, ..HERE };
        assert_eq!(tried("git", not_here).first().unwrap(), r"C:\bin\git.com");
        assert_eq!(tried("git", Places { path: None, ..HERE }), [r"C:\work\git.com", r"C:\work\git.exe"]);
        assert_eq!(tried("git", Places { path: None, ..not_here }), [""; 0]);
    }

    #[test]
    fn find_returns_the_first_file_that_exists() {
        let exists = |there: &'static [&str]| move |path: &str| there.contains(&path);
        let find = |file, there| find(file, HERE, exists(there));
        assert_eq!(
            find("git", &[r"D:\tools\git.exe", r"C:\bin\git.exe"]).as_deref(),
            Some(r"C:\bin\git.exe")
        );
        assert_eq!(find("git", &[r"C:\bin\git.exe", r"C:\bin\git.com"]).as_deref(), Some(r"C:\bin\git.com"));
        assert_eq!(find("git", &[r"C:\bin\git", r"C:\bin\git.cmd", r"C:\bin\git.bat"]), None);
        assert_eq!(find("git.exe", &[r"C:\bin\git.exe"]).as_deref(), Some(r"C:\bin\git.exe"));
    }

    #[test]
    fn find_tries_a_name_with_an_extension_unchanged_first() {
        let places = Places { path: None, ..HERE };
        for (file, expected) in [
            ("a.exe", &[r"C:\work\a.exe", r"C:\work\a.exe.com", r"C:\work\a.exe.exe"][..]),
            ("a.b.c", &[r"C:\work\a.b.c", r"C:\work\a.b.c.com", r"C:\work\a.b.c.exe"]),
            ("a.", &[r"C:\work\a.com", r"C:\work\a.exe"]),
            (".a", &[r"C:\work\.a", r"C:\work\.a.com", r"C:\work\.a.exe"]),
            ("a..", &[r"C:\work\a..", r"C:\work\a..com", r"C:\work\a..exe"]),
            (r"sub.dir\a", &[r"C:\work\sub.dir\a.com", r"C:\work\sub.dir\a.exe"]),
            ("", &[]),
            (".", &[]),
        ] {
            assert_eq!(tried(file, places), expected, "{file:?}");
        }
    }

    #[test]
    fn a_relative_directory_is_relative_to_that_of_the_command() {
        for (cwd, file, expected) in [
            (CWD, r".\a", r"C:\work\.\a.com"),
            (CWD, "./a", r"C:\work\./a.com"),
            (CWD, r"..\a", r"C:\work\..\a.com"),
            (CWD, r"sub\a", r"C:\work\sub\a.com"),
            (r"C:\", r"sub\a", r"C:\sub\a.com"),
            ("C:/work/", r"sub\a", r"C:/work/sub\a.com"),
            (CWD, r"D:\dir\a", r"D:\dir\a.com"),
            (CWD, "D:/dir/a", "D:/dir/a.com"),
            // The command's drive.
            (CWD, r"\dir\a", r"C:\dir\a.com"),
            (CWD, "/a", "C:/a.com"),
            (r"\\server\share", r"\dir\a", r"\dir\a.com"),
            ("relative", r"\dir\a", r"\dir\a.com"),
            // On another machine.
            (CWD, r"\\server\share\a", r"\\server\share\a.com"),
            (CWD, "//server/share/a", "//server/share/a.com"),
            (r"\\server\share", r"sub\a", r"\\server\share\sub\a.com"),
            // A drive without a root.
            (CWD, "C:a", r"C:\work\a.com"),
            (CWD, r"c:..\a", r"C:\work\..\a.com"),
            (CWD, "D:a", "D:a.com"),
            (CWD, r"D:sub\a", r"D:sub\a.com"),
            ("relative", r"C:sub\a", r"C:sub\a.com"),
            ("relative", r"sub\a", r"relative\sub\a.com"),
            ("ä", r"ö\é", r"ä\ö\é.com"),
        ] {
            let tried = tried(file, Places { cwd, ..HERE });
            assert_eq!(
                (tried.len(), tried[0].as_str()),
                (2, expected),
                "{file} in {cwd}, and never in the path"
            );
        }
    }

    #[test]
    fn directories_splits_a_path_like_cmd() {
        for (path, expected) in [
            ("", &[][..]),
            (";;", &[]),
            (";.;C:\\a;", &[".", "C:\\a"]),
            ("C:\\a; C:\\b ", &["C:\\a", " C:\\b "]),
            (r#""C:\a;b";C:\c"#, &[r"C:\a;b", r"C:\c"]),
            (r"'C:\a;b';C:\c", &[r"C:\a;b", r"C:\c"]),
            (r#""C:\a"x;C:\c"#, &[r#"C:\a"x"#, r"C:\c"]),
            (r#""C:\never;closed"#, &[r"C:\never;closed"]),
            (r#"C:\a";C:\b"#, &[r"C:\a", r"C:\b"]),
            (r#"";"" ;"#, &[r#";"" "#]),
            (r#""";''"#, &[]),
            (r#"""#, &[]),
            ("é;'ü;ö'", &["é", "ü;ö"]),
        ] {
            assert_eq!(directories(path).collect::<Vec<_>>(), expected, "{path}");
        }
    }

    #[test]
    fn relative_directories_of_the_path_are_relative_to_that_of_the_command() {
        let path = Some(r"node_modules\.bin;\opt;D:x;\\server\bin");
        let tried = tried("a.exe", Places { path, cwd_first: false, ..HERE });
        let whole: Vec<_> = tried.iter().step_by(3).collect();
        assert_eq!(
            whole,
            [r"C:\work\node_modules\.bin\a.exe", r"C:\opt\a.exe", r"D:x\a.exe", r"\\server\bin\a.exe"]
        );
    }

    #[test]
    fn refusal_reports_a_batch_file_before_another_user() {
        assert_eq!(refusal("a.exe", None, None), None);
        assert_eq!(refusal("a.bat", None, None), Some(Errno::EINVAL));
        assert_eq!(refusal("a.exe", Some(0), None), Some(Errno::ENOTSUP));
        assert_eq!(refusal("a.exe", None, Some(0)), Some(Errno::ENOTSUP));
        assert_eq!(refusal("a.bat", Some(0), Some(0)), Some(Errno::EINVAL));
    }

    #[test]
    fn is_batch_recognizes_a_batch_file_in_every_spelling() {
        for file in [
            "a.bat",
            "a.CMD",
            "a.Bat",
            r"C:\x y\a.cmd",
            "a.cmd ",
            "a.cmd .",
            "a.cmd ....",
            "a.bat\t. .",
            ".bat",
        ] {
            assert!(is_batch(file), "{file:?}");
        }
        for file in
            ["a", "a.exe", "bat", "cmd", "cmd.exe", "a.cmd.exe", "a.batx", "a.bat/x", "a. bat", "", "."]
        {
            assert!(!is_batch(file), "{file:?}");
        }
    }
}
