//! The keeper's executable. Everything it does is in `spawn_owned::keeper`.

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    spawn_owned::keeper::main()
}

/// There the bot itself keeps its runs.
#[cfg(windows)]
fn main() {}
