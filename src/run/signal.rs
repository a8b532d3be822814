//! Signal numbers that are the same on every system, and the exit codes that stand for signals on
//! Windows.

use std::fmt;

use super::ExitStatus;

pub const SIGINT: i32 = 2;
pub const SIGQUIT: i32 = 3;
pub const SIGKILL: i32 = 9;
pub const SIGTERM: i32 = 15;

/// Whether Node ends a process with this signal on Windows. Each of them ends the process
/// immediately.
pub fn ends_on_windows(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGQUIT | SIGKILL | SIGTERM)
}

/// The exit code on Windows of a process that was ended with a signal: 128 plus the signal, as in
/// shells.
pub fn exit_code(signal: i32) -> u32 {
    128 + (signal & 0x7f).cast_unsigned()
}

/// The exit code of a process that has no handler for Ctrl+C or Ctrl+Break and gets one of them.
pub const CONTROL_C_EXIT: u32 = 0xc000_013a;

/// A signal, displayed by its name.
#[derive(Debug, Clone, Copy)]
pub struct Name(pub i32);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let is_macos = cfg!(target_os = "macos");
        f.write_str(match self.0 {
            1 => "SIGHUP",
            SIGINT => "SIGINT",
            SIGQUIT => "SIGQUIT",
            6 => "SIGABRT",
            SIGKILL => "SIGKILL",
            SIGTERM => "SIGTERM",
            10 if !is_macos => "SIGUSR1",
            30 if is_macos => "SIGUSR1",
            12 if !is_macos => "SIGUSR2",
            31 if is_macos => "SIGUSR2",
            18 if !is_macos => "SIGCONT",
            19 if is_macos => "SIGCONT",
            19 if !is_macos => "SIGSTOP",
            17 if is_macos => "SIGSTOP",
            other => return write!(f, "signal {other}"),
        })
    }
}

/// One bit for each signal.
pub fn bit(signal: i32) -> u32 {
    1_u32.checked_shl(signal.cast_unsigned()).unwrap_or(0)
}

/// The exit status of a process on Windows.
///
/// `code` is its exit code. `ended_for` is the last signal with which we ended it, or 0;
/// `ended_with` has the bits of all such signals. `requested` is the signal for which we sent
/// Ctrl+Break. As in Node, the last signal is reported, although the first one ended the process.
pub fn ended_by(code: u32, ended_for: i32, ended_with: u32, requested: Option<i32>) -> ExitStatus {
    match requested {
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
    fn a_process_that_we_ended_has_a_signal_as_its_exit_status() {
        let (term, kill) = (bit(SIGTERM), bit(SIGKILL));
        for (code, ended_for, ended_with, requested, expected) in [
            (0, 0, 0, None, ExitStatus::Code(0)),
            (3, 0, 0, None, ExitStatus::Code(3)),
            (143, 0, 0, None, ExitStatus::Code(143)),
            (143, SIGTERM, term, None, ExitStatus::Signal(SIGTERM)),
            (137, SIGKILL, kill, Some(SIGTERM), ExitStatus::Signal(SIGKILL)),
            (143, SIGKILL, term | kill, None, ExitStatus::Signal(SIGKILL)),
            // The process exited before the kill.
            (0, SIGKILL, kill, Some(SIGTERM), ExitStatus::Code(0)),
            (CONTROL_C_EXIT, 0, 0, Some(SIGTERM), ExitStatus::Signal(SIGTERM)),
            (CONTROL_C_EXIT, 0, 0, None, ExitStatus::Code(CONTROL_C_EXIT.into())),
        ] {
            let status = ended_by(code, ended_for, ended_with, requested);
            assert_eq!(status, expected, "{code} {ended_for} {ended_with} {requested:?}");
        }
    }

    /// As in libuv: any other signal fails with ENOSYS on Windows, even if it ends a process on
    /// Unix.
    #[test]
    fn only_four_signals_end_a_process_on_windows() {
        let ending: Vec<i32> = (-1..=64).filter(|&signal| ends_on_windows(signal)).collect();
        assert_eq!(ending, [SIGINT, SIGQUIT, SIGKILL, SIGTERM]);
    }

    #[cfg(unix)]
    #[test]
    fn a_signal_has_the_name_that_the_system_gives_it() {
        let known = (1..32).filter(|&signal| !Name(signal).to_string().starts_with("signal "));
        let known: Vec<i32> = known.collect();
        assert_eq!(known.len(), 10);
        for signal in known {
            assert_eq!(
                Name(signal).to_string(),
                nix::sys::signal::Signal::try_from(signal).unwrap().as_str()
            );
        }
    }

    #[test]
    fn every_signal_has_a_bit_of_its_own() {
        let bits: Vec<u32> = (0..32).map(bit).collect();
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit), u32::MAX);
        assert!(bits.iter().all(|bit| bit.is_power_of_two()));
        for signal in [-1, 32, 64, i32::MIN, i32::MAX] {
            assert_eq!(bit(signal), 0, "{signal}");
        }
    }
}
