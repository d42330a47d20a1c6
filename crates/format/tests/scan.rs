//! How a file of frames ends, after every kind of end.

use std::convert::Infallible;

use atomdir_disk::Timestamp;
use atomdir_format::frame::{self, ALIGNMENT, HEADER_LENGTH, Record};
use atomdir_format::header::StoreId;
use atomdir_format::record::CommitRecord;
use atomdir_format::scan::{Damage, Scanned, Scanner};
use atomdir_format::summary::{Summary, SummaryRecord};
use proptest::collection::vec;
use proptest::prelude::*;

const STORE: StoreId = StoreId(*b"the store's own.");
const OTHER_STORE: StoreId = StoreId(*b"another store's.");
const SECTOR_LENGTH: usize = 512;

fn record(sequence: u64, label: Vec<u8>) -> SummaryRecord {
    let time = Timestamp {
        seconds: 1,
        nanoseconds: 2,
    };
    SummaryRecord {
        sequence,
        time,
        commit: Some(Summary {
            transaction: sequence,
            user: 3,
            label,
            lines: vec![],
            left_out: 0,
            takes_back: vec![],
        }),
    }
}

fn frame(sequence: u64, durable: u64, label_length: usize) -> Vec<u8> {
    frame::encode(STORE, durable, &record(sequence, vec![b'x'; label_length]))
}

fn reader(file: &[u8]) -> impl FnMut(u64, &mut [u8]) -> Result<usize, Infallible> {
    |offset, buffer| {
        let rest = &file[file.len().min(offset as usize)..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// Returns the sequences that were read, and how the file ended.
fn scan(file: &[u8], sequence_max_first: u64) -> (Vec<u64>, Scanned<SummaryRecord>) {
    let length = file.len() as u64;
    let mut scanner: Scanner<SummaryRecord, _> =
        Scanner::new(STORE, length, sequence_max_first, reader(file));
    let mut sequences = Vec::new();
    loop {
        let Ok(step) = scanner.step();
        match step {
            Scanned::Record {
                record,
                next_offset,
            } => {
                assert_eq!(next_offset as usize % ALIGNMENT, 0);
                sequences.push(record.sequence);
            }
            ending => {
                assert_eq!(scanner.step(), Ok(ending.clone()), "the same answer again");
                return (sequences, ending);
            }
        }
    }
}

#[test]
fn log_ends_at_zeros_or_at_the_end_of_the_file() {
    assert_eq!(scan(&[], 1), (vec![], Scanned::End { offset: 0 }));
    let mut file: Vec<u8> = (5..9).flat_map(|sequence| frame(sequence, 4, 10)).collect();
    let offset = file.len() as u64;
    assert_eq!(scan(&file, 5), (vec![5, 6, 7, 8], Scanned::End { offset }));
    // A log may start earlier than necessary, but never later.
    assert_eq!(scan(&file, 9).0, [5, 6, 7, 8]);
    assert_eq!(
        scan(&file, 4),
        (
            vec![],
            Scanned::Damaged {
                offset: 0,
                damage: Damage::Lost {
                    sequence: 4,
                    later: 5
                },
            }
        )
    );
    for zeros in [1, 7, HEADER_LENGTH, 700_000] {
        file.resize(offset as usize + zeros, 0);
        assert_eq!(scan(&file, 5), (vec![5, 6, 7, 8], Scanned::End { offset }));
    }
    file.push(1);
    assert_eq!(scan(&file, 5), (vec![5, 6, 7, 8], Scanned::Torn { offset }));
}

/// An emptied log is overwritten. A crash may bring back its old length, and with it old records
/// around a part of what was written last.
#[test]
fn lost_record_that_is_in_the_base_is_no_damage() {
    let frames: Vec<Vec<u8>> = (1..5).map(|one| frame(one, one - 1, 30)).collect();
    let mut file = frames.concat();
    let offset = frames[0].len() as u64;
    file[frames[0].len()..][..frames[1].len()].fill(0);
    let lost = |sequence, later| Scanned::Damaged {
        offset,
        damage: Damage::Lost { sequence, later },
    };
    for (in_base, ending) in [
        (1, lost(2, 3)),
        (2, lost(3, 4)),
        (3, Scanned::Torn { offset }),
        (4, Scanned::Torn { offset }),
    ] {
        assert_eq!(scan(&file, in_base + 1), (vec![1], ending), "{in_base}");
    }
}

#[test]
fn a_file_cut_anywhere_ends_after_its_last_whole_record() {
    let frames: Vec<Vec<u8>> = (1..4).map(|sequence| frame(sequence, 0, 30)).collect();
    let file = frames.concat();
    for length in 0..file.len() {
        let whole = length / frames[0].len();
        let offset = (whole * frames[0].len()) as u64;
        let (sequences, ending) = scan(&file[..length], 1);
        assert_eq!(sequences.len(), whole);
        let is_end = length as u64 == offset;
        let expected = if is_end {
            Scanned::End { offset }
        } else {
            Scanned::Torn { offset }
        };
        assert_eq!(ending, expected, "{length}");
    }
}

#[test]
fn any_flipped_bit_of_a_durable_record_is_damage() {
    let first = frame(1, 0, 30);
    let mut file = first.clone();
    file.extend(frame(2, 1, 30));
    file.extend(frame(3, 1, 30));
    for bit in 0..first.len() * 8 {
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let damage = Damage::Lost {
            sequence: 1,
            later: 2,
        };
        assert_eq!(
            scan(&flipped, 1),
            (vec![], Scanned::Damaged { offset: 0, damage })
        );
    }
    // The second record was never known to be durable, so it counts as not
    // written.
    let offset = first.len();
    file[offset + 50] ^= 1;
    assert_eq!(
        scan(&file, 1),
        (
            vec![1],
            Scanned::Torn {
                offset: offset as u64
            }
        )
    );
}

#[test]
fn witness_is_found_at_any_offset() {
    // Puts the frame at the border between two chunks of the search.
    for extra in (0..160).step_by(ALIGNMENT) {
        let mut file = frame(1, 0, 262_144 - 160 + extra);
        file[100] ^= 1;
        file.extend(frame(2, 1, 0));
        let damage = Damage::Lost {
            sequence: 1,
            later: 2,
        };
        assert_eq!(
            scan(&file, 1),
            (vec![], Scanned::Damaged { offset: 0, damage }),
            "{extra}"
        );
    }
}

#[test]
fn witness_cannot_be_forged() {
    // A torn record that contains a frame, as a label or an attribute may.
    let ending_with = |store: StoreId, shift: usize| {
        let mut label = vec![0; shift];
        label.extend(frame::encode(store, 99, &record(100, vec![])));
        let mut file = frame::encode(STORE, 4, &record(5, label));
        let last = file.len() - ALIGNMENT - 1;
        file[last] ^= 1;
        scan(&file, 5).1
    };
    let torn = Scanned::Torn { offset: 0 };
    assert!((0..ALIGNMENT).all(|shift| ending_with(OTHER_STORE, shift) == torn));
    // Whoever knows the store's id can forge a witness.
    assert!((0..ALIGNMENT).any(|shift| ending_with(STORE, shift) != torn));
    let foreign = frame::encode(OTHER_STORE, 0, &record(1, vec![]));
    assert_eq!(scan(&foreign, 1), (vec![], Scanned::Torn { offset: 0 }));
}

#[test]
fn whole_foreign_record_is_damage() {
    let file = frame(1, 0, 0);
    let mut scanner: Scanner<CommitRecord, _> =
        Scanner::new(STORE, file.len() as u64, 1, reader(&file));
    let damaged = |damage| Ok(Scanned::Damaged { offset: 0, damage });
    assert_eq!(scanner.step(), damaged(Damage::Kind(2)));

    let (bytes, length) = (sealed(1, 9, &[0; 8]), 48);
    let mut scanner: Scanner<CommitRecord, _> = Scanner::new(STORE, length, 1, reader(&bytes));
    assert_eq!(scanner.step(), damaged(Damage::Version(9)));

    let bytes = sealed(1, 1, &[0xff; 8]);
    let mut scanner: Scanner<CommitRecord, _> = Scanner::new(STORE, length, 1, reader(&bytes));
    let step = scanner.step().unwrap_or_else(|never| match never {});
    assert!(
        matches!(
            step,
            Scanned::Damaged {
                damage: Damage::Record(_),
                ..
            }
        ),
        "{step:?}"
    );
}

/// A frame with right checksums around any payload, built by hand as
/// docs/format.md says.
fn sealed(kind: u16, version: u16, payload: &[u8; 8]) -> Vec<u8> {
    let checksum = |bytes: &[u8]| crc32c::crc32c(&[&STORE.0[..], bytes].concat());
    let mut frame = b"ADFR".to_vec();
    frame.extend(version.to_le_bytes());
    frame.extend(kind.to_le_bytes());
    frame.extend((payload.len() as u64).to_le_bytes());
    frame.extend(1_u64.to_le_bytes());
    frame.extend(0_u64.to_le_bytes());
    frame.extend(checksum(payload).to_le_bytes());
    frame.extend(checksum(&frame).to_le_bytes());
    frame.extend(payload);
    frame
}

#[test]
fn encoded_bytes_stay_the_same() {
    let record = record(1, b"1234".to_vec());
    let mut payload = record.encode_payload();
    assert_eq!(payload.len(), 23);
    payload.resize(24, 0);
    let frame = frame::encode(STORE, 0, &record);
    assert_eq!(frame[HEADER_LENGTH..], payload);
    assert_eq!(frame[8..16], 23_u64.to_le_bytes());
    let by_hand = sealed(2, 1, &[7; 8]);
    assert_eq!(scan(&by_hand, 1).0.len(), 0);
    assert_eq!(frame[..8], by_hand[..8]);
}

#[test]
fn read_error_is_returned() {
    let mut scanner: Scanner<SummaryRecord, _> = Scanner::new(STORE, 100, 1, |_, _| Err("broken"));
    assert_eq!(scanner.step(), Err("broken"));
}

proptest! {
    /// A crash keeps, drops (to zeros) or tears sectors that were not flushed.
    /// The scanner reads all that was durable, and perhaps a prefix of the
    /// rest, and never reports damage.
    #[test]
    fn torn_tail_is_not_reported_as_damage(
        lengths in vec(0_usize..1500, 1..20),
        flushed in any::<prop::sample::Index>(),
        fates in vec(0_u8..3, 80),
        cut in any::<prop::sample::Index>(),
    ) {
        let flushed = flushed.index(lengths.len() + 1);
        let mut file = Vec::new();
        let mut safe_length = 0;
        for (index, length) in lengths.iter().enumerate() {
            let durable = if index < flushed { index } else { flushed };
            file.extend(frame(index as u64 + 1, durable as u64, *length));
            if index + 1 == flushed {
                safe_length = file.len();
            }
        }
        let sectors = file.chunks_mut(SECTOR_LENGTH).zip(fates.iter().cycle());
        for (index, (bytes, fate)) in sectors.enumerate() {
            let from = safe_length.saturating_sub(index * SECTOR_LENGTH).min(bytes.len());
            match fate {
                0 => {}
                1 => bytes[from..].fill(0),
                _ => bytes[from..].iter_mut().for_each(|byte| *byte ^= 0x5a),
            }
        }
        let kept = safe_length + cut.index(file.len() - safe_length + 1);
        file.truncate(kept);
        let (sequences, ending) = scan(&file, 1);
        prop_assert!(sequences.len() >= flushed);
        prop_assert!(sequences.iter().copied().eq(1..=sequences.len() as u64));
        let is_orderly = matches!(ending, Scanned::End { .. } | Scanned::Torn { .. });
        prop_assert!(is_orderly, "{:?}", ending);
    }
}
