//! Peers that send anything, or nothing, or do not read: each is told or
//! dropped, and others do not notice.

use crate::support::{NEVER_IDLE, TestStore, detached, greeted, settled};
use atomdir::{ConnectError, Connection, LockMode, LockOptions, LockScope};
use atomdir_protocol::{LockRequest, Reply, Request, frame, handshake};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// What is left to read: whatever was answered, then the end.
fn rest(mut socket: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is as good an end as any.
    let _ = socket.read_to_end(&mut bytes);
    bytes
}

fn failure(bytes: &[u8]) -> String {
    let reply = frame::decode::<Reply>(&bytes[frame::HEADER_LENGTH..]).unwrap();
    let Reply::Failed(failure) = reply else {
        panic!("{reply:?}")
    };
    failure.message
}

#[test]
fn garbage_is_answered_or_dropped_and_harms_nobody() {
    let store = TestStore::new(NEVER_IDLE);
    let mut innocent = store.connect();
    let transaction = innocent.begin(&Default::default()).unwrap();

    let mut other_protocol = store.raw_socket();
    other_protocol.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(rest(other_protocol).is_empty());

    let mut other_version = store.raw_socket();
    let mut hello = handshake::encode_hello();
    hello[8] ^= 1;
    other_version.write_all(&hello).unwrap();
    let verdict: [u8; handshake::LENGTH] = rest(other_version).try_into().unwrap();
    assert_eq!(
        handshake::decode_verdict(&verdict),
        Ok(handshake::Verdict::OtherVersion)
    );

    let mut huge = greeted(&store);
    huge.write_all(&u32::MAX.to_le_bytes()).unwrap();
    let told = failure(&rest(huge));
    assert!(told.contains("longer than"), "{told}");

    let mut senseless = greeted(&store);
    senseless
        .write_all(&[3, 0, 0, 0, 0xff, 0xff, 0xff])
        .unwrap();
    let told = failure(&rest(senseless));
    assert!(told.contains("cannot be understood"), "{told}");

    let mut cut_off = greeted(&store);
    cut_off.write_all(&[200, 0, 0, 0, 1]).unwrap();
    drop(cut_off);

    // One that stops in the middle, one that never greets: they stay, waiting.
    let _half = {
        let mut half = greeted(&store);
        half.write_all(&[200, 0]).unwrap();
        half
    };
    let _silent = store.raw_socket();
    innocent.commit(transaction.id, &mut |_| {}).unwrap();
}

#[test]
fn one_that_never_reads_stalls_only_itself() {
    let store = TestStore::new(NEVER_IDLE);
    let mut innocent = store.connect();
    let mut deaf = greeted(&store);
    let request = frame::encode(&Request::ServiceStatus, frame::REQUEST_LENGTH_MAX).unwrap();
    // Until both directions are full: the service waits for this peer to read.
    deaf.set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    while deaf.write(&request).is_ok() {}
    let transaction = innocent.begin(&Default::default()).unwrap();
    innocent.commit(transaction.id, &mut |_| {}).unwrap();
    // It ends without waiting for the deaf one to hear.
    innocent.stop().unwrap();
}

#[test]
fn too_many_connections_are_told_so_and_room_comes_back() {
    let store = TestStore::new(NEVER_IDLE);
    let mut held = vec![store.connect()];
    let refused = loop {
        match store.connect_if_running() {
            Ok(connection) => held.push(connection),
            Err(error) => break error,
        }
        assert!(held.len() < 1000);
    };
    assert!(
        matches!(refused, ConnectError::TooManyConnections { .. }),
        "{refused}"
    );
    held.truncate(1);
    while let Err(error) = store.connect_if_running() {
        let is_full = matches!(error, ConnectError::TooManyConnections { .. });
        assert!(is_full, "{error}");
        std::thread::yield_now();
    }
}

/// One that has sent more requests than it waited for: that it has gone, and that
/// the service ends, is noticed all the same.
#[test]
fn what_was_sent_while_a_lock_is_waited_for_does_not_hide_the_end() {
    let store = TestStore::new(NEVER_IDLE);
    let mut innocent = store.connect();
    let exclusive = LockOptions {
        mode: LockMode::Exclusive,
        scope: LockScope::Object,
        wait: None,
    };
    let holder = innocent.begin(&detached()).unwrap().id;
    let waiting = innocent.begin(&detached()).unwrap().id;
    let paths = vec![b"index.html".to_vec()];
    innocent.lock(holder, &paths, &exclusive).unwrap();
    let lock = Request::Lock(LockRequest {
        transaction: waiting,
        mode: exclusive.mode,
        scope: exclusive.scope,
        paths,
        wait_ms: None,
    });
    let requests = [lock, Request::ServiceStatus].map(|request| {
        let encoded = frame::encode(&request, frame::REQUEST_LENGTH_MAX);
        encoded.unwrap()
    });
    let hasty = |innocent: &mut Connection| {
        let mut hasty = greeted(&store);
        hasty.write_all(&requests.concat()).unwrap();
        while innocent.status(waiting).unwrap().locks.is_empty() {
            std::thread::yield_now();
        }
        hasty
    };
    drop(hasty(&mut innocent));
    settled(&mut innocent);

    let hasty = hasty(&mut innocent);
    innocent.stop().unwrap();
    drop(hasty);
}
