//! Payloads, in both directions: what can be decoded can be encoded, and then means the same.

use spawn_owned::keeper::protocol::{
    Command, InCgroup, Inbox, Refusal, Report, Request, decode, encode, payload,
};

/// A macro, because some of these types borrow from what they are decoded from, and here there are two of that.
macro_rules! means_the_same {
    ($type:ty, $bytes:expr) => {
        if let Ok(message) = decode::<$type>($bytes) {
            let again = payload(&message).expect("what was decoded can be encoded");
            assert!(again.len() <= $bytes.len(), "numbers have one shortest spelling, which is ours");
            is_framed(&encode(&message).expect("it is shorter than the bound"), &again);
            assert_eq!(decode::<$type>(&again), Ok(message));
        }
    };
}

/// The first byte says as what the rest is read. For memory there is a bound as well: libFuzzer watches what one input takes.
pub fn check(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    match kind % 5 {
        0 => means_the_same!(Request, bytes),
        1 => means_the_same!(Report, bytes),
        2 => means_the_same!(Command, bytes),
        3 => means_the_same!(Refusal, bytes),
        _ => means_the_same!(InCgroup, bytes),
    }
}

fn is_framed(frame: &[u8], payload: &[u8]) {
    let mut inbox = Inbox::default();
    inbox.push(frame);
    assert_eq!(inbox.next_payload(), Ok(Some(payload.to_vec())));
    assert_eq!(inbox.next_payload(), Ok(None));
}
