//! The registry's files, opened with care: mode 0600, no symbolic link followed, nobody else's.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::errno::Errno;
use nix::libc;
use nix::unistd::geteuid;

use super::error::RegistryError;
use super::failpoint;

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
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
        made.map_err(|error| unwritable(&self.json, &error))
    }
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

    pub fn of(meta: &std::fs::Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Whether a file that was opened is the one that others find there: a lock on another one means nothing.
pub fn is_in_place(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// A file to append to, made if it is not there and `create` says so.
pub fn open_to_append(path: &Path, create: bool) -> Result<File, RegistryError> {
    let file = OpenOptions::new().append(true).create(create).mode(0o600).custom_flags(FLAGS).open(path);
    checked(path, file.map_err(|error| problem(path, &error, unwritable))?)
}

/// The whole file and its stamp; `None` if there is none.
pub fn read(path: &Path) -> Result<Option<(Vec<u8>, Stamp)>, RegistryError> {
    let opened = OpenOptions::new().read(true).custom_flags(FLAGS).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| problem(path, &error, unreadable))?,
    };
    let mut file = checked(path, file)?;
    let stamp = Stamp::of(&file.metadata().map_err(|error| unreadable(path, &error))?);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    Ok(Some((bytes, stamp)))
}

/// What `path` is now, without following a link.
pub fn stamp(path: &Path) -> Option<Stamp> {
    std::fs::symlink_metadata(path).ok().map(|meta| Stamp::of(&meta))
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
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .custom_flags(FLAGS)
                .open(&temporary)?;
            let mut pieces = BufWriter::with_capacity(PIECE, Pieces(&mut file));
            render(&mut pieces)?;
            pieces.flush()?;
            drop(pieces);
            Ok(Stamp::of(&file.metadata()?))
        })();
        match written {
            Ok(stamp) => {
                let former = OpenOptions::new().read(true).custom_flags(FLAGS | libc::O_PATH).open(path).ok();
                Ok(Self { path, temporary, stamp, _former: former })
            }
            Err(error) => {
                let _ = std::fs::remove_file(&temporary);
                Err(unwritable(path, &error))
            }
        }
    }

    /// Puts it in place. Returns its stamp.
    pub fn put_in_place(&self) -> Result<Stamp, RegistryError> {
        if let Err(error) = std::fs::rename(&self.temporary, self.path) {
            let _ = std::fs::remove_file(&self.temporary);
            return Err(unwritable(self.path, &error));
        }
        failpoint::hit();
        // A rename changes the time of change.
        Ok(stamp(self.path).unwrap_or(self.stamp))
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

/// Non-blocking, so that a FIFO in the file's place does not hold us up before we can see what it is.
const FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;

fn checked(path: &Path, file: File) -> Result<File, RegistryError> {
    let meta = file.metadata().map_err(|error| unreadable(path, &error))?;
    if !meta.is_file() {
        return Err(RegistryError::NotAFile { path: path.to_owned() });
    }
    if meta.uid() != geteuid().as_raw() {
        return Err(RegistryError::Foreign { path: path.to_owned(), uid: meta.uid() });
    }
    Ok(file)
}

fn problem(
    path: &Path,
    error: &io::Error,
    otherwise: fn(&Path, &io::Error) -> RegistryError,
) -> RegistryError {
    match error.raw_os_error() {
        Some(libc::ELOOP) if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) => {
            RegistryError::Symlink { path: path.to_owned() }
        }
        // A FIFO that nobody reads, a folder, a socket.
        Some(libc::ENXIO | libc::EISDIR) => RegistryError::NotAFile { path: path.to_owned() },
        _ => otherwise(path, error),
    }
}

pub fn errno_of(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

pub fn unwritable(path: &Path, error: &io::Error) -> RegistryError {
    RegistryError::Unwritable { path: path.to_owned(), errno: errno_of(error) }
}

fn unreadable(path: &Path, error: &io::Error) -> RegistryError {
    RegistryError::Unreadable { path: path.to_owned(), errno: errno_of(error) }
}
