//! Something makes it impossible to apply a commit after its second check: the commit is stalled.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Scratch, begin, create, create_with, open, open_with, options};
use atomdir_disk::{Disk, Errno, RenameMode};
use atomdir_engine::{
    BeginError, BeginOptions, CommitError, Durability, NewNode, NodeId, Store, StoreError,
    Transaction,
};
use atomdir_testing::skip;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

const ROOT: NodeId = NodeId::ROOT;

fn lazily<D: Disk>(store: &Store<D>, change: impl FnOnce(&Transaction<D>)) {
    let options = BeginOptions {
        durability: Durability::Lazy,
        ..options()
    };
    let transaction = store.begin(options).expect("a transaction begins");
    change(&transaction);
    store.commit(&transaction).expect("nobody is in the way");
}

fn node<D: Disk>(view: &Transaction<D>, path: &str) -> NodeId {
    let found = view.resolve(path.as_bytes()).expect("the view resolves");
    found.expect("it is there")
}

fn contents<D: Disk>(view: &Transaction<D>, path: &str) -> Vec<u8> {
    let mut buffer = [0; 64];
    let count = view.read(node(view, path), 0, &mut buffer, caller());
    buffer[..count.expect("it is read")].to_vec()
}

/// A file system that is mounted as long as this lives.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    /// Returns `None` if we may not mount.
    fn on(point: &'a Path) -> Option<Mount<'a>> {
        match mount("none", point, "tmpfs", MountFlags::empty(), None) {
            Ok(()) => Some(Mount(point)),
            Err(Errno::PERM) => None,
            Err(errno) => panic!("nothing can be mounted: {errno}"),
        }
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        unmount(self.0, UnmountFlags::DETACH).expect("it is mounted");
    }
}

/// Applies the pending lazy commit, while a file system is mounted on `point`, and asserts that it
/// is stalled. Returns `None` if we may not mount.
fn apply_beside_mount<'a>(
    disk: &FailingDisk,
    store: &Store<FailingDisk>,
    point: &'a Path,
) -> Option<Mount<'a>> {
    drop(Mount::on(point)?);
    let at = point.to_owned();
    disk.intrude_at_apply(move || std::mem::forget(Mount::on(&at)));
    assert_stalled(store.sync(), "d");
    Some(Mount(point))
}

fn assert_stalled<T>(result: Result<T, StoreError>, path: &str) {
    match result.err() {
        Some(StoreError::Stalled(stalled)) => {
            assert_eq!(stalled.path, path);
            assert!(stalled.reason.contains("mounted"), "{stalled}");
        }
        other => panic!("the store is not stalled: {other:?}"),
    }
}

/// Commits `change`, then mounts a file system on `d`, which the commit moves or removes.
/// `done` is true of the base once the commit is applied.
fn mounted_meanwhile(change: fn(&Transaction<FailingDisk>), done: fn(&Path) -> bool) {
    let scratch = Scratch::new();
    let point = scratch.0.join("d");
    fs::create_dir(&point).expect("the name is free");
    fs::write(point.join("inside"), "old").expect("it is written");
    fs::write(scratch.0.join("beside"), "old").expect("it is written");
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let older = begin(&store);
    let late = begin(&store);
    let made = late.write(node(&late, "beside"), 0, b"late", false);
    made.expect("it is written");
    lazily(&store, |transaction| {
        change(transaction);
        let beside = node(transaction, "beside");
        let written = transaction.write(beside, 0, b"new", false);
        written.expect("it is written");
    });
    let Some(mounted) = apply_beside_mount(&disk, &store, &point) else {
        return skip("mounted_meanwhile", "only root can mount file systems");
    };
    let status = store.status();
    assert_eq!((status.poisoned, status.stalled.is_some()), (None, true));
    match store.begin(options()) {
        Err(BeginError::Store(error)) => assert_stalled::<()>(Err(error), "d"),
        other => panic!("a transaction begins: {:?}", other.map(|begun| begun.id())),
    }
    match store.commit(&late) {
        Err(CommitError::Store(error)) => assert_stalled::<()>(Err(error), "d"),
        other => panic!("it is committed: {other:?}"),
    }
    assert!(late.is_open());
    assert_eq!(contents(&older, "beside"), b"old");
    assert_stalled(store.checkpoint(), "d");
    drop(mounted);
    assert_eq!(contents(&older, "d/inside"), b"old");
    store.abort(&begin(&store));
    assert_eq!(store.status().stalled, None);
    assert!(done(&scratch.0));
    let beside = fs::read(scratch.0.join("beside")).expect("it is read");
    assert_eq!(beside, b"new");
    assert_eq!(contents(&older, "d/inside"), b"old");
    let late = store.commit(&late);
    assert!(matches!(late, Err(CommitError::Conflict(_))), "{late:?}");
}

#[test]
fn mount_on_a_renamed_directory_stalls_the_store_until_unmounted() {
    mounted_meanwhile(
        |transaction| {
            let renamed = transaction.rename(ROOT, b"d", ROOT, b"e", RenameMode::NoReplace);
            renamed.expect("the name is free");
        },
        |root| root.join("e/inside").exists() && !root.join("d").exists(),
    );
}

#[test]
fn mount_on_a_removed_directory_stalls_the_store_until_unmounted() {
    mounted_meanwhile(
        |transaction| {
            let directory = node(transaction, "d");
            let removed = transaction.unlink(directory, b"inside");
            removed.expect("it is there");
            let removed = transaction.remove_directory(ROOT, b"d");
            removed.expect("it is empty");
        },
        |root| !root.join("d").exists(),
    );
}

/// The parts that were applied before the obstacle are not applied again.
#[test]
fn outside_changes_while_the_store_is_stalled_stay() {
    let scratch = Scratch::new();
    let point = scratch.0.join("d");
    fs::create_dir(&point).expect("the name is free");
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    lazily(&store, |transaction| {
        let made = transaction.create(ROOT, b"a", NewNode::File, 0o644, 0, caller());
        made.expect("the name is free");
        let renamed = transaction.rename(ROOT, b"d", ROOT, b"z", RenameMode::NoReplace);
        renamed.expect("the name is free");
    });
    let Some(mounted) = apply_beside_mount(&disk, &store, &point) else {
        return skip("stalled", "only root can mount file systems");
    };
    let made = scratch.0.join("a");
    assert!(made.exists(), "it is applied first");
    fs::remove_file(&made).expect("it is there");
    drop(mounted);
    store.sync().expect("nothing is in the way");
    assert!(!made.exists() && scratch.0.join("z").exists());
}

/// Commits that are published before they are in the base are applied together. An obstacle to one
/// of them stalls all, and they are applied together again.
#[test]
fn published_commits_stall_together_and_go_on_together() {
    let scratch = Scratch::new();
    let (point, source) = (scratch.0.join("f"), scratch.0.join("source"));
    for name in ["a", "f", "source"] {
        fs::write(scratch.0.join(name), format!("old {name}")).expect("it is written");
    }
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let make = |view: &Transaction<_>, name: &[u8]| {
        let made = view.create(ROOT, name, NewNode::File, 0o644, 0, caller());
        made.expect("the name is free");
    };
    let rewrite = |view: &Transaction<_>, path: &str, text: &[u8]| {
        let written = view.write(node(view, path), 0, text, false);
        written.expect("it is written");
    };
    let older = begin(&store);
    lazily(&store, |view| {
        rewrite(view, "a", b"one");
        make(view, b"passing");
    });
    let between = begin(&store);
    lazily(&store, |view| {
        rewrite(view, "a", b"two");
        rewrite(view, "f", b"two");
        view.unlink(ROOT, b"passing").expect("it is there");
        make(view, b"passing");
        make(view, b"z");
    });
    lazily(&store, |view| {
        rewrite(view, "f", b"six");
        view.unlink(ROOT, b"passing").expect("it is there");
    });
    let (from, at) = (source.clone(), point.clone());
    if mount_bind(&from, &at).is_err() {
        return skip("stalled", "only root can mount file systems");
    }
    drop(Mount(&point));
    disk.intrude_at_apply(move || mount_bind(&from, &at).expect("it could be mounted before"));
    assert_stalled(store.sync(), "f");
    let mounted = Mount(&point);
    let assert_snapshots = || {
        assert_eq!(contents(&older, "a"), b"old a");
        assert_eq!(contents(&older, "f"), b"old f");
        assert_eq!(older.resolve(b"passing").expect("it resolves"), None);
        assert_eq!(contents(&between, "a"), b"one a");
        assert_eq!(contents(&between, "f"), b"old f");
        assert_eq!(contents(&between, "passing"), b"");
    };
    assert_snapshots();
    assert_stalled(store.sync(), "f");
    // There is no whole state of the base that a snapshot could show.
    for begun in [
        store.begin(options()),
        store.begin_published(options()),
        store.begin_in_base(options()),
    ] {
        let Err(BeginError::Store(refused)) = begun else {
            panic!("it begins");
        };
        assert_stalled::<()>(Err(refused), "f");
    }
    drop(mounted);
    store.sync().expect("nothing is in the way");
    assert_snapshots();
    let now = |name: &str| fs::read_to_string(scratch.0.join(name)).ok();
    assert_eq!(now("a").as_deref(), Some("two a"));
    assert_eq!(now("f").as_deref(), Some("six f"));
    assert_eq!((now("passing"), now("z").as_deref()), (None, Some("")));
    drop((older, between));
    store.checkpoint().expect("a checkpoint works at any time");
    assert_eq!(store.check().problems, Vec::<String>::new());
}

/// Nobody can write a running program, or start a program that is open for writing.
#[test]
fn program_to_be_changed_cannot_start_between_check_and_apply() {
    let scratch = Scratch::new();
    let program = scratch.0.join("program");
    fs::copy("/bin/sh", &program).expect("there is a shell");
    // The program is changed in place, since it has several names.
    fs::hard_link(&program, scratch.0.join("same")).expect("the name is free");
    create(&scratch.0);
    let store = open(&scratch.0);
    let length = fs::metadata(&program).expect("it is there").len();
    lazily(&store, |transaction| {
        let program = node(transaction, "program");
        let written = transaction.write(program, length, b"more", false);
        written.expect("it is written");
    });
    let started = Command::new(&program).arg("-c").arg("read line").spawn();
    let refused = started
        .map(|mut child| child.kill())
        .map_err(|error| error.raw_os_error());
    assert!(matches!(refused, Err(Some(26))), "{refused:?}");
    store.sync().expect("nothing is in the way");
    assert_eq!(
        fs::metadata(&program).expect("it is there").len(),
        length + 4
    );
    let status = Command::new(&program).arg("-c").arg("true").status();
    assert!(status.expect("it starts").success());
}

/// An open handle keeps the right to write.
#[test]
fn permissions_revoked_after_the_check_do_not_stop_the_apply() {
    let scratch = Scratch::new();
    let file = scratch.0.join("file");
    fs::write(&file, "old").expect("it is written");
    fs::hard_link(&file, scratch.0.join("same")).expect("the name is free");
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let at = file.clone();
    disk.intrude_at_apply(move || {
        fs::set_permissions(at, Permissions::from_mode(0o000)).expect("it is ours");
    });
    let transaction = begin(&store);
    let written = transaction.write(node(&transaction, "file"), 0, b"new", false);
    written.expect("it is written");
    store.commit(&transaction).expect("nobody is in the way");
    let mode = fs::metadata(&file).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0);
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is ours");
    assert_eq!(fs::read(&file).expect("it is read"), b"new");
}

/// The commit would put something into a directory that an outside writer removes just before. The
/// store goes on, and no file is lost but those that the outside writer removed.
#[test]
fn directory_removed_during_apply_does_not_stall_the_store() {
    type Change = fn(&Transaction<FailingDisk>, NodeId);
    let changes: [Change; 4] = [
        |view, d| {
            let made = view.create(d, b"new", NewNode::File, 0o644, 0, caller());
            made.expect("the name is free");
        },
        |view, d| {
            let made = view.create(d, b"new", NewNode::Directory, 0o755, 0, caller());
            let below = view.create(
                made.expect("free").node,
                b"x",
                NewNode::File,
                0o644,
                0,
                caller(),
            );
            below.expect("the name is free");
        },
        |view, d| {
            let moved = view.rename(ROOT, b"moved", d, b"moved", RenameMode::NoReplace);
            moved.expect("the name is free");
        },
        |view, d| {
            let linked = view.link(node(view, "moved"), d, b"moved");
            linked.expect("the name is free");
        },
    ];
    for change in changes {
        let scratch = Scratch::new();
        let directory = scratch.0.join("d");
        fs::create_dir(&directory).expect("the name is free");
        for name in ["moved", "beside"] {
            fs::write(scratch.0.join(name), "old").expect("it is written");
        }
        create(&scratch.0);
        let disk = FailingDisk::without_flushes();
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        lazily(&store, |transaction| {
            change(transaction, node(transaction, "d"));
            let written = transaction.write(node(transaction, "beside"), 0, b"new", false);
            written.expect("it is written");
        });
        let removed = directory.clone();
        disk.intrude_at_apply(move || fs::remove_dir_all(removed).expect("it is there"));
        store.sync().expect("nothing is in the way");
        assert!(!directory.exists());
        let bytes = |name: &str| fs::read(scratch.0.join(name)).expect("it is there");
        assert_eq!(
            (bytes("beside"), bytes("moved")),
            (b"new".into(), b"old".into())
        );
        let next = begin(&store);
        let written = next.write(node(&next, "moved"), 0, b"new", false);
        written.expect("it is written");
        store.commit(&next).expect("nobody is in the way");
        assert!(store.check().problems.is_empty());
        drop((next, store));
        drop(open(&scratch.0));
        assert_eq!(bytes("moved"), b"new");
    }
}

/// A check must not probe with a call that could succeed: an outside writer may have put something
/// else there.
#[test]
fn checks_of_a_commit_never_change_the_base() {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("file"), "old").expect("it is written");
    create(&scratch.0);
    let disk = FailingDisk::new(Errno::IO, true);
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let transaction = begin(&store);
    transaction.unlink(ROOT, b"file").expect("it is there");
    disk.take_changes();
    store.commit(&transaction).expect("nobody is in the way");
    let changes = disk.take_changes();
    assert!(!changes.contains(&"remove_directory"), "{changes:?}");
}

/// overlayfs refuses to rename a directory of a lower layer. Stores on overlays are refused, unless all
/// is in the upper layer, but other file systems may refuse renames, too, because of project quotas, for example.
#[test]
fn a_lower_directory_of_an_overlay_is_refused_before_the_commit_is_logged() {
    let layers = Scratch::new();
    let layer = |name: &str| layers.0.join(name);
    for name in ["lower/d", "upper", "work", "merged"] {
        fs::create_dir_all(layer(name)).expect("the name is free");
    }
    let options = format!(
        "lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work",
        layers.0.display()
    );
    let options = std::ffi::CString::new(options).expect("a path has no zero byte");
    let merged = layer("merged");
    let mounted = mount("none", &merged, "overlay", MountFlags::empty(), &*options);
    if mounted.is_err() {
        return skip("overlay", "no overlay can be mounted here");
    }
    let mounted = Mount(&merged);
    fs::create_dir(merged.join(".atomdir")).expect("the name is free");
    let blind = FailingDisk::new(Errno::IO, true);
    create_with(&blind, &merged);
    let store = open_with(blind, &merged).expect("the store opens");
    let transaction = begin(&store);
    let renamed = transaction.rename(ROOT, b"d", ROOT, b"e", RenameMode::NoReplace);
    renamed.expect("the name is free");
    let refused = store
        .commit(&transaction)
        .expect_err("it cannot be renamed");
    assert!(refused.to_string().contains("overlay"), "{refused}");
    assert!(transaction.is_open() && store.status().poisoned.is_none());
    drop((transaction, store, mounted));
}
