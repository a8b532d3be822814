use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use nix::sys::termios::{LocalFlags, OutputFlags, SetArg, tcgetattr, tcsetattr};

use super::*;

/// A terminal that says and takes bytes as they are, both its streams, and the command's side.
fn raw() -> (Terminal, UnixStream, UnixStream, File) {
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
fn everything_said_before_the_end_arrives_although_somebody_else_holds_the_terminal() {
    let (terminal, _stdin, mut stdout, mut command) = raw();
    let said: Vec<u8> = (0..1_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let expected = said.clone();
    let writer = std::thread::spawn(move || {
        command.write_all(&said).unwrap();
        terminal.over();
        command
    });
    let mut heard = Vec::new();
    stdout.read_to_end(&mut heard).unwrap();
    assert!(heard == expected, "{} of {} bytes", heard.len(), expected.len());
    let mut stranger = writer.join().unwrap();
    assert!(stranger.write_all(b"x").is_err(), "hung up, once it was over");
}

#[test]
fn what_is_typed_waits_until_it_is_read() {
    let (_terminal, mut stdin, _stdout, command) = raw();
    let typed = "a line that is neither long nor short\n".repeat(50_000);
    let expected = typed.clone();
    let writer = std::thread::spawn(move || stdin.write_all(typed.as_bytes()));
    let heard = std::io::read_to_string(&command).unwrap();
    assert!(heard == expected, "{} of {} bytes", heard.len(), expected.len());
    writer.join().unwrap().unwrap();
}

#[test]
fn whoever_is_not_read_is_held_up_and_loses_nothing() {
    let (terminal, _stdin, mut stdout, mut command) = raw();
    let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
    nix::fcntl::fcntl(&command, flags).unwrap();
    let mut said = 0;
    // As soon as nobody makes room for a while, all buffers are full.
    let mut since = std::time::Instant::now();
    while since.elapsed() < std::time::Duration::from_millis(200) {
        if let Ok(count) = command.write(&[b'x'; 1000]) {
            said += count;
            since = std::time::Instant::now();
        }
        assert!(said < 64 << 20, "nobody has held it up");
    }
    terminal.over();
    let mut heard = Vec::new();
    stdout.read_to_end(&mut heard).unwrap();
    assert_eq!(heard.len(), said);
}

#[test]
fn a_terminal_that_nobody_can_read_any_more_is_hung_up() {
    let (terminal, _stdin, stdout, mut command) = raw();
    drop(stdout);
    // It is noticed with the next output.
    while command.write_all(b"x").is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(terminal.resize(Size { cols: 1, rows: 1 }), Err(Errno::EIO));
    assert_eq!(terminal.foreground(), None);
}
