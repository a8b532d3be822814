use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use super::*;

const AT: u64 = 1_794_884_116_123;

fn batch(lines: usize) -> Batch {
    let mut batch = Batch::new(UNIX_EPOCH + Duration::from_millis(AT));
    let orphan = Orphan { pid: 4711, command: "claude", age_ms: Some(3_605_999), status: "confirmed" };
    (0..lines).for_each(|_| batch.add(What::Detected, &orphan, "its bot is gone"));
    batch
}

/// A log in its own temporary folder, which is deleted with the value.
struct TestLog {
    folder: PathBuf,
    log: OrphanLog,
}

impl TestLog {
    fn new(limit: u64) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("orphan-log-{}-{number}", std::process::id()));
        let log = OrphanLog { path: folder.join("data").join("orphan-events.log"), limit };
        Self { folder, log }
    }

    /// Number of lines in the log and in `.1`.
    fn counts(&self) -> (usize, usize) {
        let lines = |path: &Path| std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
        (lines(&self.log.path), lines(&disk::rotated(&self.log.path)))
    }
}

impl Drop for TestLog {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_line_has_the_time_the_event_the_process_and_the_reason() {
    let line = "2026-11-17T02:55:16.123Z DETECTED pid=4711 cmd=\"claude\" age=3605s status=confirmed \
                reason=\"its bot is gone\"\n";
    assert_eq!(batch(1).text, line);
}

#[test]
fn a_command_cannot_forge_a_line() {
    for (command, expected) in [
        ("", r#""""#),
        ("sh -c 'x'", r#""sh -c 'x'""#),
        ("naïve — 漢字 🙂", "\"naïve — 漢字 🙂\""),
        ("x\" status=confirmed reason=\"", r#""x\" status=confirmed reason=\"""#),
        ("x\\", r#""x\\""#),
        ("x\n2026-11-17T02:55:16.123Z KILLED pid=1", r#""x\u000a2026-11-17T02:55:16.123Z KILLED pid=1""#),
        ("a\rb\0c\u{1b}[2J\u{7f}", r#""a\u000db\u0000c\u001b[2J\u007f""#),
        ("\u{85}\u{9b}31m", r#""\u0085\u009b31m""#),
        ("\u{2028}\u{2029}\u{202e}gpj\u{2066}\u{200f}", r#""\u2028\u2029\u202egpj\u2066\u200f""#),
    ] {
        let quoted = Quoted(command).to_string();
        assert_eq!(quoted, expected);
        assert_eq!(
            serde_json::from_str::<String>(&quoted).unwrap(),
            command,
            "the quoted text can be parsed again"
        );
        let mut batch = Batch::new(UNIX_EPOCH);
        let orphan = Orphan { pid: 1, command, age_ms: None, status: "dead" };
        batch.add(What::Skipped, &orphan, command);
        assert_eq!(batch.text.chars().filter(|it| it.is_control()).collect::<String>(), "\n");
        assert!(batch.text.contains(" age=unknown "));
    }
}

#[test]
fn append_creates_the_folder_and_a_file_that_only_its_owner_can_read() {
    let test = TestLog::new(LIMIT);
    test.log.append(&batch(2)).unwrap();
    test.log.append(&batch(1)).unwrap();
    assert_eq!(test.counts(), (3, 0));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&test.log.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_full_file_replaces_the_previous_rotated_file() {
    let test = TestLog::new(batch(4).text.len() as u64);
    for (lines, expected) in
        [(3, (3, 0)), (1, (4, 0)), (1, (1, 4)), (4, (4, 1)), (100, (100, 4)), (1, (1, 100))]
    {
        test.log.append(&batch(lines)).unwrap();
        assert_eq!(test.counts(), expected);
    }
}

/// A bot that is too late to rename the full file must not rename the new one.
#[test]
fn two_bots_rotate_a_full_file_once() {
    let test = TestLog::new(batch(2).text.len() as u64);
    test.log.append(&batch(2)).unwrap();
    let late = test.log.open().unwrap();
    test.log.append(&batch(1)).unwrap();
    assert_eq!(test.counts(), (1, 2));
    test.log.rotate_if_full(late, 1).unwrap();
    assert_eq!(test.counts(), (1, 2), "the new file stays in place");

    // While another bot holds the lock, a bot appends without waiting.
    test.log.append(&batch(1)).unwrap();
    let busy = test.log.open().unwrap();
    assert!(disk::try_lock(&busy).unwrap());
    test.log.append(&batch(1)).unwrap();
    assert_eq!(test.counts(), (3, 2));
    drop(busy);
    test.log.append(&batch(1)).unwrap();
    assert_eq!(test.counts(), (1, 3));
}

#[test]
fn simultaneous_bots_lose_no_line_except_by_rotation() {
    let test = TestLog::new(batch(64).text.len() as u64);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..24).for_each(|_| test.log.append(&batch(1)).unwrap()));
        }
    });
    let (now, before) = test.counts();
    assert_eq!(now + before, 96);
    assert!((60..96).contains(&before), "{before} were in the file when it was full");
}

#[test]
#[cfg(unix)]
fn append_refuses_a_symbolic_link_a_folder_and_a_fifo() {
    let test = TestLog::new(LIMIT);
    let path = &test.log.path;
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let target = test.folder.join("target");
    std::os::unix::fs::symlink(&target, path).unwrap();
    assert!(matches!(test.log.append(&batch(1)), Err(Refusal::Symlink)));
    assert!(!target.exists());
    std::fs::remove_file(path).unwrap();

    std::fs::create_dir(path).unwrap();
    assert!(matches!(test.log.append(&batch(1)), Err(Refusal::NotAFile)));
    std::fs::remove_dir(path).unwrap();

    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(test.log.append(&batch(1)), Err(Refusal::NotAFile)));
}
