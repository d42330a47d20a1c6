#![cfg(test)]

//! Transactions of several stores through the library.

use atomdir::{CommitError, Door, Store, StoreOptions};
use atomdir_testing::{Scratch, call_here, for_each_user};
use std::fs;
use std::path::Path;

fn served(base: &Path) -> Store {
    fs::create_dir(base).expect("the name is free");
    atomdir::init(base, None).expect("a store");
    call_here(base, &["service", "start"]).expect(0);
    let opened = StoreOptions::new().door(Door::Service).open(base);
    opened.expect("the service runs")
}

#[test]
fn transactions_of_several_stores_commit_together_or_not_at_all() {
    let name = "transactions_of_several_stores_commit_together_or_not_at_all";
    for_each_user(name, || {
        let scratch = Scratch::new(name);
        let [one, two] = ["one", "two"].map(|name| served(&scratch.join(name)));
        let read = |store: &Store| fs::read_to_string(store.root().join("file")).ok();
        let both = |text: &str| [Some(text.to_owned()), Some(text.to_owned())];
        let begin = |text: &str| {
            let together = one.begin_with(&[&two]).expect("both have services");
            for transaction in together.iter() {
                transaction.write("file", text.as_bytes()).expect("written");
            }
            together
        };
        let receipts = begin("1").commit().expect("nobody is in the way");
        assert!(receipts.iter().all(|one| one.sequence().is_some()));
        assert_eq!([read(&one), read(&two)], both("1"));
        begin("dropped").abort();

        // None of them commits a part, and a conflict in one refuses the commit of all.
        let together = begin("2");
        let part = together[0].commit_part(&["file".as_ref()]);
        assert!(matches!(part, Err(CommitError::Refused(_))), "{part:?}");
        let other = two.begin().expect("begun");
        other.write("file", b"theirs").expect("written");
        other.commit().expect("nobody is in the way");
        let failed = together.try_commit().expect_err("it conflicts");
        assert_eq!(failed.place, 1);
        assert!(failed.error.is_conflict(), "{failed}");
        assert_eq!(read(&one).as_deref(), Some("1"));
        failed.transactions[0]
            .write("file", b"open")
            .expect("it is as open as before");
        drop(failed);

        // What is kept is committed by the command, all of it.
        let ids = begin("3").keep().expect("kept");
        call_here(two.root(), &["commit", &ids[1].to_string()]).expect(0);
        assert_eq!([read(&one), read(&two)], both("3"));
        assert!(one.transactions().expect("listed").is_empty());
        assert!(two.transactions().expect("listed").is_empty());

        // Without a service nobody knows of others.
        call_here(two.root(), &["service", "stop"]).expect(0);
        let embedded = StoreOptions::new().door(Door::Embedded).open(two.root());
        let embedded = embedded.expect("it opens");
        one.begin_with(&[&embedded]).expect_err("it has no service");
        one.begin_with(&[&one]).expect_err("it is the same store");
        drop(embedded);
        call_here(one.root(), &["service", "stop"]).expect(0);
    });
}
