use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use nix::sys::termios::{LocalFlags, OutputFlags, SetArg, tcgetattr, tcsetattr};

use super::*;

/// A terminal that does not change bytes, its two streams, and the command's side.
fn raw_terminal() -> (Terminal, UnixStream, UnixStream, File) {
    let pair = Pair::open(Size { cols: 80, rows: 24 }).unwrap();
    let mut modes = tcgetattr(pair.slave()).unwrap();
    modes.output_flags.remove(OutputFlags::OPOST);
    modes.local_flags.remove(LocalFlags::ECHO);
    tcsetattr(pair.slave(), SetArg::TCSANOW, &modes).unwrap();
    let command = pair.slave().try_clone_to_owned().unwrap().into();
    let (stdin, input) = UnixStream::pair().unwrap();
    let (stdout, output) = UnixStream::pair().unwrap();
    let relay = Relay { pair, input: input.into(), output: output.into() };
    let runtime = crate::runtime::get().unwrap();
    (relay.start(&runtime.loop_handle), stdin, stdout, command)
}

#[test]
fn all_output_before_the_end_arrives_although_another_process_holds_the_terminal() {
    let (terminal, _stdin, mut stdout, mut command) = raw_terminal();
    let written: Vec<u8> = (0..1_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let expected = written.clone();
    let writer = std::thread::spawn(move || {
        command.write_all(&written).unwrap();
        terminal.finish();
        command
    });
    let mut read = Vec::new();
    stdout.read_to_end(&mut read).unwrap();
    assert!(read == expected, "{} of {} bytes", read.len(), expected.len());
    let mut other_holder = writer.join().unwrap();
    assert!(other_holder.write_all(b"x").is_err(), "the terminal hangs up after the end");
}

#[test]
fn input_waits_until_the_command_reads_it() {
    let (_terminal, mut stdin, _stdout, command) = raw_terminal();
    let typed = "a line that is neither long nor short\n".repeat(50_000);
    let expected = typed.clone();
    let writer = std::thread::spawn(move || stdin.write_all(typed.as_bytes()));
    let read = std::io::read_to_string(&command).unwrap();
    assert!(read == expected, "{} of {} bytes", read.len(), expected.len());
    writer.join().unwrap().unwrap();
}

#[test]
fn a_command_blocks_while_the_bot_does_not_read_and_loses_no_output() {
    let (terminal, _stdin, mut stdout, mut command) = raw_terminal();
    let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
    nix::fcntl::fcntl(&command, flags).unwrap();
    let mut written = 0;
    // If no write succeeds for a while, all buffers are full.
    let mut since = std::time::Instant::now();
    while since.elapsed() < std::time::Duration::from_millis(200) {
        if let Ok(count) = command.write(&[b'x'; 1000]) {
            written += count;
            since = std::time::Instant::now();
        }
        assert!(written < 64 << 20, "there is no back-pressure");
    }
    terminal.finish();
    let mut read = Vec::new();
    stdout.read_to_end(&mut read).unwrap();
    assert_eq!(read.len(), written);
}

#[test]
fn a_terminal_hangs_up_when_the_bot_has_closed_its_output() {
    let (terminal, _stdin, stdout, mut command) = raw_terminal();
    drop(stdout);
    // The relay detects it at the next output.
    while command.write_all(b"x").is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(terminal.resize(Size { cols: 1, rows: 1 }), Err(Errno::EIO));
    assert_eq!(terminal.foreground(), None);
}
