//! Something makes a durable commit impossible after its check: the commit is cancelled, its
//! transaction stays open, and the store goes on. `ATOMDIR_SEED=n` replays one run.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::thread;

use crate::support::failing::FailingDisk;
use crate::support::model::{Model, caller};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{
    EVERYTHING, Random, Scratch, begin, create, open_as, open_history, open_keeping, options, seeds,
};
use atomdir_disk::RenameMode;
use atomdir_engine::{
    BeginOptions, CommitError, Durability, NewNode, NodeId, Portion, Privileges, Sequence,
    SetAttributes, Store, StoreError, Transaction,
};
use atomdir_testing::{pick, skip, wait_until};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const ROOT: NodeId = NodeId::ROOT;

type TestStore = Store<FailingDisk>;

fn open_store(scratch: &Scratch) -> (FailingDisk, TestStore) {
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_keeping(disk.clone(), &scratch.0, Some(EVERYTHING));
    (disk, store.expect("the store opens"))
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).expect("it is there").ino()
}

fn write(view: &Transaction<FailingDisk>, name: &str, bytes: &[u8]) {
    let found = view.resolve(name.as_bytes()).expect("the view resolves");
    let node = found.expect("it is there");
    view.write(node, 0, bytes, false).expect("it is written");
}

fn make(view: &Transaction<FailingDisk>, name: &str) {
    let made = view.create(
        ROOT,
        name.as_bytes(),
        NewNode::Directory,
        0o755,
        0,
        caller(),
    );
    made.expect("the name is free");
}

fn rename(view: &Transaction<FailingDisk>, from: &str, to: &str) {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let renamed = view.rename(ROOT, from, ROOT, to, RenameMode::NoReplace);
    renamed.expect("the name is free");
}

fn commits(store: &TestStore) -> Vec<u64> {
    let commits = store.commits().expect("the history is read");
    commits
        .iter()
        .map(|commit| commit.summary.sequence.0)
        .collect()
}

/// A file system is mounted on a directory right after the log's flush.
#[test]
fn a_mount_after_the_check_refuses_the_commit_and_the_store_goes_on() {
    let scratch = Scratch::new();
    let point = scratch.0.join("d");
    fs::create_dir(&point).expect("the name is free");
    fs::write(scratch.0.join("beside"), "old").expect("it is written");
    let (disk, store) = open_store(&scratch);
    let older = begin(&store);
    let transaction = begin(&store);
    rename(&transaction, "d", "e");
    write(&transaction, "beside", b"new");
    let at = point.clone();
    disk.intrude_after_flush(move || {
        // Without the right to mount, nothing is there.
        let _ = mount("none", &at, "tmpfs", MountFlags::empty(), None);
    });
    let refused = store.commit(&transaction);
    let Err(refused) = refused else {
        return skip("cancelled", "only root can mount file systems");
    };
    let text = refused.to_string();
    assert!(matches!(refused, CommitError::MountPoint { .. }), "{text}");
    assert!(
        text.contains("'d'") && text.contains("commit again"),
        "{text}"
    );
    assert!(transaction.is_open() && !scratch.0.join("e").exists());
    let beside = || fs::read(scratch.0.join("beside")).expect("it is read");
    assert_eq!(beside(), b"old");
    assert_eq!(store.status().stalled, None);
    let other = begin(&store);
    make(&other, "other");
    let sequence = store.commit(&other).expect("nobody is in the way").sequence;
    assert_eq!(sequence, Some(Sequence(3)));
    unmount(&point, UnmountFlags::DETACH).expect("it is mounted");
    store.commit(&transaction).expect("nobody is in the way");
    assert_eq!(beside(), b"new");
    assert!(scratch.0.join("e").exists() && !point.exists());
    let node = older.resolve(b"beside").expect("the view resolves");
    let mut buffer = [0; 3];
    let read = older.read(node.expect("it is there"), 0, &mut buffer, caller());
    assert_eq!((read, &buffer), (Ok(3), b"old"));
    assert_eq!(commits(&store), [3, 4]);
    assert_eq!(store.check().problems, Vec::<String>::new());
}

/// The cancelled commit and the record that cancels it each use up a sequence number. The base is
/// unchanged.
#[test]
fn transaction_whose_commit_was_cancelled_survives_its_service() {
    for has_checkpoint in [false, true] {
        let scratch = Scratch::new();
        let point = scratch.0.join("d");
        fs::create_dir(&point).expect("the name is free");
        let (disk, store) = open_store(&scratch);
        let first = begin(&store);
        make(&first, "first");
        store.commit(&first).expect("nobody is in the way");
        let transaction = begin(&store);
        let id = transaction.id();
        rename(&transaction, "d", "e");
        store.survive(&transaction, Vec::new()).expect("it can");
        let at = point.clone();
        disk.intrude_after_flush(move || {
            // Without the right to mount, nothing is there.
            let _ = mount("none", &at, "tmpfs", MountFlags::empty(), None);
        });
        if store.commit(&transaction).is_ok() {
            return skip("cancelled", "only root can mount file systems");
        }
        unmount(&point, UnmountFlags::DETACH).expect("it is mounted");
        if has_checkpoint {
            store.checkpoint().expect("a checkpoint works");
        }
        let shown = tree_of_view(&transaction);
        drop((first, transaction, store));
        let store = open_keeping(disk, &scratch.0, Some(EVERYTHING)).expect("it opens again");
        let transaction = store.transaction(id);
        let transaction = transaction.unwrap_or_else(|| panic!("{:?}", store.stranded()));
        assert_eq!(tree_of_view(&transaction), shown);
        let committed = store.commit(&transaction).expect("nobody is in the way");
        assert_eq!(committed.sequence, Some(Sequence(4)));
        assert!(scratch.0.join("e").exists() && !point.exists());
    }
}

/// After the check the directory becomes root's. The store has the privileges of its former owner
/// only.
#[test]
fn an_owner_changed_after_the_check_refuses_the_commit() {
    if !rustix::process::geteuid().is_root() {
        return skip("cancelled", "only root can change owners");
    }
    const USER: u32 = 4321;
    let scratch = Scratch::new();
    let directory = scratch.0.join("d");
    fs::create_dir(&directory).expect("the name is free");
    chown(&directory, Some(USER), Some(USER)).expect("we are root");
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let privileges = Privileges {
        user: USER,
        groups: vec![USER],
        all: false,
    };
    let store = open_as(disk.clone(), &scratch.0, privileges, Some(EVERYTHING));
    let store = store.expect("the store opens");
    let transaction = begin(&store);
    let node = transaction.resolve(b"d").expect("the view resolves");
    let mode = SetAttributes {
        mode: Some(0o700),
        ..SetAttributes::default()
    };
    let changed = transaction.set_attributes(node.expect("it is there"), mode, caller());
    changed.expect("it is changed");
    disk.intrude_after_flush(move || chown(&directory, Some(0), None).expect("we are root"));
    let refused = store.commit(&transaction).expect_err("it is root's");
    assert!(matches!(refused, CommitError::Conflict(_)), "{refused}");
    assert!(transaction.is_open() && store.status().stalled.is_none());
    let other = begin(&store);
    make(&other, "other");
    store.commit(&other).expect("nobody is in the way");
}

/// The paths of all objects in the base.
fn paths_in(root: &Path) -> Vec<PathBuf> {
    let paths = tree_of_base(root).into_keys();
    use std::os::unix::ffi::OsStringExt;
    let path = |path| root.join(std::ffi::OsString::from_vec(path));
    paths.map(path).collect()
}

/// In round n the obstacle appears before the n-th change of a commit, from its preparation to the
/// end of its apply. The commit is refused, cancelled or stalled, or not affected. The outcome
/// always equals the model.
#[test]
fn an_obstacle_at_any_step_of_random_commits_loses_nothing() {
    let (mut refused, mut stalled) = (0, 0);
    for seed in seeds(pick(6, 60)) {
        println!("ATOMDIR_SEED={seed}");
        for number in 0.. {
            match obstruct(seed, number) {
                None => break,
                Some(Met::Refused) => refused += 1,
                Some(Met::Stalled) => stalled += 1,
                Some(Met::Nothing) => {}
            }
        }
    }
    println!("{refused} refused or cancelled, {stalled} stalled");
    assert!(std::env::var_os("ATOMDIR_SEED").is_some() || refused > 40);
}

enum Met {
    Nothing,
    Refused,
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
    let older = seed.is_multiple_of(2).then(|| begin(&store));
    let before = model.clone();
    let transaction = begin(&store);
    (0..15).for_each(|_| model.step(&mut random, &transaction));
    let paths = paths_in(&scratch.0);
    if paths.is_empty() {
        return None;
    }
    let obstacle = inode(&paths[random.below(paths.len())]);
    let other_disk = disk.clone();
    disk.intrude_before(number, move || other_disk.seem_mounted(Some(obstacle)));
    let committed = store.commit(&transaction);
    if disk.awaits_intruder() {
        return None;
    }
    let context = format!("seed {seed}, change {number}");
    let met = match committed {
        Ok(committed) if committed.stalled.is_some() => {
            disk.seem_mounted(None);
            store.sync().expect("nothing is in the way");
            Met::Stalled
        }
        Ok(_) => Met::Nothing,
        Err(CommitError::MountPoint { .. } | CommitError::Io { .. } | CommitError::Conflict(_)) => {
            assert_eq!(tree_of_base(&scratch.0), before.tree(), "{context}");
            let other = begin(&store);
            make(&other, "beside");
            store.commit(&other).expect("nobody is in the way");
            disk.seem_mounted(None);
            assert_eq!(tree_of_view(&transaction), model.tree(), "{context}");
            let again = begin(&store);
            let removed = again.remove_directory(ROOT, b"beside");
            removed.expect("it is empty");
            store.commit(&again).expect("nobody is in the way");
            let committed = store.commit(&transaction);
            committed.unwrap_or_else(|error| panic!("{context}: {error}"));
            Met::Refused
        }
        Err(error) => panic!("{context}: {error}"),
    };
    disk.seem_mounted(None);
    assert_eq!(tree_of_base(&scratch.0), model.tree(), "{context}");
    if let Some(older) = &older {
        assert_eq!(tree_of_view(older), before.tree(), "{context}");
        store.abort(older);
    }
    assert_eq!(store.check().problems, Vec::<String>::new(), "{context}");
    // A cancelled commit stays cancelled whether its record is still in the log (odd rounds) or
    // not.
    drop((transaction, older));
    if number.is_multiple_of(2) {
        store.close().expect("the store closes");
    }
    drop(store);
    let store = open_history(&scratch.0);
    assert_eq!(tree_of_base(&scratch.0), model.tree(), "{context}");
    assert_eq!(store.check().problems, Vec::<String>::new(), "{context}");
    Some(met)
}

/// Commits that wait for the same flush go on without the one that is cancelled.
#[test]
fn commits_behind_a_cancelled_one_are_applied() {
    let scratch = Scratch::new();
    let file = scratch.0.join("file");
    fs::write(&file, "old").expect("it is written");
    let (disk, store) = open_store(&scratch);
    let (first, second) = (begin(&store), begin(&store));
    write(&first, "file", b"new");
    make(&second, "new");
    let obstacle = inode(&file);
    let contents = || fs::read(&file).expect("it is read");
    let start = store.status().sequence.0;
    let refused = thread::scope(|scope| {
        let held = disk.flushes.lock().expect("no test panics with it");
        let wait_for = |sequence| {
            wait_until("the commit in the log", || {
                store.status().sequence.0 >= sequence
            });
        };
        let first = scope.spawn(|| store.commit(&first));
        wait_for(start + 1);
        let second = scope.spawn(|| store.commit(&second));
        wait_for(start + 2);
        disk.seem_mounted(Some(obstacle));
        drop(held);
        let second = second.join().expect("no panic");
        assert_eq!(second.expect("it is apart").stalled, None);
        first.join().expect("no panic")
    });
    assert!(
        matches!(refused, Err(CommitError::MountPoint { .. })),
        "{refused:?}"
    );
    assert!(scratch.0.join("new").exists() && contents() == b"old");
    disk.seem_mounted(None);
    store.commit(&first).expect("nobody is in the way");
    assert_eq!(commits(&store), [start + 2, start + 4]);
    drop((first, second, store));
    let store = open_history(&scratch.0);
    assert!(scratch.0.join("new").exists() && contents() == b"new");
    let past = store.past(Sequence(start + 3), options());
    let past = past.expect("nothing has changed in between").transaction;
    assert!(past.resolve(b"new").expect("the view resolves").is_some());
    store.abort(&past);
    let undone = store.undo(&[Sequence(start + 1)], &[], options());
    assert!(undone.is_err(), "it did not happen");
    let all: Vec<Sequence> = (start + 1..=start + 4).map(Sequence).collect();
    let undone = store.undo(&all, &[], options()).expect("all is kept");
    store.commit(&undone).expect("nobody is in the way");
    assert!(!scratch.0.join("new").exists() && contents() == b"old");
}

/// The part stays in the transaction when its commit is cancelled.
#[test]
fn a_part_that_is_cancelled_stays_in_the_transaction() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.0.join("d")).expect("the name is free");
    let (disk, store) = open_store(&scratch);
    let transaction = begin(&store);
    rename(&transaction, "d", "e");
    make(&transaction, "rest");
    let (obstacle, mounts) = (inode(&scratch.0.join("d")), disk.clone());
    disk.intrude_after_flush(move || mounts.seem_mounted(Some(obstacle)));
    let paths = [b"e".to_vec(), b"d".to_vec()];
    let refused = store.commit_portion(&transaction, Portion::part(&paths), &mut |_| {});
    assert!(
        matches!(refused, Err(CommitError::MountPoint { .. })),
        "{refused:?}"
    );
    assert!(transaction.is_open() && scratch.0.join("d").exists());
    disk.seem_mounted(None);
    let landed = store.commit_portion(&transaction, Portion::part(&paths), &mut |_| {});
    landed.expect("nobody is in the way");
    assert!(scratch.0.join("e").exists() && !scratch.0.join("rest").exists());
    store.commit(&transaction).expect("nobody is in the way");
    assert!(scratch.0.join("rest").exists());
    drop((transaction, store));
    assert_eq!(
        open_history(&scratch.0).check().problems,
        Vec::<String>::new()
    );
}

/// A commit that was reported as durable is not cancelled later.
#[test]
fn a_commit_reported_as_stalled_is_not_cancelled() {
    let scratch = Scratch::new();
    let [d, f] = ["d", "f"].map(|name| scratch.0.join(name));
    for file in [&d, &f] {
        fs::write(file, "old").expect("it is written");
    }
    let (disk, store) = open_store(&scratch);
    let durable = begin(&store);
    write(&durable, "f", b"new");
    let lazy = BeginOptions {
        durability: Durability::Lazy,
        ..options()
    };
    let lazy = store.begin(lazy).expect("a transaction begins");
    make(&lazy, "a");
    rename(&lazy, "d", "z");
    store.commit(&lazy).expect("nobody is in the way");
    let (obstacle, mounts) = (inode(&d), disk.clone());
    disk.intrude_at_apply(move || mounts.seem_mounted(Some(obstacle)));
    let committed = store.commit(&durable).expect("it is logged");
    let sequences = (
        committed.sequence,
        committed.stalled.map(|stalled| stalled.sequence),
    );
    assert_eq!(sequences, (Some(Sequence(2)), Some(Sequence(1))));
    assert!(!durable.is_open());
    disk.seem_mounted(Some(inode(&f)));
    let stalled = store.sync();
    assert!(
        matches!(&stalled, Err(StoreError::Stalled(stalled)) if stalled.sequence == Sequence(2)),
        "{stalled:?}"
    );
    disk.seem_mounted(None);
    store.sync().expect("nothing is in the way");
    assert!(scratch.0.join("z").exists() && !d.exists());
    assert_eq!(fs::read(f).expect("it is read"), b"new");
}
