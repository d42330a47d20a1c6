//! Several users' commits share the space of the history, and none pushes out what others have.

use crate::support::model::caller;
use crate::support::{Scratch, begin, create, open_keeping, options};
use atomdir_disk::LinuxDisk;
use atomdir_engine::{
    BeginOptions, ChangedBy, HistoryLimits, NewNode, NodeId, Sequence, Store, Transaction,
    UndoError,
};
use std::sync::Arc;

const ALICE: u32 = 12_001;
const BOB: u32 = 12_002;

const LIMITS: HistoryLimits = HistoryLimits {
    age_seconds_max: 1 << 30,
    bytes_max: 1 << 20,
    free_bytes_min: 0,
};

type View = Arc<Transaction<LinuxDisk>>;

fn commit(store: &Store<LinuxDisk>, owner: u32, change: impl FnOnce(&View)) -> Sequence {
    let options = BeginOptions { owner, ..options() };
    let view = store.begin(options).expect("it begins");
    change(&view);
    let committed = store.commit(&view).expect("nobody is in the way");
    committed.sequence.expect("something has changed")
}

fn write(view: &View, name: &str, contents: &[u8]) {
    let file = match view.lookup(NodeId::ROOT, name.as_bytes()) {
        Ok(found) => found.node,
        Err(_) => make(view, name, NewNode::File),
    };
    view.write(file, 0, contents, false).expect("it is written");
}

fn make(view: &View, name: &str, what: NewNode) -> NodeId {
    let made = view.create(NodeId::ROOT, name.as_bytes(), what, 0o755, 0, caller());
    made.expect("the name is free").node
}

fn remove(view: &View, name: &str) {
    let removed = view.unlink(NodeId::ROOT, name.as_bytes());
    removed.expect("it is there");
}

fn large() -> Vec<u8> {
    vec![b'x'; 2 << 20]
}

/// The others are the store's owner, or users like the one whose commits take much.
#[test]
fn what_one_user_replaces_pushes_out_nothing_of_others() {
    let own = rustix::process::geteuid().as_raw();
    for other in [own, BOB] {
        let scratch = Scratch::new();
        create(&scratch.0);
        let open = || {
            let opened = open_keeping(LinuxDisk::new(), &scratch.0, Some(LIMITS));
            opened.expect("it opens")
        };
        let store = open();
        commit(&store, other, |view| write(view, "file", b"precious"));
        let old = commit(&store, other, |view| write(view, "file", b"overwritten"));
        let made = commit(&store, ALICE, |view| write(view, "large", &large()));
        let first = commit(&store, ALICE, |view| remove(view, "large"));
        store.checkpoint().expect("nothing is in the way");
        let again = commit(&store, ALICE, |view| write(view, "large", &large()));
        let second = commit(&store, ALICE, |view| remove(view, "large"));
        store.checkpoint().expect("nothing is in the way");
        assert!(store.status().history.expect("it is kept").bytes <= LIMITS.bytes_max);
        store.close().expect("it closes");
        drop(store);

        let store = open();
        assert_eq!(store.check().problems, Vec::<String>::new());
        for gone in [first, second] {
            let undone = store.undo(&[gone], &[], options());
            let refused = undone.map(drop).expect_err("its old state is gone");
            assert!(matches!(refused, UndoError::NotKept(commit) if commit == gone));
        }
        // The past says which commits it does not know.
        let past = store.past(Sequence(1), options()).expect("it begins");
        let unknown = past.not_as_then.iter().map(|one| match one.by {
            ChangedBy::Commit { sequence, .. } => sequence,
            _ => panic!("{one:?}"),
        });
        let unknown: Vec<Sequence> = unknown.collect();
        for lost in [made, first, again, second] {
            assert!(unknown.contains(&lost), "{unknown:?}");
        }
        let file = past.transaction.lookup(NodeId::ROOT, b"file");
        let file = file.expect("it was there").node;
        let mut contents = [0; 8];
        let read = past.transaction.read(file, 0, &mut contents, caller());
        assert_eq!((read, &contents), (Ok(8), b"precious"));
        store.abort(&past.transaction);

        let undo = store.undo(&[old], &[], options()).expect("it is kept");
        store.commit(&undo).expect("nobody is in the way");
        let contents = std::fs::read(scratch.0.join("file")).expect("it is there");
        assert_eq!(contents, b"precious");
    }
}

#[test]
fn long_lists_of_one_user_push_out_no_commits_of_others() {
    let own = rustix::process::geteuid().as_raw();
    for other in [own, BOB] {
        let scratch = Scratch::new();
        create(&scratch.0);
        let store = open_keeping(LinuxDisk::new(), &scratch.0, None).expect("it opens");
        let mut others = Vec::new();
        for number in 0..5 {
            others.push(commit(&store, other, |view| {
                write(view, &format!("file{number}"), b"contents");
            }));
        }
        for round in 0..2 {
            commit(&store, ALICE, |view| {
                for number in 0..200 {
                    let name = format!("{}-{round}-{number}", "n".repeat(100));
                    make(view, &name, NewNode::Directory);
                }
            });
        }
        store.checkpoint().expect("nothing is in the way");
        store.shorten_history(8 << 10).expect("it is shortened");
        assert_eq!(store.check().problems, Vec::<String>::new());
        let listed = store.commits().expect("the history is read");
        for commit in &others {
            let kept = listed.iter().find(|one| one.summary.sequence == *commit);
            assert_eq!(kept.expect("it is listed").changes.len(), 1);
        }
        // Of the others' commits there is the number of changes.
        let long = listed.iter().filter(|one| one.summary.user == ALICE);
        let long: Vec<_> = long.collect();
        assert_eq!(long.len(), 2);
        assert!(
            long.iter()
                .all(|one| one.summary.changes == 200 && one.changes.is_empty())
        );
        // It goes on from there.
        let next = begin(&store);
        write(&next, "next", b"contents");
        store.commit(&next).expect("nobody is in the way");
        store.checkpoint().expect("nothing is in the way");
        assert_eq!(store.commits().expect("it is read").len(), listed.len() + 1);
    }
}
