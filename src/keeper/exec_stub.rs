//! The exec stub: the process that becomes the command.
//!
//! The keeper forks it before the bot needs it. It leads its own session and process group, and
//! waits for a command. Then only `exec` is left to do. Its launch socket is close-on-exec: end of
//! file tells the bot that `exec` has succeeded, and a [`Refusal`] tells it why `exec` has failed.

#[cfg(target_os = "linux")]
#[path = "exec_stub/linux.rs"]
mod system;
#[cfg(target_os = "macos")]
#[path = "exec_stub/macos.rs"]
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
use crate::identity::helpers::STUB_NAME;
use crate::{pty, trace};

/// Size of the receive buffer. Arguments and environment of most commands fit into one read.
const USUAL_LENGTH: usize = 32 << 10;

/// Waits for a command and executes it. Exits if the bot exits or if `exec` fails.
///
/// Closes `ready` when it leads its own session. Only then may the keeper report it to the bot.
pub fn wait(mut launch: OwnedFd, ready: PipeWriter, bot: Pid) -> ! {
    // Before the signals are reset: after that, a write to a closed pipe would end this process.
    trace::stop();
    let _ = signals::reset();
    let _ = setsid();
    title::set(STUB_NAME, "spawn-owned-keeper stub");
    drop(ready);
    let result = receive_and_exec(&mut launch, bot);
    if let Err(errno) = result
        && let Ok(frame) = protocol::encode(&Refusal { errno: errno as i32 })
    {
        let _ = channel::send_all(&launch, &frame, &[]);
    }
    // SAFETY: `_exit` takes an integer and does not return.
    unsafe { libc::_exit(127) }
}

fn receive_and_exec(launch: &mut OwnedFd, bot: Pid) -> Result<(), Errno> {
    // Filled with 1, so the page faults of fresh memory occur now and not while the bot waits.
    let mut buffer = vec![1; USUAL_LENGTH];
    let mut inbox = Inbox::with_capacity(USUAL_LENGTH);
    let mut fds = Vec::with_capacity(8);
    loop {
        if let Some(payload) = inbox.next_payload().map_err(|_| Errno::EPROTO)? {
            let command: Command = protocol::decode(&payload).map_err(|_| Errno::EPROTO)?;
            // Move the launch socket above the command's file descriptors: it must stay open to
            // report a failure.
            *launch = move_above(launch.try_clone().map_err(|_| Errno::EMFILE)?, descriptors(&command)?)?;
            return exec(&command, fds, bot).map(|never| match never {});
        }
        match channel::receive(&*launch, &mut buffer, &mut fds)? {
            0 => return Ok(()),
            count => inbox.push(&buffer[..count]),
        }
    }
}

/// Prepares the process and calls `exec`, in libuv's order: file descriptors, working directory,
/// user and group, `exec`.
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
    #[allow(clippy::unnecessary_cast)] // The type of mode_t differs between systems.
    umask(Mode::from_bits_truncate(command.umask as libc::mode_t));
    inherit_priority(bot);
    system::inherit(bot);
    if command.uid.is_some() || command.gid.is_some() {
        // Only root can do this. Without root the call fails, which is harmless.
        // SAFETY: `setgroups` reads nothing from a list of length 0.
        unsafe { libc::setgroups(0, ptr::null()) };
    }
    if let Some(gid) = command.gid {
        setgid(Gid::from_raw(gid))?;
    }
    if let Some(uid) = command.uid {
        setuid(Uid::from_raw(uid))?;
    }
    // SAFETY: both arrays end with a null pointer and point to NUL-terminated strings that outlive
    // the call. This process has one thread, so no other thread reads the environment.
    unsafe {
        system::set_environment(env.as_ptr());
        libc::execvp(file.as_ptr(), argv.as_ptr());
    }
    match Errno::last() {
        Errno::ENOEXEC => exec_as_script(command.file, command.env, &argv),
        errno => Err(errno),
    }
}

/// Runs a file without a program header with `/bin/sh`.
///
/// glibc's `execvp` does that, so Node's callers expect it. musl's `execvp` does not.
fn exec_as_script(file: &str, env: &str, argv: &[*const c_char]) -> Result<std::convert::Infallible, Errno> {
    let path = if file.contains('/') { Some(file.into()) } else { found_in_path(file, env) };
    let path = path.and_then(|path| CString::new(path).ok()).ok_or(Errno::ENOEXEC)?;
    let shell = [c"/bin/sh".as_ptr(), path.as_ptr()];
    let argv: Vec<_> = shell.into_iter().chain(argv.iter().skip(1).copied()).chain([ptr::null()]).collect();
    // SAFETY: as for `execvp` in `exec`: a null-terminated array of strings that outlive the call.
    unsafe { libc::execv(c"/bin/sh".as_ptr(), argv.as_ptr()) };
    Err(Errno::last())
}

/// The file that `execvp` has found: the first executable file of that name in PATH.
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

/// Copies the bot's current priority.
fn inherit_priority(bot: Pid) {
    // SAFETY: both functions take integers only.
    unsafe {
        let theirs = libc::getpriority(libc::PRIO_PROCESS, bot.as_raw().cast_unsigned());
        if theirs != libc::getpriority(libc::PRIO_PROCESS, 0) {
            libc::setpriority(libc::PRIO_PROCESS, 0, theirs);
        }
    }
}

/// The null-terminated array of pointers for `exec`, from a block of NUL-terminated strings.
fn pointers(block: &str) -> Vec<*const c_char> {
    let strings = block.split_inclusive('\0').filter(|part| part.ends_with('\0'));
    strings.map(|part| part.as_ptr().cast()).chain([ptr::null()]).collect()
}

/// Installs the command's file descriptors. Returns the working directory, if the bot sent one.
///
/// First it moves every received descriptor above the target numbers. Otherwise `dup2` could
/// overwrite a descriptor that is still needed.
fn install(command: &Command, fds: Vec<OwnedFd>) -> Result<Option<OwnedFd>, Errno> {
    let above = descriptors(command)?;
    let mut fds = fds.into_iter().map(|fd| move_above(fd, above)).collect::<Result<Vec<_>, _>>()?.into_iter();
    let directory = if command.directory { Some(fds.next().ok_or(Errno::EINVAL)?) } else { None };
    for (target, slot) in (0..).zip(&command.stdio) {
        match slot {
            // SAFETY: descriptors below `above` are reserved for the command. No `OwnedFd` has one.
            Slot::Closed => unsafe {
                libc::close(target);
            },
            Slot::Null => {
                let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
                install_at(move_above(null, above)?.as_raw_fd(), target)?;
            }
            Slot::Sent => install_at(fds.next().ok_or(Errno::EINVAL)?.as_raw_fd(), target)?,
        }
    }
    Ok(directory)
}

/// Makes file descriptor 0 the controlling terminal. The stub leads a session without a terminal.
///
/// If the command runs as another user, that user becomes the terminal's owner. So the command can
/// open the terminal by its name.
fn take_terminal(uid: Option<u32>) -> Result<(), Errno> {
    let stdin = std::io::stdin();
    pty::make_controlling_terminal(stdin.as_fd())?;
    if let Some(uid) = uid {
        let _ = fchown(&stdin, Some(Uid::from_raw(uid)), None);
    }
    Ok(())
}

/// The number of file descriptors that the command gets.
fn descriptors(command: &Command) -> Result<RawFd, Errno> {
    RawFd::try_from(command.stdio.len()).map_err(|_| Errno::EINVAL)
}

/// Duplicates `source` to `target`. Makes 0, 1 and 2 blocking, as libuv does, because programs
/// expect that.
fn install_at(source: RawFd, target: RawFd) -> Result<(), Errno> {
    // SAFETY: dup2 and fcntl take integers, and `target` is reserved for the command.
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

/// Duplicates `fd` to a number of at least `above`, unless it has one.
fn move_above(fd: OwnedFd, above: RawFd) -> Result<OwnedFd, Errno> {
    if fd.as_raw_fd() >= above {
        return Ok(fd);
    }
    let moved = fcntl(fd.as_fd(), FcntlArg::F_DUPFD_CLOEXEC(above))?;
    // SAFETY: fcntl has just returned this file descriptor. No other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(moved) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_splits_a_block_into_its_strings() {
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
        assert_eq!(text("a\0cut"), ["a"], "a part without a NUL is not a string");
    }
}
