//! Bytes on a socket, cut into frames: however they arrive, they mean the same, and no more is waited for than the bound.

use spawn_owned::keeper::protocol::{Inbox, MAX_PAYLOAD, ProtocolError};

/// The first byte says in which pieces the rest arrives.
pub fn check(input: &[u8]) {
    let Some((&piece, bytes)) = input.split_first() else { return };
    let whole = heard(bytes, bytes.len().max(1));
    assert_eq!(heard(bytes, usize::from(piece).max(1)), whole, "in pieces of {piece}");
    assert_eq!(heard(bytes, 1), whole, "byte by byte");

    let (payloads, error) = whole;
    assert!(payloads.iter().map(Vec::len).sum::<usize>() <= bytes.len(), "nothing is made up");
    if let Some(ProtocolError::TooLong(length)) = error {
        assert!(length > MAX_PAYLOAD);
    }
    if error.is_none() {
        assert!(
            bytes.is_empty() || bytes.starts_with(&b"SO"[..bytes.len().min(2)]),
            "not ours, and taken for it"
        );
    }
}

/// All payloads, and why there are no more if it is for another reason than that the bytes end.
fn heard(bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<ProtocolError>) {
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
