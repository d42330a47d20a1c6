//! Messages between client and service.

use std::fmt::Debug;

use atomdir_protocol::{Readiness, Reply, Request, frame, handshake};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message that decodes must decode to the same value after it is encoded again.
pub fn message(bytes: &[u8]) {
    check::<Request>(bytes, frame::REQUEST_LENGTH_MAX);
    check::<Reply>(bytes, frame::REPLY_LENGTH_MAX);
    check::<Readiness>(bytes, frame::REQUEST_LENGTH_MAX);
    if let Some(header) = bytes.first_chunk()
        && let Ok(length) = frame::decode_header(*header, frame::REQUEST_LENGTH_MAX)
    {
        assert!(length <= frame::REQUEST_LENGTH_MAX);
    }
    if let Some(hello) = bytes.first_chunk() {
        if handshake::decode_hello(hello).is_ok() {
            assert_eq!(hello[..12], handshake::encode_hello()[..12]);
        }
        if let Ok(verdict) = handshake::decode_verdict(hello) {
            assert_eq!(handshake::encode_verdict(verdict), *hello);
        }
    }
}

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(payload: &[u8], length_max: usize) {
    let Ok(message) = frame::decode::<T>(payload) else {
        return;
    };
    let Ok(encoded) = frame::encode(&message, length_max) else {
        assert!(payload.len() > length_max, "it grew: {message:?}");
        return;
    };
    let again = frame::decode::<T>(&encoded[frame::HEADER_LENGTH..]);
    assert_eq!(again.as_ref(), Ok(&message));
}
