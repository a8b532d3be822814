//! Messages as bytes: encoding, decoding, and frames in a stream.

use serde::{Deserialize, Serialize};

pub const VERSION: u8 = 6;

/// Maximum size of a payload. The kernel accepts at most 6 MiB of arguments plus environment.
pub const MAX_PAYLOAD: usize = 8 << 20;

pub(super) const HEADER: usize = 8;

/// Why received bytes are not a valid message. Callers convert it to an errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolError {
    NotOurs,
    Version(u8),
    TooLong(usize),
    Malformed,
}

/// Encodes a message without a frame, for sockets that preserve message boundaries.
pub fn payload(message: &impl Serialize) -> Result<Vec<u8>, ProtocolError> {
    postcard::to_allocvec(message).map_err(|_| ProtocolError::Malformed)
}

/// Encodes a message with its frame, for stream sockets.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, ProtocolError> {
    let mut frame = postcard::to_extend(message, vec![0; HEADER]).map_err(|_| ProtocolError::Malformed)?;
    let length = frame.len() - HEADER;
    if length > MAX_PAYLOAD {
        return Err(ProtocolError::TooLong(length));
    }
    frame[..4].copy_from_slice(&[b'S', b'O', VERSION, 0]);
    frame[4..HEADER].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    Ok(frame)
}

/// Decodes a payload. Both missing and surplus bytes are errors.
pub fn decode<'a, M: Deserialize<'a>>(payload: &'a [u8]) -> Result<M, ProtocolError> {
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        _ => Err(ProtocolError::Malformed),
    }
}

/// A buffer that splits received bytes into frames.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes and returns the next complete payload, or `None` if it has not arrived completely.
    ///
    /// It checks a header as soon as the header is complete. So it rejects an excessive length
    /// before the receiver waits for that many bytes.
    pub fn next_payload(&mut self) -> Result<Option<Vec<u8>>, ProtocolError> {
        let known = self.bytes.len().min(2);
        if self.bytes[..known] != b"SO"[..known] {
            return Err(ProtocolError::NotOurs);
        }
        let Some(header) = self.bytes.first_chunk::<HEADER>() else { return Ok(None) };
        if header[2] != VERSION || header[3] != 0 {
            return Err(ProtocolError::Version(header[2]));
        }
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        if length > MAX_PAYLOAD {
            return Err(ProtocolError::TooLong(length));
        }
        if self.bytes.len() < HEADER + length {
            return Ok(None);
        }
        let payload = self.bytes[HEADER..HEADER + length].to_vec();
        self.bytes.drain(..HEADER + length);
        Ok(Some(payload))
    }
}
