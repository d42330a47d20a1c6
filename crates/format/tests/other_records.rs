//! Records of the log's form that belong to no commit.

use atomdir_disk::{Identity, Owner, Timestamp};
use atomdir_format::Problem;
use atomdir_format::annotations::{Annotations, CommitAnnotation, SEQUENCE, UnconfirmedCommit};
use atomdir_format::frame::Record;
use atomdir_format::past::PastRecord;
use atomdir_format::privileges::{FilePrivileges, PrivilegesNote};
use atomdir_format::record::{AttributesChange, Cancellation, CommitRecord, LogRecord};
use atomdir_format::summary::SummaryRecord;
use atomdir_types::{EarlyReason, ForgottenEarly, Sequence};

fn commit() -> CommitRecord {
    CommitRecord {
        sequence: 7,
        transaction: 2,
        stage: 2,
        time: Timestamp {
            seconds: 3,
            nanoseconds: 4,
        },
        user: 5,
        groups: None,
        is_outside: false,
        label: b"label".to_vec(),
        directories: vec![],
        objects: vec![],
        entries: vec![],
        updates: vec![],
        made: vec![],
        summary: vec![],
        before: None,
    }
}

#[test]
fn a_record_cancels_itself_or_an_earlier_commit() {
    let earlier = LogRecord::Cancellation(Cancellation {
        sequence: 7,
        cancelled: 5,
        time: commit().time,
    });
    let own = LogRecord::Commit(commit());
    for record in [earlier, own.cancelled()] {
        let payload = record.encode_payload();
        let decoded = LogRecord::decode_payload(7, &payload);
        assert_eq!(decoded, Ok(record.clone()));
        assert!(CommitRecord::decode_payload(7, &payload).is_err());
        let past = PastRecord::of(record.clone(), record.time()).expect("the past has no gaps");
        let decoded = PastRecord::decode_payload(7, &past.encode_payload());
        assert_eq!(decoded, Ok(past.clone()));
        let given_up = past.given_up();
        let mut payload_of_past = given_up.encode_payload();
        let decoded = PastRecord::decode_payload(7, &payload_of_past);
        assert_eq!(decoded, Ok(given_up));
        let last = payload_of_past.len() - 1;
        payload_of_past[last] += 1;
        assert!(PastRecord::decode_payload(7, &payload_of_past).is_err());
        let summary = SummaryRecord::from(record);
        let mut payload_of_summary = summary.encode_payload();
        let decoded = SummaryRecord::decode_payload(7, &payload_of_summary);
        assert_eq!(decoded.as_ref(), Ok(&summary));
        assert_eq!(summary.details(), None);
        // This byte is the user.
        let user = payload_of_summary.len() - 6;
        payload_of_summary[user] = 1;
        let decoded = SummaryRecord::decode_payload(7, &payload_of_summary);
        assert_eq!(decoded.unwrap_err().problem, Problem::NotEmpty);
        for length in 0..payload.len() {
            assert!(LogRecord::decode_payload(7, &payload[..length]).is_err());
        }
        let later = LogRecord::decode_payload(4, &payload);
        assert!(matches!(
            later.unwrap_err().problem,
            Problem::Sequence(5 | 7)
        ));
    }
    assert!(SummaryRecord::from(own).details().is_some());
}

#[test]
fn note_of_privileges_round_trips_and_has_the_form_of_a_commit() {
    let capability = (b"security.capability".to_vec(), Some(vec![1, 2, 3]));
    let attributes = |mode| AttributesChange {
        mode,
        ..AttributesChange::default()
    };
    let one = |inode, mode, xattrs| FilePrivileges {
        file: Identity { inode, birth: 9 },
        attributes: attributes(mode),
        owner: Owner { user: 4, group: 5 },
        xattrs,
    };
    let note = PrivilegesNote {
        sequence: 7,
        files: vec![one(1, Some(0o4755), vec![]), one(2, None, vec![capability])],
    };
    let payload = note.encode_payload();
    assert_eq!(
        PrivilegesNote::decode_payload(7, &payload).as_ref(),
        Ok(&note)
    );
    let as_commit = CommitRecord::decode_payload(7, &payload).expect("the form of a commit");
    assert_eq!(as_commit.updates.len(), note.files.len());
    assert_eq!(as_commit.encode_payload(), payload);
    for length in 0..payload.len() {
        assert!(PrivilegesNote::decode_payload(7, &payload[..length]).is_err());
    }
    let commit = commit().encode_payload();
    let error = PrivilegesNote::decode_payload(7, &commit).unwrap_err();
    assert_eq!(error.problem, Problem::NotEmpty);
}

#[test]
fn annotations_round_trip_and_are_in_order() {
    let annotation = |sequence, is_pinned, label: Option<&str>| CommitAnnotation {
        sequence,
        is_pinned,
        label: label.map(|label| label.as_bytes().to_vec()),
    };
    let mut annotations = Annotations {
        commits: vec![
            annotation(3, true, None),
            annotation(5, false, Some("")),
            annotation(300, true, Some("label")),
        ],
        unconfirmed: vec![UnconfirmedCommit {
            sequence: 9,
            transaction: 10,
            due: Timestamp::default(),
            wait_ms: 11,
            refused: Some(12),
        }],
        early: Some(ForgottenEarly {
            time: Timestamp::default(),
            commits: 13,
            newest: Sequence(14),
            why: EarlyReason::Asked,
        }),
    };
    let payload = annotations.encode_payload();
    assert_eq!(
        Annotations::decode_payload(SEQUENCE, &payload).as_ref(),
        Ok(&annotations)
    );
    for length in 0..payload.len() {
        assert!(Annotations::decode_payload(SEQUENCE, &payload[..length]).is_err());
    }
    annotations.commits.swap(0, 1);
    let error = Annotations::decode_payload(SEQUENCE, &annotations.encode_payload());
    assert_eq!(error.unwrap_err().problem, Problem::Index);
}
