//! Signals, by the numbers that they have everywhere, and what they come to where there are none.

pub const SIGINT: i32 = 2;
pub const SIGQUIT: i32 = 3;
pub const SIGKILL: i32 = 9;
pub const SIGTERM: i32 = 15;

/// Those that Node knows on Windows: each of them ends a process, at once.
pub fn ends_on_windows(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGQUIT | SIGKILL | SIGTERM)
}

/// What a process ends with there that was ended for a signal: what shells have made of it ever since.
pub fn exit_code(signal: i32) -> u32 {
    128 + (signal & 0x7f).cast_unsigned()
}

/// What a process that asked nobody ends with when it is asked to end by Ctrl+C or Ctrl+Break.
pub const CONTROL_C_EXIT: u32 = 0xc000_013a;
