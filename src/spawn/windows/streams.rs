//! Streams as the bindings hand them out.

use super::crt;
use super::pipes::{self, Way};
use crate::errno::Errno;
use crate::spawn::OwnedStream;

/// Two ends of a new stream for the command's descriptor with this number: ours, and its.
pub fn stream_pair(index: usize) -> Result<(OwnedStream, OwnedStream), Errno> {
    pipes::pair(Way::of(index))
}

/// Another handle of what the caller has open under this number.
pub fn duplicate(fd: i32) -> Result<OwnedStream, Errno> {
    pipes::duplicate(crt::handle_of(fd)?)
}

/// A descriptor for it; whoever closes that closes it.
pub fn hand_out(stream: OwnedStream) -> Result<i32, Errno> {
    crt::descriptor_for(stream)
}

/// A pipe is at its end when its other end is closed, and when the tree is extinct it is: nobody outside of it was given one.
#[allow(clippy::unnecessary_wraps)] // As elsewhere.
pub fn end_stream(_fd: i32) -> Result<(), Errno> {
    Ok(())
}
