//! The target of the trace on Windows.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};

use windows_sys::Win32::Storage::FileSystem::{FILE_FLAG_OPEN_REPARSE_POINT, FILE_TYPE_PIPE, GetFileType};

/// Lines that wait for a pipe. Further lines are lost.
const QUEUE: usize = 1_000;
/// Stack size of the thread that writes to a pipe. With a fixed size the standard library does not
/// call `getenv`.
const STACK: usize = 64 << 10;

/// Where lines go.
#[derive(Debug)]
pub enum Target {
    File(File),
    /// A file or a console.
    Stderr,
    /// Stderr is a pipe. A write to it waits while the pipe is full, so a thread does that.
    Pipe(SyncSender<Vec<u8>>),
}

impl Target {
    /// Opens a regular file, and follows no link. New files get the access list of their folder.
    pub fn file(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
        let file = options.open(path)?;
        if file.metadata()?.is_file() {
            Ok(Self::File(file))
        } else {
            Err(io::Error::other("it is not a plain file"))
        }
    }

    pub fn stderr() -> io::Result<Self> {
        // SAFETY: the call only reads the type of the handle, and fails for an invalid one.
        if unsafe { GetFileType(io::stderr().as_raw_handle()) } != FILE_TYPE_PIPE {
            return Ok(Self::Stderr);
        }
        let (lines, queue) = sync_channel::<Vec<u8>>(QUEUE);
        let thread = std::thread::Builder::new().name("spawn-owned-trace".into()).stack_size(STACK);
        thread.spawn(move || queue.into_iter().for_each(|line| drop(io::stderr().write_all(&line))))?;
        Ok(Self::Pipe(lines))
    }

    pub fn write(&self, line: &[u8]) {
        match self {
            Self::File(file) => drop((&*file).write(line)),
            Self::Stderr => drop(io::stderr().write_all(line)),
            Self::Pipe(lines) => drop(lines.try_send(line.to_vec())),
        }
    }
}

/// Always false: Windows has no setuid programs.
pub fn has_more_rights_than_caller() -> bool {
    false
}
