//! The bytes of a store's control files.

use std::convert::Infallible;

use atomdir_format::annotations::Annotations;
use atomdir_format::applied::{self, AppliedMark};
use atomdir_format::frame::{self, Record};
use atomdir_format::header::{self, StoreId, UncheckedHeader};
use atomdir_format::notice::NoticeRecord;
use atomdir_format::privileges::PrivilegesNote;
use atomdir_format::record::LogRecord;
use atomdir_format::scan::{Scanned, Scanner};
use atomdir_format::summary::SummaryRecord;
use atomdir_format::view::ViewRecord;

/// The id of the stores that the simulation makes, whose logs are in the corpus.
pub(crate) const STORE: StoreId = StoreId([7; 16]);

/// A header that passes its check must pass with the same fields after it is encoded again. An
/// applied mark that decodes must be the encoding of its fields. Headers are tried as they are and
/// with a fitting checksum.
pub fn header(bytes: &[u8]) {
    let mut fitting = bytes.to_vec();
    if let Some(rest) = fitting.len().checked_sub(4) {
        let checksum = crc32c::crc32c(&fitting[..rest]);
        fitting[rest..].copy_from_slice(&checksum.to_le_bytes());
    }
    for bytes in [bytes, &fitting] {
        let Ok(unchecked) = UncheckedHeader::new(bytes) else {
            continue;
        };
        if let Ok(read) = unchecked.check() {
            assert_eq!(bytes.len(), header::LENGTH);
            let again = UncheckedHeader::new(&read.encode());
            assert_eq!(again.and_then(|again| again.check()), Ok(read));
        }
    }
    if let Some(mark) = bytes.first_chunk::<{ applied::LENGTH }>()
        && let Some(read) = AppliedMark::decode(STORE, mark)
    {
        assert_eq!(read.encode(STORE), *mark);
    }
}

/// A payload that decodes must be the encoding of its record.
pub fn record(bytes: &[u8]) {
    check_payload::<LogRecord>(bytes);
    check_payload::<SummaryRecord>(bytes);
    check_payload::<ViewRecord>(bytes);
    check_payload::<NoticeRecord>(bytes);
    check_payload::<Annotations>(bytes);
    check_payload::<PrivilegesNote>(bytes);
}

fn check_payload<R: Record>(bytes: &[u8]) {
    if let Ok(record) = R::decode_payload(1, bytes) {
        assert_eq!(record.encode_payload(), bytes);
    }
}

/// Reading any file as frames must come to an end. Reading only the part before that end must give
/// the same records.
pub fn log(bytes: &[u8]) {
    for file in [bytes.to_vec(), fit_checksums(bytes)] {
        check_file::<LogRecord>(&file);
        check_file::<SummaryRecord>(&file);
        check_file::<ViewRecord>(&file);
        check_file::<NoticeRecord>(&file);
        check_file::<Annotations>(&file);
        check_file::<PrivilegesNote>(&file);
    }
}

/// The same bytes, with right checksums wherever a frame begins. Otherwise no changed frame would
/// be decoded.
pub(crate) fn fit_checksums(bytes: &[u8]) -> Vec<u8> {
    const HEADER: usize = frame::HEADER_LENGTH;
    let checksum = |bytes: &[u8]| crc32c::crc32c_append(crc32c::crc32c(&STORE.0), bytes);
    let mut file = bytes.to_vec();
    let mut at = 0;
    while let Some(header) = file.get(at..at + HEADER) {
        let mut length = [0; 8];
        length.copy_from_slice(&header[8..16]);
        let end = usize::try_from(u64::from_le_bytes(length)).ok();
        let end = end.and_then(|length| length.checked_next_multiple_of(frame::ALIGNMENT));
        let end = end.and_then(|length| length.checked_add(at + HEADER));
        let Some(end) = end.filter(|end| header.starts_with(b"ADFR") && *end <= file.len()) else {
            at += frame::ALIGNMENT;
            continue;
        };
        let body = checksum(&file[at + HEADER..end]);
        file[at + 32..at + 36].copy_from_slice(&body.to_le_bytes());
        let head = checksum(&file[at..at + 36]);
        file[at + 36..at + 40].copy_from_slice(&head.to_le_bytes());
        at = end;
    }
    file
}

/// The records, where they end, and whether damage was found there.
fn scan<R: Record + PartialEq>(file: &[u8], bytes: u64) -> (Vec<R>, u64, bool) {
    let read = |offset: u64, buffer: &mut [u8]| -> Result<usize, Infallible> {
        let rest = &file[file.len().min(offset as usize)..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    };
    let mut scanner = Scanner::<R, _>::new(STORE, bytes, u64::MAX, read);
    let mut records: Vec<R> = Vec::new();
    let mut end = 0;
    loop {
        let Ok(step) = scanner.step();
        match step {
            Scanned::Record {
                record,
                next_offset,
            } => {
                assert!(next_offset > end && next_offset <= bytes);
                if let Some(last) = records.last() {
                    assert_eq!(record.sequence(), last.sequence().saturating_add(1));
                }
                end = next_offset;
                records.push(record);
            }
            Scanned::End { offset } | Scanned::Torn { offset } => {
                assert_eq!(offset, end);
                return (records, end, false);
            }
            Scanned::Damaged { offset, .. } => {
                assert_eq!(offset, end);
                return (records, end, true);
            }
        }
    }
}

fn check_file<R: Record + PartialEq + std::fmt::Debug>(file: &[u8]) {
    let (records, end, _) = scan::<R>(file, file.len() as u64);
    let (same, same_end, damaged) = scan::<R>(file, end);
    assert_eq!((same, same_end, damaged), (records, end, false));
}
