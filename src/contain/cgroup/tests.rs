//! Tests with real cgroups. Where none can be created, a test prints the reason and passes.

use std::fs;
use std::process::{Child, Command, Stdio};

use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

use super::*;
use crate::contain::SIGKILL;
use crate::identity::read_stat;

const LIMIT: Duration = Duration::from_secs(5);

/// A process that serves as keeper, for the cgroup's name. It ends with the test.
struct Keeper(Child);

impl Keeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }

    fn process(&self) -> ProcessRef {
        ProcessRef::capture(self.0.id().cast_signed()).unwrap()
    }

    fn die(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cgroup that is removed at the end of the test, also if the test fails.
struct TestCgroup {
    keeper: Keeper,
    cgroup: Cgroup,
}

impl TestCgroup {
    fn create() -> Option<Self> {
        Self::with(&Limits::default())
    }

    fn with(limits: &Limits) -> Option<Self> {
        let base = match find() {
            Ok(base) => base,
            Err(why) => {
                println!("skipped: {why}");
                return None;
            }
        };
        let keeper = Keeper::start();
        match Cgroup::create(&base, &keeper.process(), limits) {
            Ok(cgroup) => Some(Self { keeper, cgroup }),
            Err(error) => {
                println!("skipped: {error}");
                None
            }
        }
    }

    /// Starts a process in the cgroup that sleeps, or exits immediately.
    fn fork(&self, stays: bool) -> Pid {
        fork(self.cgroup.as_fd(), stays).expect("clone3 with CLONE_INTO_CGROUP")
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        self.cgroup.kill_all(LIMIT);
        let _ = self.cgroup.remove();
    }
}

fn fork(cgroup: BorrowedFd, stays: bool) -> Option<Pid> {
    // SAFETY: the child only makes two system calls, which is safe whatever locks other threads
    // hold.
    match unsafe { fork_into(cgroup) }.unwrap()? {
        ForkResult::Parent { child } => Some(child),
        // SAFETY: as above.
        ForkResult::Child => unsafe {
            if stays {
                libc::pause();
            }
            libc::_exit(7)
        },
    }
}

/// The cgroup of a process, read independently of the code under test.
fn cgroup_of(pid: Pid) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned()
}

fn killed(pid: Pid) -> bool {
    waitpid(pid, None) == Ok(WaitStatus::Signaled(pid, nix::sys::signal::Signal::SIGKILL, false))
}

#[test]
fn a_child_is_in_the_cgroup_from_its_first_instruction_and_its_parent_is_not() {
    let Some(test) = TestCgroup::create() else { return };
    let name = name::of(&test.keeper.process());
    assert!(!test.cgroup.is_populated());
    let child = test.fork(true);
    assert!(cgroup_of(child).ends_with(&format!("/{name}")), "{}", cgroup_of(child));
    assert!(!cgroup_of(Pid::this()).contains(&name));
    assert!(test.cgroup.is_populated());
    assert_eq!(test.cgroup.members(), Ok(vec![child.as_raw()]));
    assert_eq!(test.cgroup.remove(), Err(Errno::EBUSY), "it contains a process");
    test.cgroup.kill().unwrap();
    assert!(killed(child));
    assert!(test.cgroup.wait_until_empty(LIMIT));
    assert_eq!(test.cgroup.remove(), Ok(()));
    assert!(!test.cgroup.path().exists());
    assert_eq!(test.cgroup.remove(), Ok(()), "a second removal succeeds");
    assert!(!test.cgroup.is_populated());
}

#[test]
fn without_clone3_a_child_can_move_itself_into_the_cgroup() {
    let Some(test) = TestCgroup::create() else { return };
    let (mut read, write) = std::io::pipe().unwrap();
    // SAFETY: the child only opens, reads and writes files and exits. Of the locks that another
    // thread could hold, it needs only the allocator's, which the C library resets in `fork`.
    let child = match unsafe { nix::unistd::fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let entered = test.cgroup.enter().is_ok();
            drop(write);
            // SAFETY: two system calls.
            unsafe {
                if entered {
                    libc::pause();
                }
                libc::_exit(1)
            }
        }
    };
    drop(write);
    std::io::Read::read_to_end(&mut read, &mut Vec::new()).unwrap();
    assert!(cgroup_of(child).ends_with(&name::of(&test.keeper.process())));
    test.cgroup.kill().unwrap();
    assert!(killed(child));
}

#[test]
fn an_exit_ends_the_wait_and_a_zombie_is_no_member() {
    let Some(test) = TestCgroup::create() else { return };
    let child = test.fork(false);
    assert!(test.cgroup.wait_until_empty(LIMIT), "the child is a zombie now");
    assert_eq!(test.cgroup.members(), Ok(vec![]));
    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 7)));
}

#[test]
fn the_wait_ends_at_its_limit_while_a_process_stays() {
    let Some(test) = TestCgroup::create() else { return };
    let child = test.fork(true);
    assert!(!test.cgroup.wait_until_empty(Duration::from_millis(20)));
    assert!(test.cgroup.kill_all(LIMIT));
    assert!(killed(child));
}

#[test]
fn nested_cgroups_are_removed_with_the_run_and_their_processes_are_killed() {
    let Some(test) = TestCgroup::create() else { return };
    let deep = test.cgroup.path().join("a/b/c");
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(test.cgroup.path().join("d")).unwrap();
    let dir = files::directory(&deep).unwrap();
    let child = fork(dir.as_fd(), true).unwrap();
    assert_eq!(test.cgroup.members(), Ok(vec![child.as_raw()]));
    assert_eq!(test.cgroup.remove(), Err(Errno::EBUSY));
    assert!(deep.exists(), "a cgroup with a living process is not removed");
    assert!(test.cgroup.kill_all(LIMIT));
    assert!(killed(child));
    assert_eq!(test.cgroup.remove(), Ok(()));
    assert!(!test.cgroup.path().exists());
}

#[test]
fn a_signal_reaches_exactly_the_selected_members() {
    let Some(test) = TestCgroup::create() else { return };
    let mut bystander = Keeper::start();
    let (one, two) = (test.fork(true), test.fork(true));
    assert_eq!(test.cgroup.signal(SIGKILL, |pid| pid != two.as_raw()), Ok(1));
    assert!(killed(one));
    assert!(!read_stat(two.as_raw()).unwrap().is_dead());
    assert_eq!(test.cgroup.signal(SIGKILL, |_| true), Ok(1));
    assert!(killed(two));
    assert_eq!(bystander.0.try_wait().unwrap(), None);
}

#[test]
fn a_recorded_path_opens_only_that_keepers_cgroup() {
    let Some(test) = TestCgroup::create() else { return };
    let (path, keeper) = (test.cgroup.path(), test.keeper.process());
    assert_eq!(Cgroup::recorded(path, &keeper).unwrap().path(), path);
    let other = Keeper::start();
    let refused = |path: &Path, keeper: &ProcessRef| Cgroup::recorded(path, keeper).unwrap_err();
    let not_the_runs = |path: &Path| CgroupError::NotTheRuns { path: path.to_owned() };
    assert_eq!(refused(path, &other.process()), not_the_runs(path));
    let parent = path.parent().unwrap();
    assert_eq!(refused(parent, &keeper), not_the_runs(parent));
    // The right name, but in an ordinary directory.
    let folder = std::env::temp_dir().join(format!("spawn-owned-folder-{}", keeper.pid));
    let fake = folder.join(name::of(&keeper));
    fs::create_dir_all(&fake).unwrap();
    fs::write(fake.join("cgroup.events"), "populated 1\n").unwrap();
    fs::write(fake.join("cgroup.kill"), "").unwrap();
    assert_eq!(refused(&fake, &keeper), not_the_runs(&fake));
    fs::remove_dir_all(&fake).unwrap();
    // A symbolic link to a cgroup is refused.
    std::os::unix::fs::symlink(path, &fake).unwrap();
    assert!(matches!(refused(&fake, &keeper), CgroupError::Failed { .. }));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_sweep_removes_only_the_empty_cgroups_of_dead_keepers() {
    let (Some(mut dead), Some(alive), Some(mut busy)) =
        (TestCgroup::create(), TestCgroup::create(), TestCgroup::create())
    else {
        return;
    };
    fs::create_dir_all(dead.cgroup.path().join("nested/once")).unwrap();
    let base = dead.cgroup.path().parent().unwrap().to_owned();
    let unrelated = base.join(format!("not-spawn-owned-{}", std::process::id()));
    // A PID namespace that does not exist: whether this keeper lives cannot be determined.
    let other_namespace = ProcessRef { pid: 1, start: 1, ns: 1, boot: "".into() };
    let other_namespace = base.join(name::of(&other_namespace));
    fs::create_dir(&unrelated).unwrap();
    fs::create_dir(&other_namespace).unwrap();
    let child = busy.fork(true);
    dead.keeper.die();
    busy.keeper.die();
    // Another test may sweep the same base first.
    sweep(&base);
    assert!(!dead.cgroup.path().exists());
    assert!(alive.cgroup.path().exists(), "its keeper lives");
    assert!(busy.cgroup.path().exists(), "it contains a process");
    assert!(!read_stat(child.as_raw()).unwrap().is_dead());
    assert!(unrelated.exists() && other_namespace.exists());
    fs::remove_dir(&unrelated).unwrap();
    fs::remove_dir(&other_namespace).unwrap();
    busy.cgroup.kill().unwrap();
    assert!(killed(child));
}

#[test]
fn a_second_cgroup_with_the_same_name_is_refused() {
    let Some(test) = TestCgroup::create() else { return };
    let again = Cgroup::create(&find().unwrap(), &test.keeper.process(), &Limits::default());
    assert!(matches!(again, Err(CgroupError::Failed { errno, .. }) if errno == Errno::EEXIST as i32));
    assert!(test.cgroup.path().exists(), "the failure does not remove the first one");
}

#[test]
fn only_the_value_1_of_systemds_attribute_marks_a_delegated_cgroup() {
    let Some(test) = TestCgroup::create() else { return };
    let path = std::ffi::CString::new(test.cgroup.path().to_str().unwrap()).unwrap();
    let mark = |value: &[u8]| {
        // SAFETY: both strings end with a NUL, and the length argument is the value's length.
        unsafe {
            libc::setxattr(path.as_ptr(), c"user.delegate".as_ptr(), value.as_ptr().cast(), value.len(), 0)
        }
    };
    let delegated = || observe::level(test.cgroup.path()).unwrap().delegated;
    assert!(!delegated());
    for (value, expected) in [(&b"0"[..], false), (b"11", false), (b"", false), (b"1", true)] {
        if mark(value) != 0 {
            return println!("skipped: no such attributes ({})", Errno::last());
        }
        assert_eq!(delegated(), expected, "{value:?}");
    }
}

/// Runs only where cgroup v2 has the pids controller. It has not if cgroup v1 uses it.
#[test]
fn a_fork_beyond_the_process_limit_fails() {
    let Some(test) = TestCgroup::with(&Limits { memory_bytes: None, processes: Some(2) }) else { return };
    let (one, two) = (test.fork(true), test.fork(true));
    // SAFETY: there is no child.
    assert_eq!(unsafe { fork_into(test.cgroup.as_fd()) }.err(), Some(Errno::EAGAIN));
    assert!(test.cgroup.kill_all(LIMIT));
    assert!(killed(one) && killed(two));
}

#[test]
fn without_a_controller_no_cgroup_is_created_and_the_error_names_the_controller() {
    let Ok(base) = find() else { return println!("skipped: no cgroup") };
    let limits = Limits { memory_bytes: Some(64 << 20), processes: None };
    let keeper = Keeper::start();
    match Cgroup::create(&base, &keeper.process(), &limits) {
        Ok(cgroup) => {
            assert_eq!(fs::read_to_string(cgroup.path().join("memory.max")).unwrap(), "67108864\n");
            cgroup.remove().unwrap();
        }
        Err(error) => {
            assert!(error.to_string().contains("memory controller"), "{error}");
            assert!(!base.dir.join(name::of(&keeper.process())).exists());
        }
    }
}
