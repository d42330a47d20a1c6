//! Values for messages.

use atomdir_protocol::*;

use crate::{SEQUENCE, TRANSACTION, failure};

pub fn annotations() -> Vec<Request> {
    let terms = Annotate::Terms {
        transaction: TRANSACTION,
        terms: Terms {
            label: Some(b"\xfe".to_vec()),
            confirm_ms: Some(u64::MAX),
            times_at_commit: Some(true),
        },
    };
    let sequence = SEQUENCE;
    let label = Vec::new();
    let said = [
        terms,
        Annotate::Confirm { sequence },
        Annotate::Pin {
            sequence,
            pinned: true,
        },
        Annotate::Relabel { sequence, label },
    ];
    said.map(Request::Annotate).to_vec()
}

pub fn log() -> Request {
    Request::Log(LogRequest {
        before: Some(SEQUENCE),
        limit: 10,
        paths: vec![b"etc/\xff".to_vec(), Vec::new()],
        only: CommitFilter {
            since: Some(Timestamp::default()),
            user: Some(7),
            label: b"\xff".to_vec(),
        },
    })
}

pub fn service_status() -> ServiceStatus {
    ServiceStatus {
        process: 4,
        user: 5,
        version: "0.1.0".to_owned(),
        started: Timestamp {
            seconds: -1,
            nanoseconds: 999_999_999,
        },
        age_seconds: 6,
        store: b"/srv/\xfe".to_vec(),
        views: Err(failure()),
        views_over_io_uring: false,
        view_requests: 300,
        guard: Some(GuardStatus {
            syncs: true,
            flushes: 301,
            waiting: 302,
        }),
        connections: 7,
        open_transactions: 8,
        idle_ms: Some(30_000),
        supervised: true,
        limits: Limits {
            connections_max: 1,
            transactions_max: 2,
            user_connections_max: 3,
            user_transactions_max: 4,
            user_changed_objects_max: u64::MAX,
            connection_idle_seconds: 5,
            descriptors_max: 6,
        },
        sequence: SEQUENCE,
        log_bytes: 9,
        history: Some(HistoryStatus {
            commits: 10,
            bytes: 11,
            oldest: Some((SEQUENCE, Timestamp::default())),
            early: Some(ForgottenEarly {
                time: Timestamp::default(),
                commits: 3,
                newest: SEQUENCE,
                why: EarlyReason::TooMany,
            }),
        }),
        unconfirmed: vec![(
            SEQUENCE,
            Unconfirmed {
                due: Timestamp::default(),
                refused: Some(2),
            },
        )],
        poisoned: Some("a sync failed".to_owned()),
        stalled: None,
        recovery: RecoveryReport::default(),
    }
}

pub fn ended() -> Vec<EndedTransaction> {
    let hows = [
        EndedHow::Aborted { by: 0 },
        EndedHow::Age { age_ms: 7 },
        EndedHow::Stopped { by: Some(1000) },
        EndedHow::Stopped { by: None },
        EndedHow::Died,
    ];
    let one = |how| EndedTransaction {
        transaction: TRANSACTION,
        owner: 1000,
        label: b"make \xff".to_vec(),
        began: Timestamp::default(),
        ended: Timestamp::default(),
        how,
        changes: Some(3),
    };
    hows.map(one).to_vec()
}
