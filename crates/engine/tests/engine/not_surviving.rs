//! Transactions that cannot survive their service: the request to survive is refused.

use atomdir_disk::LinuxDisk;
use atomdir_engine::{BeginOptions, Isolation, Portion, Store, SurvivalError};

use crate::support::{Scratch, begin, create, open, options};
use crate::survival::{file, reopened, survive};

#[test]
fn transactions_that_cannot_survive_are_refused() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let isolation = Isolation::Serializable;
    let serializable = store.begin(BeginOptions {
        isolation,
        ..options()
    });
    let serializable = serializable.expect("it begins");
    let refused = store.survive(&serializable, Vec::new());
    assert!(matches!(refused, Err(SurvivalError::Serializable)));
    let outer = begin(&store);
    let nested = store.begin_nested(&outer, options()).expect("it begins");
    let refused = store.survive(&nested, Vec::new());
    assert!(matches!(refused, Err(SurvivalError::Nested)));
    let part = begin(&store);
    file(&part, b"a", b"1");
    file(&part, b"b", b"2");
    survive(&store, &part);
    let landed = store.commit_portion(&part, Portion::part(&[b"a".to_vec()]), &mut |_| {});
    landed.expect("nobody is in the way");
    assert!(!part.survives());
    let refused = store.survive(&part, Vec::new());
    assert!(matches!(refused, Err(SurvivalError::Landed)));
    let lower = begin(&store);
    lower.become_lower().expect("it can");
    let refused = store.survive(&lower, Vec::new());
    assert!(matches!(refused, Err(SurvivalError::Native)));
}

/// The store keeps no history. A transaction that may survive is open again after a restart.
#[test]
fn transactions_that_would_be_stranded_are_refused_to_survive() {
    for is_held in [false, true] {
        for (before, after) in [(0, 1), (1, 0), (1, 1), (0, 0)] {
            let scratch = Scratch::new();
            create(&scratch.0);
            let mut store = open(&scratch.0);
            let held = is_held.then(|| store.hold_past().expect("it is held"));
            let transaction = begin(&store);
            file(&transaction, b"mine", b"1");
            let others = |store: &Store<LinuxDisk>, name: &[u8], count: usize| {
                (0..count).for_each(|_| {
                    let other = begin(store);
                    file(&other, name, b"2");
                    store.commit(&other).expect("nobody is in the way");
                });
            };
            others(&store, b"before", before);
            let survives = store.survive(&transaction, Vec::new());
            drop(held);
            assert_eq!(survives.is_ok(), is_held || before == 0, "{survives:?}");
            assert_eq!(transaction.why_it_ends().is_some(), survives.is_err());
            if survives.is_err() {
                assert!(matches!(survives, Err(SurvivalError::NotKept(_))));
                // A refresh gives it a newer snapshot, for which nothing is missing.
                store.refresh(&transaction).expect("nobody is in the way");
                survive(&store, &transaction);
            }
            others(&store, b"after", after);
            store.checkpoint().expect("it is made");
            let id = transaction.id();
            drop((store, transaction));
            let transaction;
            (store, transaction) = reopened(&scratch, id);
            store.commit(&transaction).expect("nobody is in the way");
        }
    }
}
