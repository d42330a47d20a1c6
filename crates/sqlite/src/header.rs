//! The counters in a database's first page. They take no part in conflicts.
//!
//! SQLite adds one to the change counter (bytes 24..28) with every commit, and copies it to the
//! version-valid-for number (bytes 92..96), beside its own version (bytes 96..100). If each commit
//! wrote these to the file, any two writers would conflict on the first page. But SQLite uses the
//! counter for two questions only, and the extension answers both by showing SQLite another number
//! in the counter's place:
//!
//! - "Is my page cache still valid?" SQLite compares the counter with the one that it read or wrote
//!   last. The extension shows a number that SQLite has neither read from nor written to this open
//!   file before, so SQLite drops its cache at the beginning of a transaction.
//! - "Does the header give the file's length?" It does if counter and version-valid-for number are
//!   equal. The extension shows them as equal where they are equal in the file.

use std::ops::Range;

pub(crate) const COUNTER: Range<usize> = 24..28;
pub(crate) const VALID_FOR: Range<usize> = 92..96;
const WRITER: Range<usize> = 96..100;
pub(crate) const LENGTH: usize = 100;

/// The change counter and the version-valid-for number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) counter: u32,
    pub(crate) valid_for: u32,
}

pub(crate) fn number(bytes: &[u8], at: Range<usize>) -> u32 {
    let bytes = bytes.get(at).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_be_bytes)
}

impl Counters {
    pub(crate) fn of(header: &[u8]) -> Counters {
        Counters {
            counter: number(header, COUNTER),
            valid_for: number(header, VALID_FOR),
        }
    }

    /// The numbers to show SQLite in place of these: `counter`, and whether both are equal.
    pub(crate) fn shown(self, counter: u32) -> Counters {
        let is_valid = self.counter == self.valid_for;
        Counters {
            counter,
            valid_for: if is_valid { counter } else { !counter },
        }
    }

    /// Writes the numbers over those in `buffer`, which begins at `offset` of the file.
    pub(crate) fn overlay(self, buffer: &mut [u8], offset: u64) {
        for (number, range) in [(self.counter, COUNTER), (self.valid_for, VALID_FOR)] {
            for (byte, at) in number.to_be_bytes().into_iter().zip(range) {
                let place = (at as u64).checked_sub(offset);
                let place = place.and_then(|place| buffer.get_mut(usize::try_from(place).ok()?));
                if let Some(place) = place {
                    *place = byte;
                }
            }
        }
    }
}

/// Whether two versions of the first page differ in nothing but the counters and SQLite's version.
pub(crate) fn differ_in_counters_alone(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.len() >= LENGTH
        && one[..COUNTER.start] == other[..COUNTER.start]
        && one[COUNTER.end..VALID_FOR.start] == other[COUNTER.end..VALID_FOR.start]
        && one[WRITER.end..] == other[WRITER.end..]
}

/// The length of the database in bytes, from a header that SQLite is about to commit.
pub(crate) fn database_length(header: &[u8]) -> u64 {
    let page_size = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65536,
        size => u64::from(size),
    };
    u64::from(number(header, 28..32)) * page_size
}
