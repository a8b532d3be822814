//! The keeper's executable: its roles, and what it takes over from whoever has started it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::sys::stat::Mode;

use super::{channel, protocol, signals, zygote};

/// What a keeper calls itself, in `ps` and to whoever looks for one.
#[cfg(target_os = "linux")]
pub const NAME: &str = "owned-keeper";
/// There a process has the name of its file, as far as that fits, and so do zygotes and blanks.
#[cfg(target_os = "macos")]
pub const NAME: &str = "spawn-owned-keep";
/// The same for the process that keepers come from, and for what waits to become a command.
pub const ZYGOTE_NAME: &str = "owned-zygote";
pub const BLANK_NAME: &str = "owned-blank";

/// Whether a process of that name is one of ours, whatever bot's.
pub fn is_helper(comm: &str) -> bool {
    [NAME, ZYGOTE_NAME, BLANK_NAME].contains(&comm)
}

/// First argument of the executable: wait for requests to fork keepers.
pub const ZYGOTE: &str = "zygote";
/// First argument of the executable: send descriptor 3, an IPC channel's end, over standard input, and be gone.
pub const LEND: &str = "lend";

/// What a zygote says first: that it is one, and which protocol it speaks.
pub const HELLO: [u8; 4] = [b'S', b'O', protocol::VERSION, b'Z'];

/// The socket is handed over as standard input.
pub fn main() -> ExitCode {
    let role = std::env::args().nth(1);
    let result = match role.as_deref() {
        Some(ZYGOTE) => take_socket().and_then(zygote::serve),
        Some(LEND) => channel::send_all(&std::io::stdin(), b"l", &[3]),
        Some("--version") => {
            println!("spawn-owned-keeper {} (protocol {})", env!("CARGO_PKG_VERSION"), protocol::VERSION);
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!(
                "spawn-owned-keeper is started by spawn-owned, one per run; there is nothing to run by hand."
            );
            return ExitCode::from(2);
        }
    };
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Takes the socket from descriptor 0 and makes sure that nothing else we were born with can reach a command:
/// the bot may itself have inherited descriptors that are not close-on-exec.
fn take_socket() -> Result<OwnedFd, Errno> {
    signals::reset()?;
    close_from(3);
    let stdin = std::io::stdin();
    // A socket that is there to be taken must be a socket: a terminal means that a person typed our name.
    nix::sys::socket::getsockopt(&stdin.as_fd(), nix::sys::socket::sockopt::SockType)?;
    let socket = fcntl(stdin.as_fd(), FcntlArg::F_DUPFD_CLOEXEC(3))?;
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    for fd in 0..=2 {
        // SAFETY: both take integers; 0 to 2 are replaced and stay open, so nobody's descriptor is lost. We have one thread, which
        // executes nothing in between.
        unsafe {
            Errno::result(libc::dup2(null.as_raw_fd(), fd))?;
            Errno::result(libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC))?;
        }
    }
    // SAFETY: fcntl just returned this descriptor to us.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(socket) })
}

/// Closes whatever is open from this number on. We own none of it yet.
#[cfg(target_os = "linux")]
fn close_from(first: libc::c_int) {
    // SAFETY: close_range takes three integers.
    unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
}

/// Closes whatever is open from this number on. We own none of it yet.
#[cfg(target_os = "macos")]
fn close_from(first: libc::c_int) {
    let names = std::fs::read_dir("/dev/fd").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.parse::<libc::c_int>().ok());
    // All of them first: the list has a descriptor of its own, which is closed by then.
    for fd in numbers.collect::<Vec<_>>().into_iter().filter(|&fd| fd >= first) {
        // SAFETY: close takes an integer, and nothing of ours has it.
        unsafe { libc::close(fd) };
    }
}
