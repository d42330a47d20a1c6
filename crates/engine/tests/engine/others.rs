//! Another user makes it impossible to apply a commit after its second check. That must not stall
//! the store.

use std::fs::{self, Permissions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::mpsc::channel;

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Scratch, begin, create, open_as, open_with, options};
use atomdir_disk::{Errno, RenameMode};
use atomdir_engine::{
    BeginOptions, Caller, Durability, NewNode, NodeId, Privileges, SetAttributes, Store,
    Transaction,
};
use atomdir_testing::{as_user, skip};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const ROOT: NodeId = NodeId::ROOT;
/// The owner of the store.
const OWNER: u32 = 65_534;
/// The owner of a directory in it.
const OTHER: u32 = 12_345;

const OWN_CALLER: Caller = Caller {
    user: OWNER,
    group: OWNER,
};

type View = Transaction<FailingDisk>;

fn node(view: &View, path: &str) -> NodeId {
    if path == "." {
        return ROOT;
    }
    let found = view.resolve(path.as_bytes()).expect("the view resolves");
    found.expect("it is there")
}

fn rename(view: &View, from: (&str, &str), to: (&str, &str), mode: RenameMode) {
    let (from, to) = ((node(view, from.0), from.1), (node(view, to.0), to.1));
    let renamed = view.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), mode);
    renamed.expect("the view allows it");
}

/// Commits the change lazily, and another one to `beside`.
fn change_lazily(store: &Store<FailingDisk>, change: fn(&View)) {
    let lazy = BeginOptions {
        durability: Durability::Lazy,
        ..options()
    };
    let view = store.begin(lazy).expect("a transaction begins");
    change(&view);
    let written = view.write(node(&view, "beside"), 0, b"new", false);
    written.expect("it is written");
    store.commit(&view).expect("nobody is in the way");
}

/// Mounts a file system as `fusermount3` does for a user. Its server never answers.
fn mount_for_user(point: &Path) -> Result<OwnedFd, Errno> {
    let device = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mode = if point.is_dir() { 40_000 } else { 100_000 };
    let data = format!(
        "fd={},rootmode={mode},user_id={OTHER},group_id={OTHER}",
        device.as_raw_fd()
    );
    let data = std::ffi::CString::new(data).expect("it has no zero byte");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("slow", point, "fuse.slow", flags, &*data)?;
    Ok(device.into())
}

/// What a commit changes, the path on which a user then mounts a file system, and whether the base
/// has the change.
struct Mounted {
    change: fn(&View),
    point: &'static str,
    is_done: fn(&Path) -> bool,
}

const MOUNTED: [Mounted; 5] = [
    Mounted {
        change: |view| rename(view, (".", "d"), (".", "e"), RenameMode::NoReplace),
        point: "d",
        is_done: |root| root.join("e/inside").exists() && !root.join("d").exists(),
    },
    Mounted {
        change: |view| rename(view, (".", "d"), (".", "other"), RenameMode::Exchange),
        point: "d",
        is_done: |root| root.join("other/inside").exists() && root.join("d/else").exists(),
    },
    Mounted {
        change: |view| {
            let inside = view.unlink(node(view, "d"), b"inside");
            inside.expect("it is there");
            let removed = view.remove_directory(ROOT, b"d");
            removed.expect("it is empty");
        },
        point: "d",
        is_done: |root| !root.join("d").exists(),
    },
    Mounted {
        change: |view| {
            let d = node(view, "d");
            let made = view.create(d, b"new", NewNode::File, 0o644, 0, caller());
            made.expect("the name is free");
        },
        point: "d",
        is_done: |root| root.join("d/new").exists(),
    },
    // The file has several names, so it is changed in place, and its old pages are kept.
    Mounted {
        change: |view| {
            let written = view.write(node(view, "linked"), 0, b"new", false);
            written.expect("it is written");
        },
        point: "linked",
        is_done: |root| fs::read(root.join("linked")).expect("it is there") == b"new",
    },
];

#[test]
fn a_file_system_that_a_user_mounts_meanwhile_is_unmounted() {
    for (number, case) in MOUNTED.into_iter().enumerate() {
        let scratch = Scratch::new();
        for (directory, file) in [("d", "inside"), ("other", "else")] {
            fs::create_dir(scratch.0.join(directory)).expect("the name is free");
            let file = scratch.0.join(directory).join(file);
            fs::write(file, "old").expect("it is written");
        }
        for file in ["beside", "linked"] {
            fs::write(scratch.0.join(file), "old").expect("it is written");
        }
        let linked = fs::hard_link(scratch.0.join("linked"), scratch.0.join("other/link"));
        linked.expect("the name is free");
        create(&scratch.0);
        let disk = FailingDisk::without_flushes();
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        let older = begin(&store);
        change_lazily(&store, case.change);
        let point = scratch.0.join(case.point);
        match mount_for_user(&point) {
            Ok(_) => unmount(&point, UnmountFlags::DETACH).expect("it is mounted"),
            Err(errno) => {
                let why = format!("no file system can be mounted: {errno}");
                return skip("a_file_system_that_a_user_mounts_meanwhile", &why);
            }
        }
        let (sender, mounted) = channel();
        disk.intrude_at_apply(move || {
            let device = mount_for_user(&point).expect("it was possible before");
            sender.send(device).expect("the test waits for it");
        });
        let synced = store.sync();
        let device = mounted.try_recv().expect("the user was there");
        let status = store.status();
        if synced.is_err() {
            let _ = unmount(scratch.0.join(case.point), UnmountFlags::DETACH);
        }
        synced.unwrap_or_else(|error| panic!("case {number}: {error}"));
        assert_eq!(status.stalled, None);
        assert!((case.is_done)(&scratch.0), "case {number}");
        let is_old = |path: &str| {
            let mut buffer = [0; 8];
            let count = older.read(node(&older, path), 0, &mut buffer, caller());
            &buffer[..count.expect("it is read")] == b"old"
        };
        assert!(["d/inside", "other/else", "linked"].into_iter().all(is_old));
        drop(device);
    }
}

/// A store of `OWNER` with a directory `d` of `OTHER`, open to all.
fn shared_directory() -> Scratch {
    let scratch = Scratch::new();
    let path = |name: &str| scratch.0.join(name);
    for directory in ["d", "d/theirs", "d/removed", "theirs", "mine"] {
        fs::create_dir(path(directory)).expect("the name is free");
    }
    for file in [
        "d/linked",
        "d/old",
        "d/theirs/file",
        "theirs/file",
        "moved",
        "beside",
    ] {
        fs::write(path(file), file).expect("it is written");
        chown(path(file), Some(OWNER), Some(OWNER)).expect("root may");
    }
    let linked = fs::hard_link(path("d/linked"), path("d/same"));
    linked.expect("the name is free");
    for mine in [".", ".atomdir", "mine"] {
        chown(path(mine), Some(OWNER), Some(OWNER)).expect("root may");
    }
    for theirs in ["d", "d/theirs", "d/removed", "theirs"] {
        chown(path(theirs), Some(OTHER), Some(OTHER)).expect("root may");
        fs::set_permissions(path(theirs), Permissions::from_mode(0o777)).expect("root may");
    }
    scratch
}

/// The contents of all files of the tree, sorted.
fn all_contents(directory: &Path) -> Vec<String> {
    let mut contents = Vec::new();
    for entry in fs::read_dir(directory).expect("root may read it") {
        let entry = entry.expect("root may read it");
        match entry.file_type().expect("it is there").is_dir() {
            true if entry.file_name() == ".atomdir" => {}
            true => contents.extend(all_contents(&entry.path())),
            false => contents.push(fs::read_to_string(entry.path()).expect("it is a text")),
        }
    }
    contents.sort();
    contents
}

/// What a commit changes, and which directories their owner then makes inaccessible.
type Closed = (fn(&View), &'static [&'static str]);
const CLOSED: [Closed; 11] = [
    (
        |view| {
            let written = view.write(node(view, "d/linked"), 0, b"d/lined", false);
            written.expect("the view allows it");
        },
        &["d"],
    ),
    (
        |view| {
            let d = node(view, "d");
            let made = view.create(d, b"new", NewNode::File, 0o644, 0, OWN_CALLER);
            made.expect("the name is free");
        },
        &["d"],
    ),
    (
        |view| rename(view, ("d", "old"), ("mine", "old"), RenameMode::NoReplace),
        &["d"],
    ),
    (
        |view| rename(view, (".", "moved"), ("d", "moved"), RenameMode::NoReplace),
        &["d"],
    ),
    (
        |view| rename(view, (".", "moved"), ("d", "old"), RenameMode::Exchange),
        &["d"],
    ),
    (
        |view| {
            let linked = view.link(node(view, "moved"), node(view, "d"), b"link");
            linked.expect("the name is free");
        },
        &["d"],
    ),
    (
        |view| {
            let removed = view.remove_directory(node(view, "d"), b"removed");
            removed.expect("it is empty");
        },
        &["d/removed"],
    ),
    (
        |view| rename(view, (".", "theirs"), ("mine", "t"), RenameMode::NoReplace),
        &["theirs"],
    ),
    (
        |view| {
            rename(view, ("d", "theirs"), ("mine", "t"), RenameMode::NoReplace);
            rename(
                view,
                (".", "theirs"),
                ("d", "theirs"),
                RenameMode::NoReplace,
            );
        },
        &["d", "d/theirs"],
    ),
    (
        |view| {
            rename(view, ("d", "theirs"), ("mine", "t"), RenameMode::NoReplace);
            rename(view, (".", "moved"), ("d", "theirs"), RenameMode::NoReplace);
        },
        &["d/theirs"],
    ),
    (
        |view| {
            let attributes = SetAttributes {
                mode: Some(0o640),
                ..SetAttributes::default()
            };
            let old = node(view, "d/old");
            view.set_attributes(old, attributes, OWN_CALLER)
                .expect("it is ours");
            let written = view.write(old, 0, b"d/old", false);
            written.expect("the view allows it");
        },
        &["d"],
    ),
];

#[test]
fn directory_closed_by_its_owner_during_apply_does_not_stall_the_store() {
    let test = "directory_closed_by_its_owner_during_apply_does_not_stall_the_store";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root can act as two users");
    }
    let cases = CLOSED.into_iter().enumerate();
    for ((number, (change, closed)), crashes) in
        cases.flat_map(|case| [(case, false), (case, true)])
    {
        let scratch = shared_directory();
        let root = scratch.0.clone();
        let before = all_contents(&root);
        let close = |mode| {
            for directory in closed.iter().rev() {
                let mode = Permissions::from_mode(mode);
                fs::set_permissions(root.join(directory), mode).expect("root may");
            }
        };
        let (ask, asked) = channel();
        let (answer, answered) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                asked.iter().for_each(|()| {
                    close(0o700);
                    answer.send(()).expect("the other thread waits for it");
                });
            });
            as_user(OWNER, || {
                create(&root);
                let owner = Privileges {
                    user: OWNER,
                    groups: Vec::new(),
                    all: false,
                };
                let disk = FailingDisk::without_flushes();
                let open = || open_as(disk.clone(), &root, owner.clone(), None);
                let store = open().expect("the store opens");
                let older = begin(&store);
                change_lazily(&store, change);
                disk.intrude_at_apply(move || {
                    ask.send(()).expect("the other thread waits for it");
                    answered.recv().expect("the other thread answers");
                });
                let synced = store.sync();
                synced.unwrap_or_else(|error| panic!("case {number}: {error}"));
                assert_eq!(store.status().stalled, None, "case {number}");
                assert_eq!(fs::read(root.join("beside")).expect("ours"), b"newide");
                let next = begin(&store);
                let written = next.write(node(&next, "beside"), 0, b"more", false);
                written.expect("it is written");
                store.commit(&next).expect("nobody is in the way");
                drop((older, next, store));
                if crashes {
                    // Without the applied mark, recovery applies the whole log again.
                    let mark = root.join(".atomdir/applied");
                    fs::write(mark, "").expect("it is the owner's");
                }
                drop(open().expect("the store opens"));
            });
        });
        let mut now = all_contents(&root);
        let is_beside = |text: &String| text == "beside" || text == "morede";
        assert!(now.iter().any(is_beside), "case {number}: {now:?}");
        let mut kept = before.clone();
        kept.retain(|text| !is_beside(text));
        kept.dedup();
        now.retain(|text| !is_beside(text) && !text.is_empty());
        now.dedup();
        assert_eq!(now, kept, "case {number}");
    }
}

#[test]
fn file_removed_while_its_old_pages_are_kept_does_not_stall_the_store() {
    let scratch = Scratch::new();
    let names = ["linked", "same"].map(|name| scratch.0.join(name));
    for file in ["linked", "beside"] {
        fs::write(scratch.0.join(file), "old").expect("it is written");
    }
    fs::hard_link(&names[0], &names[1]).expect("the name is free");
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let older = begin(&store);
    change_lazily(&store, |view| {
        let written = view.write(node(view, "linked"), 0, b"new", false);
        written.expect("it is written");
    });
    disk.intrude_at_apply(move || {
        for name in names {
            fs::remove_file(name).expect("it is there");
        }
    });
    store.sync().expect("nothing is in the way");
    let beside = fs::read(scratch.0.join("beside")).expect("it is there");
    assert_eq!(beside, b"new");
    store.abort(&older);
}
