//! Streams as the N-API bindings use them.

use super::crt;
use super::pipes::{self, Direction};
use crate::errno::Errno;
use crate::spawn::{OwnedStream, StreamId};

/// Both ends of a new stream for the command's descriptor `index`: ours and the command's.
pub fn stream_pair(index: usize) -> Result<(OwnedStream, OwnedStream), Errno> {
    pipes::pair(Direction::of(index))
}

/// A duplicate of the handle of the caller's descriptor.
pub fn duplicate(fd: i32) -> Result<OwnedStream, Errno> {
    pipes::duplicate(crt::handle_of(fd)?)
}

/// Gives the stream to the caller as a descriptor. Closing the descriptor closes the stream.
pub fn hand_out(stream: OwnedStream) -> Result<i32, Errno> {
    crt::descriptor_for(stream)
}

/// `None`: Windows does not need it, because [`end_stream`] does nothing.
pub fn stream_id(_fd: i32) -> Option<StreamId> {
    None
}

/// No-op: a pipe is at end of file when its other end is closed. When the tree is extinct it is
/// closed, because only the tree had handles of it.
#[allow(clippy::unnecessary_wraps)] // The signature is the same as on Unix.
pub fn end_stream(_fd: i32, _expected: StreamId) -> Result<bool, Errno> {
    Ok(false)
}
