//! Signals, by the numbers that they have everywhere, and what they come to where there are none.

use super::ExitStatus;

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

/// One bit for each signal.
pub fn bit(signal: i32) -> u32 {
    1_u32.checked_shl(signal.cast_unsigned()).unwrap_or(0)
}

/// How a process has ended there, by what it has ended with, the last signal for which it was ended by us (or 0), all of these, and the one
/// for which it was asked to end. As in Node, the last one counts, although the first has done it.
pub fn ended_by(code: u32, ended_for: i32, ended_with: u32, asked: Option<i32>) -> ExitStatus {
    match asked {
        _ if (1..32).any(|signal| ended_with & bit(signal) != 0 && code == exit_code(signal)) => {
            ExitStatus::Signal(ended_for)
        }
        Some(signal) if code == CONTROL_C_EXIT => ExitStatus::Signal(signal),
        _ => ExitStatus::Code(code.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_ended_by_us_has_ended_by_a_signal() {
        let (term, kill) = (bit(SIGTERM), bit(SIGKILL));
        for (code, ended_for, ended_with, asked, expected) in [
            (0, 0, 0, None, ExitStatus::Code(0)),
            (3, 0, 0, None, ExitStatus::Code(3)),
            (143, 0, 0, None, ExitStatus::Code(143)),
            (143, SIGTERM, term, None, ExitStatus::Signal(SIGTERM)),
            (137, SIGKILL, kill, Some(SIGTERM), ExitStatus::Signal(SIGKILL)),
            (143, SIGKILL, term | kill, None, ExitStatus::Signal(SIGKILL)),
            // It was faster.
            (0, SIGKILL, kill, Some(SIGTERM), ExitStatus::Code(0)),
            (CONTROL_C_EXIT, 0, 0, Some(SIGTERM), ExitStatus::Signal(SIGTERM)),
            (CONTROL_C_EXIT, 0, 0, None, ExitStatus::Code(CONTROL_C_EXIT.into())),
        ] {
            let status = ended_by(code, ended_for, ended_with, asked);
            assert_eq!(status, expected, "{code} {ended_for} {ended_with} {asked:?}");
        }
    }

    /// As in libuv: any other is ENOSYS there, also those that end a process elsewhere.
    #[test]
    fn only_four_signals_end_a_process_on_windows() {
        let ending: Vec<i32> = (-1..=64).filter(|&signal| ends_on_windows(signal)).collect();
        assert_eq!(ending, [SIGINT, SIGQUIT, SIGKILL, SIGTERM]);
    }

    #[test]
    fn no_number_has_the_bit_of_another() {
        let bits: Vec<u32> = (0..32).map(bit).collect();
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit), u32::MAX);
        assert!(bits.iter().all(|bit| bit.is_power_of_two()));
        for signal in [-1, 32, 64, i32::MIN, i32::MAX] {
            assert_eq!(bit(signal), 0, "{signal}");
        }
    }
}
