//! Something makes a lazy commit impossible after it has returned: its transaction is open again
//! with all its changes, the store goes on, and tries the commit again. `ATOMDIR_SEED=n` replays
//! one run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::failing::FailingDisk;
use crate::support::model::{Model, caller};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{
    EVERYTHING, Random, Scratch, begin, create, open_history, open_keeping, options, seeds,
};
use atomdir_engine::{
    BeginOptions, CommitError, Conflicts, Durability, NewNode, NodeId, Sequence, Store, StoreError,
    Transaction,
};
use atomdir_testing::pick;

type TestStore = Store<FailingDisk>;
type Open = Arc<Transaction<FailingDisk>>;

fn open_store(scratch: &Scratch) -> (FailingDisk, TestStore) {
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_keeping(disk.clone(), &scratch.0, Some(EVERYTHING));
    (disk, store.expect("the store opens"))
}

fn begin_lazy(store: &TestStore) -> Open {
    let lazy = BeginOptions {
        durability: Durability::Lazy,
        ..options()
    };
    store.begin(lazy).expect("a transaction begins")
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).expect("it is there").ino()
}

fn write(view: &Open, name: &str, bytes: &[u8]) {
    let found = view.resolve(name.as_bytes()).expect("the view resolves");
    let node = found.expect("it is there");
    view.write(node, 0, bytes, false).expect("it is written");
}

fn shown(view: &Open, name: &str) -> String {
    let found = view.resolve(name.as_bytes()).expect("the view resolves");
    let mut buffer = [0; 8];
    let read = view.read(found.expect("it is there"), 0, &mut buffer, caller());
    let length = read.expect("it is read");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

fn make(view: &Open, name: &str) {
    let made = view.create(
        NodeId::ROOT,
        name.as_bytes(),
        NewNode::Directory,
        0o755,
        0,
        caller(),
    );
    made.expect("the name is free");
}

fn remove(view: &Open, name: &str) {
    let removed = view.remove_directory(NodeId::ROOT, name.as_bytes());
    removed.expect("it is empty");
}

fn ids(store: &TestStore) -> Vec<(u64, bool)> {
    let aside = store.set_aside();
    let of = |one: &atomdir_engine::SetAside| (one.transaction.0, one.is_retried);
    aside.iter().map(of).collect()
}

fn commits(store: &TestStore) -> Vec<u64> {
    let commits = store.commits().expect("the history is read");
    commits
        .iter()
        .map(|commit| commit.summary.sequence.0)
        .collect()
}

fn no_problems(store: &TestStore, context: &str) {
    assert_eq!(store.check().problems, Vec::<String>::new(), "{context}");
}

struct Files {
    scratch: Scratch,
    disk: FailingDisk,
    store: TestStore,
}

impl Files {
    /// A store with the files `a` and `b`, whose contents are `old`.
    fn new() -> Files {
        let scratch = Scratch::new();
        for name in ["a", "b"] {
            fs::write(scratch.0.join(name), "old").expect("it is written");
        }
        let (disk, store) = open_store(&scratch);
        Files {
            scratch,
            disk,
            store,
        }
    }

    fn obstruct(&self, name: Option<&str>) {
        let inode = name.map(|name| inode(&self.scratch.0.join(name)));
        self.disk.seem_mounted(inode);
    }

    /// A lazy commit to `a` that is set aside.
    fn set_aside(&self) -> Open {
        let lazy = begin_lazy(&self.store);
        write(&lazy, "a", b"new");
        self.store.commit(&lazy).expect("nobody is in the way");
        self.obstruct(Some("a"));
        self.store.sync().expect("others can commit");
        assert_eq!(ids(&self.store), [(lazy.id().0, true)]);
        assert_eq!(self.read("a"), "old");
        lazy
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.scratch.0.join(name)).expect("it is read")
    }
}

#[test]
fn lazy_commit_is_set_aside_while_others_commit_and_is_tried_again() {
    let files = Files::new();
    let store = &files.store;
    let (lazy, ahead) = (begin_lazy(store), begin_lazy(store));
    write(&ahead, "b", b"new");
    store.commit(&ahead).expect("nobody is in the way");
    write(&lazy, "a", b"new");
    let sequence = store.commit(&lazy).expect("nobody is in the way").sequence;
    assert!(!lazy.is_open() && store.transactions().is_empty());
    files.obstruct(Some("a"));
    assert_eq!(commits(store), [1], "the second one never appears");
    let aside = store.set_aside();
    assert_eq!(aside.len(), 1);
    assert_eq!(Some(aside[0].sequence), sequence);
    let text = aside[0].to_string();
    assert!(
        text.contains("'a'") && text.contains("mounted") && text.contains("tried again"),
        "{text}"
    );
    assert_eq!(store.status().stalled, None);
    assert_eq!((&*files.read("a"), &*files.read("b")), ("old", "new"));
    files.obstruct(None);
    // Its snapshot is the old one, although the commit ahead of it has landed.
    assert_eq!((&*shown(&lazy, "a"), &*shown(&lazy, "b")), ("new", "old"));
    files.obstruct(Some("a"));
    let other = begin(store);
    make(&other, "other");
    store.commit(&other).expect("nobody is in the way");
    assert!(!store.retry_set_aside(&lazy));
    assert_eq!(ids(store), [(lazy.id().0, true)]);
    files.obstruct(None);
    assert!(store.needs_maintenance());
    assert!(store.retry_set_aside(&lazy));
    assert_eq!(ids(store), []);
    store.sync().expect("nothing is in the way");
    assert_eq!(files.read("a"), "new");
    assert_eq!(commits(store), [1, 4, 5]);
    no_problems(store, "");
}

#[test]
fn a_retry_does_not_commit_what_the_user_changes() {
    let files = Files::new();
    let lazy = files.set_aside();
    files.obstruct(None);
    write(&lazy, "b", b"mine");
    assert_eq!(ids(&files.store), [(lazy.id().0, false)]);
    assert!(!files.store.retry_set_aside(&lazy));
    files.store.sync().expect("nothing is in the way");
    assert_eq!((&*files.read("a"), &*files.read("b")), ("old", "old"));
    files.store.commit(&lazy).expect("nobody is in the way");
    files.store.sync().expect("nothing is in the way");
    assert_eq!((&*files.read("a"), &*files.read("b")), ("new", "mine"));
    assert_eq!(ids(&files.store), []);
}

#[test]
fn retry_that_conflicts_leaves_the_transaction_to_its_user() {
    let files = Files::new();
    let lazy = files.set_aside();
    files.obstruct(None);
    let other = begin(&files.store);
    write(&other, "a", b"foreign");
    files.store.commit(&other).expect("nobody is in the way");
    assert!(!files.store.retry_set_aside(&lazy));
    assert_eq!(ids(&files.store), [(lazy.id().0, false)]);
    assert!(files.store.set_aside_due().is_empty());
    let text = files.store.set_aside()[0].to_string();
    assert!(
        text.contains("conflict") && text.contains("abort"),
        "{text}"
    );
    let refused = files.store.commit(&lazy);
    assert!(matches!(refused, Err(CommitError::Conflict(_))));
    assert_eq!(shown(&lazy, "a"), "new");
    assert!(files.store.abort(&lazy));
    assert_eq!(ids(&files.store), []);
    assert_eq!(files.read("a"), "foreign");
}

/// A transaction with early conflicts still meets the conflict when it writes.
#[test]
fn early_conflicts_note_the_writes_of_a_commit_set_aside() {
    let files = Files::new();
    let begin = || {
        let early = BeginOptions {
            durability: Durability::Lazy,
            conflicts: Conflicts::Early,
            ..options()
        };
        files.store.begin(early).expect("a transaction begins")
    };
    let lazy = begin();
    write(&lazy, "a", b"new");
    files.store.commit(&lazy).expect("nobody is in the way");
    files.obstruct(Some("a"));
    files.store.sync().expect("others can commit");
    files.obstruct(None);
    let other = begin();
    let node = other.resolve(b"a").expect("the view resolves");
    let written = other.write(node.expect("it is there"), 0, b"late", false);
    assert!(written.is_err() && !other.met().is_empty());
}

#[test]
fn set_aside_transaction_that_survives_is_open_after_a_kill() {
    let files = Files::new();
    let lazy = begin_lazy(&files.store);
    files.store.survive(&lazy, vec![]).expect("it can survive");
    write(&lazy, "a", b"new");
    files.store.commit(&lazy).expect("nobody is in the way");
    files.obstruct(Some("a"));
    files.store.sync().expect("others can commit");
    let id = lazy.id();
    let Files {
        scratch,
        disk,
        store,
    } = files;
    drop((lazy, store, disk));
    let store = open_history(&scratch.0);
    let open = store.transaction(id).expect("it has survived");
    assert_eq!(fs::read(scratch.0.join("a")).expect("it is read"), b"old");
    store.commit(&open).expect("nobody is in the way");
    store.sync().expect("nothing is in the way");
    assert_eq!(fs::read(scratch.0.join("a")).expect("it is read"), b"new");
}

/// The paths of all objects in the base.
fn paths_in(root: &Path) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let paths = tree_of_base(root).into_keys();
    let path = |path| root.join(std::ffi::OsString::from_vec(path));
    paths.map(path).collect()
}

/// In round n the obstacle appears before the n-th change after a lazy commit has returned. The
/// commit is applied, set aside or stalled. The outcome always equals the model, and the commit
/// behind it lands.
#[test]
fn an_obstacle_at_any_step_after_random_lazy_commits_loses_nothing() {
    let (mut aside, mut stalled) = (0, 0);
    for seed in seeds(pick(6, 60)) {
        println!("ATOMDIR_SEED={seed}");
        for number in 0.. {
            match obstruct(seed, number) {
                None => break,
                Some(Met::SetAside) => aside += 1,
                Some(Met::Stalled) => stalled += 1,
                Some(Met::Nothing) => {}
            }
        }
    }
    println!("{aside} set aside, {stalled} stalled");
    assert!(std::env::var_os("ATOMDIR_SEED").is_some() || aside > 5);
}

enum Met {
    Nothing,
    SetAside,
    Stalled,
}

fn obstruct(seed: u64, number: usize) -> Option<Met> {
    let scratch = Scratch::new();
    let (disk, store) = open_store(&scratch);
    let mut random = Random::new(seed);
    let mut model = Model::new();
    for _ in 0..2 {
        let transaction = begin(&store);
        (0..12).for_each(|_| model.step(&mut random, &transaction));
        store.commit(&transaction).expect("nobody is in the way");
    }
    let before = model.clone();
    let older = seed.is_multiple_of(2).then(|| begin(&store));
    let (lazy, behind) = (begin_lazy(&store), begin_lazy(&store));
    if seed.is_multiple_of(3) {
        store.survive(&lazy, vec![]).expect("it can survive");
    }
    (0..15).for_each(|_| model.step(&mut random, &lazy));
    make(&behind, "behind");
    let paths = paths_in(&scratch.0);
    if paths.is_empty() {
        return None;
    }
    let obstacle = inode(&paths[random.below(paths.len())]);
    store.commit(&lazy).expect("nobody is in the way");
    let other_disk = disk.clone();
    disk.intrude_before(number, move || other_disk.seem_mounted(Some(obstacle)));
    let queued = store.commit(&behind);
    let synced = match &queued {
        Ok(_) => store.sync(),
        // It changes what the first one changes, so the first one had to be applied before, and
        // stalled.
        Err(CommitError::Store(stalled)) => Err(stalled.clone()),
        Err(error) => panic!("seed {seed}, change {number}: {error}"),
    };
    if disk.awaits_intruder() {
        return None;
    }
    let context = format!("seed {seed}, change {number}");
    let met = match synced {
        Ok(()) if store.set_aside().is_empty() => Met::Nothing,
        Ok(()) => {
            assert!(scratch.0.join("behind").exists(), "{context}");
            let other = begin(&store);
            make(&other, "beside");
            store.commit(&other).expect("nobody is in the way");
            assert!(!store.retry_set_aside(&lazy), "{context}");
            disk.seem_mounted(None);
            let again = begin(&store);
            remove(&again, "beside");
            store.commit(&again).expect("nobody is in the way");
            if number.is_multiple_of(3) {
                return died(&scratch, (lazy, store), (&before, &model), &context);
            }
            assert_eq!(tree_of_view(&lazy), model.tree(), "{context}");
            assert!(store.retry_set_aside(&lazy), "{context}");
            Met::SetAside
        }
        Err(StoreError::Stalled(_)) => {
            disk.seem_mounted(None);
            if queued.is_err() {
                store.commit(&behind).expect("nobody is in the way");
            }
            Met::Stalled
        }
        Err(error) => panic!("{context}: {error}"),
    };
    disk.seem_mounted(None);
    store.sync().expect("nothing is in the way");
    let last = begin(&store);
    remove(&last, "behind");
    store.commit(&last).expect("nobody is in the way");
    assert_eq!(ids(&store), [], "{context}");
    assert_eq!(tree_of_base(&scratch.0), model.tree(), "{context}");
    if let Some(older) = &older {
        assert_eq!(tree_of_view(older), before.tree(), "{context}");
        store.abort(older);
    }
    no_problems(&store, &context);
    drop((lazy, behind, last, older));
    if number.is_multiple_of(2) {
        store.close().expect("the store closes");
    }
    drop(store);
    let store = open_history(&scratch.0);
    assert_eq!(tree_of_base(&scratch.0), model.tree(), "{context}");
    assert_eq!(store.check().problems, Vec::<String>::new(), "{context}");
    assert!(store.transactions().is_empty() && store.stranded().is_empty());
    Some(met)
}

/// The process dies while the transaction is set aside. The base has none of its changes. If the
/// transaction survives, it still shows them, although others have committed since.
fn died(
    scratch: &Scratch,
    (lazy, store): (Open, TestStore),
    (before, model): (&Model, &Model),
    context: &str,
) -> Option<Met> {
    let survives = lazy.survives();
    let id = lazy.id();
    drop((lazy, store));
    let store = open_history(&scratch.0);
    assert_eq!(store.stranded(), [], "{context}");
    let found = store.transaction(id);
    assert_eq!(found.is_some(), survives, "{context}");
    if let Some(found) = found {
        assert_eq!(tree_of_view(&found), model.tree(), "{context}");
        store.abort(&found);
    }
    let last = store.begin(options()).expect("a transaction begins");
    let removed = last.remove_directory(NodeId::ROOT, b"behind");
    removed.expect("it is empty");
    store.commit(&last).expect("nobody is in the way");
    assert_eq!(tree_of_base(&scratch.0), before.tree(), "{context}");
    assert!(model.tree() != before.tree() || !survives, "{context}");
    assert_eq!(store.check().problems, Vec::<String>::new(), "{context}");
    Some(Met::SetAside)
}

#[test]
fn sequence_of_a_commit_set_aside_cannot_be_undone() {
    let files = Files::new();
    let lazy = files.set_aside();
    files.obstruct(None);
    assert!(files.store.retry_set_aside(&lazy));
    assert!(files.store.undo(&[Sequence(1)], &[], options()).is_err());
    let undone = files.store.undo(&[Sequence(3)], &[], options());
    files
        .store
        .commit(&undone.expect("it is kept"))
        .expect("nobody is in the way");
    assert_eq!(files.read("a"), "old");
}
