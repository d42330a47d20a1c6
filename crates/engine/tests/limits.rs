//! The descriptors, objects and memory that open transactions take are limited.

use std::path::Path;
use std::sync::Arc;

use atomdir_disk::{Errno, LinuxDisk};
use atomdir_engine::{
    BeginOptions, Budget, Caller, Credentials, ForkError, Isolation, LockError, LockMode,
    LockRequest, LockScope, NewNode, NodeId, Patience, SavepointError, SetAttributes, Transaction,
};

#[path = "engine/support/mod.rs"]
mod support;

use support::failing::FailingDisk;
use support::{Scratch, begin, create, open, open_with, options};

fn caller() -> Caller {
    Caller {
        user: rustix::process::geteuid().as_raw(),
        group: rustix::process::getegid().as_raw(),
    }
}

/// How many descriptors of this process lead to objects below a directory.
fn opened_below(directory: &Path) -> usize {
    let opened = std::fs::read_dir("/proc/self/fd").expect("it can be listed");
    let targets = opened.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|path| path.starts_with(directory)).count()
}

#[test]
fn open_transactions_with_changes_keep_few_descriptors() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let mut transactions = Vec::new();
    for _ in 0..300 {
        let transaction = begin(&store);
        let made = transaction
            .create(NodeId::ROOT, b"file", NewNode::File, 0o644, 0, caller())
            .expect("it is made");
        transaction
            .write(made.node, 0, b"contents", false)
            .expect("it is written");
        transactions.push((transaction, made.node));
    }
    // The store of these tests keeps 64 descriptors open for speed, and a few others always.
    let opened = opened_below(&scratch.0);
    assert!(opened < 64 + 16, "{opened} are open");
    for (transaction, node) in &transactions {
        let mut contents = [0; 8];
        let read = transaction.read(*node, 0, &mut contents, caller());
        assert_eq!((read, &contents), (Ok(8), b"contents"));
    }
    let (first, _) = transactions.remove(0);
    store.commit(&first).expect("it commits");
    for (transaction, _) in transactions {
        assert!(store.abort(&transaction));
    }
}

#[test]
fn transactions_that_share_a_budget_change_no_more_than_it_allows() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let budget = Arc::new(Budget::new(10));
    let limited = || {
        let transaction = begin(&store);
        transaction.set_budget(budget.clone());
        transaction
    };
    let (one, two, free) = (limited(), limited(), begin(&store));
    let make = |transaction: &Transaction<LinuxDisk>, name: String| {
        let what = NewNode::File;
        transaction
            .create(NodeId::ROOT, name.as_bytes(), what, 0o644, 0, caller())
            .map(|_| ())
    };
    let fill = |transaction| {
        let made = (0..100).take_while(|number| make(transaction, number.to_string()).is_ok());
        made.count()
    };
    // The directory that gets the new entries counts as well.
    assert_eq!((fill(&one), fill(&two)), (9, 0));
    assert_eq!(make(&two, "more".to_owned()), Err(Errno::DQUOT));
    assert_eq!(fill(&free), 100);
    assert!(store.abort(&free));
    store.commit(&one).expect("what is full still commits");
    drop(one);
    assert_eq!(budget.changed_objects(), 0);
    assert_eq!(make(&two, "more".to_owned()), Ok(()));
    assert!(store.abort(&two));
    drop(two);
    assert_eq!(budget.changed_objects(), 0);
}

#[test]
fn what_transactions_look_up_counts_until_it_is_forgotten() {
    let scratch = Scratch::new();
    create(&scratch.0);
    for number in 0..100 {
        std::fs::write(scratch.0.join(number.to_string()), "").expect("it is written");
    }
    let store = open(&scratch.0);
    let budget = Arc::new(Budget::new(10));
    let limited = || {
        let transaction = begin(&store);
        transaction.set_budget(budget.clone());
        transaction
    };
    let look = |transaction: &Transaction<LinuxDisk>| -> Vec<NodeId> {
        let found = (0..100).map(|number: u32| {
            let name = number.to_string();
            transaction.lookup(NodeId::ROOT, name.as_bytes())
        });
        found
            .map_while(Result::ok)
            .map(|found| found.node)
            .collect()
    };
    let (one, two) = (limited(), limited());
    let found = look(&one);
    // The root counts as well.
    assert_eq!((found.len(), budget.looked_up()), (39, 40));
    assert!(look(&two).is_empty());
    let refused = two.lookup(NodeId::ROOT, b"1").map(drop);
    assert_eq!(refused, Err(Errno::DQUOT));
    found.iter().for_each(|node| one.forget(*node, 1));
    assert_eq!(look(&two).len(), 38);
    assert!(store.abort(&two));
    drop(two);
    assert_eq!(budget.looked_up(), 1);
    assert!(store.abort(&one));
    drop(one);
    assert_eq!(budget.looked_up(), 0);
}

#[test]
fn lookups_go_on_after_a_refresh() {
    let scratch = Scratch::new();
    create(&scratch.0);
    for number in 0..10 {
        std::fs::write(scratch.0.join(number.to_string()), "").expect("it is written");
    }
    let store = open(&scratch.0);
    let transaction = begin(&store);
    transaction.set_budget(Arc::new(Budget::new(1)));
    for _ in 0..10 {
        let found = (0..10).map(|number: u32| {
            let name = number.to_string();
            transaction.lookup(NodeId::ROOT, name.as_bytes())
        });
        assert_eq!(found.map_while(Result::ok).count(), 3);
        store.refresh(&transaction).expect("nobody is in the way");
    }
}

#[test]
fn names_count_as_long_as_a_view_remembers_them() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let budget = Arc::new(Budget::new(1));
    let limited = || {
        let transaction = begin(&store);
        transaction.set_budget(budget.clone());
        transaction
    };
    let count_missing = |transaction: &Transaction<LinuxDisk>| {
        let found = (0..100).map(|number: u32| {
            let name = number.to_string();
            transaction.lookup(NodeId::ROOT, name.as_bytes()).map(drop)
        });
        found.take_while(|one| *one == Err(Errno::NOENT)).count()
    };
    let (one, two) = (limited(), limited());
    assert_eq!((count_missing(&one), count_missing(&two)), (16, 0));
    store.refresh(&one).expect("nobody is in the way");
    assert_eq!((count_missing(&two), count_missing(&one)), (16, 0));
    assert!(store.abort(&two));
    drop(two);
    assert_eq!(count_missing(&one), 16);
}

#[test]
fn failed_write_leaves_no_trace() {
    let scratch = Scratch::new();
    create(&scratch.0);
    std::fs::write(scratch.0.join("old"), [b'o'; 10_000]).expect("it is written");
    let disk = FailingDisk::new(Errno::NOSPC, false);
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let transaction = begin(&store);
    let what = NewNode::File;
    let new = transaction.create(NodeId::ROOT, b"new", what, 0o644, 0, caller());
    let new = new.expect("it is made").node;
    let old = transaction.lookup(NodeId::ROOT, b"old");
    let old = old.expect("it is there").node;
    for (file, length, offset) in [(new, 1, 1), (old, 40_000, 12_288)] {
        let write = |offset, data: &[u8]| transaction.write(file, offset, data, false);
        let set_length = |length| {
            let change = SetAttributes {
                length: Some(length),
                ..SetAttributes::default()
            };
            let set = transaction.set_attributes(file, change, caller());
            set.expect("it gets this length");
        };
        write(0, b"y").expect("it is written");
        set_length(length);
        disk.fail_after(0);
        assert_eq!(write(offset, &[b'x'; 40_960]), Err(Errno::NOSPC));
        assert!(disk.has_failed());
        set_length(100_000);
        // Now the whole page is staged.
        write(offset + 100, b"y").expect("there is space again");
        let mut contents = vec![0; 100_000];
        let read = transaction.read(file, 0, &mut contents, caller());
        assert_eq!(read, Ok(100_000));
        assert_eq!(contents.iter().filter(|byte| **byte == b'x').count(), 0);
        assert_eq!(contents.iter().filter(|byte| **byte == b'y').count(), 2);
    }
    store.commit(&transaction).expect("it commits");
    let landed = std::fs::read(scratch.0.join("old")).expect("it is there");
    assert_eq!(landed.iter().filter(|byte| **byte == b'o').count(), 9_999);
    assert!(!landed.contains(&b'x'));
}

#[test]
fn attributes_and_link_targets_count_towards_a_budget() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let budget = Arc::new(Budget::new(100));
    let limited = || {
        let transaction = begin(&store);
        transaction.set_budget(budget.clone());
        transaction
    };
    let one = limited();
    let made = one
        .create(NodeId::ROOT, b"file", NewNode::File, 0o644, 0, caller())
        .expect("it is made");
    let set = |number: usize| {
        let name = format!("user.{number}");
        one.set_xattr(made.node, name.as_bytes(), &[b'x'; 10 << 10], 0, false)
    };
    let failed = (0..100).find_map(|number| Some((number, set(number).err()?)));
    assert_eq!(failed, Some((10, Errno::DQUOT)));
    assert!(store.abort(&one));
    drop(one);
    assert_eq!(budget.changed_objects(), 0);
    let two = limited();
    let link = |number: usize| {
        let (name, target) = (number.to_string(), NewNode::Symlink(vec![b'x'; 4000]));
        two.create(NodeId::ROOT, name.as_bytes(), target, 0o777, 0, caller())
            .map(drop)
    };
    let failed = (0..100).find_map(|number| Some((number, link(number).err()?)));
    assert_eq!(failed, Some((21, Errno::DQUOT)));
    assert!(store.abort(&two));
}

#[test]
fn reads_of_a_serializable_transaction_count_towards_a_budget() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let budget = Arc::new(Budget::new(100));
    let serializable = BeginOptions {
        isolation: Isolation::Serializable,
        ..options()
    };
    let one = store.begin(serializable).expect("a transaction begins");
    one.set_budget(budget.clone());
    let look = |number: usize| one.lookup(NodeId::ROOT, format!("missing-{number}").as_bytes());
    let refused = (0..1000).find(|number| look(*number).err() == Some(Errno::DQUOT));
    let refused = refused.expect("names are read until the budget is used up");
    assert!((390..=400).contains(&refused), "{refused}");
    assert!(store.abort(&one));
    drop(one);
    assert_eq!(budget.changed_objects(), 0);
}

#[test]
fn forks_count_towards_a_budget_from_the_start() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let budget = Arc::new(Budget::new(30));
    let one = begin(&store);
    one.set_budget(budget.clone());
    for name in [b"1", b"2", b"3", b"4"] {
        let made = one.create(NodeId::ROOT, name, NewNode::File, 0o644, 0, caller());
        made.expect("there is room");
    }
    let of_one = budget.changed_objects();
    let mut forks = Vec::new();
    while let Ok(fork) = store.fork(&one, options()) {
        fork.set_budget(budget.clone());
        forks.push(fork);
        assert_eq!(budget.changed_objects(), of_one * (forks.len() as u64 + 1));
    }
    // The directory counts as changed, too.
    assert_eq!((of_one, forks.len()), (5, 5));
    for fork in forks {
        assert!(store.abort(&fork));
    }
    assert_eq!(budget.changed_objects(), of_one);
}

#[test]
fn names_that_a_fork_has_copied_count_as_well() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let budget = Arc::new(Budget::new(1));
    let one = begin(&store);
    one.set_budget(budget.clone());
    for name in [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"] {
        assert_eq!(one.lookup(NodeId::ROOT, name).err(), Some(Errno::NOENT));
    }
    let fork = || store.fork(&one, options());
    let first = fork().expect("there is room");
    first.set_budget(budget.clone());
    assert!(matches!(fork(), Err(ForkError::Copies(Errno::DQUOT))));
    assert!(store.abort(&first));
    drop(first);
    fork().expect("there is room again");
}

#[test]
fn savepoints_count_towards_a_budget() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let budget = Arc::new(Budget::new(100));
    let one = begin(&store);
    one.set_budget(budget.clone());
    for number in 0..8 {
        let name = format!("new-{number}");
        one.create(
            NodeId::ROOT,
            name.as_bytes(),
            NewNode::File,
            0o644,
            0,
            caller(),
        )
        .expect("there is room");
    }
    let save = |number: usize| one.set_savepoint(format!("{number}").as_bytes());
    let refused = (0..100).find_map(|number| Some((number, save(number).err()?)));
    // The directory counts as changed, too, and each savepoint itself takes a little.
    assert_eq!(refused, Some((10, SavepointError::Staging(Errno::DQUOT))));
    one.roll_back(b"0").expect("it is the oldest savepoint");
    save(1).expect("there is room again");
    assert!(store.abort(&one));
    drop(one);
    assert_eq!(budget.changed_objects(), 0);
}

#[test]
fn locks_count_towards_a_budget() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let budget = Arc::new(Budget::new(10));
    let one = begin(&store);
    one.set_budget(budget.clone());
    let root = Credentials {
        user: 0,
        groups: vec![0],
    };
    let lock = |number: usize| {
        let request = LockRequest {
            mode: LockMode::Exclusive,
            scope: LockScope::Object,
            paths: vec![format!("name-{number}").into_bytes()],
        };
        let mut patience = Patience {
            wake: Arc::new(|| ()),
            wait: &mut || false,
        };
        store.lock(&one, &request, &root, &mut patience)
    };
    for _ in 0..20 {
        lock(0).expect("what is held already takes nothing");
    }
    let refused = (0..20).find(|number| {
        let error = lock(*number).err();
        matches!(
            error,
            Some(LockError::Path {
                errno: Errno::DQUOT,
                ..
            })
        )
    });
    assert_eq!(refused, Some(10));
    assert_eq!(store.unlock(&one, Some(&[b"name-3".to_vec()])), 1);
    lock(30).expect("there is room again");
    assert_eq!(store.unlock(&one, None), 10);
    assert_eq!(budget.changed_objects(), 0);
    assert!(store.abort(&one));
}
