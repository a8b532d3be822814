//! The keeper's executable: its roles, and what it inherits from the process that starts it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::sys::stat::Mode;

use super::{channel, protocol, signals, zygote};
use crate::start_environment::variable;
use crate::trace;

/// First argument of the executable: run as a zygote.
pub const ZYGOTE: &str = "zygote";
/// First argument of the executable: send file descriptor 3, an end of an IPC channel, over
/// standard input, and exit.
pub const LEND: &str = "lend";

/// A zygote's first message: a mark, the protocol version and the package version.
pub const HELLO: [u8; HELLO_MARK.len() + PACKAGE.len()] = {
    let mut hello = [0; HELLO_MARK.len() + PACKAGE.len()];
    let mut at = 0;
    while at < hello.len() {
        hello[at] =
            if at < HELLO_MARK.len() { HELLO_MARK[at] } else { PACKAGE.as_bytes()[at - HELLO_MARK.len()] };
        at += 1;
    }
    hello
};

/// The part of [`HELLO`] that every version contains. Only the protocol's byte differs.
const HELLO_MARK: [u8; 4] = [b'S', b'O', protocol::VERSION, b'Z'];

const PACKAGE: &str = env!("CARGO_PKG_VERSION");

/// The version and the protocol of a zygote with another [`HELLO`]. `None` if it is not a zygote's.
pub fn version_in(hello: &[u8]) -> Option<String> {
    let &[b'S', b'O', protocol, b'Z', ref version @ ..] = hello else { return None };
    let version = if version.is_empty() { "unknown".into() } else { String::from_utf8_lossy(version) };
    Some(format!("{version} (protocol {protocol})"))
}

/// The version and the protocol of this build.
pub fn our_version() -> String {
    format!("{PACKAGE} (protocol {})", protocol::VERSION)
}

/// Runs the role that the first argument names. Standard input is the socket to the bot.
pub fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    super::undumpable::become_undumpable();
    let role = std::env::args().nth(1);
    let result = match role.as_deref() {
        Some(ZYGOTE) => take_socket().and_then(zygote::serve),
        Some(LEND) => channel::send_all(&std::io::stdin(), b"l", &[3]),
        Some("--version") => {
            println!("spawn-owned-keeper {}", our_version());
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!(
                "spawn-owned-keeper expects a role as its first argument. spawn-owned starts it; do not run it by hand."
            );
            return ExitCode::from(2);
        }
    };
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Takes the socket from file descriptor 0, and closes or replaces all other inherited descriptors.
///
/// Otherwise a command could inherit them: the bot itself can have inherited descriptors that are
/// not close-on-exec.
fn take_socket() -> Result<OwnedFd, Errno> {
    signals::reset()?;
    close_from(3);
    trace::start_inherited(variable(trace::VARIABLE));
    let stdin = std::io::stdin();
    // Fails if standard input is not a socket, for example if a person runs the executable.
    nix::sys::socket::getsockopt(&stdin.as_fd(), nix::sys::socket::sockopt::SockType)?;
    let socket = fcntl(stdin.as_fd(), FcntlArg::F_DUPFD_CLOEXEC(3))?;
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    for fd in 0..=2 {
        // SAFETY: both calls take integers. 0 to 2 are replaced and stay open, so no owner of a
        // descriptor loses it. The process has one thread, which calls no `exec` between the calls.
        unsafe {
            Errno::result(libc::dup2(null.as_raw_fd(), fd))?;
            Errno::result(libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC))?;
        }
    }
    // SAFETY: fcntl has just returned this file descriptor. No other code knows it.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(socket) })
}

/// Closes all file descriptors from `first` on. No `OwnedFd` exists yet.
#[cfg(target_os = "linux")]
fn close_from(first: libc::c_int) {
    // SAFETY: close_range takes three integers.
    unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
}

/// Closes all file descriptors from `first` on. No `OwnedFd` exists yet.
#[cfg(target_os = "macos")]
fn close_from(first: libc::c_int) {
    let names = std::fs::read_dir("/dev/fd").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let fds = names.filter_map(|name| name.to_str()?.parse::<libc::c_int>().ok());
    // Collect first: reading the directory uses a descriptor, which is closed after the last entry.
    for fd in fds.collect::<Vec<_>>().into_iter().filter(|&fd| fd >= first) {
        // SAFETY: close takes an integer, and no `OwnedFd` has this descriptor.
        unsafe { libc::close(fd) };
    }
}
