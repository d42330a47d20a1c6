//! Transactions that a program keeps open through the library and continues later.

use atomdir::{Door, Durability, EndedHow, Store, StoreError, StoreOptions, TransactionId};
use atomdir_testing::{call_here, for_each_user_of_a_store};
use std::path::Path;

fn served(base: &Path) -> Store {
    call_here(base, &["service", "start"]).expect(0);
    let opened = StoreOptions::new().door(Door::Service).open(base);
    opened.expect("the service runs")
}

/// Library and command report the same about the transaction that was lost with the service.
fn assert_ended(base: &Path, store: &Store, lost: TransactionId) {
    let ended = store.ended().expect("listed");
    let [one] = &ended[..] else {
        panic!("one was lost: {ended:?}");
    };
    assert_eq!((one.id, one.how), (lost, EndedHow::Died));
    assert!(one.began <= one.ended);
    let text = call_here(base, &["--json", "list", "--ended"])
        .expect(0)
        .text();
    let said: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let said = &said["ended"][0];
    assert_eq!(
        serde_json::json!([one.id.0, one.user, one.label.to_str(), "died", one.changes]),
        serde_json::json!([
            said["transaction"],
            said["owner"],
            said["label"],
            said["how"],
            said["changes_count"]
        ])
    );
}

#[test]
fn kept_transactions_go_on_after_kills_and_stay_open_when_dropped() {
    let name = "kept_transactions_go_on_after_kills_and_stay_open_when_dropped";
    for_each_user_of_a_store(name, |one| {
        let base = one.path();
        atomdir::init(base, None).expect("a store");
        let store = served(base);
        let tx = store
            .transaction()
            .label("left open")
            .begin()
            .expect("begun");
        tx.write("first", b"1").expect("written");
        // A sync is refused, since the transaction would end with this program.
        assert!(matches!(tx.sync(), Err(StoreError::Other(_))));
        let id = tx.keep().expect("kept");
        let dropped = store.begin().expect("begun").id();
        let open = store.transactions().expect("listed");
        assert!(open.iter().all(|one| one.id != dropped), "it was aborted");
        let [listed] = &open[..] else {
            panic!("one is open: {open:?}");
        };
        assert_eq!((listed.id, listed.label.to_str()), (id, Some("left open")));
        assert!(listed.survives);
        let lost = store.transaction().label("lost").begin().expect("begun");
        lost.write("lost", b"1").expect("written");
        one.kill_service();
        let lost = lost.id();
        drop(store);

        let store = served(base);
        assert_ended(base, &store, lost);
        let tx = store.attach(id).expect("it is open again");
        assert_eq!(tx.read("first").expect("there"), b"1");
        tx.write("second", b"2").expect("written");
        tx.sync().expect("it survives");
        drop(tx);
        // Others can work in it at the same time.
        call_here(base, &["exec", &id.to_string(), "--", "touch", "third"]).expect(0);
        let tx = store.attach(id).expect("it is still open");
        assert_eq!(tx.changes().expect("listed").len(), 3);
        tx.commit().expect("nobody is in the way");
        assert!(base.join("third").exists());
        assert_eq!(std::fs::read(base.join("second")).expect("there"), b"2");
        assert!(store.attach(id).is_err());

        let tx = store.begin().expect("begun");
        let id = tx.keep().expect("kept");
        let other = store.begin().expect("begun");
        other.remove_file("first").expect("it is there");
        other.commit().expect("nobody is in the way");
        let open = store.transactions().expect("listed");
        // The history keeps the commit anyway, so the transaction costs no space of its own.
        assert_eq!((open[0].kept_commits, open[0].kept_bytes), (1, 0));
        store.attach(id).expect("open").abort();
        assert_eq!(store.transactions().expect("listed"), []);
        drop(store);
        call_here(base, &["service", "stop"]).expect(0);
        let embedded = StoreOptions::new().door(Door::Embedded).open(base);
        let embedded = embedded.expect("opened");
        let tx = embedded.begin().expect("begun");
        assert!(matches!(tx.sync(), Err(StoreError::NeedsService)));
        assert!(matches!(tx.keep(), Err(StoreError::NeedsService)));
        assert!(matches!(embedded.ended(), Err(StoreError::NeedsService)));
        embedded.close().expect("closed");
    });
}

/// Through the service, too, a begin waits for no lazy commit that only writes files. If its
/// transaction is kept, the next service does not take such a commit for the change of an outside
/// writer.
#[test]
fn transactions_that_begin_over_lazy_commits_can_be_kept() {
    let name = "transactions_that_begin_over_lazy_commits_can_be_kept";
    for_each_user_of_a_store(name, |one| {
        let base = one.path();
        atomdir::init(base, None).expect("a store");
        std::fs::write(base.join("file"), b"old").expect("written");
        let mut store = served(base);
        // On a busy machine the commit may be in the base before the next transaction has begun.
        let is_ahead = (0..100).any(|number: u8| {
            let text = number.to_string().into_bytes();
            let tx = store.transaction().durability(Durability::Lazy).begin();
            let tx = tx.expect("begun");
            tx.write("file", &text).expect("written");
            tx.commit().expect("nobody is in the way");
            let tx = store.begin().expect("begun");
            let in_base = std::fs::read(base.join("file")).expect("there");
            assert_eq!(tx.read("file").expect("there"), text);
            if in_base == text {
                return false;
            }
            let id = tx.keep().expect("kept");
            one.kill_service();
            store = served(base);
            let tx = store.attach(id).expect("it is open again");
            tx.write("file", b"new").expect("written");
            tx.commit().expect("no outside writer was there");
            true
        });
        assert!(is_ahead, "each begin waited for the base");
        assert_eq!(std::fs::read(base.join("file")).expect("there"), b"new");
        drop(store);
        call_here(base, &["service", "stop"]).expect(0);
    });
}
