//! Other clients end a transaction while its native view is taken over.

use crate::support::{NEVER_IDLE, TestStore, detached};
use atomdir::TransactionId;
use atomdir::client::{
    BeginOptions, Connection, FailureKind, Notice, Others, Portion, ViewChoice, refuse_mount,
};
use atomdir_testing::wait_until;
use std::os::fd::AsFd;
use std::sync::Barrier;

const ROUNDS: usize = 300;

/// Lets `end` end a transaction at about the time that its view is taken over, many
/// times, and returns which transactions still have a view afterwards.
fn race(mut end: impl FnMut(&mut Connection, TransactionId) + Send) -> Vec<String> {
    let store = TestStore::new(NEVER_IDLE);
    let (mut holder, mut other) = (store.connect(), store.connect());
    let native = BeginOptions {
        view: ViewChoice::Native,
        ..BeginOptions::default()
    };
    let shown = holder.begin(&detached()).unwrap();
    let views = shown.view_path.ancestors().nth(2).unwrap().to_owned();
    for round in 0..ROUNDS {
        let id = holder.begin(&native).unwrap().id;
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                for _ in 0..round * 200 {
                    std::hint::spin_loop();
                }
                end(&mut other, id);
            });
            start.wait();
            // The transaction may have ended.
            let _ = holder.take_over(id, true);
        });
        assert!(holder.status(id).is_err(), "transaction {id} is still open");
    }
    let names = std::fs::read_dir(views).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| *name != shown.id.to_string()).collect()
}

#[test]
fn a_transaction_aborted_during_a_take_over_leaves_no_view() {
    let left = race(|other, id| other.abort(id).unwrap());
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_commit_forced_during_a_take_over_succeeds_and_leaves_no_view() {
    let left = race(|other, id| {
        wait_until("the commit", || {
            let committed = other.commit_portion(id, &Portion::All, Others::End, &mut |_| {});
            committed
                .inspect_err(|error| assert!(error.is_in_use(), "{error}"))
                .is_ok()
        });
    });
    assert!(left.is_empty(), "{left:?}");
}

/// Refused to the mounter while another client holds the transaction, and to that client.
#[test]
fn only_the_mounter_takes_over_a_native_view_and_only_when_nobody_else_holds_it() {
    let store = TestStore::new(NEVER_IDLE);
    let (mut mounter, mut other) = (store.connect(), store.connect());
    let native = BeginOptions {
        view: ViewChoice::Native,
        ..BeginOptions::default()
    };
    let id = mounter.begin(&native).unwrap().id;
    std::thread::scope(|scope| {
        let attaching = scope.spawn(|| other.attach(id).map(|_| ()));
        match mounter.receive_notice() {
            Some(Notice::Lend(lent, socket)) if lent == id => refuse_mount(socket.as_fd(), "no"),
            notice => panic!("{notice:?}"),
        }
        let refused = attaching.join().unwrap().unwrap_err();
        assert!(refused.to_string().ends_with("no"), "{refused}");
    });
    // `other` holds the transaction although it did not get the mount.
    let in_use = Some(FailureKind::InUse);
    assert_eq!(mounter.take_over(id, true).unwrap_err().kind(), in_use);
    assert_eq!(other.take_over(id, true).unwrap_err().kind(), in_use);
    assert_eq!(other.close_view(id, true).unwrap_err().kind(), in_use);
    assert_eq!(mounter.close_view(id, true).unwrap_err().kind(), in_use);
    // The mounter is closing the view, so nobody else may enter it.
    let mut third = store.connect();
    assert_eq!(third.attach(id).unwrap_err().kind(), in_use);
    other.detach(id).unwrap();
    assert!(matches!(other.missed_notice(), Some(Notice::Leave(left)) if left == id));
    mounter.take_over(id, true).unwrap();
    assert!(matches!(mounter.missed_notice(), Some(Notice::Left(left)) if left == id));
    third.attach(id).unwrap();
}

/// What its programs have changed is not read from the overlay yet, so a commit of it would be empty.
#[test]
fn no_part_of_a_native_view_lands_before_it_is_taken_over() {
    let store = TestStore::new(NEVER_IDLE);
    let mut mounter = store.connect();
    let native = BeginOptions {
        view: ViewChoice::Native,
        commits_while_held: true,
        ..BeginOptions::default()
    };
    let id = mounter.begin(&native).unwrap().id;
    let all = Portion::Part {
        paths: vec![Vec::new()],
        label: None,
    };
    let refused = mounter.commit_portion(id, &all, Others::Refuse, &mut |_| {});
    let refused = refused.unwrap_err();
    assert!(refused.is_in_use(), "{refused}");
    mounter.take_over(id, true).unwrap();
    let landed = mounter.commit_portion(id, &all, Others::Refuse, &mut |_| {});
    assert!(landed.unwrap().changes.is_empty());
}
