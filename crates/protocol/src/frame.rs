//! One message: a 32-bit little-endian length, then its postcard bytes.

use serde::Serialize;
use serde::de::DeserializeOwned;

pub const HEADER_LENGTH: usize = 4;
/// The longest payload of a request.
pub const REQUEST_LENGTH_MAX: usize = 64 << 10;
/// The longest payload of a reply.
pub const REPLY_LENGTH_MAX: usize = 16 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a message of {length} bytes is longer than the {length_max} allowed")]
    TooLong { length: usize, length_max: usize },
    #[error("a message cannot be understood: {0}")]
    Malformed(postcard::Error),
    #[error("a message is followed by {0} bytes that do not belong to it")]
    TrailingBytes(usize),
}

/// Returns the whole frame, header included.
pub fn encode<T: Serialize>(message: &T, length_max: usize) -> Result<Vec<u8>, FrameError> {
    let frame =
        postcard::to_extend(message, vec![0; HEADER_LENGTH]).map_err(FrameError::Malformed)?;
    finish(frame, length_max)
}

fn finish(mut frame: Vec<u8>, length_max: usize) -> Result<Vec<u8>, FrameError> {
    let length = frame.len() - HEADER_LENGTH;
    match u32::try_from(length) {
        Ok(length_field) if length <= length_max => {
            frame[..HEADER_LENGTH].copy_from_slice(&length_field.to_le_bytes());
            Ok(frame)
        }
        _ => Err(FrameError::TooLong { length, length_max }),
    }
}

/// Returns how many payload bytes follow the header.
pub fn decode_header(header: [u8; HEADER_LENGTH], length_max: usize) -> Result<usize, FrameError> {
    let length = u32::from_le_bytes(header) as usize;
    if length > length_max {
        return Err(FrameError::TooLong { length, length_max });
    }
    Ok(length)
}

pub fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, FrameError> {
    let (message, rest) = postcard::take_from_bytes(payload).map_err(FrameError::Malformed)?;
    if !rest.is_empty() {
        return Err(FrameError::TrailingBytes(rest.len()));
    }
    Ok(message)
}
