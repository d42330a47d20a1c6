//! Transactions that begin before the commits they show are in the base.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use crate::support::failing::FailingDisk;
use crate::support::model::{Model, caller};
use crate::support::script::{commit_lazily, inside, open_scripted};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{
    self, Random, Scratch, begin_with, create, open, open_with, seeds_and, take_log_flushes,
};
use atomdir_disk::{Errno, LinuxDisk};
use atomdir_engine::{BeginOptions, CommitError, Durability, Isolation, NodeId, Transaction};

#[test]
fn transactions_that_begin_at_once_see_every_commit_before_them() {
    for seed in seeds_and(150, &[]) {
        println!("ATOMDIR_SEED={seed}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let store = open(&scratch.0);
        let mut random = Random::new(seed);
        let mut model = Model::new();
        let mut snapshots: Vec<(Arc<Transaction<LinuxDisk>>, _)> = Vec::new();
        for _ in 0..25 {
            let durability = match random.below(8) {
                0 => Durability::Durable,
                _ => Durability::Lazy,
            };
            let transaction = begin_with(&store, durability);
            if random.below(6) == 0 {
                assert_eq!(tree_of_view(&transaction), model.tree(), "seed {seed}");
            }
            let committed = model.clone();
            for _ in 0..1 + random.below(3) {
                model.step(&mut random, &transaction);
            }
            if random.below(8) == 0 {
                store.abort(&transaction);
                model = committed;
            } else {
                store.commit(&transaction).expect("nobody is in the way");
            }
            match random.below(16) {
                0 => snapshots.push((begin_with(&store, Durability::Lazy), model.tree())),
                1 => store.sync().expect("nothing is in the way"),
                2 => store.checkpoint().expect("a checkpoint works at any time"),
                _ => {}
            }
        }
        for (older, tree) in &snapshots {
            assert_eq!(&tree_of_view(older), tree, "an older snapshot, seed {seed}");
        }
        let last = begin_with(&store, Durability::Lazy);
        assert_eq!(tree_of_view(&last), model.tree(), "the last, seed {seed}");
        store.sync().expect("nothing is in the way");
        assert_eq!(tree_of_base(&scratch.0), model.tree(), "seed {seed}");
        drop((snapshots, last, store));
        let store = open(&scratch.0);
        assert_eq!(tree_of_base(&scratch.0), model.tree(), "recovered, {seed}");
        assert_eq!(store.check().problems, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn older_snapshots_find_what_published_commits_replace_and_then_remove() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open_scripted(&scratch);
    commit_lazily(&store, &[&["put", "f", "first"]]);
    // Its change opens no file of the base, so no handle of it is kept.
    let second = begin_with(&store, Durability::Lazy);
    inside(&second, &["put", "f", "second"]);
    let older = begin_with(&store, Durability::Lazy);
    store.sync().expect("nothing is in the way");
    let old = tree_of_base(&scratch.0);
    store.commit(&second).expect("nobody is in the way");
    commit_lazily(&store, &[&["rm", "f"]]);
    assert_eq!(tree_of_view(&older), old, "the base has the file");
    store.sync().expect("nothing is in the way");
    assert_eq!(tree_of_view(&older), old, "limbo has it");
    assert!(!scratch.0.join("f").exists());
}

#[test]
fn transactions_in_a_row_wait_for_no_flush() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::create_dir(scratch.0.join("d")).expect("a directory is made");
    fs::write(scratch.0.join("d/old"), "old").expect("a file is written");
    let disk = FailingDisk::new(Errno::IO, true);
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    // Ids are reserved by a flush of the header now and then.
    let flushes = || take_log_flushes(&disk);
    flushes();
    let make = |name: &str| {
        let transaction = begin_with(&store, Durability::Lazy);
        let directory = transaction.resolve(b"d").expect("it is looked up");
        let directory = directory.expect("it is there");
        let old = transaction.lookup(directory, b"old").expect("it is there");
        let mut text = [0; 3];
        let read = transaction.read(old.node, 0, &mut text, caller());
        assert_eq!((read, &text), (Ok(3), b"old"));
        let (kind, mode) = (atomdir_engine::NewNode::File, 0o644);
        let made = transaction.create(directory, name.as_bytes(), kind, mode, 0, caller());
        let made = made.expect("the name is free");
        let written = transaction.write(made.node, 0, name.as_bytes(), false);
        written.expect("it is written");
        store.commit(&transaction).expect("nobody is in the way");
    };
    let names: Vec<String> = (0..300).map(|number| format!("f{number}")).collect();
    names.iter().for_each(|name| make(name));
    assert_eq!(flushes(), 0);
    assert!(!scratch.0.join("d/f0").exists(), "the base is behind");

    // They can be read, changed and removed all the same.
    let mut text = [0; 9];
    for round in 0..3 {
        let change = begin_with(&store, Durability::Lazy);
        let found = change.resolve(b"d/f299").expect("it is looked up");
        let found = found.expect("it is there");
        let length = 4 + round;
        let read = change.read(found, 0, &mut text, caller());
        assert_eq!((read, &text[..4]), (Ok(length), &b"f299"[..]));
        let written = change.write(found, length as u64, b"x", false);
        written.expect("it is written");
        store.commit(&change).expect("nobody is in the way");
    }
    let remove = begin_with(&store, Durability::Lazy);
    let directory = remove.resolve(b"d").expect("it is looked up");
    let directory = directory.expect("it is there");
    let listed = remove.list(directory).expect("it is listed");
    assert_eq!(listed.len(), 301);
    remove.unlink(directory, b"f0").expect("it is there");
    store.commit(&remove).expect("nobody is in the way");
    assert_eq!(flushes(), 0);

    // Who looks at a directory that a commit has made waits for one flush, and then all are there.
    commit_lazily(&store, &[&["mkdir", "e"]]);
    let reader = begin_with(&store, Durability::Lazy);
    let found = reader.resolve(b"e").expect("it is looked up");
    assert!(found.is_some());
    assert_eq!(flushes(), 1);
    let in_base = |name: &str| scratch.0.join("d").join(name);
    assert!(names[1..].iter().all(|name| in_base(name).exists()));
    assert!(!in_base("f0").exists());
    let last = fs::read_to_string(in_base("f299")).expect("it is there");
    assert_eq!(last, "f299xxx");
}

/// What a commit does when it reaches the base late is no change of an outside writer, and what an
/// outside writer does to the same objects is one.
#[test]
fn transactions_tell_late_commits_from_outside_writers() {
    let changes: &[(&str, &[&[&str]])] = &[
        ("new file", &[&["put", "new", "one"]]),
        (
            "file in a new directory",
            &[&["mkdir", "e"], &["put", "e/new", "one"]],
        ),
        ("file with new contents", &[&["put", "old", "one"]]),
        ("file that is appended to", &[&["append", "old", "one"]]),
        ("file with a new mode", &[&["chmod", "old", "600"]]),
        ("renamed file", &[&["mv", "old", "new"]]),
    ];
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        for (name, actions) in changes {
            for (outside, late) in [(false, false), (true, false), (false, true), (true, true)] {
                let case = format!("{name}, {isolation:?}, outside {outside}, late {late}");
                let scratch = Scratch::new();
                create(&scratch.0);
                fs::write(scratch.0.join("old"), "old").expect("a file is written");
                let store = open_scripted(&scratch);
                commit_lazily(&store, actions);
                let options = BeginOptions {
                    isolation,
                    ..support::options()
                };
                let early = store.begin(options).expect("a transaction begins");
                let path = actions.last().expect("it does something").get(1);
                let path = match *name {
                    "renamed file" => "new",
                    _ => path.expect("it has a path"),
                };
                if late {
                    store.sync().expect("nothing is in the way");
                }
                inside(&early, &["append", path, "two"]);
                if outside {
                    let file = scratch.0.join(path);
                    // A file that the commit has made may not be there yet.
                    let mut text = fs::read(&file).unwrap_or_default();
                    if let Some(above) = file.parent() {
                        fs::create_dir_all(above).expect("it is there");
                    }
                    text.extend_from_slice(b"outside");
                    fs::write(&file, text).expect("it is written");
                }
                let committed = store.commit(&early);
                match outside {
                    true => assert!(
                        matches!(&committed, Err(CommitError::Conflict(_))),
                        "{case}: {committed:?}"
                    ),
                    false => {
                        committed.unwrap_or_else(|error| panic!("{case}: {error}"));
                        let text = fs::read_to_string(scratch.0.join(path)).expect("it is there");
                        assert!(text.ends_with("two"), "{case}: {text}");
                    }
                }
            }
        }
    }
}

#[test]
fn attributes_of_a_directory_do_not_change_when_a_commit_reaches_the_base() {
    let scratch = Scratch::new();
    create(&scratch.0);
    for name in ["d", "d/gone", "d/kept"] {
        fs::create_dir(scratch.0.join(name)).expect("a directory is made");
    }
    let store = open_scripted(&scratch);
    commit_lazily(
        &store,
        &[
            &["mkdir", "d/one"],
            &["mkdir", "d/two"],
            &["put", "d/f", "f"],
        ],
    );
    commit_lazily(&store, &[&["put", "d/g", "g"]]);
    let early = begin_with(&store, Durability::Durable);
    let attributes = || {
        let node = early.resolve(b"d").expect("it is looked up");
        let attributes = early.attributes(node.expect("it is there"));
        let attributes = attributes.expect("it has attributes");
        (attributes.links, attributes.modified, attributes.mode)
    };
    let before = attributes();
    assert!(!scratch.0.join("d/one").exists(), "the base is behind");
    store.sync().expect("nothing is in the way");
    assert_eq!(attributes(), before);
}

#[test]
fn a_read_of_what_cannot_reach_the_base_fails_and_others_go_on() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::write(scratch.0.join("old"), "old").expect("a file is written");
    fs::write(scratch.0.join("other"), "other").expect("a file is written");
    let disk = FailingDisk::new(Errno::IO, false);
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let transaction = begin_with(&store, Durability::Lazy);
    let old = transaction.resolve(b"old").expect("it is looked up");
    let written = transaction.write(old.expect("it is there"), 0, b"new", false);
    written.expect("it is written");
    // Such a commit is not published before it is in the base.
    let made = transaction.create(
        NodeId::ROOT,
        b"directory",
        atomdir_engine::NewNode::Directory,
        0o755,
        0,
        caller(),
    );
    made.expect("the name is free");
    store.commit(&transaction).expect("nobody is in the way");
    let reader = begin_with(&store, Durability::Lazy);
    disk.fail_after(0);
    assert_eq!(
        reader.lookup(NodeId::ROOT, b"old").map(drop),
        Err(Errno::IO)
    );
    assert_eq!(reader.lookup(NodeId::ROOT, b"other").map(drop), Ok(()));
    assert!(store.status().poisoned.is_some());
}

/// Who has seen something of a commit that is set aside has a conflict, and later everyone sees what
/// the outside writer has made.
#[test]
fn who_has_seen_a_commit_that_is_set_aside_has_a_conflict() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::write(scratch.0.join("old"), "old").expect("a file is written");
    fs::set_permissions(scratch.0.join("old"), fs::Permissions::from_mode(0o644))
        .expect("it has a mode");
    let store = open_scripted(&scratch);
    commit_lazily(&store, &[&["put", "old", "new"]]);
    let reader = begin_with(&store, Durability::Durable);
    let lazy = begin_with(&store, Durability::Lazy);
    let apart = begin_with(&store, Durability::Lazy);
    fs::write(scratch.0.join("old"), "outside").expect("it is written");
    let read = |transaction: &Transaction<FailingDisk>| {
        let found = transaction.lookup(NodeId::ROOT, b"old");
        let found = found.expect("it is there").node;
        let mut text = [0; 9];
        let read = transaction.read(found, 0, &mut text, caller());
        String::from_utf8_lossy(&text[..read.expect("it is read")]).into_owned()
    };
    assert_eq!(read(&reader), "new");
    inside(&reader, &["put", "other", "depends on it"]);
    inside(&lazy, &["append", "old", "er"]);
    store.commit(&lazy).expect("it is lazy");
    inside(&apart, &["put", "apart", "knows nothing of it"]);
    store.commit(&apart).expect("it is lazy");
    let next = begin_with(&store, Durability::Lazy);
    assert_eq!(read(&next), "newer");

    store.sync().expect("nothing is in the way");
    let aside: Vec<_> = store
        .set_aside()
        .iter()
        .map(|one| one.transaction)
        .collect();
    assert_eq!(
        aside.len(),
        2,
        "the first one, and the one that leans on it"
    );
    let refused = store.commit(&reader);
    assert!(
        matches!(&refused, Err(CommitError::Conflict(_))),
        "{refused:?}"
    );
    let after = begin_with(&store, Durability::Lazy);
    assert_eq!(read(&after), "outside");
    let apart = fs::read_to_string(scratch.0.join("apart"));
    assert_eq!(apart.expect("it is there"), "knows nothing of it");
    // It has been told.
    store.commit(&reader).expect("it may land all the same");
    for transaction in aside {
        let transaction = store.transaction(transaction).expect("it is open");
        assert!(!store.retry_set_aside(&transaction), "it conflicts");
        store.abort(&transaction);
    }
    assert_eq!(store.check().problems, Vec::<String>::new());
}
