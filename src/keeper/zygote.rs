//! The process that forks keepers, ahead of their use.
//!
//! A request is one byte. The answer is an errno and, if that is 0, the bot's ends of two new sockets: one to a keeper,
//! one to the blank process it keeps (see [`super::keep`]). A zygote knows nothing of runs. It ends with its bot; its
//! keepers do not need it.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{ForkResult, Pid, fork, getppid, setsid};

use super::{HELLO, channel, keep, signals, title};

pub fn serve(socket: &OwnedFd) -> Result<(), Errno> {
    title::locate();
    let bot = getppid();
    title::set(c"owned-zygote", &format!("spawn-owned-keeper zygote of {bot}"));
    // Out of the bot's session: Ctrl-C in the bot's terminal is for the bot, which decides what becomes of its runs.
    setsid()?;
    signals::ignore_children()?;
    channel::send_all(socket, &HELLO, &[])?;
    loop {
        match channel::receive(socket, &mut [0], &mut Vec::new()) {
            // The bot is gone. Keepers see that for themselves.
            Ok(0) | Err(Errno::ECONNRESET) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        if let Err(errno) = fork_keeper(socket, bot) {
            channel::send_all(socket, &(errno as i32).to_le_bytes(), &[])?;
        }
    }
}

/// Every end of the new sockets has one holder when this returns, or a process's death would not be seen as an end of
/// file: the keeper has dropped the bot's, the bot gets its own, and we keep none.
fn fork_keeper(socket: &OwnedFd, bot: Pid) -> Result<(), Errno> {
    let (bots_control, control) = channel::pair()?;
    let (bots_launch, launch) = channel::pair()?;
    // SAFETY: this process has one thread, so the child may do whatever we may.
    if let ForkResult::Child = unsafe { fork() }? {
        drop((bots_control, bots_launch));
        // SAFETY: the child never returns to code that uses the zygote's socket.
        unsafe { libc::close(socket.as_raw_fd()) };
        let failed = keep::keep(control, launch, bot).is_err();
        // SAFETY: ends this process without running anybody's exit handlers, as a fork should.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    channel::send_all(socket, &0i32.to_le_bytes(), &[bots_control.as_raw_fd(), bots_launch.as_raw_fd()])
}
