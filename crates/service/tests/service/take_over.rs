//! Other clients end a transaction while its native view is taken over.

use crate::support::{NEVER_IDLE, TestStore, detached};
use atomdir::TransactionId;
use atomdir::client::{BeginOptions, Connection, Others, ViewChoice};
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
fn a_commit_forced_during_a_take_over_finds_the_mount_whole() {
    let left = race(|other, id| {
        while let Err(error) = other.commit_with(id, Others::End, &mut |_| {}) {
            assert!(error.is_in_use(), "{error}");
        }
    });
    assert!(left.is_empty(), "{left:?}");
}
