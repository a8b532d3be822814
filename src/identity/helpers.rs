//! The names of our own helper processes, in `ps` and in `/proc/PID/comm`.

/// The name of a keeper.
#[cfg(target_os = "linux")]
pub const KEEPER_NAME: &str = "owned-keeper";
/// On macOS a process has the name of its executable, cut to 16 bytes. Zygotes and exec stubs have
/// the same.
#[cfg(target_os = "macos")]
pub const KEEPER_NAME: &str = "spawn-owned-keep";
/// The name of the process that forks keepers.
pub const ZYGOTE_NAME: &str = "owned-zygote";
/// The name of a process that waits to become a command.
pub const STUB_NAME: &str = "owned-stub";

/// Whether a process of that name is a helper of ours, of any bot.
pub fn is_helper(comm: &str) -> bool {
    [KEEPER_NAME, ZYGOTE_NAME, STUB_NAME].contains(&comm)
}
