//! Set-id bits and file capabilities give a file's contents the rights of others. If an
//! ordinary user writes contents after somebody gave these privileges, none may stay: that
//! is the kernel's rule. It must hold whoever gives them, and at whatever moment.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::failing::FailingDisk;
use crate::support::{Scratch, begin, create, open_as, open_with, options};
use atomdir_disk::Errno;
use atomdir_engine::{
    BeginOptions, Caller, CommitError, Durability, NodeId, Privileges, SetAttributes, Store,
    Transaction,
};
use atomdir_testing::skip;
use rustix::fs::{XattrFlags, getxattr, setxattr};

const USER: u32 = 65_534;
const ROOT: Caller = Caller { user: 0, group: 0 };
const CAPABILITY: &str = "security.capability";
/// A capability of version 2, for `cap_net_raw`.
const CAPABILITY_VALUE: [u8; 20] = [
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
/// A commit gives the first a new inode, and changes the second in place.
const FILES: [(&str, usize); 2] = [("small", 9000), ("large", (1 << 20) + 9000)];

/// A store of root's with a file that anyone may write.
struct Shared {
    file: PathBuf,
    name: &'static str,
    disk: FailingDisk,
    store: Option<Store<FailingDisk>>,
    scratch: Scratch,
}

impl Shared {
    /// Returns `None` if the test is skipped.
    fn new(test: &str, (name, length): (&'static str, usize)) -> Option<Shared> {
        if !rustix::process::geteuid().is_root() {
            skip(test, "only root can give away privileges");
            return None;
        }
        let scratch = Scratch::new();
        create(&scratch.0);
        let file = scratch.0.join(name);
        fs::write(&file, vec![b'.'; length]).expect("a fresh directory takes a file");
        fs::set_permissions(&file, Permissions::from_mode(0o777)).expect("it is ours");
        let disk = FailingDisk::new(Errno::IO, true);
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        Some(Shared {
            file,
            name,
            disk,
            store: Some(store),
            scratch,
        })
    }

    fn store(&self) -> &Store<FailingDisk> {
        self.store.as_ref().expect("it is open")
    }

    fn node(&self, transaction: &Transaction<FailingDisk>) -> NodeId {
        let found = transaction.resolve(self.name.as_bytes());
        found.expect("the view resolves").expect("it is there")
    }

    /// Begins a user's transaction and writes to the file in it.
    fn begin_and_write(&self, durability: Durability) -> Arc<Transaction<FailingDisk>> {
        let options = BeginOptions {
            owner: USER,
            durability,
            ..options()
        };
        let begun = self.store().begin(options).expect("a transaction begins");
        let written = begun.write(self.node(&begun), 5000, b"the user's", true);
        written.expect("anyone may write it");
        begun
    }

    /// Root gives the privileges in a commit.
    fn commit_privileges(&self) {
        let root = begin(self.store());
        let file = self.node(&root);
        let mode = SetAttributes {
            mode: Some(0o6777),
            ..SetAttributes::default()
        };
        root.set_attributes(file, mode, ROOT).expect("root may");
        root.set_xattr(file, CAPABILITY.as_bytes(), &CAPABILITY_VALUE, 0, false)
            .expect("root may");
        self.store().commit(&root).expect("nobody is in the way");
        assert!(has_privileges(&self.file));
    }

    fn is_written(&self) -> bool {
        is_written(&self.file)
    }

    fn assert_safe(&self, when: &str) {
        assert!(
            !self.is_written() || !has_privileges(&self.file),
            "{}, {when}",
            self.name
        );
    }

    fn recover(&mut self) {
        self.store = None;
        self.disk.fail_after(i64::MAX);
        let opened = open_with(self.disk.clone(), &self.scratch.0);
        self.store = Some(opened.expect("the store is recovered"));
    }
}

/// An outside writer gives the privileges.
fn give_privileges(file: &Path) {
    fs::set_permissions(file, Permissions::from_mode(0o6777)).expect("it is there");
    setxattr(file, CAPABILITY, &CAPABILITY_VALUE, XattrFlags::empty()).expect("it is there");
}

fn is_written(file: &Path) -> bool {
    let contents = fs::read(file).expect("root reads it");
    contents[5000..].starts_with(b"the user's")
}

fn has_privileges(file: &Path) -> bool {
    let mode = fs::metadata(file)
        .expect("it is there")
        .permissions()
        .mode();
    let capability = getxattr(file, CAPABILITY, &mut [0; 64]);
    mode & 0o6000 != 0 || capability.is_ok()
}

#[test]
fn users_commit_drops_privileges_committed_by_root() {
    let test = "users_commit_drops_privileges_committed_by_root";
    for file in FILES {
        let Some(mut shared) = Shared::new(test, file) else {
            return;
        };
        let user = shared.begin_and_write(Durability::Durable);
        shared.commit_privileges();
        // Its snapshot shows the privileges as long as it is open.
        let older = begin(shared.store());
        shared.store().commit(&user).expect("nothing conflicts");
        assert!(shared.is_written());
        shared.assert_safe("after the commit");
        let shown = older.attributes(shared.node(&older)).expect("it is shown");
        assert_eq!(shown.mode & 0o7777, 0o6777);
        drop((user, older));
        shared.recover();
        assert!(shared.is_written());
        shared.assert_safe("after recovery");
    }
}

/// In round n privileges are given right before the n-th change of a commit. Those that root gives
/// to contents already written by the user stay.
#[test]
fn users_commit_drops_privileges_set_from_outside() {
    let test = "users_commit_drops_privileges_set_from_outside";
    for (file, durability) in [
        (FILES[0], Durability::Durable),
        (FILES[1], Durability::Durable),
        (FILES[1], Durability::Lazy),
    ] {
        for changes in 0.. {
            let Some(mut shared) = Shared::new(test, file) else {
                return;
            };
            let user = shared.begin_and_write(durability);
            let was_written = Arc::new(AtomicBool::new(false));
            let (path, written) = (shared.file.clone(), was_written.clone());
            shared.disk.intrude_before(changes, move || {
                written.store(is_written(&path), Ordering::Relaxed);
                give_privileges(&path);
            });
            match shared.store().commit(&user) {
                Ok(_) | Err(CommitError::Conflict(_)) => {}
                Err(error) => panic!("{error}"),
            }
            shared.store().sync().expect("nothing is in the way");
            if shared.disk.awaits_intruder() {
                break;
            }
            if was_written.load(Ordering::Relaxed) {
                continue;
            }
            shared.assert_safe(&format!("given before change {changes}"));
            drop(user);
            shared.recover();
            shared.assert_safe(&format!("given before change {changes}, and recovered"));
        }
    }
}

/// The process is killed at each change of the commit. Privileges were committed before.
#[test]
fn recovery_drops_privileges_of_files_it_writes_for_a_user() {
    let test = "recovery_drops_privileges_of_files_it_writes_for_a_user";
    for file in FILES {
        for changes in 0.. {
            let Some(mut shared) = Shared::new(test, file) else {
                return;
            };
            let user = shared.begin_and_write(Durability::Durable);
            shared.commit_privileges();
            shared.disk.fail_after(changes);
            let committed = shared.store().commit(&user);
            if !shared.disk.has_failed() {
                committed.expect("nothing is in the way");
                break;
            }
            drop(user);
            shared.assert_safe(&format!("killed at change {changes}"));
            shared.recover();
            shared.assert_safe(&format!("killed at change {changes} and recovered"));
        }
    }
}

/// A service that is neither root nor the owner of a file cannot set its mode, so such a
/// commit would never reach the base.
#[test]
fn attributes_that_only_another_owner_may_set_are_refused_before_the_log() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let file = scratch.0.join("file");
    fs::write(&file, "old").expect("a fresh directory takes a file");
    fs::set_permissions(&file, Permissions::from_mode(0o4777)).expect("it is ours");
    let someone_else = Privileges {
        user: rustix::process::geteuid().as_raw() + 1,
        groups: Vec::new(),
        all: false,
    };
    let disk = FailingDisk::new(Errno::IO, true);
    let store = open_as(disk, &scratch.0, someone_else, None).expect("the store opens");
    let change = |act: &dyn Fn(&Transaction<FailingDisk>, NodeId)| {
        let begun = begin(&store);
        let node = begun.resolve(b"file").expect("it resolves");
        act(&begun, node.expect("it is there"));
        store.commit(&begun)
    };
    let refused = change(&|begun, node| {
        let mode = SetAttributes {
            mode: Some(0o600),
            ..SetAttributes::default()
        };
        begun
            .set_attributes(node, mode, ROOT)
            .expect("the view allows it");
    });
    let is_refused = matches!(
        refused,
        Err(CommitError::Io {
            errno: Errno::PERM,
            ..
        })
    );
    assert!(is_refused, "{refused:?}");
    // The kernel clears set-id bits for any writer, so the commit need not set the mode.
    let written = change(&|begun, node| {
        begun
            .write(node, 0, b"new", true)
            .expect("the view allows it");
        begun
            .set_xattr(node, b"user.own", b"1", 0, false)
            .expect("the view allows it");
    });
    written.expect("a writer may do this");
    assert_eq!(fs::read(&file).expect("it is there"), b"new");
}
