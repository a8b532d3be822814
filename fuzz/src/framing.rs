//! Bytes from a socket, split into frames. The result does not depend on how the bytes arrive, and
//! no frame exceeds the limit.

use spawn_owned::keeper::protocol::{Inbox, MAX_PAYLOAD, ProtocolError};

/// The first byte is the size of the pieces in which the rest arrives.
pub fn check(input: &[u8]) {
    let Some((&piece, bytes)) = input.split_first() else { return };
    let whole = payloads_of(bytes, bytes.len().max(1));
    assert_eq!(payloads_of(bytes, usize::from(piece).max(1)), whole, "in pieces of {piece}");
    assert_eq!(payloads_of(bytes, 1), whole, "byte by byte");

    let (payloads, error) = whole;
    assert!(
        payloads.iter().map(Vec::len).sum::<usize>() <= bytes.len(),
        "the payloads are longer than the input"
    );
    if let Some(ProtocolError::TooLong(length)) = error {
        assert!(length > MAX_PAYLOAD);
    }
    if error.is_none() {
        assert!(
            bytes.is_empty() || bytes.starts_with(&b"SO"[..bytes.len().min(2)]),
            "foreign bytes were accepted as a frame"
        );
    }
}

/// All payloads, and the error that ended them. `None` if only the bytes ended.
fn payloads_of(bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<ProtocolError>) {
    let mut inbox = Inbox::default();
    let mut payloads = Vec::new();
    for part in bytes.chunks(piece) {
        inbox.push(part);
        loop {
            match inbox.next_payload() {
                Ok(Some(payload)) => payloads.push(payload),
                Ok(None) => break,
                Err(error) => return (payloads, Some(error)),
            }
        }
    }
    (payloads, None)
}
