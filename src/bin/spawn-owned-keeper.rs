//! The keeper's executable. Everything it does is in `spawn_owned::keeper`.

// On Windows it writes no output, and must not open a console window.
#![cfg_attr(windows, windows_subsystem = "windows")]

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    spawn_owned::keeper::main()
}

/// On Windows the keeper is a task inside the bot. This executable has only the role `lend`.
#[cfg(windows)]
fn main() -> std::process::ExitCode {
    match spawn_owned::spawn::lend() {
        Some(()) => std::process::ExitCode::SUCCESS,
        None => std::process::ExitCode::FAILURE,
    }
}
