//! Every message survives encoding and decoding, and no bytes that a peer may send cause
//! more than an error.

use atomdir_protocol::frame::{
    self, FrameError, HEADER_LENGTH, REPLY_LENGTH_MAX, REQUEST_LENGTH_MAX,
};
use atomdir_protocol::handshake::{self, HandshakeError, Verdict};
use atomdir_protocol::*;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

mod values;

use values::{annotations, ended, log, service_status};

const TRANSACTION: TransactionId = TransactionId(u64::MAX);
const SEQUENCE: Sequence = Sequence(77);

fn begin() -> BeginRequest {
    let transaction = TRANSACTION;
    BeginRequest {
        options: BeginOptions {
            isolation: Isolation::Serializable,
            durability: Durability::Lazy,
            conflicts: Conflicts::Early,
            first_try: Some(TRANSACTION),
            label: b"make \xff install".to_vec(),
            detached: true,
            outer: Some(transaction),
            fork_of: None,
            wait: true,
            view: ViewChoice::Configured,
            opened: true,
            declares_reads: true,
            commits_while_held: false,
            sealed: true,
        },
        past: Some(Past::Undo(Undo {
            commits: vec![SEQUENCE],
            paths: vec![b"etc/\xff".to_vec()],
            equal: vec![EqualFile {
                path: b"etc/\xff".to_vec(),
                inode: u64::MAX,
                changed: Timestamp::default(),
            }],
            skip: vec![b"var".to_vec()],
            mine: SidePaths::These(vec![b"etc/one".to_vec()]),
            theirs: SidePaths::Others,
        })),
    }
}

fn begins_from_the_past() -> Vec<Request> {
    vec![
        Request::Begin(BeginRequest {
            past: Some(Past::Restore(Restore {
                commit: SEQUENCE,
                paths: vec![b"etc/\xff".to_vec()],
            })),
            ..begin()
        }),
        Request::Begin(BeginRequest {
            past: Some(Past::View(PastView {
                commit: SEQUENCE,
                outside_as_now: true,
                outside_since: Some(SEQUENCE),
                beside: Some(TRANSACTION),
            })),
            ..begin()
        }),
    ]
}

fn declared_reads() -> Request {
    let read = FileRead {
        inode: 1 << 53,
        bytes: vec![(0, 4096), (1 << 40, u64::MAX)],
        length: true,
        attributes: true,
    };
    Request::DeclareReads {
        transaction: TRANSACTION,
        files: vec![read; 2],
    }
}

fn native_views() -> [Request; 3] {
    let transaction = TRANSACTION;
    let refused = Some("EXDEV".to_owned());
    [
        Request::CloseView {
            transaction,
            force: true,
        },
        Request::MergeSteps { transaction },
        Request::Merged {
            transaction,
            refused,
        },
    ]
}

fn stop() -> Request {
    let open = WhileOpen::Keep;
    Request::Stop { open }
}

fn requests() -> Vec<Request> {
    let transaction = TRANSACTION;
    vec![
        Request::Begin(begin()),
        Request::Attach {
            transaction,
            hold: true,
        },
        Request::Detach { transaction },
        Request::Enter {
            transaction,
            secret: vec![9; 16],
        },
        Request::Freeze {
            transaction,
            others: Others::Wait,
        },
        Request::Keep { transaction },
        Request::Commit(CommitRequest {
            transaction,
            others: Others::Wait,
            portion: Portion::All,
        }),
        Request::SetSavepoint {
            transaction,
            name: b"before".to_vec(),
        },
        Request::RollBack {
            transaction,
            savepoint: b"before".to_vec(),
        },
        Request::Abort {
            transaction,
            wait: true,
        },
        Request::AbortAll,
        Request::Status { transaction },
        Request::Changes { transaction },
        Request::SnapshotObject {
            transaction,
            side: Side::Snapshot,
            path: vec![b'x'; 5000],
            contents_length_max: 1 << 40,
        },
        Request::Lock(LockRequest {
            transaction,
            mode: LockMode::Shared,
            scope: LockScope::Bytes { start: 1, end: 2 },
            paths: vec![b"a/b".to_vec(), Vec::new()],
            wait_ms: Some(0),
            max_age_ms: Some(3),
        }),
        Request::AbortAfter {
            transaction,
            age_ms: 9,
        },
        Request::Unlock {
            transaction,
            paths: None,
        },
        Request::List,
        Request::ListEnded { news: true },
        log(),
        Request::Show { sequence: SEQUENCE },
        Request::Sync,
        Request::MountGuard { syncs: true },
        Request::UnmountGuard,
        Request::Checkpoint,
        Request::Check,
        Request::Prune {
            older_than_ms: Some(0),
        },
        Request::ServiceStatus,
        Request::SetIdleTime { idle_ms: None },
        stop(),
        Request::Flush { transaction },
        Request::KeepOnClose { transaction },
    ]
}

fn parts_and_conflicts() -> Vec<Request> {
    let transaction = TRANSACTION;
    vec![
        Request::Commit(CommitRequest {
            transaction,
            others: Others::End,
            portion: Portion::Part {
                paths: vec![b"a/b".to_vec()],
                label: Some(b"a turn".to_vec()),
            },
        }),
        Request::AbortPart {
            transaction,
            paths: vec![b"a".to_vec(), b"\xff".to_vec()],
        },
        Request::ListConflicts {
            transaction,
            again: false,
        },
        Request::Commit(CommitRequest {
            transaction,
            others: Others::Refuse,
            portion: Portion::Sides(Sides {
                mine: Numbers::These(vec![1, u64::MAX]),
                theirs: Numbers::Others,
            }),
        }),
        Request::Refresh(RefreshRequest {
            transaction,
            wait: true,
            only_to_survive: false,
        }),
    ]
}

fn failure() -> Failure {
    Failure::new(FailureKind::Conflict, "someone was first").with_hint("try again")
}

fn replies() -> Vec<Reply> {
    let change = ChangeLine {
        change: Change::Renamed,
        path: b"b\n".to_vec(),
        from: Some(b"a".to_vec()),
    };
    let conflict = |by| Conflict {
        path: b"a".to_vec(),
        what: ConflictKind::LockedInDeadlock {
            waiting: TRANSACTION,
        },
        by,
    };
    let commit = ChangedBy::Commit {
        sequence: SEQUENCE,
        author: Some(CommitAuthor {
            transaction: TRANSACTION,
            label: b"first".to_vec(),
            time: Timestamp {
                seconds: 1_800_000_000,
                nanoseconds: 1,
            },
        }),
    };
    let open = ChangedBy::Open {
        transaction: TRANSACTION,
        label: Vec::new(),
    };
    vec![
        Reply::Progress(Progress::Steps { done: 1, total: 2 }),
        Reply::Progress(Progress::Waiting("for 3".to_owned())),
        Reply::Changes(vec![change; 3]),
        Reply::Conflicts(vec![
            conflict(commit),
            conflict(open),
            conflict(ChangedBy::Outside),
        ]),
        Reply::Contents(vec![0xff; 1000]),
        Reply::Problems(vec!["a block is missing".to_owned()]),
        Reply::Ended(ended()),
        Reply::Merge(TRANSACTION),
        Reply::Lend(TRANSACTION),
        Reply::Left(TRANSACTION),
        Reply::Leave(TRANSACTION),
        Reply::MergeSteps(vec![
            MergeStep::Dress {
                path: vec![0xff],
                contents: true,
                attributes: false,
            };
            2
        ]),
        Reply::Done(Answer::Nothing),
        Reply::Done(Answer::Begun(Begun {
            transaction: TRANSACTION,
            view_path: b"/run/atomdir/1/site".to_vec(),
            layers: Some(Layers {
                path: b"/srv/site/.atomdir/stage/7".to_vec(),
                user_xattrs: true,
                is_required: true,
                over_base: true,
            }),
            exact_because: None,
            deviations: vec![Deviation {
                path: b"new/f".to_vec(),
                kind: DeviationKind::CopyWithoutNames,
            }],
            lent: false,
            within: Some(Within {
                socket: b"/run/atomdir/1.socket".to_vec(),
                secret: vec![7; 16],
            }),
        })),
        Reply::Done(Answer::Committed(Committed {
            sequence: None,
            changes: 0,
            stalled: None,
            confirm_ms: Some(5),
            forgets_early: Some(EarlyReason::FreeSpace),
        })),
        Reply::Done(Answer::Refreshed {
            from: Sequence(1),
            to: Sequence(u64::MAX),
        }),
        Reply::Done(Answer::SnapshotObject(None)),
        Reply::Done(Answer::Service(Box::new(service_status()))),
        Reply::Done(Answer::Stopped(StopReport {
            transactions_aborted: 3,
            transactions_kept: 2,
        })),
        Reply::Failed(failure()),
    ]
}

fn assert_survives<T>(message: &T, length_max: usize)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let bytes = frame::encode(message, length_max).expect("encodes");
    let (header, payload) = bytes
        .split_first_chunk::<HEADER_LENGTH>()
        .expect("has a header");
    assert_eq!(frame::decode_header(*header, length_max), Ok(payload.len()));
    assert_eq!(frame::decode::<T>(payload).as_ref(), Ok(message));
    for length in 0..payload.len().min(200) {
        assert!(
            frame::decode::<T>(&payload[..length]).is_err(),
            "{message:?} cut to {length}"
        );
    }
    let longer = [payload, &[0]].concat();
    assert_eq!(
        frame::decode::<T>(&longer),
        Err(FrameError::TrailingBytes(1))
    );
}

fn all_requests() -> impl Iterator<Item = Request> {
    let others = begins_from_the_past().into_iter().chain(native_views());
    requests()
        .into_iter()
        .chain(parts_and_conflicts())
        .chain(annotations())
        .chain(others)
        .chain([declared_reads()])
}

#[test]
fn messages_round_trip_and_truncated_ones_are_refused() {
    for request in all_requests() {
        assert_survives(&request, REQUEST_LENGTH_MAX);
    }
    for reply in replies() {
        assert_survives(&reply, REPLY_LENGTH_MAX);
    }
    assert_survives(&Readiness::Failed(failure()), REQUEST_LENGTH_MAX);
}

#[test]
fn too_long_messages_are_refused_on_both_sides() {
    let too_long = Request::SnapshotObject {
        transaction: TRANSACTION,
        side: Side::Snapshot,
        path: vec![b'x'; REQUEST_LENGTH_MAX],
        contents_length_max: 0,
    };
    let encoded = frame::encode(&too_long, REQUEST_LENGTH_MAX);
    assert!(
        matches!(encoded, Err(FrameError::TooLong { .. })),
        "{encoded:?}"
    );
    let length = REQUEST_LENGTH_MAX + 1;
    let header = u32::try_from(length).unwrap().to_le_bytes();
    let length_max = REQUEST_LENGTH_MAX;
    assert_eq!(
        frame::decode_header(header, length_max),
        Err(FrameError::TooLong { length, length_max })
    );
}

#[test]
fn the_handshake_tells_versions_apart() {
    let hello = handshake::encode_hello();
    assert_eq!(handshake::decode_hello(&hello), Ok(()));
    let mut other = hello;
    other[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
    assert_eq!(
        handshake::decode_hello(&other),
        Err(HandshakeError::OtherVersion(VERSION + 1))
    );
    let verdicts = [
        Verdict::Welcome,
        Verdict::OtherVersion,
        Verdict::TooManyConnections,
        Verdict::Ending,
    ];
    for verdict in verdicts {
        let bytes = handshake::encode_verdict(verdict);
        assert_eq!(handshake::decode_verdict(&bytes), Ok(verdict));
        assert_eq!(
            handshake::decode_hello(&bytes),
            Err(HandshakeError::NotAtomdir)
        );
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = frame::decode::<Request>(&bytes);
        let _ = frame::decode::<Reply>(&bytes);
        let _ = frame::decode::<Readiness>(&bytes);
        if let Some(header) = bytes.first_chunk() {
            let _ = frame::decode_header(*header, REQUEST_LENGTH_MAX);
        }
        if let Some(hello) = bytes.first_chunk() {
            let _ = handshake::decode_hello(hello);
            let _ = handshake::decode_verdict(hello);
        }
    }

    /// Nearly valid bytes reach more of the decoder than random ones do.
    #[test]
    fn damaged_messages_do_not_panic(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        with in any::<u8>(),
    ) {
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for request in all_requests() {
            frames.push(frame::encode(&request, REQUEST_LENGTH_MAX).unwrap());
        }
        for reply in replies() {
            frames.push(frame::encode(&reply, REPLY_LENGTH_MAX).unwrap());
        }
        let mut payload = which.get(&frames)[HEADER_LENGTH..].to_vec();
        let position = at.index(payload.len());
        payload[position] = with;
        let _ = frame::decode::<Request>(&payload);
        let _ = frame::decode::<Reply>(&payload);
    }
}
