//! Real logs, headers and messages, to begin from.

use atomdir_protocol::{
    Answer, BeginRequest, Change, ChangeLine, ChangedBy, CommitSummary, Committed, Conflict,
    Failure, FailureKind, LockMode, LockRequest, LockScope, Progress, Reply, Request, Sequence,
    Timestamp, TransactionId, frame,
};
use atomdir_sim::{AtRest, workloads};
use serde::Serialize;

/// What is longer makes for few tries.
const FILE_BYTES_MAX: usize = 16 << 10;

/// Per target what it is fed at first.
pub struct Corpus {
    pub headers: Vec<Vec<u8>>,
    pub logs: Vec<Vec<u8>>,
    pub payloads: Vec<Vec<u8>>,
    pub messages: Vec<Vec<u8>>,
}

impl Corpus {
    pub fn of(&self, target: &str) -> &[Vec<u8>] {
        match target {
            "header" => &self.headers,
            "record" => &self.payloads,
            "message" => &self.messages,
            _ => &self.logs,
        }
    }
}

pub fn corpus() -> Corpus {
    let mut all = workloads::kinds();
    all.extend(workloads::sequences());
    let stores: Vec<AtRest> = all.iter().map(|one| AtRest::after(one, true)).collect();
    let files = |name| -> Vec<Vec<u8>> {
        let files = stores.iter().map(|store| used(store.file(name)));
        let fits = |file: &Vec<u8>| (1..=FILE_BYTES_MAX).contains(&file.len());
        files.filter(fits).collect()
    };
    let mut logs = files("log");
    logs.extend(files("history"));
    let mut headers = files("header");
    headers.extend(files("applied"));
    Corpus {
        headers,
        payloads: logs.iter().flat_map(|log| payloads(log)).collect(),
        logs,
        messages: messages(),
    }
}

/// Without most of the zeros that a log grows ahead by.
fn used(mut file: Vec<u8>) -> Vec<u8> {
    let last = file.iter().rposition(|byte| *byte != 0);
    let length = last.map_or(0, |last| last + 1).next_multiple_of(64);
    file.truncate(length);
    file
}

/// Of a whole log: see docs/format.md.
fn payloads(log: &[u8]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let mut rest = log;
    while let Some((header, body)) = rest.split_at_checked(40) {
        let mut length = [0; 8];
        length.copy_from_slice(&header[8..16]);
        let length = u64::from_le_bytes(length) as usize;
        let Some(payload) = body.get(..length) else {
            break;
        };
        payloads.push(payload.to_vec());
        rest = body.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    payloads
}

fn messages() -> Vec<Vec<u8>> {
    let transaction = TransactionId(5);
    let path = || b"directory/name".to_vec();
    let requests = [
        Request::Begin(BeginRequest {
            label: b"a label".to_vec(),
            outer: Some(transaction),
            ..BeginRequest::default()
        }),
        Request::Attach {
            transaction,
            hold: true,
        },
        Request::Commit {
            transaction,
            force: false,
        },
        Request::SetSavepoint {
            transaction,
            name: b"first".to_vec(),
        },
        Request::SnapshotObject {
            transaction,
            path: path(),
            contents_length_max: 1 << 20,
        },
        Request::Lock(LockRequest {
            transaction,
            mode: LockMode::Exclusive,
            scope: LockScope::Bytes { start: 1, end: 9 },
            paths: vec![path(); 3],
            wait_ms: Some(100),
        }),
        Request::Log {
            before: Some(Sequence(9)),
            limit: 10,
        },
        Request::Status { transaction },
    ];
    let change = ChangeLine {
        change: Change::Renamed,
        path: path(),
        from: Some(path()),
    };
    let conflict = Conflict {
        path: path(),
        what: "its contents were changed".to_owned(),
        by: ChangedBy::Outside,
    };
    let replies = [
        Reply::Progress(Progress { done: 1, total: 2 }),
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
        }]),
        Reply::Done(Answer::Committed(Committed {
            sequence: Some(Sequence(4)),
            changes: 2,
        })),
        Reply::Failed(Failure::new(FailureKind::Conflict, "no").with_hint("again")),
    ];
    let requests = requests.iter().map(payload);
    requests.chain(replies.iter().map(payload)).collect()
}

fn payload(message: &impl Serialize) -> Vec<u8> {
    let encoded = frame::encode(message, frame::REPLY_LENGTH_MAX);
    encoded.map_or_else(
        |_| Vec::new(),
        |bytes| bytes[frame::HEADER_LENGTH..].to_vec(),
    )
}
