//! The layout of requests and answers in the buffers of a ring: the headers
//! (fuse_uring_req_header) are in one, and everything else, the payload, in the other.

use super::flags::init;
use super::{Init, InitReply, reply_header};

/// Commands of the ring (FUSE_IO_URING_CMD_*).
pub const REGISTER: u32 = 1;
pub const COMMIT_AND_FETCH: u32 = 2;

pub const HEADERS_LENGTH: usize = 288;

/// fuse_in_header
const REQUEST_HEADER_LENGTH: usize = 40;
/// Where the operation's own first structure lies, in at most 128 bytes.
const OPERATION_AT: usize = 128;
/// fuse_uring_ent_in_out
const ENTRY_AT: usize = 256;
const COMMIT_AT: usize = ENTRY_AT + 8;
const PAYLOAD_LENGTH_AT: usize = ENTRY_AT + 16;

/// The most bytes that a request takes before its payload when its parts are joined.
pub const HEAD_LENGTH_MAX: usize = REQUEST_HEADER_LENGTH + ENTRY_AT - OPERATION_AT;

/// fuse_uring_cmd_req
pub fn command(queue: u16, commit: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&commit.to_ne_bytes());
    bytes[16..18].copy_from_slice(&queue.to_ne_bytes());
    bytes
}

/// The parts of a request that came by a ring.
#[derive(Debug, PartialEq, Eq)]
pub struct Fetched<'a> {
    /// The id by which the answer names the request to the kernel.
    pub commit: u64,
    pub header: &'a [u8],
    pub operation: &'a [u8],
    pub payload_length: usize,
}

/// `None` if the lengths contradict each other.
pub fn fetched(headers: &[u8; HEADERS_LENGTH]) -> Option<Fetched<'_>> {
    let payload_length = u32_at(headers, PAYLOAD_LENGTH_AT) as usize;
    let length = u32_at(headers, 0) as usize;
    let operation_length = length.checked_sub(REQUEST_HEADER_LENGTH + payload_length)?;
    Some(Fetched {
        commit: u64::from(u32_at(headers, COMMIT_AT))
            | u64::from(u32_at(headers, COMMIT_AT + 4)) << 32,
        header: &headers[..REQUEST_HEADER_LENGTH],
        operation: headers[OPERATION_AT..ENTRY_AT].get(..operation_length)?,
        payload_length,
    })
}

pub fn answer(headers: &mut [u8; HEADERS_LENGTH], unique: u64, error: i32, payload_length: usize) {
    let header = reply_header(unique, error, payload_length);
    headers[..header.len()].copy_from_slice(&header);
    let length = (payload_length as u32).to_ne_bytes();
    headers[PAYLOAD_LENGTH_AT..PAYLOAD_LENGTH_AT + length.len()].copy_from_slice(&length);
}

impl Init {
    pub fn offers_rings(&self) -> bool {
        self.flags & init::OVER_IO_URING != 0
    }
}

impl InitReply {
    /// Accepts rings. From then on requests wait until the rings are registered.
    #[must_use]
    pub fn with_rings(mut self) -> InitReply {
        self.flags |= init::OVER_IO_URING;
        self
    }
}

fn u32_at(headers: &[u8; HEADERS_LENGTH], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&headers[at..at + 4]);
    u32::from_ne_bytes(bytes)
}
