//! The streams of commands, as JavaScript takes, lends and closes them.

use napi::{Error, Status};
use napi_derive::napi;

use super::Host;
use super::convert::{self, Borrowed, Opened};
use crate::errno::Errno;
use crate::spawn::{self, Streams};

#[napi]
impl Host {
    /// Creates the streams of a command that starts later, and duplicates the caller's descriptors
    /// for it: the caller may close those meanwhile, and the kernel may reuse them.
    #[napi(catch_unwind)]
    pub fn open_streams(&mut self, stdio: Vec<i32>) -> Opened {
        let (mut ours, mut theirs, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        for (index, slot) in stdio.into_iter().enumerate() {
            let (our_end, their_end) = match slot {
                convert::STREAM => match spawn::stream_pair(index) {
                    Ok((ours, theirs)) => (Some(ours), Some(theirs)),
                    Err(errno) => return Opened::failed(errno),
                },
                0.. => match spawn::duplicate(slot) {
                    Ok(copy) => (None, Some(copy)),
                    Err(errno) => return Opened::failed(errno),
                },
                _ => (None, None),
            };
            slots.push(their_end.as_ref().map_or(slot, |end| convert::stdio_slot(spawn::raw_stream(end))));
            ours.push(our_end);
            theirs.push(their_end);
        }
        let (fds, theirs) = (self.store_streams(ours), self.store_streams(theirs));
        Opened { errno: 0, fds, stdio: slots, theirs }
    }

    /// Gives a stream to the caller as a descriptor. -1 if there is none. Streams that are not
    /// taken close with this host.
    #[napi(catch_unwind)]
    pub fn take_stream(&mut self, stream: i32) -> i32 {
        self.streams.remove(&stream).and_then(|stream| spawn::hand_out(stream).ok()).unwrap_or(-1)
    }

    /// Closes a stream that was not taken.
    #[napi(catch_unwind)]
    pub fn close_stream(&mut self, stream: i32) {
        self.streams.remove(&stream);
    }

    /// Both ends of a connection over which a helper can send us an end of a channel. Ours is a
    /// stream. The helper's end is its standard input: a stream as well, but on Windows a plain
    /// descriptor that Node closes.
    #[napi(catch_unwind)]
    pub fn open_borrowing(&mut self) -> Result<Vec<i32>, Error<String>> {
        let (ours, theirs) = spawn::borrow::open().map_err(failed_spawn)?;
        if cfg!(windows) {
            let theirs = spawn::hand_out(theirs).map_err(failed_spawn)?;
            return Ok([self.store_streams(vec![Some(ours)]), vec![theirs]].concat());
        }
        Ok(self.store_streams(vec![Some(ours), Some(theirs)]))
    }

    /// Waits for the channel end that the helper with this PID sends, and closes our end. The
    /// caller must close the returned stream.
    #[napi(catch_unwind)]
    pub fn borrow(&mut self, ours: i32, helper: u32) -> napi::Result<Borrowed> {
        let ours = self.streams.remove(&ours).ok_or_else(|| system_error(Errno::EBADF))?;
        let lent = spawn::borrow::receive(ours, helper).map_err(system_error)?;
        let stream = spawn::raw_stream(&lent);
        self.store_streams(vec![Some(lent)]);
        Ok(Borrowed { stream, slot: convert::stdio_slot(stream) })
    }
}

impl Host {
    /// Stores streams until JavaScript takes or closes them. Returns their values, -1 for none.
    pub(super) fn store_streams(&mut self, streams: Streams) -> Vec<i32> {
        let raw = streams.iter().map(|stream| stream.as_ref().map_or(-1, spawn::raw_stream)).collect();
        self.streams.extend(streams.into_iter().flatten().map(|stream| (spawn::raw_stream(&stream), stream)));
        raw
    }
}

/// The socket that a descriptor refers to, as text. `None` if the descriptor is not open, or if the
/// system has no such identity.
#[napi(catch_unwind)]
pub fn stream_id(fd: i32) -> Option<String> {
    spawn::stream_id(fd).map(|id| id.to_string())
}

/// Ends the readable side of an open stream whose writers are gone. Does nothing if the descriptor
/// refers to another socket now. Returns an errno, or 0.
#[napi(catch_unwind)]
#[allow(clippy::needless_pass_by_value)] // N-API passes values.
pub fn end_stream(fd: i32, id: String) -> i32 {
    let Ok(id) = id.parse() else { return Errno::EINVAL as i32 };
    spawn::end_stream(fd, id).err().map_or(0, |errno| errno as i32)
}

/// An error with the code that Node's own spawn has if there is no free file descriptor.
fn failed_spawn(errno: Errno) -> Error<String> {
    let code = format!("{errno:?}");
    let message = format!("spawn {code}");
    Error::new(code, message)
}

fn system_error(errno: Errno) -> Error {
    Error::new(Status::GenericFailure, errno.to_string())
}
