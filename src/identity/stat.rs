//! `/proc/PID/stat`, parsed. Pure: text in, facts out.

const PF_EXITING: u64 = 0x4;

/// The few fields of `/proc/PID/stat` that ownership needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stat {
    pub pid: i32,
    pub comm: String,
    /// The kernel's letter for the state. `Z` and `X` are dead.
    pub state: char,
    pub ppid: i32,
    pub pgrp: i32,
    pub session: i32,
    /// Field 9, bit `PF_EXITING`: the process runs its last steps in the kernel. The kernel closes
    /// its descriptors before it reparents its children. So a peer that learns of its end through a
    /// socket may still find it as their parent. Only Linux reports this.
    pub exiting: bool,
    /// Field 7: the device number of the controlling terminal; 0 if there is none.
    pub terminal: i32,
    /// Fields 14 and 15: CPU ticks in user and in system mode.
    pub cpu: u64,
    /// Fields 16 and 17: CPU ticks of the children that it has waited for.
    pub children_cpu: u64,
    /// Field 20.
    pub threads: u32,
    /// Field 22: the start time in ticks since boot. Together with the PID it identifies a process
    /// permanently, within one boot and one PID namespace.
    pub start: u64,
}

impl Stat {
    /// Whether the process has ended. A zombie still answers `kill(pid, 0)`, but runs no code. The
    /// state is that of the main thread, which may end before the others; then the process is
    /// alive.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }
}

/// Parses one line of `/proc/PID/stat`. `None` if the line is malformed.
///
/// The second field is the command name in parentheses. It may contain any bytes, including
/// `) S 1 (`. The kernel prints no `)` after it, so the **last** `)` ends the name.
pub fn parse(line: &str) -> Option<Stat> {
    let open = line.find('(')?;
    let close = line.rfind(')')?;
    let pid = line.get(..open)?.trim().parse().ok()?;
    let comm = line.get(open + 1..close)?.to_owned();
    let mut fields = line.get(close + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let ppid = fields.next()?.parse().ok()?;
    let pgrp = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let terminal = fields.next()?.parse().ok()?;
    // Skipped: field 8 before the flags (9), 10 to 13 before the times (14 to 17), 18 and 19 before
    // the number of threads (20), 21 before the start time (22).
    let flags: u64 = fields.nth(1)?.parse().ok()?;
    let user: u64 = fields.nth(4)?.parse().ok()?;
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let (system, children_user, children_system) = (ticks()?, ticks()?, ticks()?);
    let threads = fields.nth(2)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    let (cpu, children_cpu) = (user.saturating_add(system), children_user.saturating_add(children_system));
    let exiting = flags & PF_EXITING != 0;
    Some(Stat { pid, comm, state, ppid, pgrp, session, exiting, terminal, cpu, children_cpu, threads, start })
}

/// The mask of signals that the kernel discards for this process, from `/proc/PID/status`: signals
/// that it ignores and does not block. A blocked signal stays pending even if it is ignored.
pub fn ignored(status: &str) -> Option<u64> {
    let mask = |name: &str| {
        let text = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(text.trim(), 16).ok()
    };
    Some(mask("SigIgn:")? & !mask("SigBlk:").unwrap_or(0))
}

/// The number after this name in `/proc/PID/status`. A process name cannot forge a line: the kernel
/// escapes newlines in it.
pub fn number(status: &str, name: &str) -> Option<i32> {
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(comm: &str) -> String {
        format!("4711 ({comm}) S 42 4711 4700 34816 4711 4194304 1 0 0 0 2 3 40 50 20 0 1 0 987654 1 2 3")
    }

    #[test]
    fn reads_the_fields_by_position() {
        let stat = parse(&line("node")).unwrap();
        assert_eq!(
            stat,
            Stat {
                pid: 4711,
                comm: "node".into(),
                state: 'S',
                ppid: 42,
                pgrp: 4711,
                session: 4700,
                exiting: false,
                terminal: 34_816,
                cpu: 5,
                children_cpu: 90,
                threads: 1,
                start: 987_654,
            }
        );
    }

    #[test]
    fn the_exiting_flag_is_read_from_the_flags_field() {
        let flags = |flags: u64| line("x").replace(" 4194304 ", &format!(" {flags} "));
        assert!(parse(&flags(0x40_0004)).unwrap().exiting);
        assert!(!parse(&flags(0x40_0000)).unwrap().exiting);
    }

    #[test]
    fn a_command_name_cannot_forge_the_fields_after_it() {
        for comm in [") S 1 (", "a) Z 1 1 1 (b", "(((", ")))", " ", "", "new\nline"] {
            let stat = parse(&line(comm)).unwrap();
            assert_eq!((stat.comm.as_str(), stat.ppid, stat.start), (comm, 42, 987_654));
        }
    }

    #[test]
    fn a_zombie_is_dead_and_a_stopped_process_is_not() {
        for (state, dead) in [('Z', true), ('X', true), ('x', true), ('T', false), ('D', false), ('R', false)]
        {
            let stat = parse(&line("x").replace(" S ", &format!(" {state} "))).unwrap();
            assert_eq!(stat.is_dead(), dead, "{state}");
        }
    }

    #[test]
    fn a_process_whose_main_thread_has_ended_is_alive_while_others_run() {
        let alive = line("x").replace(" S ", " Z ").replace(" 20 0 1 0 ", " 20 0 2 0 ");
        assert!(!parse(&alive).unwrap().is_dead());
    }

    #[test]
    fn cpu_times_saturate_instead_of_overflowing() {
        let most = u64::MAX.to_string();
        let text = line("x").replace(" 2 3 40 50 ", &format!(" {most} {most} {most} 1 "));
        let stat = parse(&text).unwrap();
        assert_eq!((stat.cpu, stat.children_cpu), (u64::MAX, u64::MAX));
    }

    #[test]
    fn rejects_what_is_not_a_stat_line() {
        for text in
            ["", "1", "1 (x", "1 (x)", "1 (x) S 1 2 3", "a (x) S 1 2 3", "1 )x( S", "\u{fffd}(…) S 1 1 1"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn reads_the_mask_of_ignored_signals_by_its_name() {
        let status = "Name:\tSigIgn:\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000384004\nSigCgt:\t1\n";
        assert_eq!(ignored(status), Some(0x0038_4004));
        assert_eq!(ignored("Name:\tx\n"), None);
        assert_eq!(ignored("SigIgn:\tnonsense\n"), None);
        assert_eq!(ignored("SigBlk:\t0000000000004000\nSigIgn:\t0000000000384004\n"), Some(0x0038_0004));
    }

    #[test]
    fn a_number_is_read_from_the_line_that_starts_with_its_name() {
        let status = "Name:\tTracerPid: 1\\n\nTgid:\t42\nPid:\t43\nTracerPid:\t7\n";
        assert_eq!((number(status, "Tgid:"), number(status, "TracerPid:")), (Some(42), Some(7)));
        assert_eq!((number(status, "Name:"), number(status, "PPid:")), (None, None));
    }
}
