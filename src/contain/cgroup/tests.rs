//! With real cgroups. Where none can be made, a test says so and passes.

use std::fs;
use std::process::{Child, Command, Stdio};

use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

use super::*;
use crate::identity::read_stat;

const LIMIT: Duration = Duration::from_secs(5);

/// A process under whose name a cgroup is made. It ends with the test.
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

/// A cgroup that is gone when the test is over, however it went.
struct Scene {
    keeper: Keeper,
    cgroup: Cgroup,
}

impl Scene {
    fn set() -> Option<Self> {
        Self::with(&Limits::default())
    }

    fn with(limits: &Limits) -> Option<Self> {
        let base = match find() {
            Ok(base) => base,
            Err(why) => {
                println!("not tested here: {why}");
                return None;
            }
        };
        let keeper = Keeper::start();
        match Cgroup::create(&base, &keeper.process(), limits) {
            Ok(cgroup) => Some(Self { keeper, cgroup }),
            Err(trouble) => {
                println!("not tested here: {trouble}");
                None
            }
        }
    }

    /// A process that sleeps in it, or exits at once.
    fn fork(&self, stays: bool) -> Pid {
        fork(self.cgroup.as_fd(), stays).expect("clone3 with CLONE_INTO_CGROUP")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.cgroup.kill_all(LIMIT);
        let _ = self.cgroup.remove();
    }
}

fn fork(cgroup: BorrowedFd, stays: bool) -> Option<Pid> {
    // SAFETY: the child makes two system calls and nothing else, which is safe whatever other threads hold.
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

/// What the kernel itself says, by another way than the code under test.
fn cgroup_of(pid: Pid) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned()
}

fn killed(pid: Pid) -> bool {
    waitpid(pid, None) == Ok(WaitStatus::Signaled(pid, nix::sys::signal::Signal::SIGKILL, false))
}

#[test]
fn a_child_is_in_the_cgroup_from_its_first_instruction_and_we_are_not() {
    let Some(scene) = Scene::set() else { return };
    let name = name::of(&scene.keeper.process());
    assert!(!scene.cgroup.is_populated());
    let child = scene.fork(true);
    assert!(cgroup_of(child).ends_with(&format!("/{name}")), "{}", cgroup_of(child));
    assert!(!cgroup_of(Pid::this()).contains(&name));
    assert!(scene.cgroup.is_populated());
    assert_eq!(scene.cgroup.members(), Ok(vec![child.as_raw()]));
    assert_eq!(scene.cgroup.remove(), Err(Errno::EBUSY), "somebody is in it");
    scene.cgroup.kill().unwrap();
    assert!(killed(child));
    assert!(scene.cgroup.wait_until_empty(LIMIT));
    assert_eq!(scene.cgroup.remove(), Ok(()));
    assert!(!scene.cgroup.path().exists());
    assert_eq!(scene.cgroup.remove(), Ok(()), "gone is gone");
    assert!(!scene.cgroup.is_populated());
}

#[test]
fn where_clone3_does_not_work_a_child_moves_itself() {
    let Some(scene) = Scene::set() else { return };
    let (mut read, write) = std::io::pipe().unwrap();
    // SAFETY: the child opens, writes and reads files and ends: nothing that another thread's locks could hold up for ever but
    // the allocator, which the C library looks after in `fork`.
    let child = match unsafe { nix::unistd::fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let entered = scene.cgroup.enter().is_ok();
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
    assert!(cgroup_of(child).ends_with(&name::of(&scene.keeper.process())));
    scene.cgroup.kill().unwrap();
    assert!(killed(child));
}

#[test]
fn one_that_exits_by_itself_wakes_whoever_waits_and_a_zombie_is_nobody() {
    let Some(scene) = Scene::set() else { return };
    let child = scene.fork(false);
    assert!(scene.cgroup.wait_until_empty(LIMIT), "it is a zombie of ours now");
    assert_eq!(scene.cgroup.members(), Ok(vec![]));
    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 7)));
}

#[test]
fn time_is_up_while_somebody_stays() {
    let Some(scene) = Scene::set() else { return };
    let child = scene.fork(true);
    assert!(!scene.cgroup.wait_until_empty(Duration::from_millis(20)));
    assert!(scene.cgroup.kill_all(LIMIT));
    assert!(killed(child));
}

#[test]
fn cgroups_that_the_run_has_made_go_with_it_and_so_does_whoever_is_in_them() {
    let Some(scene) = Scene::set() else { return };
    let deep = scene.cgroup.path().join("a/b/c");
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(scene.cgroup.path().join("d")).unwrap();
    let dir = files::directory(&deep).unwrap();
    let child = fork(dir.as_fd(), true).unwrap();
    assert_eq!(scene.cgroup.members(), Ok(vec![child.as_raw()]));
    assert_eq!(scene.cgroup.remove(), Err(Errno::EBUSY));
    assert!(deep.exists(), "nothing around a living process is removed");
    assert!(scene.cgroup.kill_all(LIMIT));
    assert!(killed(child));
    assert_eq!(scene.cgroup.remove(), Ok(()));
    assert!(!scene.cgroup.path().exists());
}

#[test]
fn a_signal_reaches_every_member_but_those_left_out_and_nobody_else() {
    let Some(scene) = Scene::set() else { return };
    let mut bystander = Keeper::start();
    let (one, two) = (scene.fork(true), scene.fork(true));
    assert_eq!(scene.cgroup.signal(SIGKILL, |pid| pid != two.as_raw()), Ok(1));
    assert!(killed(one));
    assert!(!read_stat(two.as_raw()).unwrap().is_dead());
    assert_eq!(scene.cgroup.signal(SIGKILL, |_| true), Ok(1));
    assert!(killed(two));
    assert_eq!(bystander.0.try_wait().unwrap(), None);
}

#[test]
fn a_recorded_path_opens_nothing_but_that_keepers_cgroup() {
    let Some(scene) = Scene::set() else { return };
    let (path, keeper) = (scene.cgroup.path(), scene.keeper.process());
    assert_eq!(Cgroup::recorded(path, &keeper).unwrap().path(), path);
    let other = Keeper::start();
    let refused = |path: &Path, keeper: &ProcessRef| Cgroup::recorded(path, keeper).unwrap_err();
    let not_the_runs = |path: &Path| Trouble::NotTheRuns { path: path.to_owned() };
    assert_eq!(refused(path, &other.process()), not_the_runs(path));
    let parent = path.parent().unwrap();
    assert_eq!(refused(parent, &keeper), not_the_runs(parent));
    // The right name, in a folder of somebody's.
    let folder = std::env::temp_dir().join(format!("spawn-owned-folder-{}", keeper.pid));
    let fake = folder.join(name::of(&keeper));
    fs::create_dir_all(&fake).unwrap();
    fs::write(fake.join("cgroup.events"), "populated 1\n").unwrap();
    fs::write(fake.join("cgroup.kill"), "").unwrap();
    assert_eq!(refused(&fake, &keeper), not_the_runs(&fake));
    fs::remove_dir_all(&fake).unwrap();
    // A link to a cgroup is not one.
    std::os::unix::fs::symlink(path, &fake).unwrap();
    assert!(matches!(refused(&fake, &keeper), Trouble::Failed { .. }));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_sweep_takes_what_dead_keepers_have_left_and_nothing_else() {
    let (Some(mut dead), Some(alive), Some(mut busy)) = (Scene::set(), Scene::set(), Scene::set()) else {
        return;
    };
    fs::create_dir_all(dead.cgroup.path().join("nested/once")).unwrap();
    let base = dead.cgroup.path().parent().unwrap().to_owned();
    let foreign = base.join(format!("not-spawn-owned-{}", std::process::id()));
    // Nobody's namespace: whether its keeper lives cannot be told from here.
    let elsewhere = ProcessRef { pid: 1, start: 1, ns: 1, boot: "".into() };
    let elsewhere = base.join(name::of(&elsewhere));
    fs::create_dir(&foreign).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    let child = busy.fork(true);
    dead.keeper.die();
    busy.keeper.die();
    // Another test may sweep the same base, and be faster.
    sweep(&base);
    assert!(!dead.cgroup.path().exists());
    assert!(alive.cgroup.path().exists(), "its keeper lives");
    assert!(busy.cgroup.path().exists(), "somebody is in it");
    assert!(!read_stat(child.as_raw()).unwrap().is_dead());
    assert!(foreign.exists() && elsewhere.exists());
    fs::remove_dir(&foreign).unwrap();
    fs::remove_dir(&elsewhere).unwrap();
    busy.cgroup.kill().unwrap();
    assert!(killed(child));
}

#[test]
fn a_cgroup_with_the_same_name_is_never_shared() {
    let Some(scene) = Scene::set() else { return };
    let again = Cgroup::create(&find().unwrap(), &scene.keeper.process(), &Limits::default());
    assert!(matches!(again, Err(Trouble::Failed { errno, .. }) if errno == Errno::EEXIST as i32));
    assert!(scene.cgroup.path().exists(), "and the failure has not removed it");
}

#[test]
fn a_mark_of_systemds_is_seen_and_nothing_else_is_taken_for_one() {
    let Some(scene) = Scene::set() else { return };
    let path = std::ffi::CString::new(scene.cgroup.path().to_str().unwrap()).unwrap();
    let mark = |value: &[u8]| {
        // SAFETY: both strings end with a NUL, and the value is as long as we say.
        unsafe {
            libc::setxattr(path.as_ptr(), c"user.delegate".as_ptr(), value.as_ptr().cast(), value.len(), 0)
        }
    };
    let delegated = || observe::level(scene.cgroup.path()).unwrap().delegated;
    assert!(!delegated());
    for (value, expected) in [(&b"0"[..], false), (b"11", false), (b"", false), (b"1", true)] {
        if mark(value) != 0 {
            return println!("not tested here: no such attributes ({})", Errno::last());
        }
        assert_eq!(delegated(), expected, "{value:?}");
    }
}

/// Where the kernel counts processes in version 2, which it does not if version 1 does.
#[test]
fn no_more_processes_than_the_limit_are_born() {
    let Some(scene) = Scene::with(&Limits { memory_bytes: None, processes: Some(2) }) else { return };
    let (one, two) = (scene.fork(true), scene.fork(true));
    // SAFETY: there is no child.
    assert_eq!(unsafe { fork_into(scene.cgroup.as_fd()) }.err(), Some(Errno::EAGAIN));
    assert!(scene.cgroup.kill_all(LIMIT));
    assert!(killed(one) && killed(two));
}

#[test]
fn without_a_controller_nothing_is_made_and_the_error_names_it() {
    let Ok(base) = find() else { return println!("not tested here: no cgroup") };
    let limits = Limits { memory_bytes: Some(64 << 20), processes: None };
    let keeper = Keeper::start();
    match Cgroup::create(&base, &keeper.process(), &limits) {
        Ok(cgroup) => {
            assert_eq!(fs::read_to_string(cgroup.path().join("memory.max")).unwrap(), "67108864\n");
            cgroup.remove().unwrap();
        }
        Err(trouble) => {
            assert!(trouble.to_string().contains("memory controller"), "{trouble}");
            assert!(!base.dir.join(name::of(&keeper.process())).exists());
        }
    }
}
