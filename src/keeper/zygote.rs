//! The process that forks keepers.
//!
//! A request is one byte and one descriptor: the keeper's end of a new control socket. Everything else travels over
//! that socket, so a zygote knows nothing of runs. It ends with its bot; its keepers do not need it.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{ForkResult, fork, getppid, setsid};

use super::protocol::{self, Report};
use super::{HELLO, channel, keep, signals, title};

pub fn serve(socket: OwnedFd) -> Result<(), Errno> {
    title::locate();
    title::set(c"owned-zygote", &format!("spawn-owned-keeper zygote of {}", getppid()));
    // Out of the bot's session: Ctrl-C in the bot's terminal is for the bot, which decides what becomes of its runs.
    setsid()?;
    signals::ignore_children()?;
    channel::send_all(&socket, &HELLO, &[])?;
    loop {
        let mut fds = Vec::new();
        let mut byte = [0];
        match channel::receive(&socket, &mut byte, &mut fds) {
            // The bot is gone. Keepers see that for themselves.
            Ok(0) | Err(Errno::ECONNRESET) => return Ok(()),
            Ok(_) => {}
            // Out of descriptors: the request is lost, its socket closes, and the bot reports the failure.
            Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => continue,
            Err(error) => return Err(error),
        }
        let Some(control) = fds.pop() else { continue };
        // SAFETY: this process has one thread, so the child may do whatever we may.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => {
                drop(socket);
                let failed = keep::keep(control).is_err();
                // SAFETY: ends this process without running anybody's exit handlers, as a fork should.
                unsafe { libc::_exit(i32::from(failed)) };
            }
            Ok(ForkResult::Parent { .. }) => {}
            Err(errno) => refuse(&control, errno),
        }
    }
}

fn refuse(control: &OwnedFd, errno: Errno) {
    if let Ok(frame) = protocol::encode(&Report::SpawnFailed { errno: errno as i32 }) {
        // If the bot is gone too there is nobody to tell.
        let _ = channel::send_all(control, &frame, &[]);
    }
}
