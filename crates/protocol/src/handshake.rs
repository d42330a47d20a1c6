//! The first 16 bytes in each direction. They are the same in every version, so
//! that any two programs can find out that their versions differ.
//!
//! ```text
//! client   "atomdir?"  version u32  0 u32          (little-endian)
//! service  "atomdir!"  version u32  verdict u32
//! ```

use crate::VERSION;

pub const LENGTH: usize = 16;

const HELLO: [u8; 8] = *b"atomdir?";
const WELCOME: [u8; 8] = *b"atomdir!";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The client may send its first request.
    Welcome,
    /// The two speak different versions.
    OtherVersion,
    TooManyConnections,
    /// The service is about to end; another can be started.
    Ending,
    /// The store is not open to this user.
    NotAllowed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    #[error("what is at the other end of the socket is not Atomdir")]
    NotAtomdir,
    #[error("the other end speaks version {0} of the protocol, this program version {VERSION}")]
    OtherVersion(u32),
}

pub fn encode_hello() -> [u8; LENGTH] {
    encode(HELLO, VERSION, 0)
}

/// Checks a client's hello.
pub fn decode_hello(bytes: &[u8; LENGTH]) -> Result<(), HandshakeError> {
    let (version, _) = decode(HELLO, bytes)?;
    if version != VERSION {
        return Err(HandshakeError::OtherVersion(version));
    }
    Ok(())
}

pub fn encode_verdict(verdict: Verdict) -> [u8; LENGTH] {
    let number = match verdict {
        Verdict::Welcome => 0,
        Verdict::OtherVersion => 1,
        Verdict::TooManyConnections => 2,
        Verdict::Ending => 3,
        Verdict::NotAllowed => 4,
    };
    encode(WELCOME, VERSION, number)
}

pub fn decode_verdict(bytes: &[u8; LENGTH]) -> Result<Verdict, HandshakeError> {
    let (version, number) = decode(WELCOME, bytes)?;
    if version != VERSION {
        return Err(HandshakeError::OtherVersion(version));
    }
    match number {
        0 => Ok(Verdict::Welcome),
        1 => Ok(Verdict::OtherVersion),
        2 => Ok(Verdict::TooManyConnections),
        3 => Ok(Verdict::Ending),
        4 => Ok(Verdict::NotAllowed),
        _ => Err(HandshakeError::NotAtomdir),
    }
}

fn encode(magic: [u8; 8], version: u32, number: u32) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(&magic);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn decode(magic: [u8; 8], bytes: &[u8; LENGTH]) -> Result<(u32, u32), HandshakeError> {
    if bytes[..8] != magic {
        return Err(HandshakeError::NotAtomdir);
    }
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok((word(8), word(12)))
}
