//! Random sequences of nested transactions and savepoints, compared with a model. A nested
//! transaction sees the outer one's state. Its abort leaves the outer one alone, and its commit
//! becomes part of it. A rollback restores the state of the savepoint. A cache that drops only what
//! the engine invalidates shows the same. `ATOMDIR_SEED=n` replays one run.

use std::sync::Arc;

use atomdir_disk::{Errno, LinuxDisk};
use atomdir_engine::{ChangedBy, CommitError, NewNode, NodeId, SetAttributes, Store, Transaction};

use crate::support::cache::Cache;
use crate::support::failing::FailingDisk;
use crate::support::model::{Model, Tree, caller};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{
    Random, Scratch, begin, begin_nested, create, create_with, open, open_with, seeds,
};

type Open = Arc<Transaction<LinuxDisk>>;

struct History<'a> {
    store: &'a Store<LinuxDisk>,
    scratch: &'a Scratch,
    random: Random,
    seed: u64,
    /// What the base must show all the time.
    base: Tree,
}

impl History<'_> {
    fn play(&mut self, open: &Open, mut model: Model, depth: usize) -> Model {
        let mut cache = Cache::default();
        let mut savepoints: Vec<(Vec<u8>, Model)> = Vec::new();
        for _ in 0..1 + self.random.below(6) {
            match self.random.below(8) {
                0 | 1 => {
                    let name = vec![b'x' + self.random.below(3) as u8];
                    open.set_savepoint(&name).expect("a savepoint can be set");
                    savepoints.retain(|(known, _)| *known != name);
                    savepoints.push((name, model.clone()));
                }
                2 | 3 if !savepoints.is_empty() => {
                    self.check(open, &mut cache, &model);
                    let place = self.random.below(savepoints.len());
                    savepoints.truncate(place + 1);
                    let (name, saved) = savepoints[place].clone();
                    let outdated = open.roll_back(&name).expect("the savepoint is there");
                    cache.forget(&outdated);
                    model = saved;
                }
                4 | 5 if depth < 3 => {
                    self.check(open, &mut cache, &model);
                    model = self.nested(open, model, depth, &mut cache);
                }
                _ => {
                    for _ in 0..1 + self.random.below(12) {
                        model.step(&mut self.random, open);
                    }
                    cache.clear();
                    if self.random.below(3) == 0 {
                        cache.drop_nodes(open);
                    }
                }
            }
            self.check(open, &mut cache, &model);
            let names: Vec<_> = savepoints.iter().map(|(name, _)| name.clone()).collect();
            assert_eq!(open.savepoints(), names);
        }
        cache.drop_nodes(open);
        model
    }

    fn nested(&mut self, open: &Open, model: Model, depth: usize, cache: &mut Cache) -> Model {
        if self.random.below(2) == 0 {
            cache.drop_nodes(open);
        }
        let nested = begin_nested(self.store, open);
        assert_eq!(open.nested_in_it(), [nested.id()]);
        assert_eq!(tree_of_view(&nested), model.tree(), "seed {}", self.seed);
        let after = self.play(&nested, model.clone(), depth + 1);
        // The outer transaction sees none of it so far.
        self.check(open, cache, &model);
        if self.random.below(3) == 0 {
            self.store.abort(&nested);
            return model;
        }
        let committed = self.store.commit(&nested).expect("nobody is in the way");
        assert_eq!(committed.sequence, None);
        cache.forget(&committed.outdated);
        after
    }

    fn check(&self, open: &Open, cache: &mut Cache, model: &Model) {
        let seed = self.seed;
        let wanted = model.tree();
        assert_eq!(tree_of_view(open), wanted, "the view, seed {seed}");
        assert_eq!(cache.tree(open), wanted, "through the cache, seed {seed}");
        let base = tree_of_base(&self.scratch.0);
        assert_eq!(base, self.base, "the base, seed {seed}");
    }
}

#[test]
fn nested_transactions_and_savepoints_match_the_model() {
    for seed in seeds(60) {
        println!("ATOMDIR_SEED={seed}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let store = open(&scratch.0);
        let mut model = Model::new();
        let mut history = History {
            store: &store,
            scratch: &scratch,
            random: Random::new(seed),
            seed,
            base: Tree::new(),
        };
        for _ in 0..4 {
            let transaction = begin(&store);
            let after = history.play(&transaction, model.clone(), 0);
            if history.random.below(4) == 0 {
                store.abort(&transaction);
            } else {
                store.commit(&transaction).expect("nobody is in the way");
                model = after;
            }
            history.base = model.tree();
            assert_eq!(tree_of_base(&scratch.0), history.base, "seed {seed}");
        }
        drop(store);
        let store = open(&scratch.0);
        assert_eq!(tree_of_base(&scratch.0), model.tree(), "seed {seed}");
        assert_eq!(store.check().problems, Vec::<String>::new(), "seed {seed}");
    }
}

fn file(view: &Open, name: &[u8], contents: &[u8]) -> NodeId {
    let node = match view.lookup(NodeId::ROOT, name) {
        Ok(found) => found.node,
        Err(_) => {
            let made = view.create(NodeId::ROOT, name, NewNode::File, 0o644, 0, caller());
            made.expect("a file is made").node
        }
    };
    let cut = SetAttributes {
        length: Some(0),
        ..Default::default()
    };
    view.set_attributes(node, cut, caller())
        .expect("a file is cut");
    view.write(node, 0, contents, false)
        .expect("a file is written");
    node
}

fn contents(view: &Open, name: &[u8]) -> Vec<u8> {
    let found = view.lookup(NodeId::ROOT, name).expect("it is there");
    let mut contents = vec![0; found.attributes.length as usize];
    view.read(found.node, 0, &mut contents, caller())
        .expect("a file is read");
    contents
}

#[test]
fn outer_view_with_a_nested_transaction_allows_only_contents_to_change() {
    let scratch = Scratch::new();
    create(&scratch.0);
    std::fs::write(scratch.0.join("old"), "old").expect("the base can be written");
    let store = open(&scratch.0);
    let outer = begin(&store);
    let output = file(&outer, b"output", b"");
    let nested = begin_nested(&store, &outer);
    assert!(matches!(
        store.commit(&outer),
        Err(CommitError::Nested { .. })
    ));
    assert!(outer.set_savepoint(b"now").is_err());
    let created = outer.create(NodeId::ROOT, b"new", NewNode::File, 0o644, 0, caller());
    assert_eq!(created.map(|_| ()), Err(Errno::BUSY));
    assert_eq!(outer.unlink(NodeId::ROOT, b"output"), Err(Errno::BUSY));

    outer
        .write(output, 0, b"redirected", false)
        .expect("written");
    // The outer transaction looks this file up for the first time. The nested one will look it up
    // by itself.
    file(&outer, b"old", b"changed outside the nested one");
    file(&nested, b"made", b"made");
    assert_eq!(contents(&nested, b"output"), b"");
    assert_eq!(contents(&nested, b"old"), b"old");
    store.commit(&nested).expect("they changed different files");
    assert_eq!(contents(&outer, b"output"), b"redirected");
    assert_eq!(contents(&outer, b"made"), b"made");
    store.commit(&outer).expect("nobody is in the way");
    let base = |name: &str| std::fs::read(scratch.0.join(name)).expect("it is in the base");
    assert_eq!(base("output"), b"redirected");
    assert_eq!(base("old"), b"changed outside the nested one");
    assert_eq!(base("made"), b"made");
}

#[test]
fn nested_commit_conflicts_with_changes_of_the_outer_transaction() {
    let scratch = Scratch::new();
    create(&scratch.0);
    std::fs::write(scratch.0.join("both"), "old").expect("the base can be written");
    let store = open(&scratch.0);
    let outer = begin(&store);
    let nested = begin_nested(&store, &outer);
    file(&outer, b"both", b"outer");
    file(&nested, b"both", b"nested");
    match store.commit(&nested) {
        Err(CommitError::Conflict(conflicts)) => {
            assert_eq!(conflicts[0].path, b"both");
            let transaction = outer.id();
            assert_eq!(conflicts[0].by, ChangedBy::Outer { transaction });
        }
        other => panic!("{other:?}"),
    }
    assert!(nested.is_open());
    store.abort(&nested);
    assert_eq!(contents(&outer, b"both"), b"outer");
    store.commit(&outer).expect("nobody is in the way");
}

#[test]
fn nested_transactions_end_with_the_outer_one() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let outer = begin(&store);
    let middle = begin_nested(&store, &outer);
    let inner = begin_nested(&store, &middle);
    file(&inner, b"file", b"contents");
    store.abort(&outer);
    assert!(!middle.is_open() && !inner.is_open());
    assert_eq!(store.transactions().len(), 0);
    assert_eq!(store.check().report.staging_directories, 0);
    assert!(store.commit(&inner).is_err());
    assert_eq!(tree_of_base(&scratch.0), Tree::new());
}

/// A program may have a file of the snapshot open: its node stays usable after a rollback.
#[test]
fn rollback_keeps_nodes_of_the_snapshot_usable() {
    let scratch = Scratch::new();
    create(&scratch.0);
    std::fs::write(scratch.0.join("old"), "old").expect("the base can be written");
    let store = open(&scratch.0);
    let transaction = begin(&store);
    transaction.set_savepoint(b"start").expect("set");
    let old = transaction.lookup(NodeId::ROOT, b"old").expect("there");
    let new = file(&transaction, b"new", b"new");
    transaction.unlink(NodeId::ROOT, b"old").expect("removed");
    transaction.roll_back(b"start").expect("rolled back");
    let attributes = transaction.attributes(old.node).expect("it goes on");
    assert_eq!((attributes.links, attributes.length), (1, 3));
    let again = transaction.lookup(NodeId::ROOT, b"old").expect("there");
    assert_eq!(again.node, old.node);
    assert_eq!(transaction.attributes(new).map(|_| ()), Err(Errno::STALE));
    assert!(
        transaction
            .changes()
            .expect("changes are listed")
            .is_empty()
    );
    assert!(transaction.roll_back(b"never").is_err());
    let committed = store.commit(&transaction).expect("nothing to do");
    assert_eq!(committed.sequence, None);
}

/// How many objects the transaction has staged.
fn staged(scratch: &Scratch, transaction: &Open) -> usize {
    let stage = scratch.0.join(".atomdir/stage");
    let stage = std::fs::read_dir(stage.join(transaction.id().to_string()));
    stage.map_or(0, Iterator::count)
}

#[test]
fn dropped_states_remove_their_staged_files() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let outer = begin(&store);
    let write = |view: &Open, name: &[u8]| {
        let node = file(view, name, b"contents");
        view.forget(node, u64::MAX);
    };
    let remove = |view: &Open, name: &[u8]| {
        view.unlink(NodeId::ROOT, name).expect("removed");
    };
    write(&outer, b"kept");
    let nested = begin_nested(&store, &outer);
    write(&nested, b"kept");
    write(&nested, b"new");
    assert_eq!(staged(&scratch, &outer), 3);
    store.abort(&nested);
    assert_eq!(staged(&scratch, &outer), 1);

    let nested = begin_nested(&store, &outer);
    write(&nested, b"kept");
    write(&nested, b"new");
    nested.set_savepoint(b"here").expect("set");
    write(&nested, b"new");
    remove(&nested, b"kept");
    assert_eq!(staged(&scratch, &outer), 4);
    store.commit(&nested).expect("committed");
    assert_eq!(staged(&scratch, &outer), 1, "only the new one is left");

    outer.set_savepoint(b"first").expect("set");
    write(&outer, b"new");
    outer.set_savepoint(b"second").expect("set");
    write(&outer, b"new");
    write(&outer, b"other");
    assert_eq!(staged(&scratch, &outer), 4);
    outer.roll_back(b"second").expect("rolled back");
    assert_eq!(staged(&scratch, &outer), 2);
    outer.roll_back(b"first").expect("rolled back");
    assert_eq!(staged(&scratch, &outer), 1);
    remove(&outer, b"new");
    assert_eq!(staged(&scratch, &outer), 1, "the savepoint needs it");
    outer.roll_back(b"first").expect("rolled back");
    assert_eq!(contents(&outer, b"new"), b"contents");
}

/// Programs in the outer transaction may have a file open that a nested one removes.
#[test]
fn open_file_survives_removal_by_a_nested_transaction() {
    let scratch = Scratch::new();
    create(&scratch.0);
    std::fs::write(scratch.0.join("old"), "old").expect("the base can be written");
    let store = open(&scratch.0);
    let outer = begin(&store);
    let old = outer.lookup(NodeId::ROOT, b"old").expect("there").node;
    let new = file(&outer, b"new", b"new");
    let nested = begin_nested(&store, &outer);
    for name in [b"old", b"new"] {
        let node = nested.lookup(NodeId::ROOT, name).expect("there").node;
        nested.unlink(NodeId::ROOT, name).expect("removed");
        nested.forget(node, u64::MAX);
    }
    store.commit(&nested).expect("nobody is in the way");
    for node in [old, new] {
        let mut contents = [0; 3];
        assert_eq!(outer.attributes(node).expect("open").links, 0);
        outer.read(node, 0, &mut contents, caller()).expect("read");
        assert!([b"old", b"new"].contains(&&contents));
        outer.write(node, 0, b"late", false).expect("written");
        outer.forget(node, u64::MAX);
    }
    assert!(outer.list(NodeId::ROOT).expect("listed").is_empty());
    let lines = outer.changes().expect("changes are listed");
    assert_eq!(lines.len(), 1, "{lines:?}");
    store.commit(&outer).expect("nobody is in the way");
    assert_eq!(tree_of_base(&scratch.0), Tree::new());
}

/// A directory that comes back gets a new node, since the kernel allows no new entries in
/// one that it has removed.
#[test]
fn recreated_directory_gets_a_new_node() {
    let scratch = Scratch::new();
    create(&scratch.0);
    std::fs::create_dir(scratch.0.join("old")).expect("the base can be changed");
    let store = open(&scratch.0);
    let transaction = begin(&store);
    let made = transaction.create(NodeId::ROOT, b"new", NewNode::Directory, 0o755, 0, caller());
    let known = [
        transaction
            .lookup(NodeId::ROOT, b"old")
            .expect("there")
            .node,
        made.expect("made").node,
    ];
    transaction.set_savepoint(b"here").expect("set");
    for _ in 0..2 {
        for name in [b"old", b"new"] {
            let removed = transaction.remove_directory(NodeId::ROOT, name);
            removed.expect("removed");
        }
        transaction.roll_back(b"here").expect("rolled back");
        for (name, node) in [b"old", b"new"].into_iter().zip(known) {
            let found = transaction.lookup(NodeId::ROOT, name).expect("it is back");
            assert_ne!(found.node, node);
            let gone = transaction.attributes(node).map(|_| ());
            assert_eq!(gone, Err(Errno::STALE));
            let within = transaction.create(found.node, b"x", NewNode::File, 0o644, 0, caller());
            within.expect("something can be made in it");
            transaction.unlink(found.node, b"x").expect("removed");
        }
    }
    store.commit(&transaction).expect("nobody is in the way");
    assert!(scratch.0.join("new").exists() && scratch.0.join("old").exists());
}

/// A program's lookup may be overlayfs's, which copies something up meanwhile, and then apply waits
/// for its end (`base::moving`). So the begin must not wait for apply with the view locked.
#[test]
fn view_answers_while_a_nested_begin_waits_for_an_apply() {
    /// So many ids are reserved at first.
    const IDS: usize = 16;
    const LOOKUPS: usize = 300;
    let scratch = Scratch::new();
    let disk = FailingDisk::new(Errno::IO, false);
    create_with(&disk, &scratch.0);
    let store = Arc::new(open_with(disk.clone(), &scratch.0).expect("the store opens"));
    let (outer, other) = (begin(&store), begin(&store));
    for _ in 2..IDS {
        store.abort(&begin(&store));
    }
    other
        .create(NodeId::ROOT, b"file", NewNode::File, 0o644, 0, caller())
        .expect("the name is free");
    let nesting = Arc::new(std::sync::Mutex::new(None));
    let (started, of_store, of_outer) = (nesting.clone(), store.clone(), outer.clone());
    disk.intrude_at_apply(move || {
        let (store, outer) = (of_store, of_outer.clone());
        let thread = std::thread::spawn(move || begin_nested(&store, &outer).id());
        *started.lock().expect("no test panics with it") = Some(thread);
        for _ in 0..LOOKUPS {
            let found = of_outer.lookup(NodeId::ROOT, b"missing");
            assert_eq!(found.err(), Some(Errno::NOENT));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    store.commit(&other).expect("nobody else changes it");
    let thread = nesting.lock().expect("no test panics with it").take();
    let nested = thread.expect("the commit was applied").join();
    assert_eq!(nested.expect("it has begun").0, IDS as u64 + 1);
}
