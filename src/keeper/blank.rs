//! The process that becomes the command.
//!
//! It is forked ahead of its use, is the leader of its own session and group from the start, and waits. When the bot has
//! something to run, all that is left to do is `exec`. Its launch socket is close-on-exec: the bot learns from the end of
//! that socket that `exec` has succeeded, and from a [`Refusal`] why it has not.

#[cfg(target_os = "linux")]
#[path = "blank/linux.rs"]
mod system;
#[cfg(target_os = "macos")]
#[path = "blank/macos.rs"]
mod system;

use std::ffi::{CString, c_char};
use std::fs;
use std::io::PipeWriter;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{AccessFlags, Gid, Pid, Uid, access, fchdir, fchown, setgid, setsid, setuid};

use super::protocol::{self, Command, Inbox, Refusal, Slot};
use super::{channel, signals, title};
use crate::pty;

/// Arguments and environment of most commands fit into one read.
const USUAL_LENGTH: usize = 32 << 10;

/// Waits for a command and becomes it. Never returns; ends if the bot goes away or the command cannot be executed.
///
/// `standing` is closed when it leads its own session: from then on it may be announced.
pub fn wait(mut launch: OwnedFd, standing: PipeWriter, bot: Pid) -> ! {
    let _ = signals::reset();
    let _ = setsid();
    title::set(super::process::BLANK_NAME, "spawn-owned-keeper blank");
    drop(standing);
    let refused = receive_and_exec(&mut launch, bot);
    if let Err(errno) = refused
        && let Ok(frame) = protocol::encode(&Refusal { errno: errno as i32 })
    {
        let _ = channel::send_all(&launch, &frame, &[]);
    }
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(127) }
}

fn receive_and_exec(launch: &mut OwnedFd, bot: Pid) -> Result<(), Errno> {
    // Written to now: the first touch of fresh memory costs a page fault, and later somebody is waiting.
    let mut buffer = vec![1; USUAL_LENGTH];
    let mut inbox = Inbox::with_capacity(USUAL_LENGTH);
    let mut fds = Vec::with_capacity(8);
    loop {
        if let Some(payload) = inbox.next_payload().map_err(|_| Errno::EPROTO)? {
            let command: Command = protocol::decode(&payload).map_err(|_| Errno::EPROTO)?;
            // Out of the way of the command's descriptors: over this one we must be able to say what went wrong.
            *launch = lift(launch.try_clone().map_err(|_| Errno::EMFILE)?, descriptors(&command)?)?;
            return exec(&command, fds, bot).map(|never| match never {});
        }
        match channel::receive(&*launch, &mut buffer, &mut fds)? {
            0 => return Ok(()),
            count => inbox.push(&buffer[..count]),
        }
    }
}

/// The order is libuv's: descriptors, directory, identity, `exec`.
fn exec(command: &Command, fds: Vec<OwnedFd>, bot: Pid) -> Result<std::convert::Infallible, Errno> {
    let file = CString::new(command.file).map_err(|_| Errno::EINVAL)?;
    let argv = pointers(command.argv);
    let env = pointers(command.env);
    if let Some(directory) = install(command, fds)? {
        fchdir(&directory)?;
    }
    if command.terminal {
        take_terminal(command.uid)?;
    }
    #[allow(clippy::unnecessary_cast)] // Its type differs between systems.
    umask(Mode::from_bits_truncate(command.umask as libc::mode_t));
    inherit_priority(bot);
    system::inherit(bot);
    if command.uid.is_some() || command.gid.is_some() {
        // Fails unless we are root, and then there is nothing to drop.
        // SAFETY: nothing is read of a list that has no members.
        unsafe { libc::setgroups(0, ptr::null()) };
    }
    if let Some(gid) = command.gid {
        setgid(Gid::from_raw(gid))?;
    }
    if let Some(uid) = command.uid {
        setuid(Uid::from_raw(uid))?;
    }
    // SAFETY: both arrays end with a null pointer and point to NUL-terminated strings that outlive the call. This process
    // has one thread, so nobody else reads its environment.
    unsafe {
        system::set_environment(env.as_ptr());
        libc::execvp(file.as_ptr(), argv.as_ptr());
    }
    match Errno::last() {
        Errno::ENOEXEC => exec_as_script(command.file, command.env, &argv),
        errno => Err(errno),
    }
}

/// A file that is no program is given to the shell: glibc, and hence Node, does that in `execvp`; musl leaves it to its callers.
fn exec_as_script(file: &str, env: &str, argv: &[*const c_char]) -> Result<std::convert::Infallible, Errno> {
    let path = if file.contains('/') { Some(file.into()) } else { found_in_path(file, env) };
    let path = path.and_then(|path| CString::new(path).ok()).ok_or(Errno::ENOEXEC)?;
    let shell = [c"/bin/sh".as_ptr(), path.as_ptr()];
    let argv: Vec<_> = shell.into_iter().chain(argv.iter().skip(1).copied()).chain([ptr::null()]).collect();
    // SAFETY: as for the first try.
    unsafe { libc::execv(c"/bin/sh".as_ptr(), argv.as_ptr()) };
    Err(Errno::last())
}

/// The file that `execvp` has stopped at: the first that may be executed.
fn found_in_path(file: &str, env: &str) -> Option<String> {
    let path = env.split('\0').find_map(|variable| variable.strip_prefix("PATH="))?;
    let candidates = path.split(':').map(|folder| match folder {
        "" => file.to_owned(),
        folder => format!("{folder}/{file}"),
    });
    candidates.into_iter().find(|path| {
        access(path.as_str(), AccessFlags::X_OK).is_ok()
            && fs::metadata(path).is_ok_and(|meta| meta.is_file())
    })
}

/// Takes over the bot's priority as it is now.
fn inherit_priority(bot: Pid) {
    // SAFETY: both take integers.
    unsafe {
        let theirs = libc::getpriority(libc::PRIO_PROCESS, bot.as_raw().cast_unsigned());
        if theirs != libc::getpriority(libc::PRIO_PROCESS, 0) {
            libc::setpriority(libc::PRIO_PROCESS, 0, theirs);
        }
    }
}

/// NUL-terminated strings, one after the other, as the array of pointers that `exec` wants.
fn pointers(block: &str) -> Vec<*const c_char> {
    let strings = block.split_inclusive('\0').filter(|part| part.ends_with('\0'));
    strings.map(|part| part.as_ptr().cast()).chain([ptr::null()]).collect()
}

/// Puts the command's descriptors in their places and returns its working directory, which came first, if it did.
///
/// Everything is lifted above the numbers that are to be used, so that none is overwritten before it was used.
fn install(command: &Command, fds: Vec<OwnedFd>) -> Result<Option<OwnedFd>, Errno> {
    let above = descriptors(command)?;
    let mut fds = fds.into_iter().map(|fd| lift(fd, above)).collect::<Result<Vec<_>, _>>()?.into_iter();
    let directory = if command.directory { Some(fds.next().ok_or(Errno::EINVAL)?) } else { None };
    for (target, slot) in (0..).zip(&command.stdio) {
        match slot {
            // SAFETY: numbers below `above` are nobody's but the command's from here on.
            Slot::Closed => unsafe {
                libc::close(target);
            },
            Slot::Null => {
                let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
                place(lift(null, above)?.as_raw_fd(), target)?;
            }
            Slot::Sent => place(fds.next().ok_or(Errno::EINVAL)?.as_raw_fd(), target)?,
        }
    }
    Ok(directory)
}

/// We lead a session that has no terminal yet. A command that becomes another user may open its terminal by name, as its own.
fn take_terminal(uid: Option<u32>) -> Result<(), Errno> {
    let stdin = std::io::stdin();
    pty::control(stdin.as_fd())?;
    if let Some(uid) = uid {
        let _ = fchown(&stdin, Some(Uid::from_raw(uid)), None);
    }
    Ok(())
}

/// How many descriptors the command gets.
fn descriptors(command: &Command) -> Result<RawFd, Errno> {
    RawFd::try_from(command.stdio.len()).map_err(|_| Errno::EINVAL)
}

/// As libuv does, the standard three are made blocking: programs expect that.
fn place(source: RawFd, target: RawFd) -> Result<(), Errno> {
    // SAFETY: dup2 and fcntl take integers; `target` is the command's.
    unsafe {
        Errno::result(libc::dup2(source, target))?;
        if target <= 2 {
            let flags = libc::fcntl(target, libc::F_GETFL);
            if flags & libc::O_NONBLOCK != 0 {
                libc::fcntl(target, libc::F_SETFL, flags & !libc::O_NONBLOCK);
            }
        }
    }
    Ok(())
}

fn lift(fd: OwnedFd, above: RawFd) -> Result<OwnedFd, Errno> {
    if fd.as_raw_fd() >= above {
        return Ok(fd);
    }
    let lifted = fcntl(fd.as_fd(), FcntlArg::F_DUPFD_CLOEXEC(above))?;
    // SAFETY: fcntl just returned this descriptor to us.
    Ok(unsafe { OwnedFd::from_raw_fd(lifted) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_a_block_into_its_strings() {
        let text = |block: &str| -> Vec<String> {
            let all = pointers(block);
            let (last, strings) = all.split_last().unwrap();
            assert!(last.is_null());
            // SAFETY: each pointer is the start of a NUL-terminated part of `block`.
            let read =
                |p: &*const c_char| unsafe { std::ffi::CStr::from_ptr(*p) }.to_str().unwrap().to_owned();
            strings.iter().map(read).collect()
        };
        assert_eq!(text(""), [""; 0]);
        assert_eq!(text("a\0"), ["a"]);
        assert_eq!(text("a\0\0b=c\0"), ["a", "", "b=c"]);
        assert_eq!(text("a\0cut"), ["a"], "a part without its end is not a string");
    }
}
