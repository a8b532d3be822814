//! Parser for `struct kinfo_proc`, which `sysctl` returns for each process. Pure: bytes in, facts
//! out.
//!
//! `sysctl` answers for every process, including zombies and processes of other users, which
//! `proc_pidinfo(PROC_PIDTBSDINFO)` refuses. The start time is the same in both calls.

use crate::identity::stat::Stat;

/// Size of the structure for one process.
pub const SIZE: usize = 648;

/// Offsets of the fields. The structure is part of the system interface and is the same on Intel
/// and ARM.
const START_SECONDS: usize = 0;
const START_MICROSECONDS: usize = 8;
const STATE: usize = 36;
const PID: usize = 40;
const IGNORED: usize = 232;
const COMMAND: usize = 243;
const COMMAND_LENGTH: usize = 17;
const PARENT: usize = 560;
const GROUP: usize = 564;
const TERMINAL: usize = 572;

/// `NODEV`: the process has no controlling terminal.
const NO_TERMINAL: i32 = -1;

/// Parses one process. The session is missing, because the structure does not contain it. `None` if
/// the bytes are not a process.
///
/// The start token is the time of the fork in microseconds since 1970, by the clock at that time.
/// It never changes, not even on `exec`. The kernel reuses a PID only after all other PIDs, so
/// never within the same microsecond.
pub fn parse(bytes: &[u8]) -> Option<Stat> {
    let bytes = bytes.get(..SIZE)?;
    let start = u64::try_from(long(bytes, START_SECONDS)?)
        .ok()?
        .checked_mul(1_000_000)?
        .checked_add(u64::try_from(int(bytes, START_MICROSECONDS)?).ok()?)?;
    let pid = int(bytes, PID)?;
    let name = bytes.get(COMMAND..COMMAND + COMMAND_LENGTH)?.split(|&byte| byte == 0).next()?;
    Some(Stat {
        pid,
        comm: String::from_utf8_lossy(name).into_owned(),
        state: state(*bytes.get(STATE)?),
        ppid: int(bytes, PARENT)?,
        pgrp: int(bytes, GROUP)?,
        terminal: Some(int(bytes, TERMINAL)?).filter(|&terminal| terminal != NO_TERMINAL).unwrap_or(0),
        // A zombie has no running thread, whatever the count was before.
        threads: 1,
        start,
        ..Stat::default()
    })
    .filter(|stat| stat.pid >= 0 && stat.start > 0)
}

/// The signals that the process ignores, as a bit mask: signal 1 is the lowest bit.
pub fn ignored(bytes: &[u8]) -> Option<u64> {
    let bytes = bytes.get(..SIZE)?;
    int(bytes, IGNORED).map(|mask| u64::from(mask.cast_unsigned()))
}

/// All processes of a list. An incomplete last one is left out.
pub fn parse_all(bytes: &[u8]) -> impl Iterator<Item = Stat> {
    bytes.chunks_exact(SIZE).filter_map(parse)
}

/// The letter that `ps` shows for a state.
fn state(number: u8) -> char {
    match number {
        1 => 'I',
        2 => 'R',
        4 => 'T',
        5 => 'Z',
        _ => 'S',
    }
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::mem::offset_of;

    use super::*;

    /// The layout from `sys/proc.h` and `sys/sysctl.h`.
    #[repr(C)]
    #[allow(dead_code)]
    struct KinfoProc {
        start: [i64; 2],
        vmspace: *const c_void,
        sigacts: *const c_void,
        flag: i32,
        stat: i8,
        pid: i32,
        oppid: i32,
        dupfd: i32,
        user_stack: *const c_void,
        exit_thread: *const c_void,
        debugger: i32,
        sigwait: i32,
        estcpu: u32,
        cpticks: i32,
        pctcpu: u32,
        wchan: *const c_void,
        wmesg: *const c_void,
        swtime: u32,
        slptime: u32,
        realtimer: [i64; 4],
        rtime: [i64; 2],
        ticks: [u64; 3],
        traceflag: i32,
        tracep: *const c_void,
        siglist: i32,
        textvp: *const c_void,
        holdcnt: i32,
        sigmask: u32,
        sigignore: u32,
        sigcatch: u32,
        priority: u8,
        usrpri: u8,
        nice: i8,
        comm: [i8; 17],
        pgrp: *const c_void,
        addr: *const c_void,
        xstat: u16,
        acflag: u16,
        ru: *const c_void,
        eproc: Eproc,
    }

    #[repr(C)]
    #[allow(dead_code)]
    struct Eproc {
        paddr: *const c_void,
        sess: *const c_void,
        pcred: ([i8; 72], *const c_void, [u32; 4], i32),
        ucred: Ucred,
        vm: Vmspace,
        ppid: i32,
        pgid: i32,
        jobc: i16,
        tdev: i32,
        tpgid: i32,
        tsess: *const c_void,
        wmesg: [i8; 8],
        xsize: i32,
        xs: [i16; 3],
        flag: i32,
        login: [i8; 12],
        spare: [i32; 4],
    }

    #[repr(C)]
    #[allow(dead_code)]
    struct Ucred {
        refs: i32,
        uid: u32,
        ngroups: i16,
        groups: [u32; 16],
    }

    #[repr(C)]
    #[allow(dead_code)]
    struct Vmspace {
        dummy: i32,
        dummy2: *const c_void,
        dummy3: [i32; 5],
        dummy4: [*const c_void; 3],
    }

    fn process(pid: i32, state: u8) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(START_SECONDS, &1_700_000_000_i64.to_le_bytes());
        put(START_MICROSECONDS, &123_456_i32.to_le_bytes());
        put(STATE, &[state]);
        put(PID, &pid.to_le_bytes());
        put(IGNORED, &0x0038_4004_u32.to_le_bytes());
        put(COMMAND, b"spawn-owned-keep\0");
        put(PARENT, &42_i32.to_le_bytes());
        put(GROUP, &4711_i32.to_le_bytes());
        put(TERMINAL, &NO_TERMINAL.to_le_bytes());
        bytes
    }

    #[test]
    fn the_offsets_match_the_headers() {
        assert_eq!(size_of::<KinfoProc>(), SIZE);
        let eproc = offset_of!(KinfoProc, eproc);
        for (here, there) in [
            (START_SECONDS, offset_of!(KinfoProc, start)),
            (STATE, offset_of!(KinfoProc, stat)),
            (PID, offset_of!(KinfoProc, pid)),
            (IGNORED, offset_of!(KinfoProc, sigignore)),
            (COMMAND, offset_of!(KinfoProc, comm)),
            (PARENT, eproc + offset_of!(Eproc, ppid)),
            (GROUP, eproc + offset_of!(Eproc, pgid)),
            (TERMINAL, eproc + offset_of!(Eproc, tdev)),
        ] {
            assert_eq!(here, there);
        }
    }

    #[test]
    fn parse_reads_one_process() {
        let expected = Stat {
            pid: 4711,
            comm: "spawn-owned-keep".into(),
            state: 'S',
            ppid: 42,
            pgrp: 4711,
            threads: 1,
            start: 1_700_000_000_123_456,
            ..Stat::default()
        };
        assert_eq!(parse(&process(4711, 3)), Some(expected));
        assert_eq!(ignored(&process(4711, 3)), Some(0x0038_4004));
    }

    #[test]
    fn a_zombie_is_dead_and_a_stopped_process_is_not() {
        for (number, dead) in [(1, false), (2, false), (3, false), (4, false), (5, true)] {
            assert_eq!(parse(&process(7, number)).unwrap().is_dead(), dead, "{number}");
        }
    }

    #[test]
    fn a_process_without_a_terminal_has_terminal_zero() {
        let mut bytes = process(7, 3);
        assert_eq!(parse(&bytes).unwrap().terminal, 0);
        bytes[TERMINAL..TERMINAL + 4].copy_from_slice(&0x1000_0004_i32.to_le_bytes());
        assert_eq!(parse(&bytes).unwrap().terminal, 0x1000_0004);
    }

    #[test]
    fn bytes_that_are_not_a_process_parse_to_none() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&process(7, 3)[..SIZE - 1]), None);
        assert_eq!(parse(&[0; SIZE]), None, "no process started in 1970");
        assert_eq!(parse(&[0xff; SIZE]), None);
        assert_eq!(ignored(&[0; 7]), None);
    }

    #[test]
    fn a_truncated_list_ends_with_its_last_complete_process() {
        let list: Vec<u8> = [process(7, 3), process(8, 3), process(9, 3)].concat();
        let pids = |bytes: &[u8]| parse_all(bytes).map(|stat| stat.pid).collect::<Vec<_>>();
        assert_eq!(pids(&list), [7, 8, 9]);
        assert_eq!(pids(&list[..list.len() - 1]), [7, 8]);
    }
}
