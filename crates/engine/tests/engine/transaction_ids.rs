//! People type transaction ids, so they stay small, and none is used twice.

use crate::support::{Scratch, begin, create, open};

#[test]
fn ids_go_on_after_an_orderly_close() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let store = open(&scratch.0);
        for _ in 0..2 {
            let transaction = begin(&store);
            ids.push(transaction.id().0);
            store.abort(&transaction);
        }
        store.close().expect("the store closes");
    }
    assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn ids_are_not_reused_after_a_crash_and_few_are_lost() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let mut last = 0;
    for count in [1, 20, 100, 0, 3] {
        // The store is dropped without being closed, as if the process were killed.
        let store = open(&scratch.0);
        let ids = (0..count).map(|_| begin(&store).id().0);
        let ids: Vec<u64> = ids.collect();
        for id in &ids {
            assert!(*id > last, "{id} was used before");
            last = *id;
        }
        if let [first, .., newest] = ids[..] {
            assert_eq!(newest - first + 1, count, "{ids:?}");
            assert!(newest < 400, "{ids:?}");
        }
    }
}

#[test]
fn store_used_after_close_reserves_ids_again() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    store.close().expect("the store closes");
    let first = begin(&store).id().0;
    drop(store);
    let second = begin(&open(&scratch.0)).id().0;
    assert!(second > first, "{second} after {first}");
}
