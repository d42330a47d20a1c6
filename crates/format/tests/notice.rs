//! Notices: whatever is encoded decodes to the same value, and nothing else decodes.

use atomdir_disk::Timestamp;
use atomdir_format::frame::Record;
use atomdir_format::notice::{EndedNotice, Notice, NoticeRecord, OpenNotice, Reported};
use atomdir_types::EndedHow;
use proptest::prelude::*;

fn notices() -> Vec<Notice> {
    let time = Timestamp {
        seconds: -1,
        nanoseconds: 7,
    };
    let open = OpenNotice {
        transaction: u64::MAX,
        user: 1000,
        began: time,
        label: b"make \xff".to_vec(),
    };
    let reported = |user, administrator| Reported {
        user,
        administrator,
    };
    let transaction = 300;
    let mut notices = vec![
        Notice::Open(open.clone()),
        Notice::Parts {
            transaction,
            up_to: u64::MAX,
        },
        Notice::Done { transaction },
    ];
    for (user, administrator) in [(false, false), (true, false), (false, true)] {
        let reported = reported(user, administrator);
        notices.push(Notice::Reported {
            transaction,
            reported,
        });
    }
    for how in [
        EndedHow::Aborted { by: 0 },
        EndedHow::Age { age_ms: 300 },
        EndedHow::Stopped { by: Some(7) },
        EndedHow::Stopped { by: None },
        EndedHow::Died,
    ] {
        for changes in [None, Some(0)] {
            notices.push(Notice::Ended(EndedNotice {
                open: open.clone(),
                ended: time,
                how,
                changes,
                reported: reported(changes.is_some(), true),
            }));
        }
    }
    notices
}

#[test]
fn every_notice_round_trips_and_is_refused_if_cut() {
    for notice in notices() {
        let record = NoticeRecord {
            sequence: 1,
            notice,
        };
        let payload = record.encode_payload();
        let decoded = NoticeRecord::decode_payload(1, &payload);
        assert_eq!(decoded, Ok(record.clone()));
        for length in 0..payload.len() {
            let cut = NoticeRecord::decode_payload(1, &payload[..length]);
            assert!(cut.is_err(), "{length} bytes of {record:?}");
        }
    }
}

proptest! {
    #[test]
    fn mutated_notices_are_refused_or_canonical(
        which in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let all = notices();
        let notice = which.get(&all).clone();
        let mut payload = NoticeRecord { sequence: 1, notice }.encode_payload();
        let place = place.index(payload.len());
        payload[place] = value;
        if let Ok(record) = NoticeRecord::decode_payload(1, &payload) {
            prop_assert_eq!(record.encode_payload(), payload);
        }
    }
}
