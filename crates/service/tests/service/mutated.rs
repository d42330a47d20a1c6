//! Requests that are changed at random and sent to a running service.

use crate::support::{NEVER_IDLE, TestStore, greeted, wait_until_alone};
use atomdir::client::{Connection, LockOptions};
use atomdir::{LockMode, LockScope};
use atomdir_fuzzing::{mutate, requests};
use atomdir_protocol::{Answer, BeginRequest, Begun, Reply, Request, Sequence, TransactionId};
use atomdir_protocol::{FailureKind, frame};
use atomdir_testing::{Random, pick};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The path for which the corpus requests locks.
const LOCKED: &str = "directory/name";

/// Every reply is well formed. The connection ends when the client has sent everything, even
/// while a request waits, and its attached transactions end with it. The base has all
/// committed transactions, each complete, and nothing else.
#[test]
fn mutated_requests_are_answered_or_refused() {
    let mut random = Random::for_test("mutated_requests_are_answered_or_refused");
    let store = TestStore::new(NEVER_IDLE);
    let root = &store.location.root;
    std::fs::create_dir(root.join("directory")).unwrap();
    std::fs::write(root.join(LOCKED), "ten bytes.").unwrap();
    let mut watcher = store.connect();
    let process = watcher.service_status().unwrap().process;

    let mut holder = None;
    let mut acknowledged = BTreeSet::new();
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..pick(1_000, 20_000) {
        keep_locked(&mut watcher, &mut holder);
        let mut socket = greeted(&store);
        let begun = (!random.chance(4)).then(|| begin(&mut socket));
        if let Some(begun) = &begun {
            let name = format!("mutant-{}", begun.transaction);
            let view = Path::new(OsStr::from_bytes(&begun.view_path));
            std::fs::write(view.join(name), begun.transaction.to_string()).unwrap();
        }
        let transaction = begun.map_or(TransactionId(5), |begun| begun.transaction);
        let bytes = harmless_requests(&mut random, transaction);
        // The service may have closed the connection half-way.
        let _ = socket.write_all(&bytes);
        if random.chance(4) {
            continue;
        }
        let _ = socket.shutdown(Shutdown::Write);
        for reply in replies(socket, &bytes) {
            match reply {
                Reply::Done(Answer::Committed(committed)) => {
                    acknowledged.extend(committed.sequence)
                }
                Reply::Failed(failure) => {
                    assert_ne!(
                        failure.kind,
                        FailureKind::Internal,
                        "{failure:?} to {bytes:?}"
                    );
                    refused += 1;
                }
                _ => answered += 1,
            }
        }
    }
    println!(
        "{answered} replies, {refused} refusals, {} commits",
        acknowledged.len()
    );

    wait_until_alone(&mut watcher);
    for left in watcher.transactions().unwrap() {
        assert!(left.detached, "it outlived its connection: {left:?}");
    }
    end_all(&mut watcher);
    check_base(&mut watcher, root, &acknowledged);
    let begun = watcher.begin(&Default::default()).unwrap();
    std::fs::write(begun.view_path.join("index.html"), "new").unwrap();
    watcher.commit(begun.id, &mut |_| {}).unwrap();
    assert_eq!(std::fs::read(root.join("index.html")).unwrap(), b"new");
    assert!(watcher.check().unwrap().problems.is_empty());
    let status = watcher.service_status().unwrap();
    assert_eq!((status.process, status.open_transactions), (process, 0));
    assert_eq!(status.poisoned, None);
}

/// Keeps the path locked, so that requests for locks wait. A mutant may have ended the
/// transaction that holds the lock.
fn keep_locked(watcher: &mut Connection, holder: &mut Option<TransactionId>) {
    if holder.is_some_and(|holder| watcher.status(holder).is_ok()) {
        return;
    }
    // A transaction that a mutant has kept open may have got the lock instead.
    end_all(watcher);
    let options = atomdir::client::BeginOptions {
        detached: true,
        ..Default::default()
    };
    let begun = watcher.begin(&options).unwrap().id;
    let exclusive = LockOptions {
        mode: LockMode::Exclusive,
        scope: LockScope::Object,
        wait: None,
        max_age: None,
    };
    let paths = [LOCKED.as_bytes().to_vec()];
    watcher.lock(begun, &paths, &exclusive).unwrap();
    *holder = Some(begun);
}

/// Aborts all transactions. Those for which a mutant has voted are opened again for it, since nobody knows
/// the store that is to decide about them.
fn end_all(watcher: &mut Connection) {
    for one in watcher.transactions().unwrap() {
        if one.in_doubt.is_some() {
            watcher.withdraw_vote(one.transaction).unwrap();
        }
    }
    watcher.abort_all().unwrap();
}

fn begin(socket: &mut UnixStream) -> Begun {
    let request = Request::Begin(BeginRequest::default());
    let request = frame::encode(&request, frame::REQUEST_LENGTH_MAX).unwrap();
    socket.write_all(&request).unwrap();
    let mut header = [0; frame::HEADER_LENGTH];
    socket.read_exact(&mut header).unwrap();
    let length = frame::decode_header(header, frame::REPLY_LENGTH_MAX).unwrap();
    let mut payload = vec![0; length];
    socket.read_exact(&mut payload).unwrap();
    match frame::decode(&payload).unwrap() {
        Reply::Done(Answer::Begun(begun)) => begun,
        reply => panic!("{reply:?}"),
    }
}

/// One to six frames: unchanged, mutated without changing their length, or mutated freely.
/// Without such as stop the service, or mount or unmount a guard: for a moment the socket then has no
/// name, and the test connects by that.
fn harmless_requests(random: &mut Random, transaction: TransactionId) -> Vec<u8> {
    let payloads = requests(transaction);
    let frames: Vec<Vec<u8>> = payloads.iter().map(|payload| framed(payload)).collect();
    loop {
        let mut bytes = Vec::new();
        for _ in 0..1 + random.below(6) {
            bytes.extend(match random.below(3) {
                0 => random.choose(&frames).clone(),
                1 => framed(&mutate(random, &payloads)),
                _ => mutate(random, &frames),
            });
        }
        let hides_socket = |request: &Request| {
            matches!(
                request,
                Request::Stop { .. } | Request::MountGuard { .. } | Request::UnmountGuard
            )
        };
        if !understood(&bytes).iter().any(hides_socket) {
            return bytes;
        }
    }
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    [&length.to_le_bytes(), payload].concat()
}

/// The requests that the service will decode from the bytes.
fn understood(mut bytes: &[u8]) -> Vec<Request> {
    let mut requests = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk() {
        let length = frame::decode_header(*header, frame::REQUEST_LENGTH_MAX);
        let Some((payload, rest)) = length.ok().and_then(|length| rest.split_at_checked(length))
        else {
            break;
        };
        let Ok(request) = frame::decode(payload) else {
            break;
        };
        requests.push(request);
        bytes = rest;
    }
    requests
}

/// All replies up to the end of the stream.
fn replies(mut socket: UnixStream, to: &[u8]) -> Vec<Reply> {
    let mut bytes = Vec::new();
    if let Err(error) = socket.read_to_end(&mut bytes) {
        // If the service did not read everything, the end is a reset.
        let is_end = error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(is_end, "{error}: the connection stays open after {to:?}");
    }
    let mut replies = Vec::new();
    let mut rest = &bytes[..];
    while let Some((header, after)) = rest.split_first_chunk() {
        let length = frame::decode_header(*header, frame::REPLY_LENGTH_MAX).unwrap();
        let (payload, after) = after.split_at(length);
        replies.push(frame::decode(payload).unwrap());
        rest = after;
    }
    assert!(rest.is_empty(), "{rest:?} is no reply to {to:?}");
    replies
}

/// The base must have the file of every commit in the log that changed something, and no
/// other file.
fn check_base(watcher: &mut Connection, root: &Path, acknowledged: &BTreeSet<Sequence>) {
    let commits = watcher.log(None, u64::MAX).unwrap();
    let logged: BTreeSet<Sequence> = commits.iter().map(|commit| commit.sequence).collect();
    assert!(
        acknowledged.is_subset(&logged),
        "{acknowledged:?} of {logged:?}"
    );
    // A mutant may have asked for a commit that takes itself back.
    let taken_back = commits.iter().flat_map(|commit| &commit.takes_back);
    let taken_back: BTreeSet<&Sequence> = taken_back.collect();
    let changing = commits.iter().filter(|commit| {
        let is_undone = taken_back.contains(&commit.sequence);
        commit.changes > 0 && commit.takes_back.is_empty() && !is_undone
    });
    let mut expected: BTreeSet<String> = changing
        .map(|commit| format!("mutant-{}", commit.transaction))
        .collect();
    expected.extend([".atomdir", "directory", "index.html"].map(str::to_owned));
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(transaction) = name.strip_prefix("mutant-") {
            let contents = std::fs::read_to_string(root.join(&name)).unwrap();
            assert_eq!(contents, transaction);
        }
        found.insert(name);
    }
    assert_eq!(found, expected);
    assert_eq!(std::fs::read(root.join(LOCKED)).unwrap(), b"ten bytes.");
    assert_eq!(std::fs::read(root.join("index.html")).unwrap(), b"old");
}
