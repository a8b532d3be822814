//! The keeper's executable. Everything it does is in `spawn_owned::keeper`.

// On Windows it has nothing to say to anybody who looks at it, and must not open a window.
#![cfg_attr(windows, windows_subsystem = "windows")]

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    spawn_owned::keeper::main()
}

/// There the bot itself keeps its runs, and this has one role only.
#[cfg(windows)]
fn main() -> std::process::ExitCode {
    match spawn_owned::spawn::lend() {
        Some(()) => std::process::ExitCode::SUCCESS,
        None => std::process::ExitCode::FAILURE,
    }
}
