use std::process::{Command, Stdio};

use super::*;
use crate::registry::journal::Journal;

/// A temporary folder, which is deleted with the value.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("disk-{}-{name}", std::process::id()));
        make_folder(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn replacement<'a>(path: &'a Path, text: &str) -> Replacement<'a> {
    Replacement::write(path, |file| file.write_all(text.as_bytes())).unwrap()
}

/// Replaces the file while `reader` has it open, and closes `reader` after the first failed
/// attempt. Returns the number of failed attempts.
fn replace_while_open(reader: File, path: &Path) -> usize {
    let (new, mut reader, mut failures) = (replacement(path, "new"), Some(reader), 0);
    let attempt = || {
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            "old",
            "the file is complete until it is replaced"
        );
        new.put_in_place().inspect_err(|_| {
            failures += 1;
            reader = None;
        })
    };
    let put = retry_while_busy(Duration::from_secs(60), attempt).unwrap();
    assert_eq!((std::fs::read_to_string(path).unwrap(), Some(put)), ("new".into(), stamp(path)));
    failures
}

#[test]
fn a_file_is_replaced_while_another_process_reads_it() {
    let folder = Folder::new("reader");
    let path = folder.file("it", "old");
    let failures = replace_while_open(File::open(&path).unwrap(), &path);
    assert!(failures == 0 || cfg!(windows) && failures == 1);
}

#[test]
#[cfg(windows)]
fn a_replacement_waits_for_an_unshared_file_up_to_its_limit() {
    use std::os::windows::fs::OpenOptionsExt;
    use windows_sys::Win32::Storage::FileSystem::FILE_SHARE_READ;

    let folder = Folder::new("scanner");
    let path = folder.file("it", "old");
    let scanner = OpenOptions::new().read(true).share_mode(FILE_SHARE_READ).open(&path).unwrap();
    let new = replacement(&path, "never");
    let error = retry_while_busy(Duration::from_millis(20), || new.put_in_place()).unwrap_err();
    assert!(matches!(new.failed(&error), RegistryError::Unwritable { .. }));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "no temporary file is left");
    assert_eq!(replace_while_open(scanner, &path), 1);
}

#[test]
fn a_permanent_error_is_not_retried() {
    let mut attempts = 0;
    let result: io::Result<()> = retry_while_busy(Duration::from_secs(60), || {
        attempts += 1;
        Err(io::ErrorKind::NotFound.into())
    });
    assert_eq!((result.unwrap_err().kind(), attempts), (io::ErrorKind::NotFound, 1));
}

#[test]
fn an_open_file_can_be_moved_and_then_is_not_in_place() {
    let folder = Folder::new("moved");
    let paths = Paths::new(folder.0.join("it"));
    let mut open = open_to_append(&paths.journal).unwrap();
    assert!(is_in_place(&open, &paths.journal));
    std::fs::rename(&paths.journal, &paths.old).unwrap();
    assert!(!is_in_place(&open, &paths.journal), "the path has no file");
    open.write_all(b"late").unwrap();
    assert_eq!(read(&paths.old).unwrap().unwrap().0, b"late");
    open_to_append(&paths.journal).unwrap();
    assert!(!is_in_place(&open, &paths.journal), "the path has another file");
}

#[test]
fn a_lock_has_one_holder_and_does_not_block_readers_or_writers() {
    let folder = Folder::new("lock");
    let path = folder.0.join("it");
    let (first, mut second) = (open_to_append(&path).unwrap(), open_to_append(&path).unwrap());
    assert!(try_lock(&first).unwrap() && !try_lock(&second).unwrap());
    second.write_all(b"written").unwrap();
    assert_eq!(read(&path).unwrap().unwrap().0, b"written");
    assert!(is_in_place(&first, &path));
    drop(first);
    assert!(try_lock(&second).unwrap());
}

#[test]
fn a_stamp_changes_with_the_file_and_with_its_content() {
    let folder = Folder::new("stamp");
    let path = folder.file("it", "one");
    let before = stamp(&path).unwrap();
    assert_eq!(read(&path).unwrap().unwrap().1, before);
    assert_eq!(stamp(&path), Some(before));
    open_to_append(&path).unwrap().write_all(b"more").unwrap();
    let longer = stamp(&path).unwrap();
    assert!(longer != before && longer.file() == before.file());
    replacement(&path, "onemore").put_in_place().unwrap();
    assert_ne!(stamp(&path).unwrap().file(), longer.file());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(stamp(&path), None);
}

#[test]
fn open_refuses_a_folder() {
    let folder = Folder::new("folder");
    assert!(matches!(open(&folder.0, &appending()), Err(Refusal::NotAFile)));
    assert!(matches!(read(&folder.0), Err(RegistryError::NotAFile { .. })));
}

#[test]
fn open_refuses_a_symbolic_link_and_leaves_its_target_unchanged() {
    #[cfg(unix)]
    use std::os::unix::fs::symlink;
    #[cfg(windows)]
    use std::os::windows::fs::symlink_file as symlink;

    let folder = Folder::new("link");
    let (link, target, nothing) =
        (folder.0.join("link"), folder.file("target", "old"), folder.0.join("nothing"));
    for target in [&target, &nothing] {
        if let Err(error) = symlink(target, &link) {
            println!("skipped: this system cannot create a symbolic link ({error})");
            return;
        }
        if is_wine() && !link.is_symlink() {
            println!("skipped: this Wine reports success but creates no symbolic link");
            return;
        }
        assert!(matches!(open(&link, &appending()), Err(Refusal::Symlink)));
        assert!(matches!(read(&link), Err(RegistryError::Symlink { .. })));
        std::fs::remove_file(&link).unwrap();
    }
    assert_eq!((std::fs::read_to_string(target).unwrap(), nothing.exists()), ("old".into(), false));
}

#[test]
fn open_to_extend_refuses_a_file_with_two_names() {
    let folder = Folder::new("names");
    let (target, link) = (folder.file("target", "old"), folder.0.join("link"));
    std::fs::hard_link(&target, &link).unwrap();
    for path in [&target, &link] {
        assert!(matches!(open_to_extend(path), Err(Refusal::Linked)));
        assert!(matches!(open_journal(path), Err(RegistryError::Linked { .. })));
    }
    // A file that is only locked or read may have any number of names: hard-linked copies are
    // harmless.
    open_to_append(&link).unwrap();
    assert_eq!(read(&link).unwrap().unwrap().0, b"old");
    std::fs::remove_file(&link).unwrap();
    open_to_extend(&target).unwrap();
}

#[test]
fn the_registry_works_in_any_valid_path() {
    let folder = Folder::new("paths");
    let long = ["long"; 40].map(|part| part.repeat(3)).join(std::path::MAIN_SEPARATOR_STR);
    for name in ["with spaces", "naïve — 漢字 🙂", &long] {
        let paths = Paths::new(plain(folder.0.join(name)).join("process-registry.json"));
        paths.make_folder().unwrap();
        assert!(try_lock(&open_to_append(&paths.lock).unwrap()).unwrap());
        Journal::default().append(&paths, b"line\n").unwrap();
        std::fs::rename(&paths.journal, &paths.old).unwrap();
        assert_eq!(read(&paths.old).unwrap().unwrap().0, b"line\n");
        replacement(&paths.json, "new").put_in_place().unwrap();
        assert_eq!(read(&paths.json).unwrap().unwrap().0, b"new");
        std::fs::remove_file(&paths.old).unwrap();
        assert!(stamp(&paths.old).is_none());
    }
}

#[test]
fn plain_removes_the_prefix_of_a_windows_path() {
    let folder = Folder::new("plain");
    let canonical = std::fs::canonicalize(&folder.0).unwrap();
    let shown = plain(canonical.clone());
    assert!(!shown.to_str().unwrap().starts_with(r"\\?\"));
    assert_eq!(std::fs::canonicalize(shown).unwrap(), canonical);
    if cfg!(windows) {
        for (path, expected) in [
            (r"\\?\C:\data\registry.json", r"C:\data\registry.json"),
            (r"\\?\UNC\server\share\registry.json", r"\\server\share\registry.json"),
            (r"\\?\C:\data.\registry.json", r"\\?\C:\data.\registry.json"),
            (r"C:\data", r"C:\data"),
        ] {
            assert_eq!(plain(path.into()), Path::new(expected));
        }
    }
}

const LINES: usize = 500;

/// Not a test: the other processes of the next test run this.
#[test]
#[ignore = "started by another test"]
fn appender() {
    let Some(path) = std::env::var_os("SPAWN_OWNED_TEST_APPENDER") else { return };
    let (paths, mut journal) = (Paths::new(path.into()), Journal::default());
    let line = format!("{:<200}\n", std::process::id());
    for _ in 0..LINES {
        journal.append(&paths, line.as_bytes()).unwrap();
    }
}

#[test]
fn lines_of_several_processes_are_all_complete() {
    let folder = Folder::new("appenders");
    let paths = Paths::new(folder.0.join("it"));
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "registry::disk::tests::appender"])
            .env("SPAWN_OWNED_TEST_APPENDER", &paths.json)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    for mut process in [start(), start(), start()] {
        assert!(process.wait().unwrap().success());
    }
    let (bytes, _) = read(&paths.journal).unwrap().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.lines().filter(|line| line.len() == 200).count(), 3 * LINES);
    assert_eq!(text.lines().count(), 3 * LINES);
}

#[cfg(unix)]
fn is_wine() -> bool {
    false
}

#[cfg(windows)]
fn is_wine() -> bool {
    use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleA, GetProcAddress};
    // SAFETY: both names end with a zero, and ntdll.dll is loaded in every process.
    unsafe {
        GetProcAddress(GetModuleHandleA(c"ntdll.dll".as_ptr().cast()), c"wine_get_version".as_ptr().cast())
    }
    .is_some()
}
