//! Reading the log while the store is open takes memory for one record, not for the whole
//! log. The allocator counts it, over a log whose records carry contents.

#[path = "engine/support/mod.rs"]
mod support;

use atomdir_engine::{ChangedBy, CommitError, NewNode, NodeId};
use support::counting::{Counting, highest_while};
use support::model::caller;
use support::{Scratch, begin, create, open};

const COMMITS: u64 = 40;
const RECORD_BYTES: usize = 128 << 10;
/// Room for a record both as read and as decoded, and for the rest that a checkpoint holds.
/// Measured: 273 KiB at most.
const BYTES_MAX: usize = 3 * RECORD_BYTES;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn reading_the_log_takes_memory_for_one_record() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let late = begin(&store);
    for number in 1..=COMMITS {
        let transaction = begin(&store);
        let name = format!("file{number}");
        let (root, kind) = (NodeId::ROOT, NewNode::File);
        let made = transaction.create(root, name.as_bytes(), kind, 0o644, 0, caller());
        let file = made.expect("the name is free").node;
        let contents = vec![number as u8; RECORD_BYTES];
        let written = transaction.write(file, 0, &contents, false);
        written.expect("there is room");
        store.commit(&transaction).expect("nobody is in the way");
    }
    let log_bytes = store.status().log_bytes;
    assert!(log_bytes > COMMITS * RECORD_BYTES as u64);

    let is_little = |what: &str, bytes: usize| {
        println!("{what}: {bytes} bytes, for a log of {log_bytes}");
        assert!(bytes <= BYTES_MAX, "{what} took {bytes} bytes");
    };
    let (checked, bytes) = highest_while(|| store.check());
    is_little("to check", bytes);
    assert_eq!(checked.problems, Vec::<String>::new());
    assert_eq!(checked.report.commits_in_log, COMMITS);
    assert_eq!(checked.report.commits_in_history, COMMITS);

    let (commits, bytes) = highest_while(|| store.commits());
    is_little("to list the commits", bytes);
    assert_eq!(commits.expect("the log is read").len() as u64, COMMITS);

    let made = late.create(NodeId::ROOT, b"file2", NewNode::File, 0o644, 0, caller());
    made.expect("its snapshot has none");
    let (conflict, bytes) = highest_while(|| store.commit(&late));
    is_little("to tell of a conflict", bytes);
    let Err(CommitError::Conflict(conflicts)) = conflict else {
        panic!("{conflict:?}");
    };
    let by = conflicts.into_iter().map(|conflict| conflict.by).next();
    let Some(ChangedBy::Commit {
        sequence,
        author: Some(author),
    }) = by
    else {
        panic!("{by:?}");
    };
    assert_eq!((sequence.0, author.label), (2, b"test".to_vec()));
    store.abort(&late);

    let (done, bytes) = highest_while(|| store.checkpoint());
    is_little("to checkpoint", bytes);
    done.expect("nothing is in the way");
    assert_eq!(store.status().log_bytes, 0);
}
