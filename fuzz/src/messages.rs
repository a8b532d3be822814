//! Payloads in both directions: a decoded message can be encoded, and decodes to the same message.

use spawn_owned::keeper::protocol::{
    Command, InCgroup, Inbox, Refusal, Report, Request, decode, encode, payload,
};

/// A macro, because some of these types borrow from the bytes, and here are two sets of bytes.
macro_rules! means_the_same {
    ($type:ty, $bytes:expr) => {
        if let Ok(message) = decode::<$type>($bytes) {
            let again = payload(&message).expect("a decoded message can be encoded");
            assert!(again.len() <= $bytes.len(), "our encoding is not the shortest");
            is_framed(&encode(&message).expect("the message is within the limit"), &again);
            assert_eq!(decode::<$type>(&again), Ok(message));
        }
    };
}

/// The first byte selects the type of the message. libFuzzer also limits the memory of one input.
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
