//! Access to the registry's files: readable only for their owner, no symbolic link followed, no
//! file of another user used.
//!
//! The system-specific functions are in `unix` and `windows`, with the same contract:
//!
//! | function | contract |
//! |---|---|
//! | `options` | how to open a file: no link followed, no blocking, new files private |
//! | `folder_builder` | how to create a folder and its parents |
//! | `refusal` | the reason why a file could not be opened |
//! | `has_other_names` | whether an open file has hard links |
//! | `foreign_owner` | the owner of an open file, if it is another user |
//! | `stamp_of`, `stamp_at` | the stamp of an open file, or of a path (no link followed) |
//! | `is_temporary` | whether an operation that failed with this error may soon succeed |
//! | `take_turn` | excludes other writers until the file is closed, if appends are not atomic |
//! | `try_lock`, `lock_byte` | locks for the open file; false if locked. Does not block I/O |
//! | `lock_holder` | the PID that has locked a path with `try_lock`, if the system provides it |
//! | `keep_open` | delays freeing the pages of a replaced file, if that takes time |
//! | `errno_of` | the error as an errno, with the name that Node uses |
//! | `plain` | a path in the form that users write |

#[cfg(test)]
pub mod tests;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::RegistryError;
use super::failpoint;

pub use system::{JOURNAL_STAYS_OPEN, errno_of, lock_byte, lock_holder, plain, take_turn, try_lock};

/// The paths of a registry's files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Paths {
    pub json: PathBuf,
    pub journal: PathBuf,
    pub old: PathBuf,
    pub lock: PathBuf,
    pub scopes: PathBuf,
}

impl Paths {
    pub fn new(json: PathBuf) -> Self {
        let beside = |suffix: &str| {
            let mut name = json.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        Self {
            journal: beside(".journal"),
            old: beside(".journal.old"),
            lock: beside(".lock"),
            scopes: beside(".scopes"),
            json,
        }
    }

    /// Creates the folder if it does not exist.
    pub fn make_folder(&self) -> Result<(), RegistryError> {
        let Some(folder) = self.json.parent() else { return Ok(()) };
        make_folder(folder).map_err(|error| unwritable(&self.json, &error))
    }
}

/// Creates the folder and its parents if they do not exist.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    system::folder_builder().recursive(true).create(folder)
}

/// Identifies the content of a file: another file has another stamp, and so has the same file after
/// a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// A file by device and inode number. After the file is deleted and closed, another file may get
/// its inode number.
pub type FileId = (u64, u64);

impl Stamp {
    pub fn size(self) -> u64 {
        self.size
    }

    /// Identifies the file without its content.
    pub fn file(self) -> FileId {
        (self.device, self.inode)
    }
}

/// The stamp of the file at `path`, without following a link.
pub fn stamp(path: &Path) -> Option<Stamp> {
    system::stamp_at(path).ok()
}

/// Whether an open file still is the file at `path`. A lock on another file would protect nothing.
pub fn is_in_place(file: &File, path: &Path) -> bool {
    match (system::stamp_of(file), system::stamp_at(path)) {
        (Ok(ours), Ok(there)) => ours.file() == there.file(),
        _ => false,
    }
}

/// Renames a log file to the same path with `.1`, and replaces the previous one. Returns whether
/// another file can be at `path` now, so that `file` must be opened again.
///
/// The lock is on the file itself, not on its name. Two bots may find the file full. The first one
/// gets the lock and renames the file. The second one gets the lock later, sees that the name
/// belongs to another file by now, and renames nothing. Otherwise it would replace a full `.1` by a
/// file of a few lines.
///
/// A bot that does not get the lock, or cannot rename the file, renames nothing. Lines that it
/// appends to the open file are not lost when that file is renamed.
pub fn rotate(file: &File, path: &Path) -> bool {
    match try_lock(file) {
        Ok(true) if is_in_place(file, path) => std::fs::rename(path, rotated(path)).is_ok(),
        Ok(is_locked) => is_locked,
        Err(_) => false,
    }
}

/// The path of a log file after its rotation.
pub fn rotated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// How long to retry a temporary error while the event loop waits.
pub const EVENT_LOOP_PATIENCE: Duration = Duration::from_millis(100);
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Retries `attempt` while it fails with a temporary error, for at most `patience`. On Unix no
/// error is temporary.
pub fn retry_while_busy<T>(patience: Duration, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut give_up_at = None;
    loop {
        match attempt() {
            Err(error)
                if system::is_temporary(&error)
                    && Instant::now() < *give_up_at.get_or_insert_with(|| Instant::now() + patience) =>
            {
                std::thread::sleep(RETRY_PAUSE);
            }
            result => return result,
        }
    }
}

/// Why a file was not opened.
#[derive(Debug)]
pub enum Refusal {
    /// A symbolic link. None is followed: the process that placed it could make us write to any
    /// file.
    Symlink,
    /// Not a regular file.
    NotAFile,
    /// A file with a second name. The process that linked it could make us write to any file of
    /// this user.
    Linked,
    /// A file of another user, with the system's name of that user.
    Foreign {
        owner: String,
    },
    Failed(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symlink => f.write_str("it is a symbolic link, which is not followed"),
            Self::NotAFile => f.write_str("it is not a plain file"),
            Self::Linked => f.write_str("it has a second name (a hard link)"),
            Self::Foreign { owner } => write!(f, "it belongs to another user ({owner})"),
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

/// Opens a regular file of this user, and refuses anything else.
pub fn open(path: &Path, options: &OpenOptions) -> Result<File, Refusal> {
    let file = retry_while_busy(EVENT_LOOP_PATIENCE, || options.open(path))
        .map_err(|error| system::refusal(path, error))?;
    let meta = file.metadata().map_err(Refusal::Failed)?;
    if meta.is_symlink() {
        return Err(Refusal::Symlink);
    }
    if !meta.is_file() {
        return Err(Refusal::NotAFile);
    }
    match system::foreign_owner(&file, &meta) {
        Some(owner) => Err(Refusal::Foreign { owner }),
        None => Ok(file),
    }
}

/// Options to open a file for appending and create it if needed. The file can be locked.
pub fn appending() -> OpenOptions {
    let mut options = system::options();
    // Windows cannot lock a file that is open only for appending, so open it for reading too.
    options.read(true).append(true).create(true);
    options
}

/// Opens a file for appending, and creates it if needed.
///
/// A file with two names is refused. It may be any file of this user, linked by a process that can
/// write in this folder (where the kernel allows that: `fs.protected_hardlinks`).
pub fn open_to_extend(path: &Path) -> Result<File, Refusal> {
    let file = open(path, &appending())?;
    if system::has_other_names(&file).map_err(Refusal::Failed)? { Err(Refusal::Linked) } else { Ok(file) }
}

/// Opens the journal for appending.
pub fn open_journal(path: &Path) -> Result<File, RegistryError> {
    open_to_extend(path).map_err(|refusal| refused(path, refusal, unwritable))
}

/// Opens a file to lock it, and creates it if needed. Nothing is written to it.
pub fn open_to_append(path: &Path) -> Result<File, RegistryError> {
    open(path, &appending()).map_err(|refusal| refused(path, refusal, unwritable))
}

/// Opens a file for reading. Returns it with its stamp; `None` if it does not exist.
pub fn open_to_read(path: &Path) -> Result<Option<(File, Stamp)>, RegistryError> {
    let file = match open(path, system::options().read(true)) {
        Err(Refusal::Failed(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|refusal| refused(path, refusal, unreadable))?,
    };
    let stamp = system::stamp_of(&file).map_err(|error| unreadable(path, &error))?;
    Ok(Some((file, stamp)))
}

/// Reads a whole file. Returns its content and its stamp; `None` if it does not exist.
pub fn read(path: &Path) -> Result<Option<(Vec<u8>, Stamp)>, RegistryError> {
    let Some((mut file, stamp)) = open_to_read(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    Ok(Some((bytes, stamp)))
}

/// A new file that atomically replaces another one: readers see the old content or the new one,
/// complete.
///
/// Not synced to disk. After a crash of the bot the page cache still has the content. A power
/// failure means a new boot, in which no recorded process is alive.
pub struct Replacement<'a> {
    path: &'a Path,
    temporary: PathBuf,
    stamp: Stamp,
    /// The replaced file. While it is open the kernel does not free its pages, which takes time for
    /// a large file.
    _replaced: Option<File>,
}

impl<'a> Replacement<'a> {
    /// Writes the new file beside the old one. `render` may write many small pieces.
    pub fn write(
        path: &'a Path,
        render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Self, RegistryError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".tmp");
        let temporary = PathBuf::from(name);
        // The caller holds the lock, so an existing temporary file is left from a crash.
        let _ = std::fs::remove_file(&temporary);
        failpoint::hit();
        let written = (|| {
            let mut options = system::options();
            options.write(true).create_new(true);
            let mut file = retry_while_busy(EVENT_LOOP_PATIENCE, || options.open(&temporary))?;
            let mut writer = BufWriter::with_capacity(CHUNK, Chunks(&mut file));
            render(&mut writer)?;
            writer.flush()?;
            drop(writer);
            system::stamp_of(&file)
        })();
        match written {
            Ok(stamp) => Ok(Self { path, temporary, stamp, _replaced: system::keep_open(path) }),
            Err(error) => {
                let _ = std::fs::remove_file(&temporary);
                Err(unwritable(path, &error))
            }
        }
    }

    /// Renames the new file to its final path. Returns its stamp.
    ///
    /// After an error the caller may retry, or call [`Replacement::failed`].
    pub fn put_in_place(&self) -> io::Result<Stamp> {
        std::fs::rename(&self.temporary, self.path)?;
        failpoint::hit();
        // The rename changes the time of change.
        Ok(stamp(self.path).unwrap_or(self.stamp))
    }

    /// Removes the new file, because it could not be renamed and the caller does not retry.
    pub fn failed(&self, error: &io::Error) -> RegistryError {
        let _ = std::fs::remove_file(&self.temporary);
        unwritable(self.path, error)
    }
}

/// Number of bytes per write.
const CHUNK: usize = 1 << 18;

struct Chunks<'a>(&'a mut File);

impl Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        failpoint::write(bytes, |part| self.0.write_all(part)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn refused(
    path: &Path,
    refusal: Refusal,
    otherwise: fn(&Path, &io::Error) -> RegistryError,
) -> RegistryError {
    let place = path.to_owned();
    match refusal {
        Refusal::Symlink => RegistryError::Symlink { path: place },
        Refusal::NotAFile => RegistryError::NotAFile { path: place },
        Refusal::Linked => RegistryError::Linked { path: place },
        Refusal::Foreign { owner } => RegistryError::Foreign { path: place, owner },
        Refusal::Failed(error) => otherwise(path, &error),
    }
}

pub fn unwritable(path: &Path, error: &io::Error) -> RegistryError {
    RegistryError::Unwritable { path: path.to_owned(), errno: errno_of(error) }
}

pub fn unreadable(path: &Path, error: &io::Error) -> RegistryError {
    RegistryError::Unreadable { path: path.to_owned(), errno: errno_of(error) }
}
