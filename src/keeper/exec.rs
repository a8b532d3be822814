//! Starting the command.
//!
//! The child shares our memory until it has called `exec` (CLONE_VM | CLONE_VFORK): no page table is copied, and it
//! reports an error by writing it into a variable of ours while we sleep. In exchange it may only make system calls;
//! everything that allocates happens before.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::sys::stat::Mode;

use super::protocol::{Slot, Start};

unsafe extern "C" {
    /// `execvp` looks the file up in the PATH it finds here.
    static mut environ: *const *const c_char;
}

/// Starts the command as the leader of its own session and group. It runs when this returns: `exec` has succeeded.
///
/// `fds` are the bot's working directory and then one descriptor per [`Slot::Sent`]. They are closed on return, so
/// that the command's are the only copies and end of file means what it says.
pub fn start(request: &Start, fds: Vec<OwnedFd>) -> Result<i32, Errno> {
    let stdio = Stdio::arrange(&request.stdio, fds)?;
    let file = CString::new(request.file).map_err(|_| Errno::EINVAL)?;
    let cwd = request.cwd.map(CString::new).transpose().map_err(|_| Errno::EINVAL)?;
    let argv = pointers(request.argv);
    let env = pointers(request.env);
    let mut child = Child {
        file: file.as_ptr(),
        argv: argv.as_ptr(),
        cwd: cwd.as_ref().map_or(ptr::null(), |cwd| cwd.as_ptr()),
        base: stdio.base.as_raw_fd(),
        sources: &stdio.sources,
        uid: request.uid,
        gid: request.gid,
        umask: request.umask,
        errno: 0,
    };
    // `execvp` may put a copy of the arguments on the stack, when it runs a script without `#!` by the shell.
    let mut stack = vec![0u128; (64 << 10) / 16 + argv.len()];
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: the child runs `child_main` on a stack of its own, with our memory, while we are suspended until it has
    // exec'ed or ended; all that it points to outlives that. `environ` is read by nobody else in this process, and
    // restored before the strings it points to go away.
    let pid = unsafe {
        let ours = environ;
        environ = env.as_ptr();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid = libc::clone(child_main, top.cast(), flags, (&raw mut child).cast());
        environ = ours;
        Errno::result(pid)?
    };
    // SAFETY: the child has written it, if at all, before we went on.
    match unsafe { ptr::read_volatile(&raw const child.errno) } {
        0 => Ok(pid),
        errno => {
            // It has ended already; take its zombie away. Nothing of it is left.
            // SAFETY: a null status pointer is allowed.
            unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WALL) };
            Err(Errno::from_raw(errno))
        }
    }
}

/// NUL-terminated strings, one after the other, as the array of pointers that `exec` wants.
fn pointers(block: &str) -> Vec<*const c_char> {
    let starts = block.split_inclusive('\0').filter(|part| part.ends_with('\0'));
    starts.map(|part| part.as_ptr().cast()).chain([ptr::null()]).collect()
}

/// The command's descriptors, gathered above the numbers they are to get: none is overwritten before it was used.
struct Stdio {
    base: OwnedFd,
    /// For each number the descriptor to put there, or -1 to leave it closed.
    sources: Vec<RawFd>,
    _open: Vec<OwnedFd>,
}

impl Stdio {
    fn arrange(slots: &[Slot], fds: Vec<OwnedFd>) -> Result<Self, Errno> {
        let above = i32::try_from(slots.len()).map_err(|_| Errno::EINVAL)?;
        let mut fds = fds.into_iter();
        let base = lift(fds.next().ok_or(Errno::EINVAL)?, above)?;
        let mut open_fds = Vec::with_capacity(slots.len());
        let mut sources = Vec::with_capacity(slots.len());
        for slot in slots {
            let source = match slot {
                Slot::Closed => None,
                Slot::Null => Some(open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?),
                Slot::Sent => Some(fds.next().ok_or(Errno::EINVAL)?),
            };
            sources.push(match source {
                None => -1,
                Some(fd) => {
                    open_fds.push(lift(fd, above)?);
                    open_fds.last().map_or(-1, AsRawFd::as_raw_fd)
                }
            });
        }
        Ok(Self { base, sources, _open: open_fds })
    }
}

fn lift(fd: OwnedFd, above: i32) -> Result<OwnedFd, Errno> {
    if fd.as_raw_fd() >= above {
        return Ok(fd);
    }
    let lifted = fcntl(fd.as_fd(), FcntlArg::F_DUPFD_CLOEXEC(above))?;
    // SAFETY: fcntl just returned this descriptor to us.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(lifted) })
}

/// What the child needs between `clone` and `exec`.
struct Child<'a> {
    file: *const c_char,
    argv: *const *const c_char,
    cwd: *const c_char,
    base: RawFd,
    sources: &'a [RawFd],
    uid: Option<u32>,
    gid: Option<u32>,
    umask: u32,
    errno: c_int,
}

extern "C" fn child_main(child: *mut c_void) -> c_int {
    // SAFETY: `start` passes a valid, exclusive `Child`; the parent sleeps meanwhile.
    let child = unsafe { &mut *child.cast::<Child>() };
    let Err(errno) = child.exec();
    child.errno = errno as c_int;
    // SAFETY: ends the child at once; nothing of the parent's is flushed or dropped.
    unsafe { libc::_exit(127) }
}

impl Child<'_> {
    /// Only system calls from here on. The order is libuv's: descriptors, directory, identity, signals.
    fn exec(&self) -> Result<std::convert::Infallible, Errno> {
        let check = |result: c_int| Errno::result(result).map(drop);
        // SAFETY: plain system calls on integers and on strings that `start` keeps alive. The raw calls for uid and
        // gid are deliberate: glibc's wrappers would signal the "other threads" of the memory we share.
        unsafe {
            check(libc::setsid())?;
            for (target, &source) in (0..).zip(self.sources) {
                if source < 0 {
                    libc::close(target);
                    continue;
                }
                check(libc::dup2(source, target))?;
                if target <= 2 {
                    let flags = libc::fcntl(target, libc::F_GETFL);
                    if flags & libc::O_NONBLOCK != 0 {
                        libc::fcntl(target, libc::F_SETFL, flags & !libc::O_NONBLOCK);
                    }
                }
            }
            check(libc::fchdir(self.base))?;
            if !self.cwd.is_null() {
                check(libc::chdir(self.cwd))?;
            }
            libc::umask(self.umask);
            if self.uid.is_some() || self.gid.is_some() {
                // Fails unless we are root, and then there is nothing to drop.
                libc::syscall(libc::SYS_setgroups, 0, ptr::null::<libc::gid_t>());
            }
            if let Some(gid) = self.gid {
                Errno::result(libc::syscall(libc::SYS_setgid, gid))?;
            }
            if let Some(uid) = self.uid {
                Errno::result(libc::syscall(libc::SYS_setuid, uid))?;
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            check(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()))?;
            libc::execvp(self.file, self.argv);
        }
        Err(Errno::last())
    }
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
