//! Peers that send anything, or nothing, or do not read. Each gets an error or is dropped,
//! and others do not notice.

use crate::support::{
    NEVER_IDLE, TestStore, detached, greeted, is_root, process_of, wait_until_alone,
};
use atomdir::client::{Connection, FailureKind, LockOptions};
use atomdir::{ConnectError, LockMode, LockScope};
use atomdir_protocol::{LockRequest, Reply, Request, Side, frame, handshake};
use atomdir_testing::{as_user, wait_until};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::DirEntry;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Reads all answers up to the end of the connection.
fn rest(mut socket: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset counts as the end, too.
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
fn malformed_requests_do_not_disturb_other_clients() {
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
    let message = failure(&rest(huge));
    assert!(message.contains("longer than"), "{message}");

    let mut senseless = greeted(&store);
    senseless
        .write_all(&[3, 0, 0, 0, 0xff, 0xff, 0xff])
        .unwrap();
    let message = failure(&rest(senseless));
    assert!(message.contains("cannot be understood"), "{message}");

    let mut cut_off = greeted(&store);
    cut_off.write_all(&[200, 0, 0, 0, 1]).unwrap();
    drop(cut_off);

    // One peer stops in the middle, another never greets. Both stay connected and wait.
    let _half = {
        let mut half = greeted(&store);
        half.write_all(&[200, 0]).unwrap();
        half
    };
    let _silent = store.raw_socket();
    innocent.commit(transaction.id, &mut |_| {}).unwrap();
}

#[test]
fn client_that_never_reads_blocks_only_itself() {
    let store = TestStore::new(NEVER_IDLE);
    let mut innocent = store.connect();
    let (process, _) = process_of(&mut innocent);
    let mut deaf = greeted(&store);
    let request = frame::encode(&Request::ServiceStatus, frame::REQUEST_LENGTH_MAX).unwrap();
    // Write until both directions are full: the service then waits for this peer to read.
    const REQUESTS_MAX: u32 = 1_000_000;
    deaf.set_nonblocking(true).unwrap();
    let mut left = REQUESTS_MAX;
    wait_until("the service's wait for this peer to read", || {
        // Looked at first: a service that waits reads no more, so then the next error is final.
        let waits = waits_to_send(&process);
        loop {
            match deaf.write(&request) {
                Ok(count) => {
                    assert_eq!(count, request.len(), "the kernel takes all or nothing");
                    left = left.checked_sub(1).expect("the service keeps all answers");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                    return waits;
                }
            }
        }
    });
    let transaction = innocent.begin(&Default::default()).unwrap();
    innocent.commit(transaction.id, &mut |_| {}).unwrap();
    // The service ends without waiting for the deaf peer to read.
    innocent.stop_and_abort().unwrap();
}

/// Whether a thread of the process waits in the kernel until a socket's peer reads.
fn waits_to_send(process: &Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let place = |thread: DirEntry| std::fs::read_to_string(thread.path().join("wchan"));
    let mut places = threads.flatten().filter_map(|thread| place(thread).ok());
    places.any(|place| place == "sock_alloc_send_pskb")
}

/// A connection whose close waits until the other end has read what was sent, which it
/// never does. The other end is returned as well.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (deaf, _) = listener.accept().unwrap();
    set_socket_linger(&socket, Some(Duration::from_secs(1_000_000))).unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 1 << 16]).is_ok() {}
    (socket, deaf)
}

/// A descriptor that came with a message is closed with its connection. Its owner decides
/// how long closing takes.
#[test]
fn descriptors_sent_by_a_stranger_do_not_block_the_service() {
    if !is_root() {
        return;
    }
    let store = TestStore::new(NEVER_IDLE);
    let (process, _) = process_of(&mut store.connect());
    // Stop the service, so that everything has been sent before it reads.
    kill_process(process, Signal::STOP).unwrap();
    let state = format!("/proc/{process}/stat");
    wait_until("the stop of the service", || {
        std::fs::read_to_string(&state).unwrap().contains(") T ")
    });
    let stranger = as_user(64_002, || store.raw_socket());
    let (socket, _deaf) = lingering();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&sockets)));
    let message = [IoSlice::new(b"atomdir?")];
    let sent = sendmsg(&stranger, &message, &mut control, SendFlags::empty());
    if sent.is_err() {
        // Linux refuses this from 6.16 on. We then have to close the socket.
        set_socket_linger(&socket, None).unwrap();
    }
    drop(socket);
    kill_process(process, Signal::CONT).unwrap();
    // The stranger is turned away, and the service answers everybody who connects later.
    let mut verdict = [0; handshake::LENGTH];
    (&stranger).read_exact(&mut verdict).unwrap();
    store
        .connect_if_running()
        .unwrap()
        .service_status()
        .unwrap();
}

/// Opens connections until one is refused.
fn fill(held: &mut Vec<Connection>, connect: impl Fn() -> Result<Connection, ConnectError>) {
    let refused = loop {
        match connect() {
            Ok(connection) => held.push(connection),
            Err(error) => break error,
        }
        assert!(held.len() < 1000);
    };
    assert!(
        matches!(refused, ConnectError::TooManyConnections { .. }),
        "{refused}"
    );
}

#[test]
fn connections_beyond_the_limit_are_refused_until_others_close() {
    let store = TestStore::new(NEVER_IDLE);
    let mut held = vec![store.connect()];
    fill(&mut held, || store.connect_if_running());
    held.truncate(1);
    wait_until("room for a connection", || {
        match store.connect_if_running() {
            Ok(_) => true,
            Err(ConnectError::TooManyConnections { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    });
}

#[test]
fn connections_and_transactions_of_one_user_are_limited() {
    if !is_root() {
        return;
    }
    let (user, other) = (64_002, 64_003);
    let store = TestStore::shared_with(&[user, other], NEVER_IDLE);
    let mut root = store.connect();
    let limits = root.service_status().unwrap().limits;
    let connect = |user| as_user(user, || store.connect_if_running());
    let mut held = Vec::new();
    fill(&mut held, || connect(user));
    assert_eq!(held.len() as u64, limits.user_connections_max);
    for _ in 0..limits.user_transactions_max {
        held[0].begin(&detached()).unwrap();
    }
    let refused = held[0].begin(&detached()).unwrap_err();
    assert_eq!(refused.kind(), Some(FailureKind::TooMany), "{refused}");
    let mut other = connect(other).unwrap();
    other.begin(&detached()).unwrap();
    root.begin(&detached()).unwrap();
    assert_eq!(held[0].abort_all().unwrap(), limits.user_transactions_max);
    held[0].begin(&detached()).unwrap();
}

/// A client sends further requests while one waits for a lock. The service must still
/// notice that the client has gone, and must still be able to end.
#[test]
fn pipelined_requests_do_not_hide_disconnect() {
    let store = TestStore::new(NEVER_IDLE);
    let mut innocent = store.connect();
    let exclusive = LockOptions {
        mode: LockMode::Exclusive,
        scope: LockScope::Object,
        wait: None,
        max_age: None,
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
        max_age_ms: None,
    });
    let requests = [lock, Request::ServiceStatus].map(|request| {
        let encoded = frame::encode(&request, frame::REQUEST_LENGTH_MAX);
        encoded.unwrap()
    });
    let hasty = |innocent: &mut Connection| {
        let mut hasty = greeted(&store);
        hasty.write_all(&requests.concat()).unwrap();
        wait_until("the request for the lock", || {
            !innocent.status(waiting).unwrap().locks.is_empty()
        });
        hasty
    };
    drop(hasty(&mut innocent));
    wait_until_alone(&mut innocent);

    let hasty = hasty(&mut innocent);
    innocent.stop_and_abort().unwrap();
    drop(hasty);
}

/// The peak of the service's memory so far.
fn memory_peak_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = peak.unwrap().trim().trim_end_matches(" kB");
    number.parse::<u64>().unwrap() << 10
}

/// Each client requests a long file and reads nothing of the answer.
#[test]
fn unread_long_answers_take_no_memory() {
    const LENGTH: u64 = 64 << 20;
    let store = TestStore::new(NEVER_IDLE);
    let sparse = std::fs::File::create(store.location.root.join("sparse")).unwrap();
    sparse.set_len(LENGTH).unwrap();
    let parts: Vec<u8> = (0..1_000_003_u32).map(|number| number as u8).collect();
    std::fs::write(store.location.root.join("parts"), &parts).unwrap();
    let mut innocent = store.connect();
    let transaction = innocent.begin(&detached()).unwrap().id;
    let process = innocent.service_status().unwrap().process;
    let before = memory_peak_bytes(process);
    let request = Request::SnapshotObject {
        transaction,
        side: Side::Snapshot,
        path: b"sparse".to_vec(),
        contents_length_max: LENGTH,
    };
    let request = frame::encode(&request, frame::REQUEST_LENGTH_MAX).unwrap();
    let deaf = [(); 6].map(|()| {
        let mut deaf = greeted(&store);
        deaf.write_all(&request).unwrap();
        deaf
    });
    for mut deaf in &deaf {
        // A byte has come, so the service holds whatever it will hold of the answer.
        deaf.read_exact(&mut [0]).unwrap();
    }
    let grown = memory_peak_bytes(process) - before;
    assert!(grown < LENGTH / 4, "{grown} bytes more than before");
    let read = innocent.snapshot_object(transaction, b"parts", LENGTH);
    assert!(read.unwrap().unwrap().contents == parts);
}
