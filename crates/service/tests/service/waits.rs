//! Requests that wait for others. Each event here comes after the service has reported that
//! the request waits, so a missed event would leave the request waiting for ever.

use crate::support::{NEVER_IDLE, TestStore, detached, greeted, wait_until_alone};
use atomdir::client::{
    BeginOptions, CommitError, Connection, FailureKind, Others, Portion, Progress, RequestError,
    ViewChoice,
};
use atomdir::{Isolation, TransactionId};
use atomdir_protocol::{CommitRequest, Reply, Request, frame};
use std::io::{Read, Write};
use std::sync::mpsc::{Sender, channel};

type Report<'a> = &'a mut dyn FnMut(Progress);

/// Runs `request` on a connection of its own, and `event` when the request waits.
fn when_waiting<T: Send>(
    store: &TestStore,
    request: impl FnOnce(&mut Connection, Report) -> T + Send,
    event: impl FnOnce(),
) -> T {
    let (waits, has_waited) = channel();
    std::thread::scope(|scope| {
        let asking = scope.spawn(move || {
            let mut asking = store.connect();
            let result = request(&mut asking, &mut |progress| report_wait(&waits, progress));
            drop(asking);
            result
        });
        has_waited.recv().expect("the request waits");
        event();
        asking.join().unwrap()
    })
}

fn report_wait(waits: &Sender<()>, progress: Progress) {
    if let Progress::Waiting(reason) = progress {
        assert!(!reason.is_empty());
        waits.send(()).unwrap();
    }
}

fn commit_when_free(
    id: TransactionId,
) -> impl FnOnce(&mut Connection, Report) -> Result<(), CommitError> + Send {
    move |connection, report| {
        connection
            .commit_portion(id, &Portion::All, Others::Wait, report)
            .map(drop)
    }
}

fn nested_in(outer: TransactionId) -> BeginOptions {
    BeginOptions {
        outer: Some(outer),
        wait: true,
        ..BeginOptions::default()
    }
}

fn begin_when_free(
    outer: TransactionId,
) -> impl FnOnce(&mut Connection, Report) -> Result<TransactionId, RequestError> + Send {
    move |connection, report| {
        let begun = connection.begin_reporting(&nested_in(outer), report);
        begun.map(|begun| begun.id)
    }
}

/// In a serializable transaction only one other can be nested at a time.
fn serializable() -> BeginOptions {
    BeginOptions {
        isolation: Isolation::Serializable,
        ..detached()
    }
}

fn begin(connection: &mut Connection) -> TransactionId {
    connection.begin(&BeginOptions::default()).unwrap().id
}

#[test]
fn a_commit_waits_until_others_have_left_the_transaction() {
    let store = TestStore::new(NEVER_IDLE);
    let mut owner = store.connect();
    let leave: [fn(Connection, TransactionId); 3] = [
        |mut holder, id| assert!(!holder.detach(id).unwrap()),
        |mut holder, id| holder.keep(id).unwrap(),
        |holder, _| drop(holder),
    ];
    for leave in leave {
        let id = owner.begin(&detached()).unwrap().id;
        let mut holder = store.connect();
        holder.attach(id).unwrap();
        when_waiting(&store, commit_when_free(id), || leave(holder, id)).unwrap();
        assert!(owner.status(id).is_err());
    }

    let mut holder = store.connect();
    let id = begin(&mut holder);
    let aborted = when_waiting(&store, commit_when_free(id), || owner.abort(id).unwrap());
    let aborted = aborted.unwrap_err();
    assert!(
        aborted.to_string().contains("no open transaction"),
        "{aborted}"
    );

    let native = BeginOptions {
        view: ViewChoice::Native,
        ..BeginOptions::default()
    };
    let id = holder.begin(&native).unwrap().id;
    when_waiting(&store, commit_when_free(id), || {
        holder.take_over(id, true).unwrap();
        holder.keep(id).unwrap();
    })
    .unwrap();
}

#[test]
fn a_commit_and_a_freeze_wait_for_the_end_of_the_nested_transaction() {
    let store = TestStore::new(NEVER_IDLE);
    let mut owner = store.connect();
    let end: [fn(&mut Connection, TransactionId); 2] = [
        |connection, nested| connection.abort(nested).unwrap(),
        |connection, nested| drop(connection.commit(nested, &mut |_| {}).unwrap()),
    ];
    for end in end {
        let id = owner.begin(&detached()).unwrap().id;
        let nested = owner.begin(&nested_in(id)).unwrap().id;
        let freeze = |connection: &mut Connection, report: Report| {
            connection.freeze(id, Others::Wait, report)
        };
        when_waiting(&store, freeze, || end(&mut owner, nested)).unwrap();
        owner.keep(id).unwrap();
        let nested = owner.begin(&nested_in(id)).unwrap().id;
        when_waiting(&store, commit_when_free(id), || end(&mut owner, nested)).unwrap();
    }
}

#[test]
fn commit_waits_for_all_transactions_nested_at_the_same_time() {
    let store = TestStore::new(NEVER_IDLE);
    let (mut owner, mut other) = (store.connect(), store.connect());
    let outer = owner.begin(&detached()).unwrap().id;
    let first = owner.begin(&nested_in(outer)).unwrap().id;
    let second = other.begin(&nested_in(outer)).unwrap().id;
    let below = other.begin(&nested_in(second)).unwrap().id;
    assert_eq!(owner.status(outer).unwrap().nested, [first, second]);
    when_waiting(&store, commit_when_free(outer), || {
        owner.commit(first, &mut |_| {}).unwrap();
        assert_eq!(owner.status(outer).unwrap().nested, [second]);
        other.commit(below, &mut |_| {}).unwrap();
        other.commit(second, &mut |_| {}).unwrap();
    })
    .unwrap();

    let outer = owner.begin(&detached()).unwrap().id;
    let nested = [(); 2].map(|()| other.begin(&nested_in(outer)).unwrap().id);
    let below = other.begin(&nested_in(nested[0])).unwrap().id;
    owner.abort(outer).unwrap();
    for ended in [nested[0], nested[1], below] {
        assert!(owner.status(ended).is_err());
    }
}

#[test]
fn a_nested_begin_waits_while_others_work_in_a_nested_transaction() {
    let store = TestStore::new(NEVER_IDLE);
    let mut owner = store.connect();
    type Event = fn(&mut Connection, TransactionId, TransactionId);
    let events: [(Event, Option<FailureKind>); 4] = [
        (|one, _, nested| one.abort(nested).unwrap(), None),
        (
            |one, _, nested| drop(one.commit(nested, &mut |_| {}).unwrap()),
            None,
        ),
        (
            |one, _, nested| one.keep(nested).unwrap(),
            Some(FailureKind::Nested),
        ),
        (
            |one, outer, _| one.abort(outer).unwrap(),
            Some(FailureKind::NoSuchTransaction),
        ),
    ];
    for (event, refused) in events {
        let outer = owner.begin(&serializable()).unwrap().id;
        let nested = owner.begin(&nested_in(outer)).unwrap().id;
        let begun = when_waiting(&store, begin_when_free(outer), || {
            event(&mut owner, outer, nested);
        });
        assert_eq!(begun.err().and_then(|error| error.kind()), refused);
    }
}

#[test]
fn a_nested_begin_is_refused_if_its_wait_might_never_end() {
    let store = TestStore::new(NEVER_IDLE);
    let mut owner = store.connect();
    let refused = |connection: &mut Connection, options: &BeginOptions| {
        connection.begin(options).unwrap_err().kind().unwrap()
    };
    let outer = owner.begin(&serializable()).unwrap().id;
    let nested = owner.begin(&nested_in(outer)).unwrap().id;
    let without_wait = BeginOptions {
        wait: false,
        ..nested_in(outer)
    };
    assert_eq!(
        refused(&mut store.connect(), &without_wait),
        FailureKind::InUse
    );
    // The connection would wait for itself.
    assert_eq!(refused(&mut owner, &nested_in(outer)), FailureKind::Nested);
    owner.keep(nested).unwrap();
    assert_eq!(
        refused(&mut store.connect(), &nested_in(outer)),
        FailureKind::Nested
    );
    owner.abort(nested).unwrap();
    owner.freeze(outer, Others::Refuse, &mut |_| {}).unwrap();
    assert_eq!(refused(&mut owner, &nested_in(outer)), FailureKind::Frozen);
}

/// A client that goes while its request waits leaves nothing behind.
#[test]
fn a_wait_ends_with_its_client() {
    let store = TestStore::new(NEVER_IDLE);
    let mut owner = store.connect();
    let id = begin(&mut owner);
    let mut socket = greeted(&store);
    let request = Request::Commit(CommitRequest {
        transaction: id,
        others: Others::Wait,
        portion: Portion::All,
    });
    let request = frame::encode(&request, frame::REQUEST_LENGTH_MAX).unwrap();
    socket.write_all(&request).unwrap();
    let mut header = [0; frame::HEADER_LENGTH];
    socket.read_exact(&mut header).unwrap();
    let length = frame::decode_header(header, frame::REPLY_LENGTH_MAX).unwrap();
    let mut payload = vec![0; length];
    socket.read_exact(&mut payload).unwrap();
    let reply = frame::decode(&payload).unwrap();
    assert!(
        matches!(reply, Reply::Progress(Progress::Waiting(_))),
        "{reply:?}"
    );
    drop(socket);
    wait_until_alone(&mut owner);
    owner.status(id).unwrap();
}
