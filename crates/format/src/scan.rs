//! Reads a file of frames from its start, and finds out how it ends.
//!
//! A crash may tear frames that were not yet flushed: any of them may be
//! missing, in full or in part, even one that stands before whole ones. So a
//! whole frame behind an invalid one does not mean damage. But each frame says
//! up to which sequence everything was durable when it was written. If a header
//! says so of the very record that cannot be read, that record was once durable,
//! and this is damage.
//!
//! Invariants
//! 1. A record is returned only if both checksums of its frame are right, and its sequence
//!    follows that of the record before. The first record's sequence is at most the given one.
//! 2. A file is reported as torn only if no header behind the last whole record says that the next
//!    one was durable. So cutting the file there loses nothing that is known to have been durable.
//! 3. Once the end is found, every further step gives the same answer.

use std::marker::PhantomData;

use crate::DecodeError;
use crate::frame::{ALIGNMENT, FrameHeader, HEADER_LENGTH, MAGIC, Record};
use crate::header::StoreId;

const CHUNK_LENGTH: usize = 256 * 1024;
/// Most records are short: one read brings many of them.
const AHEAD_LENGTH: usize = 64 * 1024;

/// Reads frames one after another. `F` reads the file: it fills the buffer from
/// an offset on and returns how many bytes it read, less only at the file's
/// end.
pub struct Scanner<R, F> {
    store: StoreId,
    length: u64,
    read: F,
    offset: u64,
    /// The first record that is needed. Those before it are known to be in the base.
    needed: u64,
    next: NextSequence,
    durable: u64,
    ahead: Ahead,
    record: PhantomData<R>,
}

/// A part of the file that was read already.
#[derive(Default)]
struct Ahead {
    offset: u64,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum NextSequence {
    AtMost(u64),
    Exactly(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scanned<R> {
    Record {
        record: R,
        next_offset: u64,
    },
    /// Only zeros follow, if anything.
    End {
        offset: u64,
    },
    /// The bytes that follow were never known to be durable. Cut the file here, durably, before
    /// anything is appended.
    Torn {
        offset: u64,
    },
    /// A record that was durable is lost.
    Damaged {
        offset: u64,
        damage: Damage,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    #[error(
        "record {sequence} cannot be read, though it was durable when record {later} was written"
    )]
    Lost { sequence: u64, later: u64 },
    #[error("a frame has version {0}, which this program does not know")]
    Version(u16),
    #[error("a frame is of kind {0}, which does not belong here")]
    Kind(u16),
    #[error("a record cannot be decoded, though its checksum matches: {0}")]
    Record(#[from] DecodeError),
}

impl<R, F, E> Scanner<R, F>
where
    R: Record,
    F: FnMut(u64, &mut [u8]) -> Result<usize, E>,
{
    /// The first record's sequence is at most `sequence_max_first`. For a log,
    /// this is the sequence after the last commit that is known to be in the
    /// base: those before it are not needed. `u64::MAX`: it may be any, and all are needed.
    pub fn new(store: StoreId, length: u64, sequence_max_first: u64, read: F) -> Scanner<R, F> {
        Scanner {
            store,
            length,
            read,
            offset: 0,
            needed: match sequence_max_first {
                u64::MAX => 0,
                sequence => sequence,
            },
            next: NextSequence::AtMost(sequence_max_first),
            durable: 0,
            ahead: Ahead::default(),
            record: PhantomData,
        }
    }

    /// Returns the next record, or how the file ends; after the end, always the
    /// same answer.
    ///
    /// # Errors
    /// Only those of the reader.
    pub fn step(&mut self) -> Result<Scanned<R>, E> {
        let Some(header) = self.header_at(self.offset)? else {
            return self.ending();
        };
        if !self.next.accepts(header.sequence) {
            return self.ending();
        }
        let Some(body) = self.body(&header)? else {
            return self.ending();
        };
        let damaged = |damage| {
            Ok(Scanned::Damaged {
                offset: self.offset,
                damage,
            })
        };
        if !header.has_version() {
            return damaged(Damage::Version(header.version));
        }
        if !header.has_kind(R::KIND) {
            return damaged(Damage::Kind(header.kind));
        }
        // The body was read, so its length fits into memory.
        let payload = &body[..header.payload_length as usize];
        match R::decode_payload(header.sequence, payload) {
            Err(error) => damaged(Damage::Record(error)),
            Ok(record) => {
                self.offset += (HEADER_LENGTH + body.len()) as u64;
                self.next = NextSequence::Exactly(header.sequence.saturating_add(1));
                self.durable = header.durable;
                Ok(Scanned::Record {
                    record,
                    next_offset: self.offset,
                })
            }
        }
    }

    /// The sequence up to which everything was known to be durable when the
    /// newest record read so far was written.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    fn header_at(&mut self, offset: u64) -> Result<Option<FrameHeader>, E> {
        let mut bytes = [0; HEADER_LENGTH];
        if !self.fill(offset, &mut bytes)? {
            return Ok(None);
        }
        Ok(FrameHeader::check(self.store, &bytes))
    }

    fn body(&mut self, header: &FrameHeader) -> Result<Option<Vec<u8>>, E> {
        let start = self.offset + HEADER_LENGTH as u64;
        let length = header
            .body_length()
            .filter(|length| *length <= self.length - start);
        let Some(length) = length.and_then(|length| usize::try_from(length).ok()) else {
            return Ok(None);
        };
        let mut body = vec![0; length];
        let is_whole = self.fill(start, &mut body)? && header.matches(self.store, &body);
        Ok(is_whole.then_some(body))
    }

    /// Finds out why there is no valid frame at the offset.
    fn ending(&mut self) -> Result<Scanned<R>, E> {
        let offset = self.offset;
        let (NextSequence::AtMost(next) | NextSequence::Exactly(next)) = self.next;
        // An emptied log is written over. If a crash brings back its length, an old record may
        // stand before a part of a new one.
        let sequence = next.max(self.needed);
        let rest = usize::try_from(self.length - offset).unwrap_or(usize::MAX);
        let mut buffer = vec![0; rest.min(CHUNK_LENGTH)];
        let mut position = offset;
        let mut is_zero = true;
        while position < self.length {
            let chunk = self.chunk(position, &mut buffer)?;
            let has_zeros_only = is_zero_only(chunk);
            is_zero = is_zero && has_zeros_only;
            // Mostly these are zeros that were allocated ahead.
            let headers = (!has_zeros_only).then(|| windows(chunk));
            for bytes in headers.into_iter().flatten() {
                let header = FrameHeader::check(self.store, bytes);
                if let Some(header) = header.filter(|header| header.durable >= sequence) {
                    let damage = Damage::Lost {
                        sequence,
                        later: header.sequence,
                    };
                    return Ok(Scanned::Damaged { offset, damage });
                }
            }
            // The next chunk starts with the first header that did not fit.
            let step = chunk.len().saturating_sub(HEADER_LENGTH - ALIGNMENT);
            let step = step - step % ALIGNMENT;
            if chunk.len() < CHUNK_LENGTH {
                break;
            }
            position += step as u64;
        }
        Ok(if is_zero {
            Scanned::End { offset }
        } else {
            Scanned::Torn { offset }
        })
    }

    fn chunk<'a>(&mut self, offset: u64, buffer: &'a mut [u8]) -> Result<&'a [u8], E> {
        let rest = usize::try_from(self.length - offset).unwrap_or(usize::MAX);
        let length = rest.min(buffer.len());
        let buffer = &mut buffer[..length];
        let count = (self.read)(offset, buffer)?;
        Ok(&buffer[..count])
    }

    /// Fills the buffer; returns false if the file ends before.
    fn fill(&mut self, offset: u64, buffer: &mut [u8]) -> Result<bool, E> {
        if buffer.len() as u64 > self.length - offset {
            return Ok(false);
        }
        if buffer.len() >= AHEAD_LENGTH {
            return Ok((self.read)(offset, buffer)? == buffer.len());
        }
        if !self.ahead.copy_to(offset, buffer) {
            self.read_ahead(offset)?;
        }
        Ok(self.ahead.copy_to(offset, buffer))
    }

    fn read_ahead(&mut self, offset: u64) -> Result<(), E> {
        let mut bytes = std::mem::take(&mut self.ahead.bytes);
        bytes.resize(AHEAD_LENGTH, 0);
        let count = self.chunk(offset, &mut bytes)?.len();
        bytes.truncate(count);
        self.ahead = Ahead { offset, bytes };
        Ok(())
    }
}

impl Ahead {
    /// Returns false if it does not cover all that is wanted.
    fn copy_to(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let start = offset.checked_sub(self.offset);
        let start = start.and_then(|start| usize::try_from(start).ok());
        let found = start.and_then(|start| self.bytes.get(start..)?.get(..buffer.len()));
        found.map(|found| buffer.copy_from_slice(found)).is_some()
    }
}

impl NextSequence {
    fn accepts(self, sequence: u64) -> bool {
        match self {
            NextSequence::AtMost(next) => sequence <= next,
            NextSequence::Exactly(next) => sequence == next,
        }
    }
}

/// Compares whole blocks, which is much faster than looking at each byte.
fn is_zero_only(chunk: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut blocks = chunk.chunks(ZEROS.len());
    blocks.all(|block| *block == ZEROS[..block.len()])
}

/// Every place in the chunk where a frame's header may start.
fn windows(chunk: &[u8]) -> impl Iterator<Item = &[u8; HEADER_LENGTH]> {
    let places = (0..chunk.len()).step_by(ALIGNMENT);
    places
        .filter_map(|place| chunk[place..].first_chunk::<HEADER_LENGTH>())
        .filter(|bytes| bytes.starts_with(&MAGIC))
}
