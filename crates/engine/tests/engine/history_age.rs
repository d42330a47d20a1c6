//! Commits are forgotten by their age, on a clock that the test sets.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::model::caller;
use crate::support::{Scratch, SetClock, begin, create, open_timed, options};
use atomdir_disk::LinuxDisk;
use atomdir_engine::{HistoryLimits, NewNode, NodeId, Sequence, Store, UndoError};

const HOUR: i64 = 3600;
/// A checkpoint forgets nothing for its age until a commit is older than the limit by more than
/// this.
const SLACK: i64 = HOUR / 8;
const LIMITS: HistoryLimits = HistoryLimits {
    age_seconds_max: HOUR as u64,
    bytes_max: u64::MAX,
    free_bytes_min: 0,
};

/// A store in which each commit replaces the file `name` by a new one.
struct Timed {
    scratch: Scratch,
    clock: Arc<SetClock>,
    store: Store<LinuxDisk>,
}

impl Timed {
    fn new() -> Timed {
        let (scratch, clock) = (Scratch::new(), Arc::<SetClock>::default());
        create(&scratch.0);
        let store = open_timed(clock.clone(), &scratch.0, LIMITS);
        Timed {
            scratch,
            clock,
            store,
        }
    }

    fn set(&self, seconds: i64) {
        self.clock.0.store(seconds, Ordering::Relaxed);
    }

    fn commit_at(&self, seconds: i64) {
        self.set(seconds);
        let transaction = begin(&self.store);
        if transaction.lookup(NodeId::ROOT, b"name").is_ok() {
            let removed = transaction.unlink(NodeId::ROOT, b"name");
            removed.expect("it is there");
        }
        let made = transaction.create(NodeId::ROOT, b"name", NewNode::File, 0o644, 0, caller());
        let file = made.expect("the name is free").node;
        let text = seconds.to_string();
        transaction
            .write(file, 0, text.as_bytes(), false)
            .expect("it is written");
        self.store
            .commit(&transaction)
            .expect("nobody is in the way");
    }

    fn kept(&self) -> u64 {
        self.store.status().history.expect("it is kept").commits
    }

    fn in_limbo(&self) -> usize {
        let limbo = std::fs::read_dir(self.scratch.0.join(".atomdir/limbo"));
        limbo.expect("limbo is listed").count()
    }

    /// Undoes a commit whose change is still there; false if it is forgotten.
    fn undo(&self, commit: u64) -> bool {
        match self.store.undo(&[Sequence(commit)], &[], options()) {
            Ok(undone) => {
                self.store.commit(&undone).expect("nobody is in the way");
                true
            }
            Err(UndoError::NotKept(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn contents(&self) -> String {
        std::fs::read_to_string(self.scratch.0.join("name")).expect("it is there")
    }
}

#[test]
fn checkpoint_forgets_an_old_commit_and_keeps_a_younger_one() {
    let one = Timed::new();
    one.commit_at(HOUR);
    one.commit_at(HOUR + 1);
    one.commit_at(2 * HOUR);
    one.store.checkpoint().expect("nothing is in the way");
    assert_eq!((one.kept(), one.in_limbo()), (3, 2));
    one.set(2 * HOUR + SLACK);
    one.store.checkpoint().expect("nothing is in the way");
    assert_eq!((one.kept(), one.in_limbo()), (3, 2), "a little too old");
    one.set(2 * HOUR + SLACK + 1);
    one.store.checkpoint().expect("nothing is in the way");
    assert_eq!((one.kept(), one.in_limbo()), (1, 1));
    assert!(!one.undo(1) && !one.undo(2));
    assert!(one.undo(3));
    assert_eq!(one.contents(), (HOUR + 1).to_string());
    assert_eq!(one.store.check().problems, Vec::<String>::new());
}

#[test]
fn prune_forgets_exactly_what_is_older() {
    for (age_seconds_max, kept) in [(31, 3), (30, 3), (29, 2), (20, 2), (19, 1), (9, 0)] {
        let one = Timed::new();
        for seconds in [100, 110, 120] {
            one.commit_at(seconds);
        }
        one.set(130);
        let limits = HistoryLimits {
            age_seconds_max,
            ..LIMITS
        };
        let status = one.store.prune(&limits).expect("nothing is in the way");
        assert_eq!(status.commits, kept, "{age_seconds_max} s");
        let oldest = status.oldest.map(|(sequence, _)| sequence.0);
        assert_eq!(oldest, (kept > 0).then_some(4 - kept));
        assert_eq!(one.in_limbo() as u64, kept.min(2), "{age_seconds_max} s");
        let mut store = one.store;
        for commit in 1..=3 {
            let undone = store.undo(&[Sequence(commit)], &[], options());
            let is_forgotten = matches!(undone, Err(UndoError::NotKept(_)));
            assert_eq!(
                is_forgotten,
                commit <= 3 - kept,
                "{commit}: {:?}",
                undone.err()
            );
        }
        drop(store);
        store = open_timed(one.clock, &one.scratch.0, LIMITS);
        let status = store.status().history.expect("it is kept");
        assert_eq!(status.commits, kept, "{age_seconds_max} s, opened again");
        assert_eq!(store.check().problems, Vec::<String>::new());
    }
}
