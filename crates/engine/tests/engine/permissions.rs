//! Transactions of an ordinary user, who may give themselves rights, use them and take them
//! back. The base must be the same as if this were done outside.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::trees::tree_of_base;
use crate::support::{Scratch, begin, create, open, open_with};
use atomdir_disk::{Errno, RenameMode};
use atomdir_engine::{NewNode, NodeId, SetAttributes, Transaction};
use rustix::process::{Gid, Uid, geteuid};

/// Changes only this thread, so no other test notices.
pub fn become_ordinary() {
    if geteuid().is_root() {
        let (user, group) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
        rustix::thread::set_thread_groups(&[]).expect("root may");
        rustix::thread::set_thread_res_gid(group, group, group).expect("root may");
        rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
    }
}

fn lookup(transaction: &Transaction<FailingDisk>, path: &str) -> NodeId {
    let found = transaction.resolve(path.as_bytes());
    found.expect("the view resolves").expect("it is there")
}

fn set_mode(transaction: &Transaction<FailingDisk>, path: &str, mode: u32) {
    let change = SetAttributes {
        mode: Some(mode),
        ..Default::default()
    };
    let node = lookup(transaction, path);
    transaction
        .set_attributes(node, change, caller())
        .expect("its owner may");
}

/// Makes read-only directories with a file in each, and a large read-only file.
fn prepare(root: &Path) {
    for (directory, file) in [("locked", "old"), ("swapped", "kept"), ("doomed", "gone")] {
        fs::create_dir(root.join(directory)).expect("it is new");
        fs::write(root.join(directory).join(file), directory).expect("it is new");
    }
    fs::write(root.join("large"), vec![b'x'; (1 << 20) + 8192]).expect("it is new");
    set_modes(root, 0o555, 0o444);
}

fn set_modes(root: &Path, directories: u32, files: u32) {
    for (name, mode) in [
        ("locked", directories),
        ("swapped", directories),
        ("renamed", directories),
        ("doomed", directories),
        ("new", directories),
        ("large", files),
    ] {
        // Objects that do not exist need no mode.
        let _ = fs::set_permissions(root.join(name), Permissions::from_mode(mode));
    }
}

fn change(view: &Transaction<FailingDisk>) {
    let root = NodeId::ROOT;
    let directory = |parent, name: &[u8], mode| {
        let made = view.create(parent, name, NewNode::Directory, mode, 0, caller());
        made.expect("its owner may").node
    };
    set_mode(view, "locked", 0o755);
    let locked = lookup(view, "locked");
    view.unlink(locked, b"old").expect("its owner may");
    directory(locked, b"inner", 0o555);
    set_mode(view, "locked", 0o100);

    let swapped = (root, b"swapped", b"renamed");
    view.rename(root, swapped.1, root, swapped.2, RenameMode::Replace)
        .expect("its owner may");
    directory(root, b"swapped", 0o755);
    directory(root, b"new", 0o555);

    set_mode(view, "doomed", 0o755);
    view.unlink(lookup(view, "doomed"), b"gone")
        .expect("its owner may");
    view.remove_directory(root, b"doomed")
        .expect("its owner may");

    set_mode(view, "large", 0o600);
    view.write(lookup(view, "large"), 5000, b"new", false)
        .expect("its owner may");
    set_mode(view, "large", 0o400);
}

#[test]
fn rights_granted_and_revoked_in_one_transaction_are_applied() {
    become_ordinary();
    let mut number = 0;
    loop {
        let scratch = Scratch::new();
        create(&scratch.0);
        prepare(&scratch.0);
        let disk = FailingDisk::new(Errno::IO, true);
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        // In some runs an older snapshot needs the old state.
        let older = (number % 2 == 0).then(|| begin(&store));
        let transaction = begin(&store);
        change(&transaction);
        disk.fail_after(number);
        let committed = store.commit(&transaction);
        let has_died = disk.has_failed();
        if !has_died {
            committed.expect("nothing is in the way");
        }
        drop((older, transaction, store));
        drop(open(&scratch.0));
        let modes = |name: &str| {
            let metadata = fs::metadata(scratch.0.join(name)).expect("it is there");
            metadata.permissions().mode() & 0o777
        };
        let is_after = scratch.0.join("renamed").exists();
        if is_after {
            assert_eq!(
                ["locked", "renamed", "swapped", "new", "large"].map(modes),
                [0o100, 0o555, 0o755, 0o555, 0o400],
                "change {number}"
            );
        } else {
            assert!(has_died, "a commit is gone");
            assert_eq!(
                ["locked", "swapped", "doomed", "large"].map(modes),
                [0o555, 0o555, 0o555, 0o444],
                "change {number}"
            );
        }
        set_modes(&scratch.0, 0o755, 0o644);
        let tree = tree_of_base(&scratch.0);
        let has = |path: &str| tree.contains_key(path.as_bytes());
        assert_eq!(has("locked/inner"), is_after, "change {number}");
        assert_eq!(has("locked/old"), !is_after, "change {number}");
        assert_eq!(has("doomed"), !is_after, "change {number}");
        assert_eq!(has("renamed/kept"), is_after, "change {number}");
        let large = fs::read(scratch.0.join("large")).expect("it is read");
        assert_eq!(&large[5000..5003] == b"new", is_after, "change {number}");
        let inner = scratch.0.join("locked/inner");
        if is_after {
            fs::set_permissions(inner, Permissions::from_mode(0o755)).expect("its owner may");
        }
        if !has_died {
            break;
        }
        number += 1;
    }
    println!("{number} deaths");
}

/// Fills the upper layer as overlayfs would for a program that made directories and files of the
/// base writable, changed them, and made them read-only again.
pub fn fill_upper_layer(upper: &Path) {
    let close = |path: &str, mode| {
        let closed = Permissions::from_mode(mode);
        fs::set_permissions(upper.join(path), closed).expect("its owner may");
    };
    for directory in ["locked", "made", "made/inner"] {
        fs::create_dir(upper.join(directory)).expect("it is new");
    }
    for file in ["locked/old", "locked/new", "made/file", "made/inner/file"] {
        fs::write(upper.join(file), "changed").expect("it is new");
    }
    let (copy, flags) = (upper.join("locked/old"), rustix::fs::XattrFlags::empty());
    rustix::fs::setxattr(&copy, "user.overlay.origin", b"", flags).expect("its owner may");
    close("locked/old", 0o444);
    close("locked/new", 0o400);
    close("locked", 0o555);
    close("made/file", 0o444);
    close("made/inner/file", 0o000);
    close("made/inner", 0o000);
    close("made", 0o555);
}

/// Each mode and the file's contents, if they exist.
pub fn landed(root: &Path) -> Vec<(&'static str, u32, String)> {
    let paths = [
        "locked",
        "locked/old",
        "locked/new",
        "made",
        "made/file",
        "made/inner",
        "made/inner/file",
    ];
    let look = |path: &'static str| {
        let metadata = fs::metadata(root.join(path)).ok()?;
        let mode = metadata.permissions().mode() & 0o777;
        let opened = if metadata.is_dir() { 0o700 } else { 0o600 };
        fs::set_permissions(root.join(path), Permissions::from_mode(opened)).ok()?;
        let text = fs::read_to_string(root.join(path)).unwrap_or_default();
        Some((path, mode, text))
    };
    paths.into_iter().filter_map(look).collect()
}

#[test]
fn upper_layer_with_unwritable_objects_is_committed() {
    become_ordinary();
    let before = [
        ("locked", 0o555, String::new()),
        ("locked/old", 0o444, "locked".to_owned()),
    ];
    let text = || "changed".to_owned();
    let after = [
        ("locked", 0o555, String::new()),
        ("locked/old", 0o444, text()),
        ("locked/new", 0o400, text()),
        ("made", 0o555, String::new()),
        ("made/file", 0o444, text()),
        ("made/inner", 0o000, String::new()),
        ("made/inner/file", 0o000, text()),
    ];
    for number in 0.. {
        let scratch = Scratch::new();
        create(&scratch.0);
        fs::create_dir(scratch.0.join("locked")).expect("it is new");
        fs::write(scratch.0.join("locked/old"), "locked").expect("it is new");
        for (path, mode, _) in before.iter().rev() {
            let closed = Permissions::from_mode(*mode);
            fs::set_permissions(scratch.0.join(path), closed).expect("its owner may");
        }
        let disk = FailingDisk::new(Errno::IO, true);
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        let transaction = begin(&store);
        transaction.become_lower().expect("there is room");
        let layers = transaction.layers().expect("it has layers");
        fill_upper_layer(&scratch.0.join(".atomdir").join(layers).join("upper"));
        transaction.take_over_upper().expect("it can be read");
        disk.fail_after(number);
        let committed = store.commit(&transaction);
        let has_died = disk.has_failed();
        if !has_died {
            committed.expect("nothing is in the way");
        }
        drop((transaction, store));
        drop(open(&scratch.0));
        let found = landed(&scratch.0);
        let is_before = has_died && found == before;
        assert!(is_before || found == after, "change {number}: {found:?}");
        if !has_died {
            break;
        }
    }
}
