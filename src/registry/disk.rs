//! The registry's files, opened with care: for their owner only, no symbolic link followed, nobody else's.
//!
//! What the systems do differently is in `unix` and `windows`, behind the same functions:
//!
//! | function | contract |
//! |---|---|
//! | `options` | how a file of ours is opened: no link followed, no waiting, nobody else may read what is made |
//! | `folder_builder` | how a folder is made, with all above it |
//! | `refusal` | what it means that a file could not be opened |
//! | `has_other_names` | whether an open file has more than one |
//! | `stranger` | whose an open file is, if it is not ours |
//! | `look`, `look_at` | the stamp of an open file, and of what is at a path, without following a link |
//! | `is_momentary` | whether an error may be over in a moment |
//! | `take_turn` | whoever appends is alone until the file is closed, if the system does not see to that itself |
//! | `try_lock`, `lock_byte` | a lock that goes with the open file; false if somebody has it. Nobody who reads or writes notices |
//! | `hold` | keeps a file's pages while another takes its place, where that costs something |
//! | `errno_of` | an error, by the name that Node uses |
//! | `plain` | a path as people write it |

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

pub use system::{JOURNAL_STAYS_OPEN, errno_of, lock_byte, plain, take_turn, try_lock};

/// Where a registry lives.
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

    /// The folder, made if it is not there.
    pub fn make_folder(&self) -> Result<(), RegistryError> {
        let Some(folder) = self.json.parent() else { return Ok(()) };
        make_folder(folder).map_err(|error| unwritable(&self.json, &error))
    }
}

/// The folder and all above it, made if they are not there.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    system::folder_builder().recursive(true).create(folder)
}

/// Which content a path had: another file, or the same one changed, has another stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// Which file it is, whatever is in it.
    pub fn file(self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// What `path` is now, without following a link.
pub fn stamp(path: &Path) -> Option<Stamp> {
    system::look_at(path).ok()
}

/// Whether a file that was opened is the one that others find there: a lock on another one means nothing.
pub fn is_in_place(file: &File, path: &Path) -> bool {
    match (system::look(file), system::look_at(path)) {
        (Ok(ours), Ok(there)) => ours.file() == there.file(),
        _ => false,
    }
}

/// How long something is tried again that may be over in a moment, where somebody waits for it: on the event loop.
pub const MOMENT: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(1);

/// Tries again what fails for a moment only, see `is_momentary`. On Unix nothing does.
pub fn patiently<T>(patience: Duration, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut give_up_at = None;
    loop {
        match attempt() {
            Err(error)
                if system::is_momentary(&error)
                    && Instant::now() < *give_up_at.get_or_insert_with(|| Instant::now() + patience) =>
            {
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

/// Why a file is not opened.
#[derive(Debug)]
pub enum Refusal {
    /// We follow none: whoever can place one could make us write elsewhere.
    Symlink,
    /// Not a plain file.
    NotAFile,
    /// It has another name, too: whoever has made that could have us write to any file of ours.
    Linked,
    /// Another user's, named as the system names users.
    Foreign {
        owner: String,
    },
    Failed(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symlink => f.write_str("it is a symbolic link, and none is followed"),
            Self::NotAFile => f.write_str("it is not a plain file"),
            Self::Linked => f.write_str("it has another name, too (a hard link)"),
            Self::Foreign { owner } => write!(f, "it belongs to another user ({owner})"),
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

/// A file of ours, and nothing else that may be in its place.
pub fn open(path: &Path, options: &OpenOptions) -> Result<File, Refusal> {
    let file = patiently(MOMENT, || options.open(path)).map_err(|error| system::refusal(path, error))?;
    let meta = file.metadata().map_err(Refusal::Failed)?;
    if meta.is_symlink() {
        return Err(Refusal::Symlink);
    }
    if !meta.is_file() {
        return Err(Refusal::NotAFile);
    }
    match system::stranger(&file, &meta) {
        Some(owner) => Err(Refusal::Foreign { owner }),
        None => Ok(file),
    }
}

/// How a file is opened to append to it, and made if it is not there. It can be locked.
pub fn appending() -> OpenOptions {
    let mut options = system::options();
    // Reading is for Windows: what is open to append only cannot be locked there.
    options.read(true).append(true).create(true);
    options
}

/// A file to write to the end of, made if it is not there. With two names it may be any file of ours, to which somebody who can write in
/// this folder has made a link (where the kernel allows that: `fs.protected_hardlinks`).
pub fn open_to_extend(path: &Path) -> Result<File, Refusal> {
    let file = open(path, &appending())?;
    if system::has_other_names(&file).map_err(Refusal::Failed)? { Err(Refusal::Linked) } else { Ok(file) }
}

/// The journal.
pub fn open_journal(path: &Path) -> Result<File, RegistryError> {
    open_to_extend(path).map_err(|refusal| refused(path, refusal, unwritable))
}

/// A file to be locked, made if it is not there. Nothing is written to it.
pub fn open_to_append(path: &Path) -> Result<File, RegistryError> {
    open(path, &appending()).map_err(|refusal| refused(path, refusal, unwritable))
}

/// The whole file and its stamp; `None` if there is none.
pub fn read(path: &Path) -> Result<Option<(Vec<u8>, Stamp)>, RegistryError> {
    let mut file = match open(path, system::options().read(true)) {
        Err(Refusal::Failed(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|refusal| refused(path, refusal, unreadable))?,
    };
    let stamp = system::look(&file).map_err(|error| unreadable(path, &error))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    Ok(Some((bytes, stamp)))
}

/// A file that is about to take another's place in one step: whoever reads sees the old content or the new, whole.
///
/// Not synced: what a crash of the bot leaves is the page cache's, and that survives; after a power failure it is another
/// boot, in which nothing that was recorded can be alive.
pub struct Replacement<'a> {
    path: &'a Path,
    temporary: PathBuf,
    stamp: Stamp,
    /// The one that goes. As long as it is open the kernel does not free its pages, which takes a while if they are many.
    _former: Option<File>,
}

impl<'a> Replacement<'a> {
    /// Writes it, beside the one that it is to replace. `render` may write many small pieces.
    pub fn write(
        path: &'a Path,
        render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Self, RegistryError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".tmp");
        let temporary = PathBuf::from(name);
        // We hold the lock: what is there was left by a crash.
        let _ = std::fs::remove_file(&temporary);
        failpoint::hit();
        let written = (|| {
            let mut options = system::options();
            options.write(true).create_new(true);
            let mut file = patiently(MOMENT, || options.open(&temporary))?;
            let mut pieces = BufWriter::with_capacity(PIECE, Pieces(&mut file));
            render(&mut pieces)?;
            pieces.flush()?;
            drop(pieces);
            system::look(&file)
        })();
        match written {
            Ok(stamp) => Ok(Self { path, temporary, stamp, _former: system::hold(path) }),
            Err(error) => {
                let _ = std::fs::remove_file(&temporary);
                Err(unwritable(path, &error))
            }
        }
    }

    /// Puts it in place. Returns its stamp. After an error it can be tried again; see [`Replacement::failed`].
    pub fn put_in_place(&self) -> io::Result<Stamp> {
        std::fs::rename(&self.temporary, self.path)?;
        failpoint::hit();
        // A rename changes the time of change.
        Ok(stamp(self.path).unwrap_or(self.stamp))
    }

    /// It could not be put in place, and nobody tries again.
    pub fn failed(&self, error: &io::Error) -> RegistryError {
        let _ = std::fs::remove_file(&self.temporary);
        unwritable(self.path, error)
    }
}

/// How much is written at a time.
const PIECE: usize = 1 << 18;

struct Pieces<'a>(&'a mut File);

impl Write for Pieces<'_> {
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

fn unreadable(path: &Path, error: &io::Error) -> RegistryError {
    RegistryError::Unreadable { path: path.to_owned(), errno: errno_of(error) }
}
