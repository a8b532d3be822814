//! The names of a process. Pure: its command line in, names out.
//!
//! The names are those of the program and, if it is a runner, of the script or package that it
//! runs. `claude` in `grep claude notes.md` is an argument, not a name.

/// Programs that run others, whose names count too. For Python versions see [`is_runner`].
const RUNNERS: [&str; 18] = [
    "node", "bun", "deno", "ruby", "perl", "sh", "bash", "dash", "zsh", "npx", "npm", "pnpm", "yarn", "bunx",
    "uvx", "uv", "pipx", "tsx",
];

/// Words between a runner and the program that it runs.
const SUBCOMMANDS: [&str; 6] = ["exec", "x", "dlx", "run", "tool", "start"];

/// Options whose value is code, not a name.
const CODE: [&str; 5] = ["-c", "-e", "-lc", "--eval", "--print"];

/// Suffixes that are cut from a name.
const SUFFIXES: [&str; 11] =
    [".exe", ".cmd", ".bat", ".ps1", ".js", ".mjs", ".cjs", ".ts", ".py", ".sh", ".rb"];

/// The names of a process with this command line: the name of its program. If the program is a
/// runner, also the name of the script (without folder and suffix) and of the package (with and
/// without scope).
pub fn names(words: &[String]) -> Vec<String> {
    let words: Vec<&str> = match words {
        // A process that has set its title has one word, which contains the whole command line.
        [title] => title.split_whitespace().collect(),
        words => words.iter().map(String::as_str).collect(),
    };
    let Some((program, arguments)) = words.split_first() else { return Vec::new() };
    let program = plain(program);
    let mut names = Vec::new();
    if is_runner(program)
        && let Some(run) = script_of(arguments)
    {
        names.extend(names_of_script(run));
    }
    names.insert(0, program.to_owned());
    names.dedup();
    names
}

fn is_runner(program: &str) -> bool {
    let is_version =
        |rest: &str| rest.chars().all(|character| character.is_ascii_digit() || character == '.');
    RUNNERS.contains(&program) || program.strip_prefix("python").is_some_and(is_version)
}

/// The first argument that is not an option. If an option has its value in a separate word, that
/// value is returned instead, and the process is not found.
fn script_of<'a>(arguments: &[&'a str]) -> Option<&'a str> {
    for argument in arguments {
        if CODE.contains(argument) {
            return None;
        }
        if !argument.is_empty() && !argument.starts_with('-') && !SUBCOMMANDS.contains(argument) {
            return Some(argument);
        }
    }
    None
}

fn names_of_script(script: &str) -> Vec<String> {
    let folders: Vec<&str> = script.split(is_separator).collect();
    let installed = folders.iter().rposition(|&folder| folder == "node_modules");
    let mut names = match installed {
        Some(at) => {
            let mut names = vec![plain(script).to_owned()];
            names.extend(package(&folders[at + 1..]));
            names
        }
        None if script.starts_with('@') => package(&folders),
        None => vec![without_version(plain(script)).to_owned()],
    };
    names.retain(|name| !name.is_empty());
    names
}

/// `@scope/name@version` as `@scope/name` and `name`.
fn package(folders: &[&str]) -> Vec<String> {
    match folders {
        [scope, name, ..] if scope.starts_with('@') => {
            let name = without_version(name);
            vec![format!("{scope}/{name}"), name.to_owned()]
        }
        [name, ..] => vec![without_version(name).to_owned()],
        [] => Vec::new(),
    }
}

fn without_version(name: &str) -> &str {
    match name.rfind('@') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

/// Removes folders and suffix.
fn plain(path: &str) -> &str {
    let name = path.rsplit(is_separator).next().unwrap_or(path);
    let suffix = SUFFIXES.iter().find(|suffix| {
        name.len() > suffix.len()
            && name.get(name.len() - suffix.len()..).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
    });
    suffix.map_or(name, |suffix| &name[..name.len() - suffix.len()])
}

/// On Unix a backslash can be part of a name, but that does not occur in practice.
fn is_separator(character: char) -> bool {
    matches!(character, '/' | '\\')
}

/// Splits a Windows command line by the rules of the C runtime: a backslash is literal, except
/// before a quote. There, two backslashes are one, and a single one makes the quote literal.
#[cfg(any(windows, test))]
pub fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let (mut backslashes, mut is_quoted) = (0, false);
    for character in line.chars() {
        if character == '\\' {
            backslashes += 1;
            continue;
        }
        if backslashes > 0 {
            let literal = if character == '"' { backslashes / 2 } else { backslashes };
            word.get_or_insert_default().extend(iter_backslashes(literal));
        }
        let is_text = character == '"' && backslashes % 2 == 1;
        backslashes = 0;
        match character {
            '"' if !is_text => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            ' ' | '\t' if !is_quoted => words.extend(word.take()),
            character => word.get_or_insert_default().push(character),
        }
    }
    if backslashes > 0 {
        word.get_or_insert_default().extend(iter_backslashes(backslashes));
    }
    words.extend(word);
    words
}

#[cfg(any(windows, test))]
fn iter_backslashes(count: usize) -> impl Iterator<Item = char> {
    std::iter::repeat_n('\\', count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        names(&words)
    }

    #[test]
    fn a_program_name_has_no_folder_and_no_suffix() {
        for (line, expected) in [
            ("/usr/local/bin/claude -p hello", vec!["claude"]),
            ("codex exec", vec!["codex"]),
            (r"C:\tools\Claude.EXE --x", vec!["Claude"]),
            (".js", vec![".js"]),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
    }

    #[test]
    fn a_runner_also_has_the_names_of_its_script() {
        for (line, expected) in [
            ("node /usr/local/bin/claude -p hello", vec!["node", "claude"]),
            ("node --no-warnings ./cli.mjs", vec!["node", "cli"]),
            ("/usr/bin/python3.11 -u /home/me/.local/bin/aider", vec!["python3.11", "aider"]),
            ("python -m mcp_server_fetch", vec!["python", "mcp_server_fetch"]),
            ("npx -y @playwright/mcp@latest --port 1", vec!["npx", "@playwright/mcp", "mcp"]),
            ("npm exec opencode-ai@0.3", vec!["npm", "opencode-ai"]),
            ("uv tool run mcp-server-git", vec!["uv", "mcp-server-git"]),
            ("bash ./codex.sh", vec!["bash", "codex"]),
            (
                "node /x/node_modules/@google/gemini-cli/dist/index.js",
                vec!["node", "index", "@google/gemini-cli", "gemini-cli"],
            ),
            ("node /x/node_modules/a/node_modules/mcp-x/bin.js", vec!["node", "bin", "mcp-x"]),
            ("node /x/node_modules", vec!["node", "node_modules"]),
            ("node /x/node_modules/", vec!["node"]),
            ("node", vec!["node"]),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
    }

    #[test]
    fn an_argument_is_not_a_name() {
        for line in
            ["grep claude notes.md", "vim /src/claude", "node -e claude", "sh -c claude", "pythonic claude"]
        {
            assert!(!of(line).iter().any(|name| name.contains("claude")), "{line}");
        }
        assert_eq!(of("node server.js claude"), ["node", "server"]);
        assert_eq!(names(&[]), [""; 0]);
        assert_eq!(names(&[" ".into()]), [""; 0]);
    }

    #[test]
    fn a_process_title_is_split_into_words() {
        let title = ["npm exec @modelcontextprotocol/server-everything stdio".to_owned()];
        assert_eq!(names(&title), ["npm", "@modelcontextprotocol/server-everything", "server-everything"]);
        assert_eq!(names(&["claude".into()]), ["claude"]);
    }

    #[test]
    fn a_windows_command_line_is_split_as_the_c_runtime_does() {
        for (line, expected) in [
            ("", vec![]),
            ("a  b", vec!["a", "b"]),
            (r#""C:\a b\node.exe" x"#, vec![r"C:\a b\node.exe", "x"]),
            (r#"a "" b"#, vec!["a", "", "b"]),
            (r#"a\\"b c""#, vec![r"a\b c"]),
            (r#"a\"b"#, vec![r#"a"b"#]),
            (r"C:\a\", vec![r"C:\a\"]),
            ("\"open", vec!["open"]),
        ] {
            assert_eq!(split(line), expected, "{line}");
        }
    }
}
