//! The first inputs for messages: requests and replies.

use atomdir_protocol::{
    Annotate, Answer, BeginOptions, BeginRequest, Change, ChangeLine, ChangedBy, CommitFilter,
    CommitMarks, CommitRequest, CommitSummary, Committed, Conflict, ConflictKind, EndedHow,
    EndedTransaction, Failure, FailureKind, FileRead, JointRequest, LockMode, LockRequest,
    LockScope, LogRequest, MergeStep, Numbers, Others, Partner, Past, Portion, Progress,
    RefreshRequest, Reply, Request, Sequence, Side, Sides, Terms, Timestamp, TransactionId, Undo,
    WhileOpen, frame,
};
use serde::Serialize;

fn begin(outer: TransactionId) -> BeginRequest {
    BeginRequest {
        options: BeginOptions {
            label: b"a label".to_vec(),
            outer: Some(outer),
            fork_of: None,
            wait: true,
            ..BeginOptions::default()
        },
        past: Some(Past::Undo(Undo {
            commits: vec![Sequence(1)],
            paths: vec![b"directory/name".to_vec()],
            ..Undo::default()
        })),
    }
}

/// One encoded request of each kind about this transaction, without the length before it.
pub fn requests(transaction: TransactionId) -> Vec<Vec<u8>> {
    let path = || b"directory/name".to_vec();
    let savepoint = || b"first".to_vec();
    let requests = [
        Request::Begin(begin(transaction)),
        Request::Attach {
            transaction,
            hold: true,
        },
        Request::Detach { transaction },
        Request::CloseView {
            transaction,
            force: true,
        },
        Request::TakeOver {
            transaction,
            opened: true,
        },
        Request::Keep { transaction },
        Request::Commit(CommitRequest {
            transaction,
            others: Others::Wait,
            portion: Portion::All,
        }),
        Request::DeclareReads {
            transaction,
            files: vec![FileRead {
                inode: 1 << 53,
                bytes: vec![(0, 4096), (1 << 40, u64::MAX)],
                length: true,
                attributes: true,
            }],
        },
        Request::SetSavepoint {
            transaction,
            name: savepoint(),
        },
        Request::RollBack {
            transaction,
            savepoint: savepoint(),
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
            side: Side::Newest,
            path: path(),
            contents_length_max: 1 << 20,
        },
        Request::Lock(LockRequest {
            transaction,
            mode: LockMode::Exclusive,
            scope: LockScope::Bytes { start: 1, end: 9 },
            paths: vec![path(); 3],
            wait_ms: None,
            max_age_ms: Some(u64::MAX),
        }),
        Request::Unlock {
            transaction,
            paths: Some(vec![path()]),
        },
        Request::AbortAfter {
            transaction,
            age_ms: u64::MAX,
        },
        Request::List,
        Request::ListEnded { news: true },
        Request::Flush { transaction },
        Request::Enter {
            transaction,
            secret: vec![7; 16],
        },
        Request::Freeze {
            transaction,
            others: Others::End,
        },
        Request::KeepOnClose { transaction },
    ];
    let parts = parts_and_conflicts(transaction);
    let said = about_commits(transaction);
    requests
        .iter()
        .chain(&parts)
        .chain(&said)
        .chain(&about_the_service(transaction))
        .map(payload)
        .collect()
}

fn about_the_service(transaction: TransactionId) -> Vec<Request> {
    let open = WhileOpen::Keep;
    vec![
        Request::Sync,
        Request::MountGuard { syncs: true },
        Request::UnmountGuard,
        Request::Checkpoint,
        Request::Check,
        Request::Prune {
            older_than_ms: Some(86_400_000),
        },
        Request::ServiceStatus,
        Request::Surroundings,
        Request::LendMount { transaction },
        Request::SetIdleTime { idle_ms: Some(9) },
        Request::Stop { open },
    ]
}

fn about_commits(transaction: TransactionId) -> Vec<Request> {
    let sequence = Sequence(1);
    let terms = Terms {
        label: Some(b"a label".to_vec()),
        confirm_ms: Some(9),
        times_at_commit: Some(true),
    };
    let said = [
        Annotate::Terms { transaction, terms },
        Annotate::Confirm { sequence },
        Annotate::Pin {
            sequence,
            pinned: true,
        },
        Annotate::Relabel {
            sequence,
            label: b"another label".to_vec(),
        },
    ];
    let log = Request::Log(LogRequest {
        before: Some(Sequence(9)),
        limit: 10,
        paths: vec![b"a/path".to_vec(); 2],
        only: CommitFilter::default(),
    });
    let said = said.map(Request::Annotate).into_iter();
    said.chain([log, Request::Show { sequence }]).collect()
}

fn parts_and_conflicts(transaction: TransactionId) -> Vec<Request> {
    let path = || b"directory/name".to_vec();
    vec![
        Request::Commit(CommitRequest {
            transaction,
            others: Others::Wait,
            portion: Portion::Part {
                paths: vec![path()],
                label: Some(path()),
            },
        }),
        Request::AbortPart {
            transaction,
            paths: vec![path(); 2],
        },
        Request::ListConflicts {
            transaction,
            again: true,
        },
        Request::Commit(CommitRequest {
            transaction,
            others: Others::Refuse,
            portion: Portion::Sides(Sides {
                mine: Numbers::These(vec![1, 2]),
                theirs: Numbers::Others,
            }),
        }),
        Request::Refresh(RefreshRequest {
            transaction,
            wait: true,
            only_to_survive: false,
        }),
        Request::MergeSteps { transaction },
        Request::Merged {
            transaction,
            refused: Some("EXDEV".to_owned()),
        },
        Request::Joint(JointRequest::Link {
            transaction,
            all: vec![Partner {
                store: [8; 16],
                root: b"/srv/one".to_vec(),
                transaction,
            }],
        }),
        Request::Joint(JointRequest::GiveUp { transaction }),
        Request::Joint(JointRequest::Coordinate {
            transaction,
            others: Others::Refuse,
        }),
        Request::Joint(JointRequest::Vote {
            transaction,
            coordinator: Partner {
                store: [7; 16],
                root: b"/srv/other".to_vec(),
                transaction,
            },
            others: Others::Wait,
        }),
        Request::Joint(JointRequest::Outcome {
            store: [7; 16],
            transaction,
        }),
    ]
}

pub(crate) fn replies() -> Vec<Vec<u8>> {
    let transaction = TransactionId(5);
    let path = || b"directory/name".to_vec();
    let change = ChangeLine {
        change: Change::Renamed,
        path: path(),
        from: Some(path()),
    };
    let conflict = Conflict {
        path: path(),
        what: ConflictKind::Contents,
        by: ChangedBy::Outside,
    };
    let replies = [
        Reply::Progress(Progress::Steps { done: 1, total: 2 }),
        Reply::Progress(Progress::Waiting("for 3".to_owned())),
        Reply::Changes(vec![change; 4]),
        Reply::Conflicts(vec![conflict; 2]),
        Reply::Contents(vec![0x55; 100]),
        Reply::Commits(vec![CommitSummary {
            sequence: Sequence(3),
            transaction,
            time: Timestamp {
                seconds: -1,
                nanoseconds: 999_999_999,
            },
            user: 1000,
            label: path(),
            changes: 4,
            takes_back: vec![Sequence(1)],
            marks: CommitMarks::default(),
        }]),
        Reply::Ended(vec![EndedTransaction {
            transaction,
            owner: 1000,
            label: path(),
            began: Timestamp::default(),
            ended: Timestamp::default(),
            how: EndedHow::Stopped { by: Some(0) },
            changes: Some(4),
        }]),
        Reply::Merge(transaction),
        Reply::Lend(transaction),
        Reply::MergeSteps(vec![MergeStep::Link {
            path: path(),
            to: path(),
        }]),
        Reply::Done(Answer::Committed(Committed {
            sequence: Some(Sequence(4)),
            changes: 2,
            stalled: Some("a mount".to_owned()),
            confirm_ms: Some(1),
            forgets_early: None,
        })),
        Reply::Failed(Failure::new(FailureKind::Conflict, "no").with_hint("again")),
    ];
    replies.iter().map(payload).collect()
}

fn payload(message: &impl Serialize) -> Vec<u8> {
    let encoded = frame::encode(message, frame::REPLY_LENGTH_MAX);
    encoded.map_or_else(
        |_| Vec::new(),
        |bytes| bytes[frame::HEADER_LENGTH..].to_vec(),
    )
}
