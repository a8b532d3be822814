//! The keeper's executable. Everything it does is in `spawn_owned::keeper`.

fn main() -> std::process::ExitCode {
    spawn_owned::keeper::main()
}
